package chart

import (
	"math"

	"gonum.org/v1/plot/plotter"
)

// thin returns the points of a line, of which there are at most the given
// number: the lowest and the highest of each stretch, so that no peak is lost.
func thin(x, y []float64, most int) plotter.XYs {
	n := min(len(x), len(y))
	if n <= most {
		points := make(plotter.XYs, n)
		for i := range points {
			points[i] = plotter.XY{X: x[i], Y: y[i]}
		}
		return points
	}
	stretches := most / 2
	points := make(plotter.XYs, 0, most)
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
