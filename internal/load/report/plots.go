package report

import (
	"fmt"
	"html/template"
	"math"

	"github.com/brim-telemetry/brim/internal/chart"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/report"
)

// Size of a plot in CSS pixels: two fit beside each other on a screen.
const (
	plotWidth  = 460
	plotHeight = 280
	tallPlot   = 340 // of two panels
)

// plots draws the result.
func plots(r *load.Result, x Extras) ([]report.Plot, error) {
	type drawing interface{ SVG() (template.HTML, error) }
	rising := " Where bars rise to the right, writes take longer as buckets fill."
	if ramp(r) {
		rising = " " + rampNote
	}
	var store drawing
	if len(r.StoreByFill) > 0 {
		store = byFill("The daemon's store time by fill", "how full the window or the bucket's part was, %", r.StoreByFill)
	}
	all := []struct {
		draw    drawing
		caption string
	}{
		{responseOverTime(r), "Below it, the elapsed part of the window of event time: buckets are new where it starts again."},
		{rates(r), "Readings a second that were due, and that were acknowledged. Below it, the requests that were due and not answered."},
		{byFill("Response time by fill", "elapsed part of the window, %", r.ByFill), responseCaption(r)},
		{store, "As the daemon measured it: one command's round trip, by how full the window, or the bucket's part, was." + rising},
		{percentiles(r, x), "Where response is above service, requests waited in the generator for a free connection, or failed."},
	}
	var out []report.Plot
	for _, each := range all {
		if each.draw == nil {
			continue
		}
		svg, err := each.draw.SVG()
		if err != nil {
			return nil, fmt.Errorf("draw the report: %w", err)
		}
		out = append(out, report.Plot{SVG: svg, Caption: each.caption})
	}
	return out, nil
}

// series returns one value of each interval.
func series(r *load.Result, of func(load.Interval) float64) []float64 {
	values := make([]float64, len(r.Intervals))
	for i, each := range r.Intervals {
		values[i] = of(each)
	}
	return values
}

// orGap is NaN for a time that was not observed.
func orGap(seconds float64) float64 {
	if seconds <= 0 {
		return math.NaN()
	}
	return seconds
}

const runTime = "seconds of the run"

func responseOverTime(r *load.Result) chart.Time {
	p50 := series(r, func(i load.Interval) float64 { return orGap(i.P50) })
	p99 := series(r, func(i load.Interval) float64 { return orGap(i.P99) })
	return chart.Time{
		Title: "Response time", X: series(r, func(i load.Interval) float64 { return i.Second }), XLabel: runTime,
		Y: chart.Axis{Unit: chart.Seconds, Log: farApart(p50, p99)},
		Series: []chart.Series{
			{Name: "p50", Y: p50, Tone: chart.A},
			{Name: "p99", Y: p99, Tone: chart.B},
		},
		Beneath: &chart.Panel{
			Y:      chart.Axis{Label: "elapsed part of the window", Unit: chart.Ratio, Max: 1},
			Series: []chart.Series{{Y: series(r, func(i load.Interval) float64 { return i.Fill }), Tone: chart.C, Filled: true}},
		},
		Width: plotWidth, Height: tallPlot,
	}
}

// farApart reports whether values need a logarithmic axis to be seen together.
func farApart(all ...[]float64) bool {
	const most = 50 // times the least is the greatest on a linear one
	least, greatest := math.Inf(1), 0.0
	for _, values := range all {
		for _, v := range values {
			if !math.IsNaN(v) {
				least, greatest = min(least, v), max(greatest, v)
			}
		}
	}
	return greatest > most*least
}

// responseCaption says what response times by fill can show.
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

func byFill(title, of string, rows []load.FillRow) chart.Bars {
	b := chart.Bars{
		Title: title, XLabel: of, Y: chart.Axis{Unit: chart.Seconds},
		Series: []chart.Series{{Name: "p50", Tone: chart.A}, {Name: "p99", Tone: chart.B}},
		Width:  plotWidth, Height: plotHeight,
	}
	counted := int64(0)
	for _, row := range rows {
		b.Labels = append(b.Labels, fmt.Sprintf("%.0f–%.0f", row.From*100, row.To*100))
		b.Series[0].Y = append(b.Series[0].Y, row.P50)
		b.Series[1].Y = append(b.Series[1].Y, row.P99)
		counted += row.Count
	}
	if counted == 0 {
		b.Labels = nil // so that it says that there is nothing
	}
	return b
}

func percentiles(r *load.Result, x Extras) chart.Curve {
	c := chart.Curve{
		Title: "Times by percentile", Y: chart.Axis{Unit: chart.Seconds, Log: true},
		Series: []chart.Series{curve("response", r.Curve, chart.B), curve("service", r.ServiceCurve, chart.A)},
		Width:  plotWidth, Height: plotHeight,
	}
	if x.Floor != nil {
		floor := curve("floor", x.Floor.Curve, chart.C)
		floor.Dashed = true
		c.Series = append(c.Series, floor)
	}
	return c
}

func curve(name string, points []load.Percentile, tone chart.Tone) chart.Series {
	s := chart.Series{Name: name, Tone: tone}
	for _, p := range points {
		s.X = append(s.X, p.Percent)
		s.Y = append(s.Y, p.Seconds)
	}
	return s
}

func rates(r *load.Result) chart.Time {
	return chart.Time{
		Title: "Readings a second", X: series(r, func(i load.Interval) float64 { return i.Second }), XLabel: runTime,
		Y: chart.Axis{Unit: chart.PerSecond},
		Series: []chart.Series{
			{Name: "achieved", Y: series(r, func(i load.Interval) float64 { return i.Achieved }), Tone: chart.A},
			{Name: "requested", Y: series(r, func(i load.Interval) float64 { return i.Offered }), Tone: chart.B, Dashed: true},
		},
		Beneath: &chart.Panel{
			Y:      chart.Axis{Label: "requests in flight", Unit: chart.Count},
			Series: []chart.Series{{Y: series(r, func(i load.Interval) float64 { return float64(i.InFlight) }), Tone: chart.D, Filled: true}},
		},
		Width: plotWidth, Height: tallPlot,
	}
}
