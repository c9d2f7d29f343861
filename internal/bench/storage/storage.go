// Package storage is the experiment on what shows that the storage is at its
// limit: it climbs the load with the doctor's signals in view, compacts a
// collection while it is written to, and times the server's own status.
package storage

import (
	"context"
	"errors"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
)

// Cells of the experiment.
const (
	cellRamp    = "ramp"
	cellCompact = "compact"
	cellStatus  = "status"
)

// Experiment returns it.
func Experiment() *bench.Experiment {
	return &bench.Experiment{
		Name:     "storage",
		Question: "Which signal shows first that the storage is at its limit, and what does compaction give back?",
		Full:     6 * time.Minute,
		Quick:    80 * time.Second,
		Restarts: "the ramp with a small cache",
		Cells: []bench.Cell{
			{Name: cellRamp, What: "which signal of the doctor's crosses its threshold first while the load rises"},
			{Name: cellCompact, What: "what compaction gives back, and what it does to writes meanwhile"},
			{Name: cellStatus, What: "what serverStatus costs"},
		},
		Run: func(ctx context.Context, lab *bench.Lab, r *bench.Result) error {
			size := full()
			if lab.Quick {
				size = quick(r)
			}
			return size.run(ctx, lab, r)
		},
	}
}

// A size is how much is measured.
type size struct {
	ramp    rampConfig
	ramps   int // with each cache; 0: as many as there are repeats
	compact compactConfig
	calls   int // of serverStatus, in a repeat
}

func full() size {
	return size{
		ramp: rampConfig{idle: 6 * time.Second, step: 3500 * time.Millisecond, steps: 16, sensors: 8000, readings: 400},
		compact: compactConfig{
			documents: 12_000, readings: 360, window: 4 * time.Second, patterns: []string{scattered, contiguous},
		},
		calls: 200,
	}
}

func quick(r *bench.Result) size {
	s := full()
	s.ramps = 1
	s.ramp.idle, s.ramp.step = 4*time.Second, 1500*time.Millisecond
	s.compact.documents, s.compact.window = 4000, time.Second
	r.Reduce("one ramp with each cache, with steps of %s", s.ramp.step)
	r.Reduce("%d buckets to compact, and %s of writing before and after", s.compact.documents, s.compact.window)
	return s
}

// data is all that was measured.
type data struct {
	Ramps       []*ramp      `json:"ramps,omitempty"`
	Compactions compactions  `json:"compactions,omitempty"`
	Status      costs        `json:"server_status,omitempty"`
	Crossings   [][]crossing `json:"crossings,omitempty"` // of each ramp
}

func (s size) run(ctx context.Context, lab *bench.Lab, r *bench.Result) error {
	d := &data{}
	r.Data = d
	lab.Steps(s.steps(lab))
	for _, cell := range []struct {
		name string
		run  func(context.Context, *bench.Lab, *bench.Result, *data) error
	}{{cellRamp, s.runRamp}, {cellCompact, s.runCompact}, {cellStatus, s.runStatus}} {
		if !lab.Has(cell.name) {
			continue
		}
		if err := cell.run(ctx, lab, r, d); err != nil {
			return err
		}
	}
	return nil
}

// steps is how many there will be.
func (s size) steps(lab *bench.Lab) (n int) {
	if lab.Has(cellRamp) && lab.Own() {
		n += 2 * s.rampRepeats(lab)
	}
	if lab.Has(cellCompact) {
		n += lab.Repeats * len(s.compact.patterns)
	}
	if lab.Has(cellStatus) {
		n += 2
	}
	return n
}

func (s size) rampRepeats(lab *bench.Lab) int {
	if s.ramps > 0 {
		return min(s.ramps, lab.Repeats)
	}
	return lab.Repeats
}

// smallCache in GB: the smallest that mongod takes.
const smallCache = 0.25

func (s size) runRamp(ctx context.Context, lab *bench.Lab, r *bench.Result, d *data) error {
	caches := []float64{0, smallCache}
	if !lab.Own() {
		if !lab.Asked(cellRamp) {
			r.LeaveOut("which signal crosses its threshold first while the load rises", "it would take a user's MongoDB to its limit; ask for it with --cells "+cellRamp)
			return nil
		}
		r.LeaveOut("the ramp with a small cache", bench.OwnOnly)
		caches = caches[:1]
	}
	byCache := make([]ramps, len(caches))
	var failed error
	for range s.rampRepeats(lab) {
		for i, gb := range caches {
			c := s.ramp
			c.cacheGB = gb
			lab.Step("ramp: raise the load until p99 is ten times idle, %s cache", cacheName(gb))
			var one *ramp
			if one, failed = climb(ctx, lab, c); failed != nil {
				break
			}
			byCache[i] = append(byCache[i], one)
			d.Ramps, d.Crossings = append(d.Ramps, one), append(d.Crossings, one.crossings())
		}
		if failed != nil {
			break
		}
	}
	s.tellRamps(lab, r, byCache)
	return failed
}

func cacheName(gb float64) string {
	if gb == 0 {
		return "ordinary"
	}
	return "small"
}

// tellRamps tells the result what the ramps showed.
func (s size) tellRamps(lab *bench.Lab, r *bench.Result, byCache []ramps) {
	r.Pin("the ramp: %d sensors with hourly buckets of %d readings at the beginning; writes of %d updates with %d readings each, from %d lanes of the production store, paced from %d writes/s on, %gx from step to step",
		s.ramp.sensors, s.ramp.readings, updatesPerWrite, readingsPerUpdate, rampLanes, idleRate, rateFactor)
	for i, rs := range byCache {
		if len(rs) == 0 {
			continue
		}
		rs.rows(r, i == 0)
		r.Tables = append(r.Tables, rs.tables()...)
		rs.notes(r, lab.Own())
		rs.plots(r)
	}
}

func (s size) runCompact(ctx context.Context, lab *bench.Lab, r *bench.Result, d *data) (err error) {
	m, err := lab.Start(ctx, bench.Setting{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	d.Compactions, err = compactAll(ctx, lab, m, s.compact)
	switch {
	case errors.Is(err, errRefused):
		r.LeaveOut("what compaction gives back", err.Error())
		return nil
	case err != nil:
		return err
	}
	all, patterns := d.Compactions, s.compact.patterns
	r.Pin("compaction: %d hourly buckets of %d readings, each in a collection of its own", s.compact.documents, s.compact.readings)
	if !lab.Own() {
		r.LeaveOut("how much more disk compaction takes meanwhile", "files of a MongoDB that is not the experiment's own cannot be looked at")
	}
	all.rows(r, patterns)
	r.Tables = append(r.Tables, all.table(patterns))
	all.notes(r, patterns)
	for _, pattern := range patterns {
		all.plot(r, pattern)
	}
	return nil
}

func (s size) runStatus(ctx context.Context, lab *bench.Lab, r *bench.Result, d *data) (err error) {
	m, err := lab.Start(ctx, bench.Setting{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if d.Status, err = statusAll(ctx, lab, m, s.calls); err != nil {
		return err
	}
	r.Add(d.Status.row())
	r.Tables = append(r.Tables, d.Status.table(s.calls))
	d.Status.notes(r)
	return nil
}
