package granularity

import (
	"fmt"
	"math"
	"strconv"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/fit"
)

// tables tells all cells as text.
func (t *trial) tables(r *bench.Result) {
	for _, topology := range t.topologies() {
		if curves := t.of(topology); len(curves) > 0 {
			r.Tables = append(r.Tables,
				matrix("Time of an append, "+topology, curves, timeOf, bench.Seconds),
				matrix("mongod's CPU for an append among many in a command, "+topology, curves, cpuOf, bench.Seconds),
				matrix("Bytes of the journal for an append, "+topology, curves, journalOf, bench.Bytes))
		}
	}
	if len(t.Curves) > 0 {
		r.Tables = append(r.Tables, t.lines())
	}
	if len(t.Indexes) > 0 {
		r.Tables = append(r.Tables, variants(fmt.Sprintf("Further indexes: appends of a reading to buckets of %d", variantResidents), t.Indexes))
	}
	if len(t.History) > 0 {
		r.Tables = append(r.Tables, t.windows())
	}
	if len(t.Sizes) > 0 {
		r.Tables = append(r.Tables, t.days(), t.rewrites())
	}
	if len(t.Workload) > 0 {
		r.Tables = append(r.Tables, t.burdens())
	}
}

// matrix has a row for each size of buckets, and a column for each curve.
func matrix(title string, curves []*curve, of func(*point) bench.Samples, unit bench.Unit) bench.Table {
	tab := bench.Table{Title: title, Head: []string{"readings in the bucket", "document"}}
	for _, c := range curves {
		tab.Head = append(tab.Head, several(c.PerUpdate, "reading")+" an append")
	}
	for i, p := range curves[0].Points {
		row := []string{strconv.Itoa(p.Residents), bench.Bytes.Format(float64(p.DocumentBytes))}
		for _, c := range curves {
			if i < len(c.Points) {
				row = append(row, unit.Spread(of(c.Points[i])))
			} else {
				row = append(row, "–") // it was interrupted
			}
		}
		tab.Rows = append(tab.Rows, row)
	}
	return tab
}

// of returns the curves of a topology.
func (f *found) of(topology string) (curves []*curve) {
	for _, c := range f.Curves {
		if c.Topology == topology && len(c.Points) > 0 {
			curves = append(curves, c)
		}
	}
	return curves
}

// lines are the fits.
func (t *trial) lines() bench.Table {
	tab := bench.Table{
		Title: "An append costs a + b · readings in the bucket",
		Head:  []string{"", "readings an append", "time: a", "b", "R²", "mongod's CPU: a", "b", "R²"},
		Notes: []string{"Lines of least squares through all repeats, each point weighed by its own cost; ± is the standard error."},
	}
	for _, c := range t.Curves {
		row := append([]string{c.Topology, strconv.Itoa(c.PerUpdate)}, lineWords(c.Time)...)
		tab.Rows = append(tab.Rows, append(row, lineWords(c.CPU)...))
	}
	return tab
}

// lineWords are a, b and R² of a line in seconds.
func lineWords(l *fit.Line) []string {
	if l == nil {
		return []string{"–", "–", "–"}
	}
	us := l.Over(1e-6)
	return []string{
		fmt.Sprintf("%.0f ± %.0f µs", us.Base, us.BaseError), fmt.Sprintf("%.2f ± %.2f µs", us.Each, us.EachError), fmt.Sprintf("%.3f", us.R2),
	}
}

func variants(title string, all []*variant) bench.Table {
	tab := bench.Table{Title: title, Head: []string{"", "mongod's CPU an append", "time an append, many in a command"}}
	for _, v := range all {
		tab.Rows = append(tab.Rows, []string{v.Name, bench.Seconds.Spread(v.CPU), bench.Seconds.Spread(v.Time)})
	}
	return tab
}

func (t *trial) windows() bench.Table {
	tab := variants(fmt.Sprintf("History window: appends of a reading to buckets of %d, and the checkpoint after them", historyResidents), t.History)
	tab.Head = append(tab.Head, "old versions kept, an append", "written to the data files, an append")
	for i, v := range t.History {
		tab.Rows[i] = append(tab.Rows[i], fixed(v.Versions.Median()), bench.Bytes.Spread(v.Written))
	}
	tab.Notes = []string{"The checkpoint is in mongod's CPU, not in the time."}
	return tab
}

// fixed tells a number that is not large.
func fixed(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return fmt.Sprintf("%.2f", v)
}

func (t *trial) days() bench.Table {
	tab := bench.Table{
		Title: fmt.Sprintf("The workload by granularity: %d sensors, a reading each %s", publishedSensors, publishedInterval),
		Head:  []string{"granularity", "readings in a bucket", "document", "documents a day", "bytes a day, uncompressed", "on disk, snappy", "index on disk"},
		Notes: []string{fmt.Sprintf("Counted after a run of %d sensors over %d hours through the store, and scaled. What so small a run has on disk is only about right.", t.sensors, t.hours)},
	}
	for _, s := range t.Sizes {
		tab.Rows = append(tab.Rows, []string{
			s.Granularity, strconv.Itoa(s.Readings), bench.Bytes.Format(s.DocumentBytes), bench.Count.Format(s.DocumentsADay),
			bench.Bytes.Format(s.BytesADay), known(s.DiskBytesADay), known(s.IndexBytesADay),
		})
	}
	return tab
}

// known tells bytes, unless there are none.
func known(bytes float64) string {
	if bytes == 0 {
		return "–"
	}
	return bench.Bytes.Format(bytes)
}

func (t *trial) rewrites() bench.Table {
	tab := bench.Table{
		Title: "Arithmetic: bytes of document versions that appends make in a day, about (appends + 1)/2 times the final size of each bucket",
		Head:  []string{"granularity"},
		Notes: []string{"This is copying in memory, and on a standalone it goes through the journal, compressed; what reaches the data files is what a checkpoint finds changed."},
	}
	for _, k := range merges {
		tab.Head = append(tab.Head, several(k, "reading")+" an append")
	}
	for _, s := range t.Sizes {
		row := []string{s.Granularity}
		for _, k := range merges {
			word := "–"
			for _, w := range t.Rewritten {
				if w.Granularity == s.Granularity && w.PerUpdate == k {
					word = bench.Bytes.Format(w.Day)
				}
			}
			row = append(row, word)
		}
		tab.Rows = append(tab.Rows, row)
	}
	return tab
}

func (t *trial) burdens() bench.Table {
	tab := bench.Table{
		Title: fmt.Sprintf("mongod's CPU for the workload: %d readings/s, %s", int(publishedSensors/publishedInterval.Seconds()), t.Topology),
		Head:  []string{"granularity", "readings an append", "appends/s", "readings in a bucket, on average", "cores"},
		Notes: []string{"By the lines above: appends a second times the CPU of one at the average fill."},
	}
	for _, b := range t.Workload {
		tab.Rows = append(tab.Rows, []string{
			b.Granularity, strconv.Itoa(b.PerUpdate), bench.PerSecond.Format(b.Updates), bench.Count.Format(b.Held), fixed(b.Cores),
		})
	}
	return tab
}
