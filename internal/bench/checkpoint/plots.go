package checkpoint

import (
	"fmt"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/chart"
)

const plotWidth, plotHeight = 860, 300

func plots(m *Measured, r *bench.Result) {
	for _, costs := range [][]*Cost{m.Appends, m.Inserts} {
		if len(costs) > 0 {
			r.Plot(dirtyPlot(costs), fmt.Sprintf("Data in the cache that no checkpoint has written yet, %s; upright lines: checkpoints of the longest interval. "+
				"A checkpoint does not bring it to zero: pages that are written to all the time are dirty again at once.", costs[0].Load))
		}
	}
	if len(m.Appends) == 0 {
		return
	}
	r.Plot(latencyPlot(m.Appends), "Write latency of appends while a checkpoint is under way and between checkpoints: the slowest of a hundred, with the range of the checkpoints.")
	r.Plot(bytesPlot(m), "Bytes written to the files an hour, without the journal. Were it the same with every interval, the lines would be level.")
}

func tone(i int) chart.Tone { return []chart.Tone{chart.A, chart.B, chart.C, chart.D}[i%4] }

func dirtyPlot(costs []*Cost) chart.Lines {
	l := chart.Lines{
		Title: "Dirty data, " + costs[0].Load, X: chart.Axis{Label: "time since the writing began", Unit: chart.Seconds},
		Y: chart.Axis{Label: "dirty", Unit: chart.DecimalBytes}, Width: plotWidth, Height: plotHeight,
	}
	for i, c := range costs {
		s := chart.LineSeries{Name: fmt.Sprintf("every %g s", c.Seconds), Tone: tone(i), Bare: true}
		for _, look := range c.Looks {
			s.X, s.Y = append(s.X, look.At), append(s.Y, look.DirtyBytes)
		}
		l.Series = append(l.Series, s)
	}
	last := costs[len(costs)-1]
	for _, i := range ends(last.Looks) {
		l.Marks = append(l.Marks, last.Looks[i].At)
	}
	return l
}

func latencyPlot(costs []*Cost) chart.Lines {
	during := chart.LineSeries{Name: "during a checkpoint", Tone: chart.B}
	outside := chart.LineSeries{Name: "between", Tone: chart.A}
	for _, c := range costs {
		point(&during, c.Seconds, c.Inside())
		point(&outside, c.Seconds, c.Outside())
	}
	return chart.Lines{
		Title: "Write p99, appends", X: chart.Axis{Label: "checkpoint interval", Unit: chart.Seconds, Log: true},
		Y: chart.Axis{Label: "p99", Unit: chart.Seconds, Log: true}, Series: []chart.LineSeries{during, outside}, Width: plotWidth, Height: plotHeight,
	}
}

func bytesPlot(m *Measured) chart.Lines {
	l := chart.Lines{
		Title: "Bytes written to the files an hour", X: chart.Axis{Label: "checkpoint interval", Unit: chart.Seconds, Log: true},
		Y: chart.Axis{Label: "an hour", Unit: chart.DecimalBytes}, Width: plotWidth, Height: plotHeight,
	}
	for i, costs := range [][]*Cost{m.Appends, m.Inserts} {
		if len(costs) == 0 {
			continue
		}
		s := chart.LineSeries{Name: costs[0].Load, Tone: tone(i)}
		for _, c := range costs {
			point(&s, c.Seconds, c.BytesPerHour())
		}
		l.Series = append(l.Series, s)
	}
	return l
}

// point adds the median of samples with their range.
func point(to *chart.LineSeries, x float64, s bench.Samples) {
	to.X, to.Y = append(to.X, x), append(to.Y, s.Median())
	to.Low, to.High = append(to.Low, s.Min()), append(to.High, s.Max())
}
