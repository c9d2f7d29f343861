// Package fit draws straight lines through what was measured.
package fit

import "math"

// A Line is base + each·x, with how sure its two numbers are.
type Line struct {
	Base float64 `json:"base"`
	Each float64 `json:"each"`
	// Standard errors, from how far the points are off; 0 for two points, which
	// every line goes through.
	BaseError float64 `json:"base_error"`
	EachError float64 `json:"each_error"`
	R2        float64 `json:"r2"` // part of the spread that the line explains, 1 at best
	Points    int     `json:"points"`
}

// At returns the line's value at x.
func (l Line) At(x float64) float64 { return l.Base + l.Each*x }

// Over returns the line divided by a number: in another unit.
func (l Line) Over(by float64) Line {
	l.Base, l.Each, l.BaseError, l.EachError = l.Base/by, l.Each/by, l.BaseError/by, l.EachError/by
	return l
}

// Through returns the line of least squares through points. Each deviation
// counts in proportion to its own value: what the smallest costs says as much as
// what the largest does, though it is a hundredth of it. It takes points of two
// places at least, and values above 0; false for others.
func Through(x, y []float64) (l Line, ok bool) {
	if len(x) != len(y) {
		return l, false
	}
	var w, wx, wy, wxx, wxy float64
	for i := range x {
		if !(y[i] > 0) || math.IsInf(y[i], 0) {
			return l, false
		}
		weight := 1 / (y[i] * y[i])
		w, wx, wy = w+weight, wx+weight*x[i], wy+weight*y[i]
		wxx, wxy = wxx+weight*x[i]*x[i], wxy+weight*x[i]*y[i]
	}
	determinant := w*wxx - wx*wx
	if !(determinant > 1e-12*w*wxx) {
		return l, false
	}
	l.Each = (w*wxy - wx*wy) / determinant
	l.Base = (wy - l.Each*wx) / w
	l.Points = len(x)
	var off, spread float64
	for i := range x {
		weight := 1 / (y[i] * y[i])
		off += weight * square(y[i]-l.At(x[i]))
		spread += weight * square(y[i]-wy/w)
	}
	if spread > 0 {
		l.R2 = 1 - off/spread
	}
	if len(x) > 2 {
		variance := off / float64(len(x)-2)
		l.BaseError = math.Sqrt(variance * wxx / determinant)
		l.EachError = math.Sqrt(variance * w / determinant)
	}
	return l, true
}

func square(v float64) float64 { return v * v }
