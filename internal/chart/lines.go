package chart

import (
	"html/template"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A LineSeries is one line of Lines.
type LineSeries struct {
	Name string
	// X are the places of the values, rising. nil: 0, 1, 2 …, as the labels have.
	X []float64
	Y []float64 // NaN leaves a gap
	// Low and High are the ends of what the repeats gave; both nil: not shown.
	Low, High []float64
	Tone      Tone
	Dashed    bool
	Bare      bool // without points, like a curve that was fitted
}

// Lines draws values against a number, or against things beside each other, with
// a point at each that was measured.
type Lines struct {
	Title string
	X     Axis
	// Labels make an axis of things, which stand at 0, 1, 2 …; X has the label
	// alone then.
	Labels        []string
	Y             Axis
	Series        []LineSeries
	Marks         []float64 // places on the X axis that get an upright line
	Width, Height float64   // CSS pixels; the drawing scales with its place on the page
}

// SVG returns the drawing.
func (l Lines) SVG() (template.HTML, error) {
	d, err := newDrawing(l.Title, l.Width, l.Height)
	if err != nil {
		return "", err
	}
	shown := make([]LineSeries, len(l.Series))
	var across, up []float64
	for i, s := range l.Series {
		shown[i] = s.placed(l)
		across = append(across, shown[i].X...)
		up = append(append(append(up, shown[i].Y...), shown[i].Low...), shown[i].High...)
	}
	if !(Panel{Series: []Series{{Y: up}}}).seen() {
		return d.empty(), nil
	}
	p := newPlot()
	l.Y.apply(&p.Y, up, d.ticksUp(1))
	if n := len(l.Labels); n > 0 {
		p.X.Min, p.X.Max = -0.25, float64(n)-0.75
		p.X.Tick.Marker = labelTicks(l.Labels, p, d)
	} else {
		l.X.apply(&p.X, across, d.ticksAcross())
	}
	p.X.Label.Text = l.X.Label
	p.Add(marks(l.Marks))
	head := header{title: l.Title, label: l.Y.Label}
	for _, s := range shown {
		s.add(p, l.Y.Log)
		head.entries = append(head.entries, entry{name: s.Name, tone: s.Tone, dashed: s.Dashed, points: !s.Bare})
	}
	return d.draw([]framed{{plot: p, head: head, share: 1}}), nil
}

// placed returns the series with a place for each value, without those that have
// none on the X axis of l.
func (s LineSeries) placed(l Lines) LineSeries {
	out := s
	out.X, out.Y, out.Low, out.High = nil, nil, nil, nil
	ranges := len(s.Low) >= len(s.Y) && len(s.High) >= len(s.Y)
	for i, y := range s.Y {
		x := float64(i)
		if s.X != nil {
			if i >= len(s.X) {
				break
			}
			x = s.X[i]
		}
		if n := len(l.Labels); n > 0 && !(x >= 0 && x <= float64(n-1)) || math.IsNaN(x) || math.IsInf(x, 0) || n == 0 && l.X.Log && x <= 0 {
			continue
		}
		out.X, out.Y = append(out.X, x), append(out.Y, y)
		if ranges {
			out.Low, out.High = append(out.Low, s.Low[i]), append(out.High, s.High[i])
		}
	}
	return out
}

// add adds the line, its points, and the ranges through them.
func (s LineSeries) add(p *plot.Plot, log bool) {
	points := make(plotter.XYs, len(s.X))
	for i := range points {
		points[i] = plotter.XY{X: s.X[i], Y: s.Y[i]}
	}
	if len(s.Low) > 0 {
		p.Add(whiskers(s))
	}
	addLines(p, points, Series{Y: s.Y, Tone: s.Tone, Dashed: s.Dashed}, log)
	if !s.Bare {
		p.Add(dots{points, s.Tone})
	}
}

// dot is the style of a line of no length, whose round ends make it a point.
func dot(t Tone) draw.LineStyle { return draw.LineStyle{Color: t.ink(), Width: 5.5} }

// dots are points.
type dots struct {
	at   plotter.XYs
	tone Tone
}

// Plot draws those that lie within the axes.
func (d dots) Plot(c draw.Canvas, p *plot.Plot) {
	for _, at := range d.at {
		if x, y := p.X.Norm(at.X), p.Y.Norm(at.Y); within(x) && within(y) && !(isLog(p.Y) && at.Y <= 0) {
			c.StrokeLine2(dot(d.tone), c.X(x), c.Y(y), c.X(x), c.Y(y))
		}
	}
}

// whiskers are upright lines from the lowest to the highest that was measured.
type whiskers LineSeries

// Plot draws what of them lies within the axes.
func (w whiskers) Plot(c draw.Canvas, p *plot.Plot) {
	const half = 3 // width of the ends
	style := draw.LineStyle{Color: w.Tone.ink(), Width: 1}
	for i, at := range w.X {
		x, low, high := p.X.Norm(at), p.Y.Norm(w.Low[i]), p.Y.Norm(w.High[i])
		if !within(x) || !(low < high) || low > 1 || high < 0 {
			continue
		}
		cx := c.X(x)
		from, to := c.Y(max(low, 0)), c.Y(min(high, 1))
		c.StrokeLine2(style, cx, from, cx, to)
		for _, end := range []vg.Length{from, to} {
			c.StrokeLine2(style, cx-half, end, cx+half, end)
		}
	}
}

// within reports whether a place lies on the axis, ends included.
func within(norm float64) bool { return norm >= -1e-9 && norm <= 1+1e-9 }

func isLog(a plot.Axis) bool {
	_, log := a.Scale.(logScale)
	return log
}
