// Package chart draws what the live page and the reports show: values over time,
// bars beside each other, lines through what was measured, and latency by
// percentile.
// A drawing is an inline SVG that needs no font, script or style sheet from
// elsewhere. gonum/plot makes the geometry. It imports no other package of Brim.
package chart

import (
	"html/template"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// CSS sets the colours of all drawings on a page, for light and for dark.
// Without it they have the light ones.
const CSS = `:root{--chart-ink:#3b4450;--chart-grid:#dde2e8;--chart-a:#1d5fbf;--chart-b:#c2410c;--chart-c:#15803d;--chart-d:#7e22ce;--chart-e:#0e7490;--chart-f:#be185d}
@media (prefers-color-scheme:dark){:root{--chart-ink:#b4bec9;--chart-grid:#333c46;--chart-a:#6cb0ff;--chart-b:#ff9b5e;--chart-c:#5fd38a;--chart-d:#c79bff;--chart-e:#4fd1e0;--chart-f:#ff8fc0}}
`

// A Tone is one of the colours that series have.
type Tone int

// The tones.
const (
	A Tone = iota // blue
	B             // orange
	C             // green
	D             // purple
	E             // teal
	F             // pink
)

// A Series is one line, or the bars of one colour.
type Series struct {
	Name   string
	Y      []float64 // NaN leaves a gap
	Tone   Tone
	Dashed bool
	Filled bool // down to the lower end of the axis
}

// An Axis says what the values are.
type Axis struct {
	Label string
	Unit  Unit
	Log   bool // values of 0 and less are left out
	// Min and Max are the ends of the axis. If both are 0 the data sets them;
	// an axis that is not logarithmic begins at 0 then.
	Min, Max float64
}

// A Panel is drawn beneath another with the same X axis.
type Panel struct {
	Y      Axis
	Series []Series
}

// Time draws series over time.
type Time struct {
	Title         string
	X             []float64 // seconds, rising; up to 0 they are read as before now
	XLabel        string
	Y             Axis
	Series        []Series
	Beneath       *Panel
	Marks         []float64 // times that get an upright line
	Width, Height float64   // CSS pixels; the drawing scales with its place on the page
}

// SVG returns the drawing.
func (t Time) SVG() (template.HTML, error) {
	d, err := newDrawing(t.Title, t.Width, t.Height)
	if err != nil {
		return "", err
	}
	panels := []Panel{{Y: t.Y, Series: t.Series}}
	shares := []float64{1}
	if t.Beneath != nil {
		panels, shares = append(panels, *t.Beneath), []float64{0.66, 0.34}
	}
	if !slices.ContainsFunc(panels, Panel.seen) || len(t.X) == 0 {
		return d.empty(), nil
	}
	plots := make([]framed, len(panels))
	for i, panel := range panels {
		p := newPlot()
		p.X.Min, p.X.Max = t.X[0], max(t.X[len(t.X)-1], t.X[0]+1)
		p.X.Tick.Marker = hidden{}
		if i == len(panels)-1 {
			p.X.Tick.Marker = timeTicks{wanted: d.ticksAcross()}
			p.X.Label.Text = t.XLabel
		}
		head := header{label: panel.Y.Label}
		if i == 0 {
			head.title = t.Title
		}
		panel.Y.apply(&p.Y, panel.values(), d.ticksUp(shares[i]))
		p.Add(marks(t.Marks))
		for _, s := range panel.Series {
			addLines(p, thin(t.X, s.Y, d.mostPoints()), s, panel.Y.Log)
			head.entries = append(head.entries, entry{name: s.Name, tone: s.Tone, dashed: s.Dashed, filled: s.Filled})
		}
		plots[i] = framed{plot: p, head: head, share: shares[i]}
	}
	return d.draw(plots), nil
}

// marks are upright lines from one end of the panel to the other.
type marks []float64

// Plot draws the marks.
func (m marks) Plot(c draw.Canvas, p *plot.Plot) {
	style := draw.LineStyle{Color: inkColor, Width: 1, Dashes: []vg.Length{2, 3}}
	for _, at := range m {
		if x := c.X(p.X.Norm(at)); c.ContainsX(x) {
			c.StrokeLine2(style, x, c.Min.Y, x, c.Max.Y)
		}
	}
}

// seen reports whether the panel has anything to show.
func (p Panel) seen() bool {
	return slices.ContainsFunc(p.values(), func(v float64) bool { return !math.IsNaN(v) })
}

func (p Panel) values() []float64 {
	var all []float64
	for _, s := range p.Series {
		all = append(all, s.Y...)
	}
	return all
}

// addLines adds a line for each run of points without a gap.
func addLines(p *plot.Plot, points plotter.XYs, s Series, log bool) {
	gap := func(y float64) bool {
		return math.IsNaN(y) || math.IsInf(y, 0) || log && y <= 0
	}
	for from := 0; from < len(points); {
		if gap(points[from].Y) {
			from++
			continue
		}
		to := from
		for to < len(points) && !gap(points[to].Y) {
			to++
		}
		run := points[from:to]
		if len(run) == 1 {
			run = plotter.XYs{run[0], run[0]} // a line of no length has round ends: a dot
		}
		line := &plotter.Line{XYs: run, LineStyle: s.style()}
		if s.Filled {
			line.FillColor = s.Tone.wash()
		}
		p.Add(&polyline{line})
		from = to
	}
}
