// Package chart describes what the live page and the reports draw: values over time, bars side
// by side, lines through measurements, and latency by percentile. Browsers draw them with the
// embedded uPlot, so that no page loads anything from elsewhere. It imports no other package of
// Brim.
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

// A Chart is stacked panels with a common X axis.
type Chart struct {
	Title  string    `json:"title"`
	X      X         `json:"x"`
	Panels []Panel   `json:"panels"`
	Marks  []float64 `json:"marks,omitempty"` // positions on X with a vertical line
}

// A Kind is what positions on an X axis mean.
type Kind string

// The kinds. The live page has another one, clock: seconds since the epoch, shown as local time
// of day.
const (
	Number     Kind = "number"
	Elapsed    Kind = "elapsed"    // seconds
	Names      Kind = "names"      // 0, 1, 2 …, each with a name
	Percentile Kind = "percentile" // each further nine takes as much room as the one before
)

// X is the axis from left to right.
type X struct {
	Kind  Kind     `json:"kind"`
	Label string   `json:"label,omitempty"`
	Log   bool     `json:"log,omitempty"`
	Names []string `json:"names,omitempty"`
	At    Values   `json:"at"` // ascending
}

// A Panel has its own Y axis.
type Panel struct {
	Label  string   `json:"label,omitempty"`
	Unit   Unit     `json:"unit"`
	Log    bool     `json:"log,omitempty"` // values of 0 and below are omitted
	Max    float64  `json:"max,omitempty"` // upper end of an axis from 0; 0: set by the data
	Bars   bool     `json:"bars,omitempty"`
	Series []Series `json:"series"`
}

// A Series is one line, or the bars of one colour.
type Series struct {
	Name   string `json:"name,omitempty"`
	Y      Values `json:"y"`              // one per X.At
	Low    Values `json:"low,omitempty"`  // with High: the range of the repeats; nil: not shown
	High   Values `json:"high,omitempty"` //
	Tone   int    `json:"tone"`           // 0 to 5: the colour
	Dashed bool   `json:"dashed,omitempty"`
	Filled bool   `json:"filled,omitempty"` // down to the lower end of the axis
	Points bool   `json:"points,omitempty"` // a point at each value; false: only at isolated values
	Bridge bool   `json:"bridge,omitempty"` // the line bridges missing values
}

// Values are numbers; JSON has null for those that are not finite.
type Values []float64

// MarshalJSON writes values with seven digits, and times to the millisecond.
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

// Rarity is the position of a percentile, from 0 to below 100, on a Percentile axis: how many
// observations there are for each one above it.
func Rarity(percent float64) float64 { return math.Round(1e6/(1-percent/100)) / 1e6 }

// Merge puts series with different positions on one axis, with gaps where a series has no
// position. at[i] and y[i] have the same length.
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

// UPlot returns the script that defines uPlot, with its licence.
func UPlot() string { return "/*\n" + uplotLicense + "*/\n" + uplotJS }

// Module returns the JavaScript module that draws charts. UPlot must be loaded first.
func Module() string { return chartJS }

// CSS returns the style of charts, with the colours of all pages, for light and dark.
func CSS() string { return "/*\n" + uplotLicense + "*/\n" + uplotCSS + "\n" + chartCSS }

// PageCSS returns the style of a report: CSS and what surrounds the charts.
func PageCSS() template.CSS {
	return template.CSS(CSS() + pageCSS) //nolint:gosec // this package's own files
}

// Scripts returns what a self-contained page needs to draw each element <div
// class="plot"><script type="application/json">CHART</script></div>.
func Scripts() template.HTML {
	const start = "\nfor (const box of document.querySelectorAll('.plot')) draw(box, JSON.parse(box.querySelector('script').textContent));\n"
	return template.HTML("<script>" + UPlot() + "</script>\n<script type=\"module\">" + Module() + start + "</script>") //nolint:gosec // they are this package's own
}

// HTML returns the element that Scripts draw in.
func (c Chart) HTML() (template.HTML, error) {
	spec, err := json.Marshal(c) // escapes <, > and &
	if err != nil {
		return "", fmt.Errorf("describe a chart: %w", err)
	}
	return template.HTML(`<div class="plot"><script type="application/json">` + string(spec) + `</script></div>`), nil //nolint:gosec // see above
}
