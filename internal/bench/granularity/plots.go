package granularity

import (
	"fmt"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/fit"
	"github.com/brim-telemetry/brim/internal/chart"
)

const (
	plotWidth  = 720
	plotHeight = 380
)

// tones are those of lines, in their order.
var tones = [...]chart.Tone{chart.A, chart.B, chart.C, chart.D, chart.E, chart.F}

func (t *trial) plots(r *bench.Result) {
	for _, topology := range t.topologies() {
		curves := t.of(topology)
		if len(curves) == 0 {
			continue
		}
		r.Plot(curvePlot("Time of an append, "+topology, curves, timeOf, heldOf, timeLine),
			"Time that one writer waits for an append, by the readings that the bucket holds; a line for each number of readings an append, dashed what was fitted.")
		r.Plot(curvePlot("mongod's CPU for an append, "+topology, curves, cpuOf, heldBulkOf, cpuLine),
			"The server's CPU for an append among many in a command.")
	}
	a, b := t.ones(t.Topology), t.ones(standalone)
	if a != nil && b != nil && a != b && len(a.Points) > 0 && len(b.Points) > 0 {
		d := curvePlot("Replica set and standalone, one reading an append", []*curve{a, b}, timeOf, heldOf, timeLine)
		r.Plot(d, "The same appends on both topologies: a standalone journals the whole document with each append, a replica set what changed in it, and an entry of the oplog.")
	}
	if len(t.Rewritten) > 0 {
		r.Plot(t.rewritePlot(), "Bytes of document versions for each reading that is stored, by the readings that an append brings: arithmetic from the counted sizes of documents.")
	}
}

func timeLine(c *curve) *fit.Line { return c.Time }
func cpuLine(c *curve) *fit.Line  { return c.CPU }

// curvePlot draws curves with their lines.
func curvePlot(title string, curves []*curve, of, held func(*point) bench.Samples, line func(*curve) *fit.Line) chart.Lines {
	d := chart.Lines{
		Title: title, Width: plotWidth, Height: plotHeight,
		X: chart.Axis{Label: "readings in the bucket", Unit: chart.Count}, Y: chart.Axis{Label: "an append", Unit: chart.Seconds},
	}
	mixed := curves[0].Topology != curves[len(curves)-1].Topology
	for i, c := range curves {
		s := chart.LineSeries{Name: several(c.PerUpdate, "reading") + " an append", Tone: tones[i%len(tones)]}
		if mixed {
			s.Name = c.Topology
		}
		for _, p := range c.Points {
			s.X, s.Y = append(s.X, held(p).Median()), append(s.Y, of(p).Median())
			s.Low, s.High = append(s.Low, of(p).Min()), append(s.High, of(p).Max())
		}
		d.Series = append(d.Series, s)
		if l := line(c); l != nil {
			d.Series = append(d.Series, lineSeries(l, s))
		}
	}
	return d
}

// lineSeries is a line that was fitted to a series.
func lineSeries(l *fit.Line, to chart.LineSeries) chart.LineSeries {
	from, until := to.X[0], to.X[len(to.X)-1]
	us := l.Over(1e-6)
	return chart.LineSeries{
		Name: fmt.Sprintf("%.0f µs + %.2f µs · n", us.Base, us.Each), Tone: to.Tone, Dashed: true, Bare: true,
		X: []float64{from, until}, Y: []float64{l.At(from), l.At(until)},
	}
}

// rewritePlot has a line for each granularity.
func (t *trial) rewritePlot() chart.Lines {
	d := chart.Lines{
		Title: "Bytes of document versions for a reading", Width: plotWidth, Height: plotHeight,
		X: chart.Axis{Label: "readings an append", Unit: chart.Count, Log: true},
		Y: chart.Axis{Label: "for a reading", Unit: chart.DecimalBytes, Log: true},
	}
	for i, s := range t.Sizes {
		line := chart.LineSeries{Name: s.Granularity, Tone: tones[i%len(tones)]}
		for _, w := range t.Rewritten {
			if w.Granularity == s.Granularity {
				line.X, line.Y = append(line.X, float64(w.PerUpdate)), append(line.Y, w.Reading)
			}
		}
		d.Series = append(d.Series, line)
	}
	return d
}
