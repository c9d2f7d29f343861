package chart

import (
	"math"
	"strconv"

	"gonum.org/v1/plot/vg"
)

// A pen writes a path's data: each point as tenths of a pixel from the one
// before, which takes half the room of absolute numbers.
type pen struct {
	buf  []byte
	x, y int // where it stands, in tenths
	// Where the present part of the path began, and closing it returns to.
	startX, startY int
}

// path writes a path element up to its data.
func (c *canvas) path(path vg.Path) {
	p := pen{buf: append(c.buf, `<path d="`...)}
	for i := range path {
		comp := &path[i]
		switch comp.Type {
		case vg.MoveComp:
			p.step('m', c, comp.Pos)
			p.startX, p.startY = p.x, p.y
		case vg.LineComp:
			p.step('l', c, comp.Pos)
		case vg.ArcComp:
			p.arc(c, comp)
		case vg.CurveComp:
			// No chart has curves; their ends are joined.
			p.step('l', c, comp.Pos)
		case vg.CloseComp:
			p.buf = append(p.buf, 'z')
			p.x, p.y = p.startX, p.startY
		}
	}
	c.buf = p.buf
	c.text(`"`)
}

// step moves the pen to a point, drawing or not.
func (p *pen) step(command byte, c *canvas, to vg.Point) {
	fx, fy := c.at(to)
	x, y := int(math.Round(fx*10)), int(math.Round(fy*10))
	p.buf = append(p.buf, command)
	p.tenths(x - p.x)
	if y >= p.y {
		p.buf = append(p.buf, ' ') // a minus separates by itself
	}
	p.tenths(y - p.y)
	p.x, p.y = x, y
}

func (p *pen) tenths(n int) {
	if n < 0 {
		p.buf = append(p.buf, '-')
		n = -n
	}
	if n >= 10 || n == 0 {
		p.buf = strconv.AppendInt(p.buf, int64(n/10), 10)
	}
	if n%10 != 0 {
		p.buf = append(p.buf, '.', byte('0'+n%10))
	}
}

// arc draws an arc as short straight pieces.
func (p *pen) arc(c *canvas, comp *vg.PathComp) {
	pieces := max(2, int(math.Abs(comp.Angle)/(math.Pi/12)))
	for i := range pieces + 1 {
		sin, cos := math.Sincos(comp.Start + comp.Angle*float64(i)/float64(pieces))
		p.step('l', c, vg.Point{X: comp.Pos.X + comp.Radius*vg.Length(cos), Y: comp.Pos.Y + comp.Radius*vg.Length(sin)})
	}
}
