package fill

import (
	"fmt"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
)

// data is all that was measured, as JSON has it.
type data struct {
	Windows   []cellData       `json:"windows"`
	Prefilled []prefilledCells `json:"prefilled,omitempty"`
	// Checkpoint is a passage into the fullest of the buckets that were filled
	// beforehand, with a checkpoint in its middle.
	Checkpoint *Figures `json:"checkpoint,omitempty"`
}

type cellData struct {
	Cell               string     `json:"cell"`
	GranularitySeconds float64    `json:"granularity_seconds"`
	Way                string     `json:"way"` // single, merged or timeseries
	History            bool       `json:"history,omitempty"`
	Repeats            []*Figures `json:"repeats"`
}

type prefilledCells struct {
	Percent int        `json:"percent"`
	Sensors int        `json:"sensors"`
	Repeats []*Figures `json:"repeats"`
	Most    []capacity `json:"most"`
}

func (f *found) data() data {
	var d data
	for _, w := range f.measured() {
		d.Windows = append(d.Windows, cellData{w.cell, w.granularity.Seconds(), w.way.name, w.history, f.windows[w.cell]})
	}
	if f.prefilled == nil {
		return d
	}
	for _, percent := range prefilledPercents {
		if came := f.prefilled.passages[percent]; len(came) > 0 {
			d.Prefilled = append(d.Prefilled, prefilledCells{percent, f.plan.prefilledSensors, came, f.prefilled.most[percent]})
		}
	}
	d.Checkpoint = f.prefilled.checkpoint
	return d
}

// measured are the windows that there are figures of.
func (f *found) measured() (all []window) {
	for _, w := range windows() {
		if len(f.windows[w.cell]) > 0 {
			all = append(all, w)
		}
	}
	return all
}

// report tells the result what came, also if it is not all.
func (f *found) report(r *bench.Result) {
	r.Data = f.data()
	r.Add(f.rows()...)
	lines := f.lines()
	for _, t := range []bench.Table{
		f.byTenth(), f.capacities(), table("Writes and requests", speedsNote, speeds[:], lines),
		table("From the first part of a window to the last", changesNote, changes[:], lines[:len(f.measured())]),
		table("What a reading takes", costsNote, costs[:], lines),
	} {
		if len(t.Rows) > 0 {
			r.Tables = append(r.Tables, t)
		}
	}
	f.plots(r)
	f.notes(r)
}

// byTenth tells p50 and p99 of every tenth.
func (f *found) byTenth() bench.Table {
	t := bench.Table{
		Title: "Time to write an update by tenth of the window, p50 / p99 (medians of the repeats)", Head: []string{"cell"},
		Notes: []string{
			"By the time of the readings, and for hourly buckets also by the clock. It is the round trip of the command, which carries updates of many buckets: store_write_seconds of the daemon.",
			"Where MongoDB falls behind the two differ: the readings of the last tenths are written when the load has ended. Rows with a verdict go by the clock.",
			"A tenth has few commands, so its p99 is rough; rows with a verdict use p50, or longer parts.",
		},
	}
	for i := range 10 {
		t.Head = append(t.Head, fmt.Sprintf("%d–%d %%", 10*i, 10*i+10))
	}
	for _, w := range f.measured() {
		write, clock, response := []string{w.cell}, []string{"  by the clock"}, []string{"  its requests"}
		for i := range 10 {
			tell := func(of func(*Tenth) Latency) string {
				p50 := f.samples(w.cell, func(f *Figures) float64 { return of(&f.Tenths[i]).P50 })
				p99 := f.samples(w.cell, func(f *Figures) float64 { return of(&f.Tenths[i]).P99 })
				if p50.Max() == 0 {
					return "–"
				}
				return bench.Seconds.Format(p50.Median()) + " / " + bench.Seconds.Format(p99.Median())
			}
			write = append(write, tell(func(t *Tenth) Latency { return t.Write }))
			clock = append(clock, tell(func(t *Tenth) Latency { return t.Clock }))
			response = append(response, tell(func(t *Tenth) Latency { return t.Response }))
		}
		t.Rows = append(t.Rows, write)
		if w.granularity == time.Hour {
			t.Rows = append(t.Rows, clock)
		}
		t.Rows = append(t.Rows, response)
	}
	return t
}

// A column is a figure of a table.
type column struct {
	head   string
	unit   bench.Unit
	figure func(*Figures) float64
}

// speeds are how fast a passage was.
var speeds = [...]column{
	{"readings/s", bench.PerSecond, func(f *Figures) float64 { return f.AchievedRate }},
	{"readings per update", bench.Count, func(f *Figures) float64 { return f.ReadingsPerUpdate }},
	{"p50", bench.Seconds, func(f *Figures) float64 { return f.Write.P50 }},
	{"p99", bench.Seconds, func(f *Figures) float64 { return f.Write.P99 }},
	{"mean", bench.Seconds, func(f *Figures) float64 { return f.Write.Mean }},
	{"request p50", bench.Seconds, func(f *Figures) float64 { return f.Response.P50 }},
	{"request p99", bench.Seconds, func(f *Figures) float64 { return f.Response.P99 }},
	{"stored after", bench.Seconds, func(f *Figures) float64 { return f.BehindSeconds }},
	{"left", bench.Count, func(f *Figures) float64 { return f.Left }},
}

// changes are what changed in a window.
var changes = [...]column{
	{"first tenth, mean", bench.Seconds, func(f *Figures) float64 { return f.Tenths[0].Write.Mean }},
	{"last tenth, mean", bench.Seconds, func(f *Figures) float64 { return f.Tenths[9].Write.Mean }},
	{"first third, p99", bench.Seconds, func(f *Figures) float64 { return f.First.P99 }},
	{"last third, p99", bench.Seconds, func(f *Figures) float64 { return f.Last.P99 }},
	{"first sixth, stored", bench.PerSecond, func(f *Figures) float64 { return f.FirstRate }},
	{"last sixth, stored", bench.PerSecond, func(f *Figures) float64 { return f.LastRate }},
	{"first third, mongod CPU", bench.Seconds, func(f *Figures) float64 { return f.MongodCPUFirst }},
	{"last third, mongod CPU", bench.Seconds, func(f *Figures) float64 { return f.MongodCPULast }},
}

// costs are what a reading took.
var costs = [...]column{
	{"mongod CPU", bench.Seconds, func(f *Figures) float64 { return f.MongodCPU }},
	{"brim CPU", bench.Seconds, func(f *Figures) float64 { return f.BrimCPU }},
	{"log", bench.Bytes, func(f *Figures) float64 { return f.JournalBytes }},
	{"files", bench.Bytes, func(f *Figures) float64 { return f.FileBytes }},
	{"history inserts", bench.Count, func(f *Figures) float64 { return f.HistoryInserts }},
	{"history store", bench.Bytes, func(f *Figures) float64 { return f.HistoryBytes }},
}

const (
	speedsNote  = "p50, p99 and mean are of writes into MongoDB; stored after: from the last answer until all was in MongoDB, or the wait ended; left: readings that were not by then."
	changesNote = "Means and p99 are of writes, by the time of the readings; what is stored a second goes by the clock, and begins a flush interval late; mongod CPU is per reading and by the clock, where a passage is one window long."
	costsNote   = "log: WiredTiger's log, its journal, by the server's counter; files: what was written to its other files until all was stored, checkpoints included; " +
		"history store: growth of its file, where old versions go."
)

// A line is a row of a table: repeats of one thing.
type line struct {
	name string
	all  []*Figures
}

// table tells columns of lines. What is 0 in all repeats is not known of a
// figure that is never 0.
func table(title, note string, of []column, lines []line) bench.Table {
	t := bench.Table{Title: title, Head: []string{"cell"}, Notes: []string{note}}
	for _, c := range of {
		t.Head = append(t.Head, c.head)
	}
	for _, l := range lines {
		row := []string{l.name}
		for _, c := range of {
			v := samplesOf(l.all, c.figure)
			if c.unit == bench.Seconds && v.Max() == 0 {
				row = append(row, "–")
				continue
			}
			row = append(row, spread(c.unit, v))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// spread is that of a unit, without a range that is none.
func spread(u bench.Unit, v bench.Samples) string {
	if v.Min() == v.Max() {
		return u.Format(v.Max())
	}
	return u.Spread(v)
}

// lines are all cells, those of buckets filled beforehand last.
func (f *found) lines() (lines []line) {
	for _, w := range f.measured() {
		lines = append(lines, line{w.cell, f.windows[w.cell]})
	}
	if f.prefilled == nil {
		return lines
	}
	for _, percent := range prefilledPercents {
		if came := f.prefilled.passages[percent]; len(came) > 0 {
			lines = append(lines, line{prefilledCell(percent), came})
		}
	}
	if c := f.prefilled.checkpoint; c != nil {
		lines = append(lines, line{prefilledCell(f.prefilled.percent) + ", with a checkpoint", []*Figures{c}})
	}
	return lines
}

// capacities tells what MongoDB stores at most.
func (f *found) capacities() bench.Table {
	t := bench.Table{
		Title: "The most that MongoDB stores into hourly buckets, one reading per update", Head: []string{"buckets filled to", "readings/s", "a processor of mongod's"},
		Notes: []string{fmt.Sprintf("%d lanes write through the daemon's store without the daemon, up to %d updates a command. By what mongod's processors did a second, other work on the machine does not count.", writers, perCommand)},
	}
	if f.prefilled == nil {
		return t
	}
	for _, percent := range prefilledPercents {
		if len(f.prefilled.most[percent]) > 0 {
			t.Rows = append(t.Rows, []string{
				fmt.Sprintf("%d %%", percent), spread(bench.PerSecond, f.prefilled.capacities(percent, rateOf)), spread(bench.PerSecond, f.prefilled.capacities(percent, perProcessorOf)),
			})
		}
	}
	return t
}
