package fill

import (
	"fmt"
	"math"
	"slices"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/chart"
)

const (
	plotWidth  = 760
	plotHeight = 320
)

// plots draws the ways of an hour, the granularities beside each other, and
// what is written for a reading.
func (f *found) plots(r *bench.Result) {
	f.plotHour(r)
	f.plotCPU(r)
	f.plotGranularities(r)
	f.plotBytes(r)
}

// tenths are a figure of each tenth, the median of the repeats; what is 0 leaves
// a gap.
func (f *found) tenths(cell string, of func(*Tenth) float64) (median, low, high []float64) {
	for i := range 10 {
		s := f.samples(cell, func(f *Figures) float64 {
			if v := of(&f.Tenths[i]); v > 0 {
				return v
			}
			return math.NaN()
		})
		median, low, high = append(median, s.Median()), append(low, s.Min()), append(high, s.Max())
	}
	return median, low, high
}

// middles are where the tenths lie.
func middles() (x []float64) {
	for i := range 10 {
		x = append(x, (float64(i)+0.5)/10)
	}
	return x
}

// perWay draws a line for each way of an hour.
func (f *found) perWay(of func(*Tenth) float64, dashed string, dashedOf func(*Tenth) float64) (series []chart.LineSeries) {
	for i, y := range ways {
		cell := "1h-" + y.name
		if len(f.windows[cell]) == 0 {
			continue
		}
		tone := chart.Tone(i)
		median, low, high := f.tenths(cell, of)
		series = append(series, chart.LineSeries{Name: y.words, X: middles(), Y: median, Low: low, High: high, Tone: tone})
		if dashedOf != nil {
			median, _, _ = f.tenths(cell, dashedOf)
			series = append(series, chart.LineSeries{Name: y.words + dashed, X: middles(), Y: median, Tone: tone, Dashed: true})
		}
	}
	return series
}

func elapsed() chart.Axis {
	return chart.Axis{Label: "elapsed part of the hour", Unit: chart.Ratio, Max: 1}
}

func (f *found) plotHour(r *bench.Result) {
	series := f.perWay(func(t *Tenth) float64 { return t.Write.P50 }, ", p99", func(t *Tenth) float64 { return t.Write.P99 })
	if len(series) == 0 {
		return
	}
	r.Plot(chart.Lines{
		Title: "Time to write an update through the hour", X: elapsed(), Y: chart.Axis{Unit: chart.Seconds, Log: true},
		Series: series, Width: plotWidth, Height: plotHeight,
	}, "Hourly buckets: p50, and dashed p99, of the command that carries an update, by the time of its newest reading. Upright lines: what the repeats gave.")
}

func (f *found) plotCPU(r *bench.Result) {
	series := f.perWay(func(t *Tenth) float64 { return t.MongodCPU }, "", nil)
	if len(series) == 0 {
		return
	}
	r.Plot(chart.Lines{
		Title: "mongod CPU per reading through the hour", X: elapsed(), Y: chart.Axis{Unit: chart.Seconds, Log: true},
		Series: series, Width: plotWidth, Height: plotHeight,
	}, "Hourly buckets: what a reading costs the server as its bucket fills, by the clock. It is steadier than a latency, which hangs on everything that runs on the machine.")
}

func (f *found) plotGranularities(r *bench.Result) {
	var names []string
	for _, name := range []string{"1m", "5m", "15m", "1h"} {
		if slices.ContainsFunc(ways[:], func(y way) bool { return len(f.windows[name+"-"+y.name]) > 0 }) {
			names = append(names, name)
		}
	}
	var series []chart.LineSeries
	for i, y := range ways {
		for _, q := range []struct {
			name   string
			dashed bool
			of     func(*Figures) float64
		}{{y.words, false, func(f *Figures) float64 { return f.Write.P50 }}, {y.words + ", p99", true, func(f *Figures) float64 { return f.Write.P99 }}} {
			s := chart.LineSeries{Name: q.name, Tone: chart.Tone(i), Dashed: q.dashed}
			seen := false
			for _, name := range names {
				v := f.samples(name+"-"+y.name, q.of)
				seen = seen || len(v) > 0
				s.Y, s.Low, s.High = append(s.Y, v.Median()), append(s.Low, v.Min()), append(s.High, v.Max())
			}
			if seen {
				series = append(series, s)
			}
		}
	}
	if len(series) == 0 {
		return
	}
	r.Plot(chart.Lines{
		Title: "Time to write an update, by granularity", X: chart.Axis{Label: "granularity"}, Labels: names,
		Y: chart.Axis{Unit: chart.Seconds, Log: true}, Series: series, Width: plotWidth, Height: plotHeight,
	}, "p50, and dashed p99, over whole passages.")
}

func (f *found) plotBytes(r *bench.Result) {
	b := chart.Bars{
		Title: "Bytes that mongod writes for a reading", Y: chart.Axis{Unit: chart.Bytes, Log: true}, Width: plotWidth, Height: plotHeight,
		Series: []chart.Series{{Name: "log", Tone: chart.A}, {Name: "other files", Tone: chart.B}},
	}
	for _, l := range f.lines() {
		if f.prefilled != nil && len(l.all) == 1 && l.all[0] == f.prefilled.checkpoint {
			continue // its seconds are few, and all of the checkpoint is in them
		}
		b.Labels = append(b.Labels, l.name)
		b.Series[0].Y = append(b.Series[0].Y, samplesOf(l.all, func(f *Figures) float64 { return f.JournalBytes }).Median())
		b.Series[1].Y = append(b.Series[1].Y, samplesOf(l.all, func(f *Figures) float64 { return f.FileBytes }).Median())
	}
	if len(b.Labels) == 0 {
		return
	}
	r.Plot(b, fmt.Sprintf("WiredTiger's log, and what went to its other files until all was stored; a checkpoint that falls into a passage of a few seconds weighs heavily. Windows took %v and %v.", f.plan.hour, f.plan.short))
}
