package chart

import (
	"html/template"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// Bars draws groups of bars: one group for each label, with a bar of each
// series in it.
type Bars struct {
	Title         string
	Labels        []string
	XLabel        string
	Y             Axis
	Series        []Series
	Width, Height float64 // CSS pixels
}

// SVG returns the drawing.
func (b Bars) SVG() (template.HTML, error) {
	d, err := newDrawing(b.Title, b.Width, b.Height)
	if err != nil {
		return "", err
	}
	panel := Panel{Y: b.Y, Series: b.Series}
	if len(b.Labels) == 0 || !panel.seen() {
		return d.empty(), nil
	}
	p := newPlot()
	b.Y.apply(&p.Y, panel.values(), d.ticksUp(1))
	p.X.Min, p.X.Max = -0.5, float64(len(b.Labels))-0.5
	p.X.Label.Text = b.XLabel
	p.X.Tick.Marker = labelTicks(b.Labels, p, d)
	head := header{title: b.Title, label: b.Y.Label}
	group := d.width * 0.62 / float64(len(b.Labels))
	width := min(group/float64(len(b.Series)), 28)
	for i, s := range b.Series {
		values := make(plotter.Values, min(len(s.Y), len(b.Labels)))
		for j := range values {
			if v := s.Y[j]; !math.IsNaN(v) && !math.IsInf(v, 0) {
				values[j] = v
			}
		}
		chart := &plotter.BarChart{Values: values, Width: vg.Length(width * 0.9), Color: s.Tone.ink()}
		chart.Offset = vg.Length(width * (float64(i) - float64(len(b.Series)-1)/2))
		p.Add(bars{chart})
		head.entries = append(head.entries, entry{name: s.Name, tone: s.Tone, filled: true})
	}
	return d.draw([]framed{{plot: p, head: head, share: 1}}), nil
}

// labelTicks has labels at 0, 1, 2 …, or at every second, third … where all of
// them would not fit.
func labelTicks(labels []string, p *plot.Plot, d *drawing) plot.Ticker {
	widest := vg.Length(0)
	for _, l := range labels {
		widest = max(widest, p.X.Tick.Label.Width(l))
	}
	room := vg.Length(d.width*0.86) / vg.Length(len(labels))
	every := max(1, int(math.Ceil(float64((widest+6)/room))))
	var ticks plot.ConstantTicks
	for i, l := range labels {
		if i%every == 0 {
			ticks = append(ticks, plot.Tick{Value: float64(i), Label: l})
		}
	}
	return ticks
}

// bars are a BarChart that leaves the ends of the axes as they were set.
type bars struct{ *plotter.BarChart }

// DataRange adds nothing to the axes.
func (bars) DataRange() (xmin, xmax, ymin, ymax float64) { return noRange() }

// GlyphBoxes reserves no room beside the axes, which have half a group at
// either end.
func (bars) GlyphBoxes(*plot.Plot) []plot.GlyphBox { return nil }
