// Package chart describes what the live page and the reports draw: values over time,
// bars beside each other, lines through measurements, and latency by percentile. A
// browser draws them with uPlot, which is part of the binary, so that no page loads
// anything from elsewhere. It imports no other package of Brim.
//
//	Chart ─▶ JSON ─▶ chart.js ─▶ uPlot
package chart

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
)

// A Chart is panels above each other with one X axis.
type Chart struct {
	Title  string    `json:"title"`
	X      X         `json:"x"`
	Panels []Panel   `json:"panels"`
	Marks  []float64 `json:"marks,omitempty"` // places of X that get a vertical line
}

// A Kind says what the places of an X axis are.
type Kind string

// The kinds. The live page has a further one, clock: seconds since the epoch, shown as the
// reader's time of day.
const (
	Number     Kind = "number"
	Elapsed    Kind = "elapsed"    // seconds
	Names      Kind = "names"      // 0, 1, 2 …, with a name for each
	Percentile Kind = "percentile" // each nine after the point takes as much room as the one before
)

// X is the axis from left to right.
type X struct {
	Kind  Kind     `json:"kind"`
	Label string   `json:"label,omitempty"`
	Log   bool     `json:"log,omitempty"`
	Names []string `json:"names,omitempty"`
	At    Values   `json:"at"` // rising
}

// A Panel has its own Y axis.
type Panel struct {
	Label  string   `json:"label,omitempty"`
	Unit   Unit     `json:"unit"`
	Log    bool     `json:"log,omitempty"` // values of 0 and less are left out
	Max    float64  `json:"max,omitempty"` // the end of an axis from 0; 0: the data sets it
	Bars   bool     `json:"bars,omitempty"`
	Series []Series `json:"series"`
}

// A Series is one line, or the bars of one colour.
type Series struct {
	Name   string `json:"name,omitempty"`
	Y      Values `json:"y"`              // one for each of X.At
	Low    Values `json:"low,omitempty"`  // with High: the range of the repeats; nil: not shown
	High   Values `json:"high,omitempty"` //
	Tone   int    `json:"tone"`           // 0 to 5: one of the colours
	Dashed bool   `json:"dashed,omitempty"`
	Filled bool   `json:"filled,omitempty"` // down to the lower end of the axis
	Points bool   `json:"points,omitempty"` // a point at each value; false: only at values without neighbours
	Bridge bool   `json:"bridge,omitempty"` // the line goes on over missing values
}

// Values are numbers, of which JSON has those that are finite, and null for the others.
type Values []float64

// MarshalJSON writes seven digits of values, and times to the millisecond.
func (v Values) MarshalJSON() ([]byte, error) {
	out := []byte{'['}
	for i, x := range v {
		if i > 0 {
			out = append(out, ',')
		}
		switch {
		case math.IsNaN(x) || math.IsInf(x, 0):
			out = append(out, "null"...)
		case math.Abs(x) >= 1e8:
			out = strconv.AppendFloat(out, math.Round(x*1000)/1000, 'f', -1, 64)
		default:
			out = strconv.AppendFloat(out, x, 'g', 7, 64)
		}
	}
	return append(out, ']'), nil
}

// Rarity is the place of a percentile, from 0 to below 100, on an axis of that kind: how
// many observations there are for one above it.
func Rarity(percent float64) float64 { return math.Round(1e6/(1-percent/100)) / 1e6 }

// Merge puts series with places of their own on one axis, without values where a series
// has no place. Both slices of at[i] and y[i] have one length.
func Merge(at, y []Values) (all Values, merged []Values) {
	for _, one := range at {
		all = append(all, one...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	for i := range at {
		line := make(Values, len(all))
		for j := range line {
			line[j] = math.NaN()
		}
		for j, x := range at[i] {
			at, _ := slices.BinarySearch(all, x)
			line[at] = y[i][j]
		}
		merged = append(merged, line)
	}
	return all, merged
}

var (
	//go:embed uplot/uPlot.iife.min.js
	uplotJS string
	//go:embed uplot/uPlot.min.css
	uplotCSS string
	//go:embed uplot/LICENSE
	uplotLicense string
	//go:embed chart.js
	chartJS string
	//go:embed chart.css
	chartCSS string
	//go:embed page.css
	pageCSS string
)

// UPlot is the script that defines uPlot, with its licence.
func UPlot() string { return "/*\n" + uplotLicense + "*/\n" + uplotJS }

// Module is the JavaScript module that draws charts. It needs UPlot to be loaded.
func Module() string { return chartJS }

// CSS is the style of charts, with the colours of all pages, for light and for dark.
func CSS() string { return "/*\n" + uplotLicense + "*/\n" + uplotCSS + "\n" + chartCSS }

// PageCSS is the style of a report: CSS, and what reports have beside charts.
func PageCSS() template.CSS {
	return template.CSS(CSS() + pageCSS) //nolint:gosec // they are this package's own
}

// Scripts are what a page that is one file needs to draw each element
// <div class="plot"><script type="application/json">CHART</script></div>.
func Scripts() template.HTML {
	const start = "\nfor (const box of document.querySelectorAll('.plot')) draw(box, JSON.parse(box.querySelector('script').textContent));\n"
	return template.HTML("<script>" + UPlot() + "</script>\n<script type=\"module\">" + Module() + start + "</script>") //nolint:gosec // they are this package's own
}

// HTML is the element that Scripts draw in.
func (c Chart) HTML() (template.HTML, error) {
	spec, err := json.Marshal(c) // which escapes <, > and &
	if err != nil {
		return "", fmt.Errorf("describe a chart: %w", err)
	}
	return template.HTML(`<div class="plot"><script type="application/json">` + string(spec) + `</script></div>`), nil //nolint:gosec // see above
}
