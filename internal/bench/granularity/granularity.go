// Package granularity measures what an append costs as its bucket fills, and
// what follows from that for the length of a bucket's window:
//
//	stock   equal buckets, made by the store and copied, that appends are spread over
//	curve   an append's time and mongod's CPU by the readings that the bucket holds,
//	        with the line through them, cost = a + b · readings held
//	variant the same at one size, with further indexes or another history window
//	size    documents and bytes of the published workload, counted in a small run
package granularity

import (
	"context"
	"errors"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
)

// The cells.
const (
	appendCell     = "append"
	standaloneCell = "standalone"
	indexesCell    = "indexes"
	historyCell    = "history"
	sizesCell      = "sizes"
)

// Experiment returns it.
func Experiment() *bench.Experiment {
	return &bench.Experiment{
		Name:     "granularity",
		Question: "What does an append cost as its bucket fills, and which granularity follows from that?",
		Full:     6*time.Minute + 30*time.Second,
		Quick:    50 * time.Second,
		Restarts: "the standalone and the history windows need mongods of the experiment's own",
		Cells: []bench.Cell{
			{Name: appendCell, What: "an append by the readings that its bucket holds, on a replica set"},
			{Name: indexesCell, What: "an append with further secondary indexes"},
			{Name: historyCell, What: "an append with a history window of 300 s and of 0 s"},
			{Name: sizesCell, What: "documents and bytes a day, by granularity"},
			{Name: standaloneCell, What: "an append by the readings that its bucket holds, on a standalone"},
		},
		Run: run,
	}
}

// What was found, in a form of its own.
type found struct {
	Topology  string     `json:"topology"` // of all but the curves that name another
	Curves    []*curve   `json:"curves,omitempty"`
	Indexes   []*variant `json:"indexes,omitempty"`
	History   []*variant `json:"history,omitempty"`
	Sizes     []*size    `json:"sizes,omitempty"`
	Rewritten []rewrite  `json:"rewritten,omitempty"`
	Workload  []burden   `json:"workload,omitempty"`
}

// A trial is a run of the experiment.
type trial struct {
	lab *bench.Lab
	numbers
	found
}

func run(ctx context.Context, lab *bench.Lab, r *bench.Result) error {
	t := &trial{lab: lab, numbers: full()}
	if lab.Quick {
		t.numbers = quick()
	}
	return t.run(ctx, r)
}

func (t *trial) run(ctx context.Context, r *bench.Result) error {
	t.pin(r)
	for _, c := range Experiment().Cells {
		if t.lab.Has(c.Name) && !t.possible(c.Name) {
			r.LeaveOut(c.What, bench.OwnOnly)
		}
	}
	t.lab.Steps(t.steps())
	err := t.onReplicaSet(ctx)
	if err == nil {
		err = t.onStandalone(ctx)
	}
	t.conclude()
	t.report(r) // also of what there is when it was interrupted
	return err
}

// onReplicaSet runs the cells that are measured in a replica set of one, or in
// the user's MongoDB, whatever that is.
func (t *trial) onReplicaSet(ctx context.Context) error {
	return t.on(ctx, bench.Setting{},
		cell{appendCell, func(ctx context.Context, m *bench.MongoDB) error { return t.curves(ctx, m, t.appends) }},
		cell{indexesCell, t.indexes},
		cell{historyCell, t.history},
		cell{sizesCell, t.sizes},
	)
}

func (t *trial) onStandalone(ctx context.Context) error {
	return t.on(ctx, bench.Setting{Standalone: true},
		cell{standaloneCell, func(ctx context.Context, m *bench.MongoDB) error { return t.curves(ctx, m, t.alone) }},
	)
}

// possible reports whether a cell can be measured in the MongoDB at hand.
func (t *trial) possible(cell string) bool {
	return t.lab.Own() || cell != standaloneCell && cell != historyCell
}

// A cell is measured on a MongoDB that others may be measured on, too.
type cell struct {
	name    string
	measure func(ctx context.Context, m *bench.MongoDB) error
}

// on starts a MongoDB for those of the cells that were chosen.
func (t *trial) on(ctx context.Context, setting bench.Setting, cells ...cell) (err error) {
	var m *bench.MongoDB
	defer func() {
		if m != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	for _, c := range cells {
		if !t.lab.Has(c.name) || !t.possible(c.name) {
			continue
		}
		if m == nil {
			if m, err = t.lab.Start(ctx, setting); err != nil {
				return err
			}
		}
		if err := c.measure(ctx, m); err != nil {
			return err
		}
	}
	return nil
}
