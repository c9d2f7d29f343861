package compression

import (
	"fmt"
	"strings"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/chart"
)

// report tells what was measured so far; a cell that was cut short is left out
// of the claims.
func (t *trial) report() {
	d, r := &t.data, t.result
	r.Data = t.data
	if len(d.Sizes) < 2*len(shapes())*len(compressors()) {
		d.Sizes = nil
	}
	if len(d.Reads) > 0 && d.Reads[len(d.Reads)-1].WarmP50 == nil {
		d.Reads = nil
	}
	if len(d.Checkpoints) > 0 && d.Checkpoints[len(d.Checkpoints)-1].CPU == nil {
		d.Writes, d.Checkpoints = nil, nil
	}
	t.claims()
	if d.Sizes != nil {
		r.Tables = append(r.Tables, d.sizeTable())
	}
	if d.Reads != nil {
		r.Tables = append(r.Tables, d.readTable())
	}
	if d.Writes != nil {
		r.Tables = append(r.Tables, d.writeTable(), d.checkpointTable())
	}
	t.plots()
	t.notes()
}

func (d *Data) sizeTable() bench.Table {
	out := bench.Table{
		Title: "Bytes for each reading",
		Head:  []string{"shape", "values", "BSON", "none", "snappy", "zstd", "snappy of none", "zstd of snappy", "indexes (none, snappy, zstd)"},
		Notes: []string{
			"Data on disk after a checkpoint, without what is free in the files; BSON is before compression.",
			"A time series packs its values column by column before the compressor sees them.",
		},
	}
	for _, values := range []Values{Walk, Random} {
		for at, s := range shapes() {
			of := func(by int) float64 {
				size := &d.size(at, by, values).Size
				return size.PerReading(size.Data())
			}
			var index []string
			for by := range compressors() {
				size := &d.size(at, by, values).Size
				index = append(index, bench.Bytes.Format(size.PerReading(size.Index())))
			}
			size := &d.size(at, none, values).Size
			out.Rows = append(out.Rows, []string{
				s.String(), string(values), bench.Bytes.Format(size.PerReading(size.Logical)),
				bench.Bytes.Format(of(none)), bench.Bytes.Format(of(snappy)), bench.Bytes.Format(of(zstd)),
				bench.Times.Format(of(snappy) / of(none)), bench.Times.Format(of(zstd) / of(snappy)), strings.Join(index, ", "),
			})
		}
	}
	return out
}

func (d *Data) readTable() bench.Table {
	out := bench.Table{
		Title: fmt.Sprintf("Reads of %d readings of a sensor", readCount),
		Head:  []string{"shape", "compressor", "warm p50", "warm p99", "cold p50", "cold p99", "bytes from the files, cold"},
		Notes: []string{
			"Warm: what was just read, again. Cold: after a restart, the system's page cache dropped before each read; the disk's own cache is out of reach.",
			"Brim's buckets are read as a daemon reads them: back to an hour before, since it does not know their granularity.",
			"Where hardly any bytes come from the files, the collection is so small that the first read brought most of it.",
		},
	}
	for i := range d.Reads {
		s := &d.Reads[i]
		out.Rows = append(out.Rows, []string{
			s.Shape, string(s.Compressor), bench.Seconds.Spread(s.WarmP50), bench.Seconds.Format(s.WarmP99.Median()),
			bench.Seconds.Spread(s.ColdP50), bench.Seconds.Format(s.ColdP99.Median()), bench.Bytes.Format(s.ColdBytes.Median()),
		})
	}
	return out
}

func (d *Data) writeTable() bench.Table {
	out := bench.Table{
		Title: "Writes at a fixed rate",
		Head:  []string{"shape", "compressor", "readings/s", "p50", "p99", "mongod CPU a reading", "files, a reading", "journal, a reading"},
		Notes: []string{fmt.Sprintf(
			"Commands of %d readings a sensor, one each %v; the checkpoint at the end counts among processor time and bytes.", together, tick)},
	}
	for i := range d.Writes {
		s := &d.Writes[i]
		out.Rows = append(out.Rows, []string{
			s.Shape, string(s.Compressor), bench.PerSecond.Format(s.Rate.Median()), bench.Seconds.Spread(s.P50), bench.Seconds.Spread(s.P99),
			bench.Seconds.Spread(s.CPU), bench.Bytes.Format(s.Blocks.Median()), bench.Bytes.Format(s.Journal.Median()),
		})
	}
	return out
}

func (d *Data) checkpointTable() bench.Table {
	out := bench.Table{
		Title: "Checkpoints that write readings, a document each",
		Head:  []string{"compressor", "checkpoints", "readings", "took", "mongod CPU", "bytes written"},
		Notes: []string{"All of a repeat together. They write the replica set's oplog, too."},
	}
	for i := range d.Checkpoints {
		s := &d.Checkpoints[i]
		out.Rows = append(out.Rows, []string{
			string(s.Compressor), bench.Count.Format(float64(s.Count)), bench.Count.Format(float64(s.Readings)), bench.Seconds.Spread(s.Seconds), bench.Seconds.Spread(s.CPU),
			bench.Bytes.Format(s.Bytes.Median()),
		})
	}
	return out
}

const (
	plotWidth  = 760
	plotHeight = 260
)

func (t *trial) plots() {
	d, r := &t.data, t.result
	var labels []string
	for _, s := range shapes() {
		labels = append(labels, s.Label())
	}
	bars := func(title string, unit chart.Unit, value func(at, by int) float64) chart.Bars {
		out := chart.Bars{Title: title, Labels: labels, Y: chart.Axis{Unit: unit}, Width: plotWidth, Height: plotHeight}
		for by, c := range compressors() {
			series := chart.Series{Name: string(c), Tone: chart.Tone(by)}
			for at := range shapes() {
				series.Y = append(series.Y, value(at, by))
			}
			out.Series = append(out.Series, series)
		}
		return out
	}
	if d.Sizes != nil {
		for _, values := range []Values{Walk, Random} {
			r.Plot(bars("Data on disk for each reading, "+string(values), chart.Bytes, func(at, by int) float64 {
				size := &d.size(at, by, values).Size
				return size.PerReading(size.Data())
			}), "What a compressor saves hangs on the shape and on the values.")
		}
	}
	if d.Reads != nil && d.read(documents, none).ColdP50 != nil {
		r.Plot(bars(fmt.Sprintf("Cold read of %d readings, p50", readCount), chart.Seconds, func(at, by int) float64 {
			return d.read(at, by).ColdP50.Median()
		}), "After a restart, with the page cache dropped.")
	}
}
