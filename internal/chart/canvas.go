package chart

import (
	"bytes"
	"fmt"
	"html"
	"html/template"
	"image"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
)

// A paint is a colour that the page decides on.
type paint struct {
	css     string // a CSS variable, and its value where nothing sets it
	opacity float64
}

// RGBA is black: a canvas that knows paints never asks.
func (paint) RGBA() (r, g, b, a uint32) { return color.Black.RGBA() }

const (
	inkColor  = named("var(--chart-ink,#3b4450)")
	gridColor = named("var(--chart-grid,#dde2e8)")
)

// named is a paint that covers.
type named string

// RGBA is black: a canvas that knows paints never asks.
func (named) RGBA() (r, g, b, a uint32) { return color.Black.RGBA() }

var tones = [...]named{
	A: "var(--chart-a,#1d5fbf)", B: "var(--chart-b,#c2410c)", C: "var(--chart-c,#15803d)", D: "var(--chart-d,#7e22ce)",
	E: "var(--chart-e,#0e7490)", F: "var(--chart-f,#be185d)",
}

func (t Tone) ink() named {
	if t < A || t > F {
		t = A
	}
	return tones[t]
}

// wash is the tone of an area.
func (t Tone) wash() paint { return paint{css: string(t.ink()), opacity: 0.22} }

// A canvas writes SVG. It is not gonum's vgsvg, since that puts fixed colours
// into style attributes, and a strict Content-Security-Policy forbids those;
// this one writes presentation attributes that refer to variables of the page,
// in a third of the size.
type canvas struct {
	title         string
	width, height float64
	buf           []byte
	state         state
	stack         []state
}

// state is what Push keeps and Pop brings back.
type state struct {
	color  color.Color
	width  vg.Length
	dashes []vg.Length
	// A point (x, y) is drawn at (a·x + c·y + e, b·x + d·y + f).
	a, b, c, d, e, f float64
}

func newCanvas(title string, width, height float64) *canvas {
	return &canvas{title: title, width: width, height: height, state: state{color: inkColor, width: 1, a: 1, d: 1}}
}

// SVG returns what was drawn.
func (c *canvas) SVG() template.HTML {
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg class="chart" xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 %g %g" width="100%%"`+
		` font-family="Liberation Sans,Arial,Helvetica,sans-serif" fill="none" stroke-linecap="round" stroke-linejoin="round"><title>%s</title>`,
		c.width, c.height, html.EscapeString(c.title))
	out.Write(c.buf)
	out.WriteString("</svg>")
	return template.HTML(out.String()) //nolint:gosec // every text in it was escaped
}

// SetLineWidth is part of vg.Canvas, as are the following.
func (c *canvas) SetLineWidth(w vg.Length) { c.state.width = w }

// SetLineDash sets lengths of dashes and of the gaps between them.
func (c *canvas) SetLineDash(pattern []vg.Length, _ vg.Length) { c.state.dashes = pattern }

// SetColor sets the colour of lines, areas and texts.
func (c *canvas) SetColor(clr color.Color) { c.state.color = clr }

// Push keeps the state, which Pop brings back.
func (c *canvas) Push() { c.stack = append(c.stack, c.state) }

// Pop brings back the state that Push kept.
func (c *canvas) Pop() {
	if n := len(c.stack); n > 0 {
		c.state, c.stack = c.stack[n-1], c.stack[:n-1]
	}
}

// Rotate turns what is drawn from now on.
func (c *canvas) Rotate(rad float64) {
	sin, cos := math.Sincos(rad)
	s := &c.state
	s.a, s.b, s.c, s.d = s.a*cos+s.c*sin, s.b*cos+s.d*sin, s.c*cos-s.a*sin, s.d*cos-s.b*sin
}

// Translate moves what is drawn from now on.
func (c *canvas) Translate(by vg.Point) {
	s := &c.state
	x, y := float64(by.X), float64(by.Y)
	s.e, s.f = s.e+s.a*x+s.c*y, s.f+s.b*x+s.d*y
}

// Scale enlarges what is drawn from now on.
func (c *canvas) Scale(x, y float64) {
	s := &c.state
	s.a, s.b, s.c, s.d = s.a*x, s.b*x, s.c*y, s.d*y
}

// at returns a point in SVG's coordinates, whose Y axis points down.
func (c *canvas) at(p vg.Point) (x, y float64) {
	s := &c.state
	return s.a*float64(p.X) + s.c*float64(p.Y) + s.e, c.height - (s.b*float64(p.X) + s.d*float64(p.Y) + s.f)
}

// Stroke draws a line along the path.
func (c *canvas) Stroke(path vg.Path) {
	if c.state.width <= 0 {
		return
	}
	c.path(path)
	c.paint("stroke")
	c.text(` stroke-width="`).number(float64(c.state.width)).text(`"`)
	if len(c.state.dashes) > 0 {
		c.text(` stroke-dasharray="`)
		for _, d := range c.state.dashes {
			c.number(float64(d)).text(" ")
		}
		c.text(`"`)
	}
	c.text("/>")
}

// Fill fills the path.
func (c *canvas) Fill(path vg.Path) {
	c.path(path)
	c.paint("fill")
	c.text("/>")
}

// FillString writes words that begin at a point of their base line.
func (c *canvas) FillString(f font.Face, at vg.Point, words string) {
	x, y := c.at(at)
	c.text(`<text x="`).number(x).text(`" y="`).number(y).text(`" font-size="`).number(float64(f.Font.Size)).text(`"`)
	if f.Font.Weight > 0 {
		c.text(` font-weight="bold"`)
	}
	if turn := math.Atan2(c.state.b, c.state.a) * 180 / math.Pi; turn != 0 {
		c.text(` transform="rotate(`).number(-turn).text(" ").number(x).text(" ").number(y).text(`)"`)
	}
	c.paint("fill")
	c.text(">").text(html.EscapeString(words)).text("</text>")
}

// DrawImage draws nothing: no chart has an image.
func (*canvas) DrawImage(vg.Rectangle, image.Image) {}

func (c *canvas) paint(attribute string) {
	opacity := 1.0
	var css string
	switch p := c.state.color.(type) {
	case named:
		css = string(p)
	case paint:
		css, opacity = p.css, p.opacity
	case nil:
		css = string(inkColor)
	default:
		r, g, b, _ := p.RGBA()
		css = fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, b>>8)
	}
	c.text(" ").text(attribute).text(`="`).text(css).text(`"`)
	if opacity < 1 {
		c.text(" ").text(attribute).text(`-opacity="`).text(strconv.FormatFloat(opacity, 'g', 3, 64)).text(`"`)
	}
}

func (c *canvas) text(s string) *canvas {
	c.buf = append(c.buf, s...)
	return c
}

// number writes v to a tenth of a pixel, which is more than can be seen.
func (c *canvas) number(v float64) *canvas {
	v = math.Round(v*10) / 10
	if v == 0 {
		v = 0 // no "-0"
	}
	c.buf = strconv.AppendFloat(c.buf, v, 'f', -1, 64)
	return c
}
