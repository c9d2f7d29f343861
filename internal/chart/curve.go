package chart

import (
	"html/template"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
)

// A CurveSeries is one line of a Curve.
type CurveSeries struct {
	Name    string
	Percent []float64 // 0 to 100, rising
	Value   []float64
	Tone    Tone
	Dashed  bool
}

// Curve draws values by percentile. Each nine after the comma takes as much room
// as the one before, so that the slowest of many thousands can be read.
type Curve struct {
	Title         string
	Y             Axis
	Series        []CurveSeries
	Width, Height float64 // CSS pixels
}

// percentiles are those that have a tick.
var percentiles = [...]plot.Tick{
	{Value: 50, Label: "50 %"}, {Value: 90, Label: "90 %"}, {Value: 99, Label: "99 %"},
	{Value: 99.9, Label: "99.9 %"}, {Value: 99.99, Label: "99.99 %"}, {Value: 99.999, Label: "99.999 %"},
}

// SVG returns the drawing.
func (c Curve) SVG() (template.HTML, error) {
	d, err := newDrawing(c.Title, c.Width, c.Height)
	if err != nil {
		return "", err
	}
	panel := Panel{Y: c.Y}
	head := header{title: c.Title, label: c.Y.Label}
	lines := make([]plotter.XYs, len(c.Series))
	last := rarity(90)
	for i, s := range c.Series {
		shown := Series{Name: s.Name, Tone: s.Tone, Dashed: s.Dashed}
		x := make([]float64, 0, len(s.Percent))
		for j := range min(len(s.Percent), len(s.Value)) {
			if p := s.Percent[j]; p >= 0 && p < 100 { // the maximum has no place on this axis
				x, shown.Y = append(x, rarity(p)), append(shown.Y, s.Value[j])
				last = max(last, rarity(p))
			}
		}
		lines[i] = thin(x, shown.Y, d.mostPoints())
		panel.Series = append(panel.Series, shown)
		head.entries = append(head.entries, entry{name: s.Name, tone: s.Tone, dashed: s.Dashed})
	}
	if !panel.seen() {
		return d.empty(), nil
	}
	p := newPlot()
	c.Y.apply(&p.Y, panel.values(), d.ticksUp(1))
	p.X.Min, p.X.Max, p.X.Scale = 1, min(last, rarity(99.9999)), logScale{}
	var ticks plot.ConstantTicks
	for _, t := range percentiles {
		if rarity(t.Value) <= p.X.Max*1.01 {
			ticks = append(ticks, plot.Tick{Value: rarity(t.Value), Label: t.Label})
		}
	}
	p.X.Tick.Marker = ticks
	for i, s := range panel.Series {
		addLines(p, lines[i], s, c.Y.Log)
	}
	return d.draw([]framed{{plot: p, head: head, share: 1}}), nil
}

// rarity is how many observations there are for one above the percentile.
func rarity(percent float64) float64 { return math.Round(1e6/(1-percent/100)) / 1e6 }
