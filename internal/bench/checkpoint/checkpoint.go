// Package checkpoint is the experiment about WiredTiger's checkpoints and its
// journal: what an interval costs and buys, and whether it was obeyed.
//
//	settings ─▶ mongods side by side, their checkpoints counted
//	interval ─▶ one mongod, started again with each interval, under a steady load ─▶ periods from checkpoint to checkpoint
//	recovery ─▶ killed late after a checkpoint, and timed until it takes writes
//	journal  ─▶ one write after the other, journaled and not, at each commit interval
package checkpoint

import (
	"context"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
)

// Cells.
const (
	cellSettings = "settings"
	cellInterval = "interval"
	cell60       = "interval-60"
	cell300      = "interval-300"
	cellRecovery = "recovery"
	cellJournal  = "journal"
)

// Experiment returns it.
func Experiment() *bench.Experiment {
	return &bench.Experiment{
		Name:     "checkpoint",
		Question: "What does a checkpoint interval cost and buy, and what does waiting for the journal?",
		Full:     400 * time.Second,
		Quick:    75 * time.Second,
		Restarts: "checkpoint intervals, recovery, commit intervals",
		Cells: []bench.Cell{
			{Name: cellSettings, What: "which settings the checkpoint interval obeys"},
			{Name: cellInterval, What: "dirty data, duration, write latency and bytes written by checkpoint interval"},
			{Name: cell60, What: "dirty data, duration, write latency and bytes written at an interval of 60 s", Slow: "it takes seven minutes"},
			{Name: cell300, What: "dirty data, duration, write latency and bytes written at an interval of 300 s", Slow: "it takes half an hour"},
			{Name: cellRecovery, What: "the time from kill -9 to the first write"},
			{Name: cellJournal, What: "the latency of journaled writes by commit interval"},
		},
		Run: run,
	}
}

// Measured is all that was measured.
type Measured struct {
	Settings []Obeyed `json:"settings,omitempty"`
	Appends  []*Cost  `json:"appends,omitempty"`
	Inserts  []*Cost  `json:"inserts,omitempty"`
	// Laws are fitted to what was written with each interval.
	AppendsLaw Law        `json:"appends_law"`
	InsertsLaw Law        `json:"inserts_law"`
	Recovery   *Recovery  `json:"recovery,omitempty"`
	Journal    []*Journal `json:"journal,omitempty"`
}

func run(ctx context.Context, lab *bench.Lab, r *bench.Result) error {
	p := planOf(lab)
	m := &Measured{}
	r.Data = m
	p.tell(lab, r)
	lab.Steps(p.steps(lab))
	err := measure(ctx, lab, p, m)
	m.AppendsLaw, m.InsertsLaw = LawOf(m.Appends), LawOf(m.Inserts)
	rows(m, r)
	tables(m, r)
	plots(m, r)
	notes(m, r)
	return err
}

// measure goes from part to part; what it has when it fails stays in m.
func measure(ctx context.Context, lab *bench.Lab, p *plan, m *Measured) (err error) {
	if lab.Has(cellSettings) && lab.Own() {
		if m.Settings, err = settings(ctx, lab, p.settingsFor); err != nil {
			return err
		}
	}
	if len(p.intervals) > 0 && lab.Own() {
		if m.Appends, err = compare(ctx, lab, p.appends, p.intervals); err != nil {
			return err
		}
		if m.Inserts, err = compare(ctx, lab, p.inserts, p.ends()); err != nil {
			return err
		}
	}
	if lab.Has(cellRecovery) && lab.Own() {
		if m.Recovery, err = recovery(ctx, lab, p); err != nil {
			return err
		}
	}
	if lab.Has(cellJournal) {
		m.Journal, err = journals(ctx, lab, p)
	}
	return err
}
