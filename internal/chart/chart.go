// Package chart draws what the live page and the reports show: values over time,
// bars beside each other, lines through measurements, and latency by percentile.
// gonum/plot draws; the result is an inline SVG with variables of the page as its
// colours, which needs no font, script or style sheet from elsewhere. It imports
// no other package of Brim.
package chart

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html"
	"html/template"
	"image/color"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// CSS sets the colours of all drawings on a page, for light and for dark.
// Without it they have the light ones.
const CSS = `:root{--chart-ink:#3b4450;--chart-grid:#dde2e8;--chart-a:#1d5fbf;--chart-b:#c2410c;--chart-c:#15803d;--chart-d:#7e22ce;--chart-e:#0e7490;--chart-f:#be185d}
@media (prefers-color-scheme:dark){:root{--chart-ink:#b4bec9;--chart-grid:#333c46;--chart-a:#6cb0ff;--chart-b:#ff9b5e;--chart-c:#5fd38a;--chart-d:#c79bff;--chart-e:#4fd1e0;--chart-f:#ff8fc0}}
`

//go:embed page.css
var pageSource string

// PageCSS is the style of a report, for light and for dark: CSS, and what all
// pages with drawings and tables have in common.
func PageCSS() template.CSS {
	return template.CSS(CSS + pageSource) //nolint:gosec // it is this package's own
}

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
	Name string
	// X are the places of the values, rising: percentiles in a Curve. nil: those of
	// the chart, or 0, 1, 2 …, as the labels have.
	X []float64
	Y []float64 // NaN leaves a gap
	// Low and High are the range of the repeats; both nil: not shown.
	Low, High []float64
	Tone      Tone
	Dashed    bool
	Filled    bool // down to the lower end of the axis
	Bare      bool // without points
}

// An Axis says what the values are.
type Axis struct {
	Label string
	Unit  Unit
	Log   bool    // values of 0 and less are left out
	Max   float64 // the end of an axis from 0; 0: the data sets it
}

// A Panel is drawn beneath another with the same X axis.
type Panel struct {
	Y      Axis
	Series []Series
}

// Time draws series over time.
type Time struct {
	Title         string
	X             []float64 // seconds, rising; up to 0 they are before now
	XLabel        string
	Y             Axis
	Series        []Series
	Beneath       *Panel
	Marks         []float64 // times that get an upright line
	Width, Height float64   // CSS pixels; the drawing scales with its place on the page
}

// SVG returns the drawing.
func (t Time) SVG() (template.HTML, error) {
	d := drawing{title: t.Title, width: t.Width, height: t.Height}
	panels := []Panel{{Y: t.Y, Series: t.Series}}
	if t.Beneath != nil {
		panels = append(panels, *t.Beneath)
	}
	for i, panel := range panels {
		p := newPlot("") // a low panel has no room for a label beside it
		var values []float64
		for _, s := range panel.Series {
			values = append(values, s.Y...)
			s.X, s.Bare = t.X, true
			d.line(p, s, panel.Y.Log)
		}
		d.seen = d.seen || len(t.X) > 0 && slices.ContainsFunc(values, finite)
		panel.Y.apply(&p.Y, values)
		if len(t.X) > 0 {
			p.X.Min, p.X.Max = t.X[0], max(t.X[len(t.X)-1], t.X[0]+1)
		}
		p.X.Tick.Marker = plot.ConstantTicks(nil)
		if i == len(panels)-1 {
			p.X.Tick.Marker, p.X.Label.Text = timeTicks{wanted: max(3, int(t.Width/95))}, t.XLabel
		}
		p.Add(marks(t.Marks))
		d.plots, d.labels = append(d.plots, p), append(d.labels, panel.Y.Label)
	}
	return d.svg()
}

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
	d := drawing{title: b.Title, width: b.Width, height: b.Height}
	p := newPlot(b.Y.Label)
	group := b.Width * 0.62 / float64(max(len(b.Labels), 1))
	width := min(group/float64(max(len(b.Series), 1)), 28)
	var all []float64
	for i, s := range b.Series {
		values := make(plotter.Values, min(len(s.Y), len(b.Labels)))
		for j := range values {
			if finite(s.Y[j]) {
				values[j], d.seen = s.Y[j], true
			}
		}
		all = append(all, values...)
		chart := &plotter.BarChart{Values: values, Width: vg.Length(width * 0.9), Color: s.Tone.ink()}
		chart.Offset = vg.Length(width * (float64(i) - float64(len(b.Series)-1)/2))
		p.Add(fixed{chart})
		d.legend = append(d.legend, entry{s.Name, chart})
	}
	b.Y.apply(&p.Y, all)
	p.X.Min, p.X.Max = -0.5, float64(len(b.Labels))-0.5
	p.X.Label.Text = b.XLabel
	p.X.Tick.Marker = labelTicks(b.Labels, p, b.Width)
	d.plots = []*plot.Plot{p}
	return d.svg()
}

// Lines draws values against a number, or against things beside each other, with
// a point at each that was measured.
type Lines struct {
	Title  string
	XLabel string
	LogX   bool // all places are above 0
	// Labels make an axis of things, which stand at 0, 1, 2 …
	Labels        []string
	Y             Axis
	Series        []Series
	Width, Height float64 // CSS pixels; the drawing scales with its place on the page
}

// SVG returns the drawing.
func (l Lines) SVG() (template.HTML, error) {
	d := drawing{title: l.Title, width: l.Width, height: l.Height}
	p := newPlot(l.Y.Label)
	var across, up []float64
	for _, s := range l.Series {
		for i := len(s.X); l.Labels != nil && i < min(len(s.Y), len(l.Labels)); i++ {
			s.X = append(s.X, float64(i))
		}
		s.Y = s.Y[:min(len(s.X), len(s.Y))]
		across, up = append(across, s.X...), slices.Concat(up, s.Y, s.Low, s.High)
		d.seen = d.seen || slices.ContainsFunc(s.Y, finite)
		d.line(p, s, l.Y.Log)
	}
	l.Y.apply(&p.Y, up)
	if n := len(l.Labels); n > 0 {
		p.X.Min, p.X.Max = -0.25, float64(n)-0.75
		p.X.Tick.Marker = labelTicks(l.Labels, p, l.Width)
	} else {
		Axis{Unit: Count, Log: l.LogX}.apply(&p.X, across)
	}
	p.X.Label.Text = l.XLabel
	d.plots = []*plot.Plot{p}
	return d.svg()
}

// Curve draws values by percentile. Each nine after the point takes as much room
// as the one before, so that the slowest of many thousands can be read.
type Curve struct {
	Title         string
	Y             Axis
	Series        []Series
	Width, Height float64 // CSS pixels
}

// SVG returns the drawing.
func (c Curve) SVG() (template.HTML, error) {
	d := drawing{title: c.Title, width: c.Width, height: c.Height}
	p := newPlot(c.Y.Label)
	var values []float64
	last := rarity(90)
	for _, s := range c.Series {
		line := Series{Name: s.Name, Tone: s.Tone, Dashed: s.Dashed, Bare: true}
		for j := range min(len(s.X), len(s.Y)) {
			if at := s.X[j]; at >= 0 && at < 100 { // the maximum has no place on this axis
				line.X, line.Y = append(line.X, rarity(at)), append(line.Y, s.Y[j])
				last = max(last, rarity(at))
			}
		}
		values = append(values, line.Y...)
		d.line(p, line, c.Y.Log)
	}
	d.seen = slices.ContainsFunc(values, finite)
	c.Y.apply(&p.Y, values)
	p.X.Min, p.X.Max, p.X.Scale = 1, min(last, rarity(99.9999)), logScale{}
	var ticks plot.ConstantTicks
	for _, percent := range []float64{50, 90, 99, 99.9, 99.99, 99.999} {
		if rarity(percent) <= p.X.Max*1.01 {
			ticks = append(ticks, plot.Tick{Value: rarity(percent), Label: strconv.FormatFloat(percent, 'f', -1, 64) + " %"})
		}
	}
	p.X.Tick.Marker = ticks
	d.plots = []*plot.Plot{p}
	return d.svg()
}

// rarity is how many observations there are for one above the percentile.
func rarity(percent float64) float64 { return math.Round(1e6/(1-percent/100)) / 1e6 }

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

var errSize = errors.New("draw a chart: width and height must be 100 to 10000 pixels")

// A drawing is plots beneath each other. Lengths are CSS pixels.
type drawing struct {
	title         string
	width, height float64
	plots         []*plot.Plot
	labels        []string // above them, for those that have one
	legend        []entry
	seen          bool // there is something to show
}

// An entry is a series in the legend: its name beside a sample of its line.
type entry struct {
	name   string
	sample plot.Thumbnailer
}

const (
	titleSize, textSize = 14, 12
	titleHeight         = 20
	labelHeight         = 20
	sampleWidth         = 16
	upperShare          = 0.66 // of the height, of two plots
)

// line adds a line for each run of points without a gap, its points, and the
// ranges through them.
func (d *drawing) line(p *plot.Plot, s Series, log bool) {
	style := draw.LineStyle{Color: s.Tone.ink(), Width: 1.6}
	if s.Dashed {
		style.Dashes = []vg.Length{5, 4}
	}
	gap := func(y float64) bool { return !finite(y) || log && y <= 0 }
	points := thin(s.X, s.Y, int(min(d.width, 600)))
	for from := 0; from < len(points); from++ {
		to := from
		for to < len(points) && !gap(points[to].Y) {
			to++
		}
		if to == from {
			continue
		}
		run := points[from:to]
		if len(run) == 1 {
			run = plotter.XYs{run[0], run[0]} // round ends make it a dot
		}
		line := &plotter.Line{XYs: run, LineStyle: style}
		if s.Filled {
			line.FillColor = s.Tone.wash()
		}
		p.Add(fixed{line})
		from = to
	}
	if s.Name != "" {
		d.legend = append(d.legend, entry{s.Name, &plotter.Line{LineStyle: style}})
	}
	var dots plotter.XYs
	var bars struct {
		plotter.XYs
		plotter.YErrors
	}
	for i := range s.X {
		if i >= len(s.Y) || gap(s.Y[i]) {
			continue
		}
		dots = append(dots, plotter.XY{X: s.X[i], Y: s.Y[i]})
		if i < len(s.Low) && !gap(s.Low[i]) && !gap(s.High[i]) && s.Low[i] < s.High[i] {
			bars.XYs = append(bars.XYs, plotter.XY{X: s.X[i], Y: s.Y[i]})
			bars.YErrors = append(bars.YErrors, struct{ Low, High float64 }{s.Y[i] - s.Low[i], s.High[i] - s.Y[i]})
		}
	}
	if !s.Bare && len(dots) > 0 {
		p.Add(fixed{&plotter.Scatter{XYs: dots, GlyphStyle: draw.GlyphStyle{Color: s.Tone.ink(), Radius: 2.75, Shape: draw.CircleGlyph{}}}})
	}
	if len(bars.XYs) > 0 {
		p.Add(fixed{&plotter.YErrorBars{XYs: bars.XYs, YErrors: bars.YErrors, LineStyle: draw.LineStyle{Color: s.Tone.ink(), Width: 1}, CapWidth: 6}})
	}
}

// svg draws the plots beneath each other, with their X axes aligned.
func (d *drawing) svg() (template.HTML, error) {
	if !(d.width >= 100 && d.width <= 10000 && d.height >= 100 && d.height <= 10000) {
		return "", errSize
	}
	canvas := vgsvg.New(vg.Length(d.width), vg.Length(d.height))
	whole := draw.New(canvas)
	title := textStyle(titleSize)
	whole.FillText(title, vg.Point{X: 1, Y: whole.Max.Y - 14}, d.title)
	if !d.seen {
		middle := textStyle(textSize)
		middle.XAlign, middle.YAlign = draw.XCenter, draw.YCenter
		whole.FillText(middle, whole.Center(), "no data yet")
		return d.html(canvas)
	}
	top := d.drawLegend(whole, title.Width(d.title))
	areas := []draw.Canvas{draw.Crop(whole, 0, 0, 0, -top)}
	if len(d.plots) == 2 {
		split := vg.Length(d.height * (1 - upperShare))
		areas = []draw.Canvas{draw.Crop(whole, 0, 0, split, -top), draw.Crop(whole, 0, 0, 0, split-vg.Length(d.height))}
	}
	for i, label := range d.labels {
		if label != "" {
			whole.FillText(textStyle(textSize), vg.Point{X: 1, Y: areas[i].Max.Y - 15}, label)
			areas[i] = draw.Crop(areas[i], 0, 0, 0, -labelHeight)
		}
	}
	left, right := vg.Length(0), vg.Length(math.Inf(1))
	for i, p := range d.plots {
		inside := p.DataCanvas(areas[i])
		left, right = max(left, inside.Min.X), min(right, inside.Max.X)
	}
	for i, p := range d.plots {
		inside := p.DataCanvas(areas[i])
		p.Draw(draw.Crop(areas[i], left-inside.Min.X, right-inside.Max.X, 0, 0))
	}
	return d.html(canvas)
}

// drawLegend draws the legend to the right of the title, or below it if there is no
// room, and returns the height of both.
func (d *drawing) drawLegend(whole draw.Canvas, title vg.Length) vg.Length {
	const between = 12
	style := textStyle(textSize)
	var width vg.Length
	for _, e := range d.legend {
		width += sampleWidth + 4 + style.Width(e.name) + between
	}
	height, at := vg.Length(titleHeight), vg.Point{X: whole.Max.X - width, Y: whole.Max.Y - 13}
	if title+between > at.X {
		height, at = 2*titleHeight, vg.Point{X: 1, Y: at.Y - titleHeight + 2}
	}
	for _, e := range d.legend {
		e.sample.Thumbnail(&draw.Canvas{Canvas: whole.Canvas, Rectangle: vg.Rectangle{Min: at, Max: vg.Point{X: at.X + sampleWidth, Y: at.Y + 9}}})
		at.X += sampleWidth + 4
		whole.FillText(style, at, e.name)
		at.X += style.Width(e.name) + between
	}
	return height
}

var (
	styleAttribute = regexp.MustCompile(`\s*style="([^"]*)"`)
	longNumber     = regexp.MustCompile(`(\d\.\d)\d+`)
)

// html turns what vgsvg wrote into an inline element. A strict
// Content-Security-Policy forbids style attributes, so that they become
// presentation attributes; colours become variables of the page.
func (d *drawing) html(canvas *vgsvg.Canvas) (template.HTML, error) {
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", fmt.Errorf("draw a chart: %w", err)
	}
	_, body, _ := strings.Cut(b.String(), "<svg")
	_, body, _ = strings.Cut(body, ">")
	body = longNumber.ReplaceAllString(body, "$1")
	body = styleAttribute.ReplaceAllStringFunc(body, func(style string) string {
		var out strings.Builder
		for declaration := range strings.SplitSeq(styleAttribute.FindStringSubmatch(style)[1], ";") {
			name, value, _ := strings.Cut(declaration, ":")
			if !strings.HasPrefix(name, "font-") || name == "font-size" { // all have the same font
				out.WriteString(" " + name + `="` + value + `"`)
			}
		}
		return out.String()
	})
	for i, v := range variables {
		name := `="var(--chart-` + v.name + "," + v.light + `)"`
		body = strings.ReplaceAll(body, `="`+hexOf(solid(i))+`"`, name)
		body = strings.ReplaceAll(body, `="`+hexOf(faint(i))+`"`, name+` fill-opacity="0.22"`)
	}
	return template.HTML(fmt.Sprintf( //nolint:gosec // vgsvg escapes the texts
		`<svg class="chart" xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 %g %g" width="100%%"`+
			` font-family="Liberation Sans,Arial,Helvetica,sans-serif" stroke-linecap="round" stroke-linejoin="round"><title>%s</title>%s`,
		d.width, d.height, html.EscapeString(d.title), strings.TrimSpace(body))), nil
}

// variables are the colours that the page decides on, with their values if it does
// not. While gonum/plot draws, a number stands for each.
var variables = [...]struct{ name, light string }{
	{"a", "#1d5fbf"}, {"b", "#c2410c"}, {"c", "#15803d"}, {"d", "#7e22ce"}, {"e", "#0e7490"}, {"f", "#be185d"}, {"ink", "#3b4450"}, {"grid", "#dde2e8"},
}

const ink, grid = 6, 7

func solid(i int) color.NRGBA { return color.NRGBA{R: 0xfe, B: uint8(i), A: 0xff} }          //nolint:gosec // of eight
func faint(i int) color.NRGBA { return color.NRGBA{R: 0xfe, G: 0xfe, B: uint8(i), A: 0xff} } //nolint:gosec // of eight

func hexOf(c color.NRGBA) string { return fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B) }

func (t Tone) index() int {
	if t < A || t > F {
		return int(A)
	}
	return int(t)
}

func (t Tone) ink() color.Color { return solid(t.index()) }

// wash is the tone of an area.
func (t Tone) wash() color.Color { return faint(t.index()) }

// newPlot returns a plot in the style of all: no more lines than are needed to
// read the values.
func newPlot(label string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Padding = 0
		axis.Color, axis.Width = solid(grid), 1
		axis.Tick.Length, axis.Tick.Width = 0, 0
		for _, style := range []*text.Style{&axis.Label.TextStyle, &axis.Tick.Label} {
			style.Color, style.Font = solid(ink), sans(textSize)
		}
	}
	p.Y.Width = 0
	p.Y.Label.Text = label
	lines := plotter.NewGrid()
	lines.Vertical.Color = nil
	lines.Horizontal = draw.LineStyle{Color: solid(grid), Width: 1}
	p.Add(lines)
	return p
}

func sans(size float64) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Length(size)}
}

func textStyle(size float64) text.Style {
	return text.Style{Color: solid(ink), Font: sans(size), Handler: plot.DefaultTextHandler}
}

// fixed is a plotter that reserves no room for the ends of its points and leaves
// the ends of the axes as they were set. It draws nothing outside of them.
type fixed struct{ plot.Plotter }

// DataRange adds nothing to the axes.
func (fixed) DataRange() (xmin, xmax, ymin, ymax float64) {
	return math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
}

// marks are upright lines from one end of the panel to the other.
type marks []float64

// Plot draws the marks.
func (m marks) Plot(c draw.Canvas, p *plot.Plot) {
	style := draw.LineStyle{Color: solid(ink), Width: 1, Dashes: []vg.Length{2, 3}}
	for _, at := range m {
		if x := c.X(p.X.Norm(at)); c.ContainsX(x) {
			c.StrokeLine2(style, x, c.Min.Y, x, c.Max.Y)
		}
	}
}

// apply sets an axis of a plot for the values.
func (a Axis) apply(to *plot.Axis, values []float64) {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if finite(v) && (!a.Log || v > 0) {
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	switch {
	case a.Max > 0:
		lo, hi = 0, a.Max
	case a.Log:
		if lo > hi {
			lo, hi = 1, 10
		}
		lo, hi = math.Pow(10, math.Floor(math.Log10(lo)+1e-9)), math.Pow(10, math.Ceil(math.Log10(hi)-1e-9))
		if hi < lo*9 {
			hi = lo * 10
		}
	default:
		if lo = min(lo, 0); hi <= lo {
			hi = lo + 1
		}
		step := a.Unit.step(hi - lo)
		lo, hi = math.Floor(lo/step)*step, math.Ceil(hi/step-1e-9)*step
	}
	if a.Log {
		to.Scale = logScale{}
	}
	to.Min, to.Max = lo, hi
	to.Tick.Marker = unitTicks{a.Unit, a.Log}
}

// step is the distance of ticks: 1, 2 or 5 times a power of ten of what the unit
// is read in.
func (u Unit) step(span float64) float64 {
	const wanted = 4
	rough, factor := span/wanted, u.scaleOf(span).factor
	power := math.Pow(10, math.Floor(math.Log10(rough/factor)))
	for _, n := range [...]float64{1, 2, 5} {
		if rough <= n*power*factor*(1+1e-9) {
			return n * power * factor
		}
	}
	return 10 * power * factor
}

// unitTicks are labelled in a unit, all in the scale of the highest.
type unitTicks struct {
	unit Unit
	log  bool
}

// Ticks returns those from low to high.
func (t unitTicks) Ticks(low, high float64) (out []plot.Tick) {
	if t.log {
		for v := math.Pow(10, math.Ceil(math.Log10(low)-1e-9)); v <= high*(1+1e-9) && len(out) < 400; v *= 10 {
			out = append(out, plot.Tick{Value: v, Label: Format(t.unit, v)})
		}
		for every := 2; len(out) > 8; { // as many as can be read
			out = slices.DeleteFunc(out, func(x plot.Tick) bool { return int(math.Round(math.Log10(x.Value)))%every != 0 })
			every *= 2
		}
		return out
	}
	scale := t.unit.scaleOf(max(math.Abs(high), math.Abs(low)))
	step := t.unit.step(high - low)
	for i := math.Ceil(low/step - 1e-9); i*step <= high*(1+1e-9) && len(out) < 100; i++ {
		out = append(out, plot.Tick{Value: i * step, Label: number(threeDigits(i*step/scale.factor)) + scale.suffix})
	}
	return out
}

// logScale is like plot.LogScale, but takes what is not above 0 as the lower
// end: bars stand on 0.
type logScale struct{}

// Normalize returns where x lies between low, 0, and high, 1.
func (logScale) Normalize(low, high, x float64) float64 {
	if x <= low || low <= 0 {
		return 0
	}
	return math.Log(x/low) / math.Log(high/low)
}

// labelTicks has labels at 0, 1, 2 …, or at every second, third … if not all of
// them fit.
func labelTicks(labels []string, p *plot.Plot, width float64) plot.Ticker {
	widest := vg.Length(0)
	for _, l := range labels {
		widest = max(widest, p.X.Tick.Label.Width(l))
	}
	room := vg.Length(width*0.86) / vg.Length(max(len(labels), 1))
	every := max(1, int(math.Ceil(float64((widest+6)/room))))
	var ticks plot.ConstantTicks
	for i, l := range labels {
		if i%every == 0 {
			ticks = append(ticks, plot.Tick{Value: float64(i), Label: l})
		}
	}
	return ticks
}

// timeTicks are whole seconds, minutes or hours.
type timeTicks struct{ wanted int }

// timeSteps are the distances that ticks of time have, in seconds.
var timeSteps = [...]float64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400}

// Ticks returns those from low to high.
func (t timeTicks) Ticks(low, high float64) []plot.Tick {
	step := timeSteps[len(timeSteps)-1]
	for _, s := range timeSteps {
		if (high-low)/s <= float64(t.wanted) {
			step = s
			break
		}
	}
	unit, suffix := 1.0, " s"
	switch {
	case step >= 3600:
		unit, suffix = 3600, " h"
	case step >= 60:
		unit, suffix = 60, " min"
	}
	var ticks []plot.Tick
	for v := math.Ceil(low/step) * step; v <= high; v += step {
		label := strings.Replace(strconv.FormatFloat(v/unit+0, 'f', -1, 64)+suffix, "-", "−", 1)
		if v == 0 && high <= 0 {
			label = "now"
		}
		ticks = append(ticks, plot.Tick{Value: v, Label: label})
	}
	return ticks
}

// thin returns at most so many points of a line: the lowest and the highest of
// each stretch, so that no peak is lost.
func thin(x, y []float64, most int) plotter.XYs {
	n := min(len(x), len(y))
	points := make(plotter.XYs, 0, min(n, most))
	if n <= most {
		for i := range n {
			points = append(points, plotter.XY{X: x[i], Y: y[i]})
		}
		return points
	}
	stretches := most / 2
	for i := range stretches {
		from, to := i*n/stretches, (i+1)*n/stretches
		lo, hi := -1, -1
		for j := from; j < to; j++ {
			if math.IsNaN(y[j]) {
				continue
			}
			if lo < 0 || y[j] < y[lo] {
				lo = j
			}
			if hi < 0 || y[j] > y[hi] {
				hi = j
			}
		}
		if lo < 0 {
			points = append(points, plotter.XY{X: x[from], Y: math.NaN()})
			continue
		}
		first, second := min(lo, hi), max(lo, hi)
		points = append(points, plotter.XY{X: x[first], Y: y[first]})
		if second != first {
			points = append(points, plotter.XY{X: x[second], Y: y[second]})
		}
	}
	return points
}
