package timeseries

import (
	"fmt"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/chart"
)

// report tells what was measured so far.
func (t *trial) report() {
	t.result.Data = t.data
	t.claims()
	t.tables()
	t.plots()
	t.notes()
}

func (t *trial) tables() {
	d, r := t.data, t.result
	if d.Shapes[documents].Load != nil {
		r.Tables = append(r.Tables, d.loadTable())
	}
	if d.Shapes[documents].Finds != nil || d.Shapes[documents].Means.All != nil {
		r.Tables = append(r.Tables, d.readTable(t.scale))
	}
	if d.Shapes[documents].Sorts != nil {
		r.Tables = append(r.Tables, d.sortTable())
	}
	if d.lateMeasured() {
		r.Tables = append(r.Tables, d.lateTable())
	}
	if d.compressorsMeasured() {
		r.Tables = append(r.Tables, d.compressorTable())
	}
}

func (d *Data) loadTable() bench.Table {
	out := bench.Table{
		Title: "Load and size",
		Head:  []string{"shape", "load", "readings/s", "documents", "BSON", "data on disk", "indexes on disk", "both, a reading"},
		Notes: []string{
			fmt.Sprintf("%d readings; on disk: the files after a checkpoint, without what is free in them.", d.Shapes[documents].Size.Readings),
			"Documents of a time series are its buckets.",
		},
	}
	for i := range d.Shapes {
		s := &d.Shapes[i]
		n := float64(s.Size.Readings)
		out.Rows = append(out.Rows, []string{
			s.Shape, bench.Seconds.Spread(s.Load), bench.PerSecond.Format(n / s.Load.Median()), bench.Count.Format(float64(s.Size.Documents)),
			bench.Bytes.Format(float64(s.Size.Logical)), bench.Bytes.Format(s.Data.Median()), bench.Bytes.Format(s.Index.Median()),
			bench.Bytes.Format(s.Total.Median() / n),
		})
	}
	return out
}

func (d *Data) readTable(s scale) bench.Table {
	out := bench.Table{
		Title: "Reads: time of one",
		Head:  []string{"shape", "point find", "mean over 6 h"},
		Notes: []string{
			fmt.Sprintf("Of each repeat, %d finds and %d means, one after another, the shapes by turns; the same in every shape. The means of all shapes agree.", s.finds, s.means),
			"Brim's shapes are read as a daemon reads them; their finds decode the bucket in the client.",
			"By stats: a bucket that lies in the window gives its sum and count, those at its ends their readings.",
		},
	}
	each := func(s bench.Samples, n int) string {
		return bench.Seconds.Spread(s.Each(func(v float64) float64 { return v / float64(n) }))
	}
	for i := range d.Shapes {
		of := &d.Shapes[i]
		name := of.Shape
		if i == buckets {
			name += ", $unwind"
		}
		out.Rows = append(out.Rows, []string{name, each(of.Finds, s.finds), each(of.Means.All, s.means)})
		if i == buckets {
			out.Rows = append(out.Rows, []string{of.Shape + ", by stats", "", each(of.StatsMeans.All, s.means)})
		}
	}
	return out
}

func (d *Data) sortTable() bench.Table {
	out := bench.Table{
		Title: "Everything sorted by time, without an index",
		Head:  []string{"shape", "allowDiskUse false", "allowDiskUse true"},
		Notes: []string{fmt.Sprintf(
			"A sort had %s of memory: the server's 100 MiB, made smaller as the readings are fewer than the published 10,000,000. Since 6.0 a server spills to disk unless told otherwise (allowDiskUseByDefault).",
			bench.Bytes.Format(float64(d.SortLimit)))},
	}
	for i := range d.Shapes {
		row := []string{d.Shapes[i].Shape}
		for _, s := range d.Shapes[i].Sorts {
			row = append(row, s.String())
		}
		out.Rows = append(out.Rows, row)
	}
	return out
}

// String tells how the sort went.
func (s SortData) String() string {
	if s.Failed {
		return "failed for memory"
	}
	return bench.Seconds.Format(s.Seconds)
}

func (d *Data) lateMeasured() bool { return len(d.Late) > 0 && d.Late[len(d.Late)-1].Size.Readings > 0 }

func (d *Data) lateTable() bench.Table {
	out := bench.Table{
		Title: "Late readings: 12 to 36 hours behind the others",
		Head:  []string{"shape", "late", "buckets", "of those without any late", "readings a bucket", "data on disk, a reading"},
		Notes: []string{fmt.Sprintf("%d readings, in the order of their arrival.", d.Late[0].Size.Readings)},
	}
	for i := range d.Late {
		l := &d.Late[i]
		out.Rows = append(out.Rows, []string{
			l.Shape, bench.Share.Format(l.Share), bench.Count.Format(float64(l.Size.Documents)), bench.Times.Format(d.lateGrowth(i)),
			fmt.Sprintf("%.1f", float64(l.Size.Readings)/float64(l.Size.Documents)), bench.Bytes.Format(l.Size.PerReading(l.Size.Data())),
		})
	}
	return out
}

// lateGrowth is the number of buckets by that of the same shape without late
// readings.
func (d *Data) lateGrowth(i int) float64 {
	first := i / len(lateShares()) * len(lateShares())
	return float64(d.Late[i].Size.Documents) / float64(d.Late[first].Size.Documents)
}

func (d *Data) compressorTable() bench.Table {
	out := bench.Table{
		Title: "Where a saving comes from: the shape, or its default compressor",
		Head:  []string{"shape", "compressor", "data on disk", "indexes on disk", "both, of a document per reading's default"},
		Notes: []string{"* the server's default for this kind of collection."},
	}
	base := d.compressed(documents, pinned)
	for i := range d.Compressors {
		c := &d.Compressors[i]
		name := string(c.Compressor)
		if c.Compressor == defaultOf(c.Shape) {
			name += " *"
		}
		out.Rows = append(out.Rows, []string{
			c.Shape, name, bench.Bytes.Format(float64(c.Size.Data())), bench.Bytes.Format(float64(c.Size.Index())),
			bench.Times.Format(total(c.Size) / total(base)),
		})
	}
	return out
}

func total(s shape.Size) float64 { return float64(s.Data() + s.Index()) }

func (t *trial) plots() {
	d, r := &t.data, t.result
	var labels []string
	var data, index, means []float64
	for i := range d.Shapes {
		s := &d.Shapes[i]
		labels = append(labels, shapes()[i].Label())
		n := float64(s.Size.Readings)
		data, index = append(data, s.Data.Median()/n), append(index, s.Index.Median()/n)
		means = append(means, s.Means.All.Median()/float64(t.scale.means))
	}
	if d.Shapes[documents].Data != nil {
		r.Plot(chart.Bars{
			Title: "Bytes on disk for each reading", Labels: labels, Y: chart.Axis{Unit: chart.Bytes}, Width: plotWidth, Height: plotHeight,
			Series: []chart.Series{{Name: "data", Y: data, Tone: chart.A}, {Name: "indexes", Y: index, Tone: chart.B}},
		}, "All with the same compressor: what is left is the shape's.")
	}
	if d.Shapes[documents].Means.All != nil {
		labels = append(labels, shapes()[buckets].Label()+", stats")
		means = append(means, d.Shapes[buckets].StatsMeans.All.Median()/float64(t.scale.means))
		r.Plot(chart.Bars{
			Title: "Mean over 6 hours", Labels: labels, Y: chart.Axis{Unit: chart.Seconds}, Width: plotWidth, Height: plotHeight,
			Series: []chart.Series{{Name: "one query", Y: means, Tone: chart.A}},
		}, "Lower is better. 360 readings are in each window.")
	}
	if d.lateMeasured() {
		r.Plot(d.latePlot(), "A server before 7.0 does not open a bucket of a time series again that it has closed, so that a late reading begins a new one, and the next in time another.")
	}
}

const (
	plotWidth  = 760
	plotHeight = 260
)

func (d *Data) latePlot() bench.Drawing {
	n := len(lateShares())
	var series []chart.LineSeries
	for first := 0; first < len(d.Late); first += n {
		line := chart.LineSeries{Name: d.Late[first].Shape, Tone: chart.Tone(first / n)}
		for i := range n {
			line.X = append(line.X, d.Late[first+i].Share)
			line.Y = append(line.Y, d.lateGrowth(first+i))
		}
		series = append(series, line)
	}
	return chart.Lines{
		Title: "Buckets, by those without late readings", X: chart.Axis{Label: "late readings", Unit: chart.Ratio},
		Y: chart.Axis{Unit: chart.Count}, Series: series, Width: plotWidth, Height: plotHeight,
	}
}
