// Package fill is the experiment about write latency through the hour: the whole path of a
// reading, from `brim load` through `brim serve` into MongoDB, as buckets fill.
//
//	cells ─▶ phase, each: load on a daemon, both sampled twice a second ─▶ outcome ─▶ columns of tables
package fill

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/internal/store"
)

const (
	rate     = 2000            // readings a second, as published
	interval = 5 * time.Second // of a sensor, as published
	// perRequest leaves the CPUs to MongoDB: with one reading per request, daemon and load
	// would use as much CPU.
	perRequest = 10
	// drain covers readings that gather, but not a backlog.
	drain = 6 * time.Second

	hourSingle, fiveSingle = "1h-single", "5m-single"

	afterHour = "the same after 55 min" // a claim
)

// A way is how readings reach their bucket.
type way struct {
	name  string // part of the cell's name
	words string
	serve []string // flags
}

var ways = [...]way{
	// Like a program that does not merge: every reading is written as it arrives.
	{"single", "one reading per update", []string{"--max-readings-per-update", "1", "--merge-readings", "1", "--flush-interval", "10ms"}},
	{"merged", "merged per bucket", nil},
	{"columns", "merged, in columns", []string{"--bucket-format", string(store.Columns)}},
	{"timeseries", "time-series collection", []string{"--storage", "timeseries"}},
}

// A window is a cell that passes through windows of one granularity.
type window struct {
	cell        string
	granularity time.Duration
	way         way
	slow        string
	verdict     bool // claims depend on it, so it is repeated
}

// windows returns all of them, in the order of a round.
func windows() []window {
	var all []window
	for _, g := range []time.Duration{time.Hour, 5 * time.Minute, 15 * time.Minute, time.Minute} {
		for _, y := range ways {
			w := window{cell: config.FormatDuration(g) + "-" + y.name, granularity: g, way: y}
			w.verdict = w.cell == hourSingle || w.cell == fiveSingle
			if (g != time.Hour || y.name == "columns") && !w.verdict {
				w.slow = "hourly buckets and 5-minute buckets with one reading per update are what was published"
			}
			all = append(all, w)
		}
	}
	return all
}

func (w window) what() string {
	return fmt.Sprintf("%s buckets, %s", config.FormatDuration(w.granularity), w.way.words)
}

// A column is one figure in a table.
type column struct {
	table, name string
	unit        bench.Unit
	of          func(*outcome) float64
}

// columns returns what is measured for each cell.
func columns() []column {
	type histogram = func(*outcome) scrape.Histogram
	p50 := func(table, name string, of histogram) column {
		return column{table, name, bench.Seconds, func(o *outcome) float64 { return of(o).Quantile(0.5) }}
	}
	p99 := func(table, name string, of histogram) column {
		return column{table, name, bench.Seconds, func(o *outcome) float64 { return of(o).Quantile(0.99) }}
	}
	all := func(o *outcome) scrape.Histogram { return o.writes(0, 10) }
	loaded := func(o *outcome) scrape.Histogram { return o.during(0, 1) }
	first := func(o *outcome) scrape.Histogram { return o.writes(0, 3) }
	last := func(o *outcome) scrape.Histogram { return o.writes(7, 10) }
	return []column{
		{"speed", "readings/s", bench.PerSecond, func(o *outcome) float64 { return o.load.AchievedRate }},
		{"speed", "readings per update", bench.Count, func(o *outcome) float64 { return o.updates().Mean() }},
		p50("speed", "p50", all), p99("speed", "p99", all),
		{"speed", "mean", bench.Seconds, func(o *outcome) float64 { return all(o).Mean() }},
		{"speed", "request p50", bench.Seconds, func(o *outcome) float64 { return o.load.Response.P50 }},
		{"speed", "request p99", bench.Seconds, func(o *outcome) float64 { return o.load.Response.P99 }},
		{"speed", "stored after", bench.Seconds, (*outcome).behind},
		{"speed", "left", bench.Count, (*outcome).left},
		p50("load", "p50", loaded), p99("load", "p99", loaded),
		p50("load", "p50 at the start", func(o *outcome) scrape.Histogram { return o.window(0, 0.1) }),
		p50("load", "p50 after 40 min", func(o *outcome) scrape.Histogram { return o.window(0.6, 0.8) }),
		p50("load", "p50 after 55 min", func(o *outcome) scrape.Histogram { return o.window(0.8, 1) }),
		p50("change", "first third, p50", first), p50("change", "last third, p50", last),
		p99("change", "first third, p99", first), p99("change", "last third, p99", last),
		{"change", "first sixth, stored", bench.PerSecond, func(o *outcome) float64 { return o.rate(0, 1./6) }},
		{"change", "last sixth, stored", bench.PerSecond, func(o *outcome) float64 { return o.rate(5./6, 1) }},
		{"cost", "mongod CPU", bench.Seconds, func(o *outcome) float64 {
			return (bench.CPU(o.last().counters) - bench.CPU(o.first().counters)) / o.readings()
		}},
		{"cost", "brim CPU", bench.Seconds, func(o *outcome) float64 { return (o.last().brim - o.first().brim).Seconds() / o.readings() }},
		{"cost", "journal", bench.Bytes, func(o *outcome) float64 { return o.each("journal_written_bytes_total") }},
		{"cost", "other files", bench.Bytes, func(o *outcome) float64 { return o.each("block_written_bytes_total") }},
		{"cost", "history inserts", bench.Count, func(o *outcome) float64 { return o.each("history_store_inserts_total") }},
		{"cost", "history store", bench.Bytes, func(o *outcome) float64 { return o.each("history_store_bytes") }},
		{"cost", "checkpoints", bench.Count, func(o *outcome) float64 { return o.counted("checkpoints_total") }},
	}
}

// tenths are measured for each tenth of a window, with a table each.
var tenths = [...]struct {
	name, title string
	of          func(o *outcome, tenth int) float64
}{
	{"tenth-p50", "Time to write an update by tenth of the window, p50", func(o *outcome, i int) float64 { return o.writes(i, i+1).Quantile(0.5) }},
	{"tenth-p99", "Time to write an update by tenth of the window, p99", func(o *outcome, i int) float64 { return o.writes(i, i+1).Quantile(0.99) }},
}

// add adds a phase to the tables; whole: it covers whole windows.
func add(lab *bench.Lab, cell string, o *outcome, whole bool) {
	for _, c := range columns() {
		if c.table != "change" || whole {
			lab.Add(c.table, cell, c.name, c.of(o))
		}
	}
	for _, t := range tenths {
		for i := range 10 {
			if v := t.of(o, i); whole && v > 0 {
				lab.Add(t.name, fmt.Sprintf("%.2f", 0.05+float64(i)/10), cell, v)
			}
		}
	}
}

// Experiment returns the fill experiment.
func Experiment() *bench.Experiment {
	e := &bench.Experiment{
		Name:     "fill",
		Question: "How does write latency change through the hour, and what do merging and time-series collections change?",
		Full:     17 * time.Minute,
		Quick:    165 * time.Second,
		Tables:   tables(),
		Claims:   claims(),
		Answers: []bench.Answer{
			{Claim: afterHour, AtMost: 1.25, Says: "Buckets of an hour are fine here, because a write of one reading after 55 minutes takes only %s as long as at the start (p50)."},
			{Claim: afterHour, Says: "Merge readings, or use buckets of 5m, because a write of one reading into an hourly bucket takes %s as long after 55 minutes as at the start (p50)."},
		},
		Run: func(ctx context.Context, lab *bench.Lab) { run(ctx, lab, newPlan(lab.Quick, lab.Repeats)) },
	}
	for _, w := range windows() {
		e.Cells = append(e.Cells, bench.Cell{Name: w.cell, What: w.what(), Slow: w.slow})
	}
	for _, percent := range prefilledPercents {
		c := bench.Cell{Name: prefilledCell(percent), What: fmt.Sprintf("writes into hourly buckets of many sensors, filled to %d %% beforehand", percent)}
		if percent == 50 {
			c.Slow = "the extremes show the most"
		}
		e.Cells = append(e.Cells, c)
	}
	e.Cells = append(e.Cells,
		bench.Cell{Name: fullColumns, What: "the same into buckets of columns, filled to 95 %", Slow: "the extremes of documents show the most"},
		bench.Cell{Name: fullSealed, What: "late readings into sealed buckets", Slow: "the extremes of documents show the most"})
	return e
}

func tables() []bench.Table {
	all := []bench.Table{
		{
			Name: "speed", Title: "Writes and requests", Variant: "cell",
			Note:  "p50, p99 and mean are of writes into MongoDB; stored after: from the last answer until all was in MongoDB, or the wait ended; left: readings that were not by then.",
			Plots: []bench.Plot{{Title: "Time to write an update", Caption: "Over whole phases.", Bars: true, LogY: true, Measures: []string{"p50", "p99"}}},
		},
		{
			Name: "load", Title: "Writes while readings came, by the clock", Variant: "cell",
			Note: "If MongoDB falls behind, it has the machine to itself when the load has ended; those writes are left out. The start is the first six minutes of the hour, after 40 min those from 36 to 48, after 55 min those from 48 on.",
		},
		{
			Name: "change", Title: "From the first part of a window to the last", Variant: "cell",
			Note: "p50 and p99 are of writes, by the time of the readings; readings stored per second are by the wall clock, and start only when readings have gathered.",
		},
		{
			Name: "cost", Title: "What a reading takes", Variant: "cell",
			Note:  "Journal: WiredTiger's log, by the server's counter; other files: what was written until all was stored, including checkpoints, which rewrite every bucket that got a reading; history store: growth of its file, where old versions go.",
			Plots: []bench.Plot{{Title: "Bytes that mongod writes for a reading", Caption: "A checkpoint that falls into a phase of a few seconds weighs heavily.", Bars: true, LogY: true, Measures: []string{"journal", "other files"}}},
		},
		{
			Name: "capacity", Title: "The most that MongoDB stores into hourly buckets, one reading per update", Variant: "buckets filled to",
			Measures: bench.In(bench.PerSecond, "readings/s", "per CPU of mongod"),
			Note:     "Lanes write through the daemon's store without the daemon. Well below this rate a fuller bucket costs CPU, and little time; near it writes queue.",
		},
	}
	for _, t := range tenths {
		all = append(all, bench.Table{
			Name: t.name, Title: t.title, Variant: "elapsed part", Unit: bench.Seconds,
			Plots: []bench.Plot{{Title: t.title, Caption: "A tenth has few commands, so its figures are rough.", LogY: true}},
		})
	}
	for i := range all {
		for _, c := range columns() {
			if c.table == all[i].Name {
				all[i].Measures = append(all[i].Measures, bench.Measure{Name: c.name, Unit: c.unit})
			}
		}
	}
	return all
}

func claims() []bench.Claim {
	const (
		grows = "An update changes the document in memory and is logged alone, so a full bucket costs more copying but no more disk at once; only what queues takes tens of milliseconds."
		costs = "What an update of a full bucket costs the CPUs bounds what can be stored; the guard, the command and the journal cost the same whatever the bucket holds."
	)
	start := bench.At("load", hourSingle, "p50 at the start")
	return []bench.Claim{
		{
			Says: "hourly buckets, one reading per update: p50 of a write after 40 min compared with the start", Published: 45. / 2, PublishedAs: "2 → 45 ms", Unit: bench.Seconds, Rule: bench.PairedFactor,
			From: start, Of: bench.At("load", hourSingle, "p50 after 40 min"), Because: grows,
		},
		{
			Says: afterHour, Published: 80. / 2, PublishedAs: "2 → 80 ms", Unit: bench.Seconds, Rule: bench.PairedFactor,
			From: start, Of: bench.At("load", hourSingle, "p50 after 55 min"), Because: grows,
		},
		// No figure: beyond MongoDB's capacity writes queue, and how much longer they take
		// depends on how long it is measured.
		{
			Says:        "many sensors, one reading per update: a write into hourly buckets that are 95 % full takes longer than into those at 5 % (p50)",
			PublishedAs: "2 → 80 ms (start, after 55 min)", Unit: bench.Seconds, Rule: bench.PairedFactor,
			From: bench.At("load", prefilledCell(5), "p50"), Of: bench.At("load", prefilledCell(95), "p50"), Because: grows,
		},
		{
			Says: "the same: the highest rate that one CPU core of MongoDB stores", Published: 800. / 2000, PublishedAs: "2,000 → 800/s (start, after 55 min)", Unit: bench.PerSecond, Rule: bench.PairedFactor,
			From: bench.At("capacity", prefilledCell(5), "per CPU of mongod"), Of: bench.At("capacity", prefilledCell(95), "per CPU of mongod"), Because: costs,
		},
		{
			Says: "5-minute buckets, one reading per update: p50 of a write in the last third of the window as in the first", PublishedAs: "2 ms, flat", Unit: bench.Seconds, Rule: bench.Same, Alike: 1.25,
			From: bench.At("change", fiveSingle, "first third, p50"), Of: bench.At("change", fiveSingle, "last third, p50"),
			Because: "Repeats and times this small differ by the machine's own noise.",
		},
		{
			Says: "5-minute buckets, one reading per update: p99 of a write compared with p50", Published: 8. / 2, PublishedAs: "2 ms, 8 ms", Unit: bench.Seconds, Rule: bench.PairedFactor, Alike: 2.5,
			From: bench.At("load", fiveSingle, "p50"), Of: bench.At("load", fiveSingle, "p99"),
			Because: "How far the slowest writes are from the median depends on the machine's CPUs and disk, and on what else uses them.",
		},
	}
}

// A plan is the scale of a run.
type plan struct {
	hour    time.Duration // wall-clock time for an hour of event time
	short   time.Duration // wall-clock time for cells below an hour: half an hour of event time
	repeats int           // of cells that claims depend on

	prefilledSensors int
	slot             time.Duration // wall-clock time per phase into prefilled buckets
}

func newPlan(quick bool, repeats int) plan {
	if quick {
		return plan{hour: 15 * time.Second, short: 7500 * time.Millisecond, repeats: repeats, prefilledSensors: 2000, slot: 3 * time.Second}
	}
	return plan{hour: time.Minute, short: 30 * time.Second, repeats: repeats, prefilledSensors: 10_000, slot: 5 * time.Second}
}

func (p plan) speedup() float64 { return time.Hour.Seconds() / p.hour.Seconds() }

// sensors returns how many the rate needs at this speed-up: 167 at 60.
func (p plan) sensors() int {
	return int(math.Ceil(rate * interval.Seconds() / p.speedup()))
}

// phase returns the phase of a window.
func (p plan) phase(w window) phase {
	phase := phase{Granularity: w.granularity, Sensors: p.sensors(), Speedup: p.speedup(), Duration: p.hour, Drain: drain}
	if w.granularity < time.Hour {
		phase.Duration = p.short
	}
	return phase
}

// flushMax is the daemon's --flush-max.
const flushMax = 5 * time.Minute

// serve returns a window's daemon flags. --flush-max is divided by the speed-up, so that an
// update carries as many readings as without it.
func (p plan) serve(w window) []string {
	most := time.Duration(float64(min(flushMax, w.granularity)) / p.speedup())
	return append([]string{"--flush-max", most.String()}, w.way.serve...)
}

// inRound reports whether window n is in a round. Windows that claims depend on are in every
// round, so that a slow minute hits all of them; the others take turns.
func (p plan) inRound(round, n int, w window) bool { return w.verdict || n%p.repeats == round }

func run(ctx context.Context, lab *bench.Lab, p plan) {
	p.tell(lab)
	chosen := slices.DeleteFunc(windows(), func(w window) bool { return !lab.Has(w.cell) })
	documents, columns := prefilledGroups()
	without := func(g group) bool { return !lab.Has(g.cell) }
	lab.On(ctx, bench.Setting{}, func(m *bench.MongoDB) {
		for i := range p.repeats {
			for n, w := range chosen {
				if p.inRound(i, n, w) {
					lab.Step("%s, round %d of %d", w.what(), i+1, p.repeats)
					add(lab, w.cell, measure(ctx, lab, m, p.phase(w), p.serve(w)...), true)
				}
			}
		}
		runPrefilled(ctx, lab, m, p, slices.DeleteFunc(documents, without))
		runPrefilled(ctx, lab, m, p, slices.DeleteFunc(columns, without))
	})
}

// tell records what is held constant and what is scaled down.
func (p plan) tell(lab *bench.Lab) {
	lab.Pin("%d readings/s of %d sensors; event time runs %.0f times as fast as the clock, so an hourly bucket gets its 720 readings in %s, and a phase through smaller buckets takes %s",
		int(math.Round(float64(p.sensors())*p.speedup()/interval.Seconds())), p.sensors(), p.speedup(), config.FormatDuration(p.hour), config.FormatDuration(p.short))
	lab.Pin("requests of %d readings of different sensors over HTTP, four fields, acknowledged when journaled; the daemon has its default settings except for granularity, storage and --flush-max, which is divided by the speed of event time; one reading per update is written at once (%s)", perRequest, strings.Join(ways[0].serve, " "))
	if lab.Own() {
		lab.Pin("the server keeps no old versions (minSnapshotHistoryWindowInSeconds 0, as in the daemon's own mongod)")
	}
	if lab.Quick {
		lab.Reduce("an hour of event time passes in %s, not in 1m", config.FormatDuration(p.hour))
		lab.Reduce("buckets filled beforehand are those of %d sensors that report more often, not of 10000", p.prefilledSensors)
	}
}

// prefilledPercents are the fill levels before the writing.
var prefilledPercents = [...]int{5, 50, 95}

func prefilledCell(percent int) string { return fmt.Sprintf("prefilled-%d", percent) }

// Cells with buckets that are nearly full.
const fullColumns, fullSealed = "prefilled-columns", "prefilled-sealed"

// prefilledGroups returns the groups of each format.
func prefilledGroups() (documents, columns []group) {
	for _, percent := range prefilledPercents {
		documents = append(documents, group{cell: prefilledCell(percent), percent: percent, format: store.Documents})
	}
	full := prefilledPercents[len(prefilledPercents)-1]
	return documents, []group{{cell: fullColumns, percent: full, format: store.Columns}, {cell: fullSealed, percent: full, format: store.Columns, sealed: true}}
}

// A group is sensors with buckets filled to the same percentage.
type group struct {
	cell    string
	percent int
	format  store.Format
	sealed  bool // after filling
	prefix  string
	begin   time.Time    // start of the window
	rows    int          // per sensor
	fleet   *shape.Fleet // writes to the daemon's collection
}

// readingsOf returns how many readings per sensor a phase into prefilled buckets brings.
func (p plan) readingsOf(duration time.Duration) int {
	return int(math.Ceil(duration.Seconds() * rate / float64(p.prefilledSensors)))
}

// prefilledRepeats is the number of repeats that fit into the fullest buckets.
func (p plan) prefilledRepeats() int {
	hour := int(time.Hour / interval)
	room := hour - hour*prefilledPercents[len(prefilledPercents)-1]/100
	return max(1, min(p.repeats, room/(p.readingsOf(p.slot)+p.burst())))
}

// runPrefilled fills all groups, which share a format, and then writes to them in turn.
func runPrefilled(ctx context.Context, lab *bench.Lab, m *bench.MongoDB, p plan, groups []group) {
	if len(groups) == 0 {
		return
	}
	for i := range groups {
		groups[i].fill(ctx, lab, m, p)
	}
	d := lab.Daemon(ctx, m, append([]string{"--granularity", "1h", "--bucket-format", string(groups[0].format)}, ways[0].serve...)...)
	for i := range p.prefilledRepeats() {
		for g := range groups {
			c := &groups[g]
			lab.Step("hourly buckets of %s, round %d of %d", c.cell, i+1, p.prefilledRepeats())
			add(lab, c.cell, c.next(p).run(ctx, lab, m, d), false)
			rate, perCPU := c.capacity(ctx, m, p.burst())
			lab.Row("capacity", c.cell, rate, perCPU)
		}
	}
	bench.Check(d.Close())
	m.Drop(ctx)
}

// fill creates a group's buckets in the daemon's collection.
func (c *group) fill(ctx context.Context, lab *bench.Lab, m *bench.MongoDB, p plan) {
	c.prefix, c.begin = c.cell+"-", time.Now().Add(-2*time.Hour).Truncate(time.Hour)
	c.rows = c.percent * int(time.Hour/interval) / 100
	lab.Step("fill hourly buckets of %d sensors to %d %%, for %s", p.prefilledSensors, c.percent, c.cell)
	sensors := bench.Must(load.NewSensors(load.SensorsConfig{Count: p.prefilledSensors, Seed: max(lab.Seed, 1), Prefix: c.prefix}))
	coll := shape.Open(ctx, m, shape.Config{
		Name: "readings", Shape: shape.Shape{Kind: shape.Buckets, Granularity: time.Hour, Format: c.format}, Compressor: store.Snappy,
		Readings: shape.Readings{Source: sensors, Sensors: p.prefilledSensors, Begin: c.begin, Interval: interval},
	})
	c.fleet = coll.Fleet(lanes, perCommand, nil)
	c.fleet.Fill(ctx, c.rows, time.Time{})
	if c.sealed {
		coll.Seal(ctx)
	}
}

// next returns a phase that continues where the group's buckets end.
func (c *group) next(p plan) phase {
	phase := phase{
		Granularity: time.Hour, Sensors: p.prefilledSensors, Prefix: c.prefix,
		Speedup: rate * interval.Seconds() / float64(p.prefilledSensors), Duration: p.slot,
		Start: c.begin.Add(time.Duration(c.rows) * interval),
	}
	c.rows += p.readingsOf(phase.Duration)
	return phase
}

const (
	lanes      = 4   // as many as the daemon has
	perCommand = 250 // updates, each to a different bucket
	leastBurst = 4000
)

// burst is how many readings per sensor a capacity measurement writes.
func (p plan) burst() int { return max(1, (leastBurst+p.prefilledSensors-1)/p.prefilledSensors) }

// capacity writes readings of all sensors, one per update, as fast as MongoDB stores them. It
// returns the rate per second, and per CPU second of mongod, which excludes other work on the
// machine. The lanes bypass the daemon, which is idle meanwhile.
func (c *group) capacity(ctx context.Context, m *bench.MongoDB, rows int) (rate, perCPU float64) {
	m.Settle(ctx)
	readings := 0
	spent := m.Measure(ctx, func(ctx context.Context) {
		for _, w := range c.fleet.Workers {
			for i := range w.Next {
				w.Next[i] = uint64(c.rows) //nolint:gosec // counts from 0
			}
		}
		readings, _ = c.fleet.Run(ctx, func(w *shape.Worker, written int) bool { return written < rows*len(w.Sensors) })
	})
	c.rows += rows
	return float64(readings) / spent.Seconds, float64(readings) / spent.CPU
}
