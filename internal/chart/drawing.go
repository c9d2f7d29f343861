package chart

import (
	"errors"
	"html/template"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	titleSize = 14
	textSize  = 12
	rowHeight = 19
)

var errSize = errors.New("draw a chart: width and height must be 100 to 10000 pixels")

// A drawing is a canvas and what is put onto it. Lengths are CSS pixels.
type drawing struct {
	canvas        *canvas
	width, height float64
}

func newDrawing(title string, width, height float64) (*drawing, error) {
	if !(width >= 100 && width <= 10000 && height >= 100 && height <= 10000) {
		return nil, errSize
	}
	return &drawing{canvas: newCanvas(title, width, height), width: width, height: height}, nil
}

// ticksUp is how many ticks suit a panel that has a share of the height, and
// its header and the labels of the other axis in it.
func (d *drawing) ticksUp(share float64) int {
	return max(1, int((d.height*share-48)/38))
}

// mostPoints is how many points a line has: the lowest and the highest of every
// two pixels across.
func (d *drawing) mostPoints() int { return int(min(d.width, 600)) }

func (d *drawing) ticksAcross() int { return max(3, int(d.width/95)) }

// A framed plot has a header above it, and a share of the drawing's height.
type framed struct {
	plot  *plot.Plot
	head  header
	share float64
}

// draw draws the plots beneath each other, with their X axes one above the
// other, and returns the SVG.
func (d *drawing) draw(plots []framed) template.HTML {
	areas := make([]draw.Canvas, len(plots))
	left, right := vg.Length(0), vg.Length(math.Inf(1))
	whole := draw.NewCanvas(d.canvas, vg.Length(d.width), vg.Length(d.height))
	top := whole.Max.Y
	for i, f := range plots {
		bottom := top - vg.Length(d.height*f.share)
		area := draw.Canvas{Canvas: whole.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: 0, Y: max(bottom, 0)}, Max: vg.Point{X: vg.Length(d.width), Y: top},
		}}
		areas[i] = f.head.draw(area)
		inside := f.plot.DataCanvas(areas[i])
		left, right = max(left, inside.Min.X), min(right, inside.Max.X)
		top = bottom
	}
	for i, f := range plots {
		inside := f.plot.DataCanvas(areas[i])
		f.plot.Draw(draw.Crop(areas[i], left-inside.Min.X, right-inside.Max.X, 0, 0))
	}
	return d.canvas.SVG()
}

// empty is the drawing of no data.
func (d *drawing) empty() template.HTML {
	whole := draw.NewCanvas(d.canvas, vg.Length(d.width), vg.Length(d.height))
	header{title: d.canvas.title}.draw(whole)
	frame := draw.Crop(whole, 1, -1, 1, -rowHeight-4)
	whole.SetLineStyle(draw.LineStyle{Color: gridColor, Width: 1})
	whole.Stroke(frame.Path())
	style := textStyle(textSize)
	style.XAlign, style.YAlign = draw.XCenter, draw.YCenter
	whole.FillText(style, frame.Center(), "no data yet")
	return d.canvas.SVG()
}

// newPlot returns a plot in the style of all: no more lines than are needed
// to read the values.
func newPlot() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Padding = 0
		axis.Color, axis.Width = gridColor, 1
		axis.Tick.Length, axis.Tick.Width = 0, 0
		axis.Label.TextStyle = textStyle(textSize)
		axis.Label.TextStyle.XAlign = draw.XCenter
		axis.Label.Padding = 1
		align := axis.Tick.Label
		axis.Tick.Label = textStyle(textSize)
		axis.Tick.Label.XAlign, axis.Tick.Label.YAlign = align.XAlign, align.YAlign
	}
	p.Y.Width = 0
	p.X.Tick.Length, p.X.Tick.LineStyle = 4, draw.LineStyle{Color: gridColor, Width: 1}
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	grid.Horizontal = draw.LineStyle{Color: gridColor, Width: 1}
	p.Add(grid)
	return p
}

func textStyle(size float64) text.Style {
	return text.Style{
		Color:   inkColor,
		Font:    font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Length(size)},
		Handler: plot.DefaultTextHandler,
	}
}

func (s Series) style() draw.LineStyle {
	style := draw.LineStyle{Color: s.Tone.ink(), Width: 1.6}
	if s.Dashed {
		style.Dashes = []vg.Length{5, 4}
	}
	return style
}

// A polyline is a Line that reserves no room for the ends of its points and
// leaves the ends of the axes as they were set.
type polyline struct{ *plotter.Line }

// GlyphBoxes reserves no room.
func (*polyline) GlyphBoxes(*plot.Plot) []plot.GlyphBox { return nil }

// DataRange adds nothing to the axes.
func (*polyline) DataRange() (xmin, xmax, ymin, ymax float64) { return noRange() }

func noRange() (xmin, xmax, ymin, ymax float64) {
	return math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
}
