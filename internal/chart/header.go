package chart

import (
	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A header stands above a plot: its title, what the Y axis shows, and which
// colour is which series. It takes as many rows as it needs.
type header struct {
	title, label string
	entries      []entry
}

// An entry of the legend.
type entry struct {
	name   string
	tone   Tone
	dashed bool
	filled bool
	points bool
}

const (
	swatch = 16 // width of a legend's piece of line
	gap    = 14 // between two things of a row
)

// draw draws the header at the top of the area and returns what is left of it.
func (h header) draw(area draw.Canvas) draw.Canvas {
	title, plain := textStyle(titleSize), textStyle(textSize)
	title.Font.Weight = xfont.WeightBold
	x, y := area.Min.X+1, area.Max.Y-14
	if h.title == "" {
		y -= 8 // from the lowest tick of the plot above
	}
	row := false // whether something stands in the present row
	place := func(width vg.Length) vg.Length {
		if row && x+width > area.Max.X {
			x, y = area.Min.X+1, y-rowHeight
		}
		at := x
		x, row = x+width+gap, true
		return at
	}
	write := func(style text.Style, words string) {
		if words != "" {
			area.FillText(style, vg.Point{X: place(style.Width(words)), Y: y}, words)
		}
	}
	write(title, h.title)
	write(plain, h.label)
	for _, e := range h.entries {
		if e.name == "" || len(h.entries) == 1 && e.name == h.label {
			continue
		}
		at := place(swatch + 5 + plain.Width(e.name))
		e.swatch(area, at, y)
		area.FillText(plain, vg.Point{X: at + swatch + 5, Y: y}, e.name)
	}
	if row {
		y -= 11
	} else {
		y = area.Max.Y - 6
	}
	area.Max.Y = y
	return area
}

func (e entry) swatch(area draw.Canvas, x, y vg.Length) {
	if e.filled {
		area.SetColor(e.tone.ink())
		area.Fill(vg.Rectangle{Min: vg.Point{X: x + 3, Y: y}, Max: vg.Point{X: x + 13, Y: y + 9}}.Path())
		return
	}
	style := Series{Tone: e.tone, Dashed: e.dashed}.style()
	style.Width = 2.5
	area.StrokeLine2(style, x, y+4, x+swatch, y+4)
	if e.points {
		area.StrokeLine2(dot(e.tone), x+swatch/2, y+4, x+swatch/2, y+4)
	}
}
