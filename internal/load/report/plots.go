package report

import (
	"fmt"
	"math"

	"github.com/brim-telemetry/brim/internal/chart"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/report"
)

// plots draws the result.
func plots(r *load.Result) []report.Plot {
	rising := " Where bars rise to the right, writes take longer as buckets fill."
	if ramp(r) {
		rising = " " + rampNote
	}
	out := []report.Plot{
		{Chart: responseOverTime(r), Caption: "Below it, the elapsed part of the window of event time: buckets are new where it starts again."},
		{Chart: rates(r), Caption: "Readings a second that were due, and that were acknowledged. Below it, the requests that were due and not answered."},
		{Chart: byFill("Response time by fill", "elapsed part of the window, %", r.ByFill), Caption: responseCaption(r)},
	}
	if len(r.StoreByFill) > 0 {
		out = append(out, report.Plot{
			Chart:   byFill("The daemon's store time by fill", "how full the window or the bucket's part was, %", r.StoreByFill),
			Caption: "As the daemon measured it: one command's round trip, by how full the window, or the bucket's part, was." + rising,
		})
	}
	return append(out, report.Plot{Chart: percentiles(r), Caption: "Where response is above service, requests waited in the generator for a free connection, or failed."})
}

// series returns one value per interval.
func series(r *load.Result, of func(load.Interval) float64) chart.Values {
	values := make(chart.Values, len(r.Intervals))
	for i, each := range r.Intervals {
		values[i] = of(each)
	}
	return values
}

// orGap returns NaN for a time that was not observed.
func orGap(seconds float64) float64 {
	if seconds <= 0 {
		return math.NaN()
	}
	return seconds
}

// overTime returns a chart over the seconds of the run.
func overTime(title string, r *load.Result, panels ...chart.Panel) chart.Chart {
	at := series(r, func(i load.Interval) float64 { return i.Second })
	return chart.Chart{Title: title, X: chart.X{Kind: chart.Elapsed, Label: "time of the run", At: at}, Panels: panels}
}

func responseOverTime(r *load.Result) chart.Chart {
	return overTime("Response time", r,
		chart.Panel{Unit: chart.Seconds, Log: true, Series: []chart.Series{
			{Name: "p50", Y: series(r, func(i load.Interval) float64 { return orGap(i.P50) })},
			{Name: "p99", Y: series(r, func(i load.Interval) float64 { return orGap(i.P99) }), Tone: 1},
		}},
		chart.Panel{Label: "elapsed part of the window", Unit: chart.Ratio, Max: 1, Series: []chart.Series{
			{Y: series(r, func(i load.Interval) float64 { return i.Fill }), Tone: 2, Filled: true},
		}})
}

// responseCaption explains what response times by fill can show.
func responseCaption(r *load.Result) string {
	const what = "By the elapsed part of the readings' windows. "
	switch {
	case ackedEarly(r):
		return what + ackNote
	case ramp(r):
		return what + rampNote
	case r.Setup.Storage == "memory":
		return what
	}
	return what + "Where bars rise to the right, requests take longer as buckets fill."
}

func byFill(title, of string, rows []load.FillRow) chart.Chart {
	c := chart.Chart{Title: title, X: chart.X{Kind: chart.Names, Label: of}}
	p50, p99 := chart.Series{Name: "p50"}, chart.Series{Name: "p99", Tone: 1}
	for i, row := range rows {
		c.X.Names = append(c.X.Names, fmt.Sprintf("%.0f–%.0f", row.From*100, row.To*100))
		c.X.At = append(c.X.At, float64(i))
		p50.Y, p99.Y = append(p50.Y, orGap(row.P50)), append(p99.Y, orGap(row.P99))
	}
	c.Panels = []chart.Panel{{Unit: chart.Seconds, Log: true, Bars: true, Series: []chart.Series{p50, p99}}}
	return c
}

func percentiles(r *load.Result) chart.Chart {
	lines := []chart.Series{{Name: "response", Tone: 1}, {Name: "service"}}
	at, values := make([]chart.Values, len(lines)), make([]chart.Values, len(lines))
	for i, points := range [][]load.Percentile{r.Curve, r.ServiceCurve} {
		for _, p := range points {
			if p.Percent < 100 { // this axis has no place for the maximum
				at[i], values[i] = append(at[i], chart.Rarity(p.Percent)), append(values[i], p.Seconds)
			}
		}
	}
	all, merged := chart.Merge(at, values)
	for i := range lines {
		lines[i].Y, lines[i].Bridge = merged[i], true
	}
	return chart.Chart{
		Title: "Times by percentile", X: chart.X{Kind: chart.Percentile, At: all},
		Panels: []chart.Panel{{Unit: chart.Seconds, Log: true, Series: lines}},
	}
}

func rates(r *load.Result) chart.Chart {
	return overTime("Readings a second", r,
		chart.Panel{Unit: chart.PerSecond, Series: []chart.Series{
			{Name: "achieved", Y: series(r, func(i load.Interval) float64 { return i.Achieved })},
			{Name: "requested", Y: series(r, func(i load.Interval) float64 { return i.Offered }), Tone: 1, Dashed: true},
		}},
		chart.Panel{Label: "requests in flight", Unit: chart.Count, Series: []chart.Series{
			{Y: series(r, func(i load.Interval) float64 { return float64(i.InFlight) }), Tone: 3, Filled: true},
		}})
}
