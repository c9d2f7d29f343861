// Package fill is the experiment about write latency through the hour: the
// whole way of a reading, from `brim load` through `brim serve` into MongoDB,
// while buckets fill.
//
//	cells ─▶ Measure, each ─▶ Figures ─▶ rows, tables, plots, notes
//	              └ Passage: load on a daemon, and a watch that looks at both twice a second
package fill

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/config"
)

// Experiment returns it.
func Experiment() *bench.Experiment {
	e := &bench.Experiment{
		Name:     "fill",
		Question: "How does write latency change through the hour, and what do merging and time-series collections change?",
		Full:     17 * time.Minute,
		Quick:    165 * time.Second,
		Restarts: "the history window of 300 s, which is a setting of the server",
		Run:      run,
	}
	for _, w := range windows() {
		e.Cells = append(e.Cells, bench.Cell{Name: w.cell, What: w.what(), Slow: w.slow})
	}
	for _, percent := range prefilledPercents {
		c := bench.Cell{Name: prefilledCell(percent), What: fmt.Sprintf("writes into hourly buckets of many sensors, filled to %d %% beforehand", percent)}
		if percent == 50 {
			c.Slow = "the ends tell most"
		}
		e.Cells = append(e.Cells, c)
	}
	return e
}

// A way is how readings reach their bucket.
type way struct {
	name  string // in a cell's name
	words string
	serve []string // flags
}

var ways = [...]way{
	// As a program that knows no merging: a reading is written when it comes.
	{"single", "one reading per update", []string{"--max-readings-per-update", "1", "--flush-interval", "10ms"}},
	{"merged", "merged per bucket", nil},
	{"timeseries", "time-series collection", []string{"--storage", "timeseries"}},
}

// A window is a cell that goes through windows of a granularity.
type window struct {
	cell        string
	granularity time.Duration
	way         way
	slow        string
	// verdict: it is repeated, for rows with a verdict hang on it.
	verdict bool
	// history: the server keeps old versions for 300 s, MongoDB's own default.
	history bool
}

// windows are all of them, in the order of a round.
func windows() []window {
	var all []window
	for _, g := range []struct {
		name string
		is   time.Duration
	}{{"1h", time.Hour}, {"5m", 5 * time.Minute}, {"15m", 15 * time.Minute}, {"1m", time.Minute}} {
		for _, y := range ways {
			w := window{cell: g.name + "-" + y.name, granularity: g.is, way: y}
			w.verdict = y.name == "single" && (g.is == time.Hour || g.is == 5*time.Minute)
			if g.is != time.Hour && !w.verdict {
				w.slow = "hourly buckets and 5-minute buckets with one reading per update are what was published"
			}
			all = append(all, w)
		}
	}
	return append(all, window{
		cell: historyCell, granularity: time.Hour, way: ways[0], history: true, slow: "no verdict hangs on it",
	})
}

const historyCell = "1h-history"

func (w window) what() string {
	what := fmt.Sprintf("%s buckets, %s", config.FormatDuration(w.granularity), w.way.words)
	if w.history {
		what += ", and the server keeps old versions for 300 s"
	}
	return what
}

// A plan says how large everything is.
type plan struct {
	hour    time.Duration // by the clock, that an hour of event time takes
	short   time.Duration // that cells of less than an hour take; half an hour of event time
	repeats int           // of cells with a verdict

	prefilledSensors int
	slot             time.Duration // of writes into buckets that were filled beforehand
}

const (
	rate     = 2000            // readings a second, as published
	interval = 5 * time.Second // of a sensor, as published
	// perRequest leaves the processors to MongoDB: a request for each reading would
	// have daemon and load take as much.
	perRequest = 10
)

func newPlan(lab *bench.Lab) plan {
	if lab.Quick {
		return plan{hour: 15 * time.Second, short: 7500 * time.Millisecond, repeats: lab.Repeats, prefilledSensors: 2000, slot: 3 * time.Second}
	}
	return plan{hour: time.Minute, short: 30 * time.Second, repeats: lab.Repeats, prefilledSensors: 10_000, slot: 5 * time.Second}
}

func (p plan) speedup() float64 { return time.Hour.Seconds() / p.hour.Seconds() }

// sensors are as many as the rate needs at that speed-up: 167 at 60.
func (p plan) sensors() int {
	return int(math.Ceil(rate * interval.Seconds() / p.speedup()))
}

// drain is long enough for what gathers, and short enough for what is behind.
const drain = 6 * time.Second

// passage is that of a window.
func (p plan) passage(w window) Passage {
	passage := Passage{Granularity: w.granularity, Sensors: p.sensors(), Interval: interval, Speedup: p.speedup(), Duration: p.hour, Batch: perRequest, Drain: drain}
	if w.granularity < time.Hour {
		passage.Duration = p.short
	}
	return passage
}

// rounds deals the cells out so that a slow minute hits all that is compared:
// what has a verdict is in every round, the rest in turn in one.
func (p plan) rounds(all []window) [][]window {
	rounds := make([][]window, p.repeats)
	next := 0
	for _, w := range all {
		if w.verdict {
			for i := range rounds {
				rounds[i] = append(rounds[i], w)
			}
			continue
		}
		rounds[next%p.repeats] = append(rounds[next%p.repeats], w)
		next++
	}
	return rounds
}

// found is all that was measured.
type found struct {
	plan      plan
	windows   map[string][]*Figures // by cell, repeats
	prefilled *prefilled            // nil: not measured
	remote    bool                  // MongoDB is the user's, and may have processors of its own
}

func run(ctx context.Context, lab *bench.Lab, r *bench.Result) error {
	p := newPlan(lab)
	p.tell(lab, r)
	return runPlan(ctx, lab, r, p)
}

// choose returns the windows that are to be measured.
func choose(lab *bench.Lab, r *bench.Result) (chosen []window) {
	for _, w := range windows() {
		switch {
		case !lab.Has(w.cell):
		case w.history && !lab.Own():
			r.LeaveOut(w.what(), bench.OwnOnly)
		default:
			chosen = append(chosen, w)
		}
	}
	return chosen
}

func runPlan(ctx context.Context, lab *bench.Lab, r *bench.Result, p plan) (err error) {
	f := &found{plan: p, windows: make(map[string][]*Figures), remote: !lab.Own()}
	rounds := p.rounds(choose(lab, r))
	percents := slices.DeleteFunc(slices.Clone(prefilledPercents[:]), func(percent int) bool { return !lab.Has(prefilledCell(percent)) })
	steps := prefilledSteps(lab, p, len(percents))
	for _, round := range rounds {
		steps += len(round)
	}
	lab.Steps(steps)
	m, err := lab.Start(ctx, bench.Setting{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	defer func() { f.report(r) }()
	for i, round := range rounds {
		for _, w := range round {
			lab.Step("%s, round %d of %d", w.what(), i+1, len(rounds))
			came, err := w.measure(ctx, lab, m, p)
			if err != nil {
				return fmt.Errorf("%s: %w", w.cell, err)
			}
			f.windows[w.cell] = append(f.windows[w.cell], came)
		}
	}
	if len(percents) > 0 {
		if f.prefilled, err = runPrefilled(ctx, lab, m, p, percents); err != nil {
			return fmt.Errorf("buckets filled beforehand: %w", err)
		}
	}
	return nil
}

// historyWindow is the setting that says for how long old versions are kept.
const historyWindow = "minSnapshotHistoryWindowInSeconds"

// measure runs a cell once.
func (w window) measure(ctx context.Context, lab *bench.Lab, m *bench.MongoDB, p plan) (came *Figures, err error) {
	if !w.history {
		return measure(ctx, lab, m, p.passage(w), w.way.serve...)
	}
	err = withHistory(ctx, m, func() (err error) {
		came, err = measure(ctx, lab, m, p.passage(w), w.way.serve...)
		return err
	})
	return came, err
}

// withHistory does something while the server keeps old versions for as long as
// MongoDB's default says.
func withHistory(ctx context.Context, m *bench.MongoDB, do func() error) error {
	if err := m.Set(ctx, map[string]any{historyWindow: 300}); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return m.Set(ctx, map[string]any{historyWindow: 0})
}

// tell says what is pinned and what is smaller.
func (p plan) tell(lab *bench.Lab, r *bench.Result) {
	r.Pin("%d readings/s of %d sensors; event time runs %.0f times as fast as the clock, so an hourly bucket gets its 720 readings in %s, and a passage through smaller buckets takes %s",
		int(math.Round(float64(p.sensors())*p.speedup()/interval.Seconds())), p.sensors(), p.speedup(), config.FormatDuration(p.hour), config.FormatDuration(p.short))
	r.Pin("requests of %d readings of different sensors over HTTP, four fields, acknowledged when journaled; the daemon's settings are its defaults but for granularity and storage, and where one reading per update is written it is written at once (%s)", perRequest, strings.Join(ways[0].serve, " "))
	r.Pin("by the clock the start of the hour is its first six minutes, after 40 minutes those from 36 to 48, after 55 minutes those from 48 on: a single minute has too few writes")
	if lab.Own() {
		r.Pin("the server keeps no old versions (%s 0, as in the daemon's own mongod) but where %s says so", historyWindow, historyCell)
	}
	if !lab.Quick {
		return
	}
	full := newPlan(&bench.Lab{Repeats: lab.Repeats})
	r.Reduce("an hour of event time passes in %s, not in %s", config.FormatDuration(p.hour), config.FormatDuration(full.hour))
	r.Reduce("buckets filled beforehand are those of %d sensors that report %d times as often, not of %d", p.prefilledSensors, full.prefilledSensors/p.prefilledSensors, full.prefilledSensors)
}
