package advise

// A line goes through points, by least squares. Each deviation counts in
// proportion to its own value, so that what is cheap is met as well as what is
// dear.
type line struct {
	w, wx, wy, wxx, wxy float64
	least               float64 // of the values
	n                   int
}

func (l *line) add(x, y float64) {
	if y <= 0 {
		return // too little to be measured
	}
	weight := 1 / (y * y)
	l.w, l.wx, l.wy = l.w+weight, l.wx+weight*x, l.wy+weight*y
	l.wxx, l.wxy = l.wxx+weight*x*x, l.wxy+weight*x*y
	if l.n++; l.n == 1 || y < l.least {
		l.least = y
	}
}

// at returns the value at a place: 0 of no points, the mean of points at one
// place, and never less than half of the least value, which a line that noise
// has bent would give. It does not fall: nothing here costs less where there is
// more of it.
func (l *line) at(x float64) float64 {
	if l.n == 0 {
		return 0
	}
	determinant := l.w*l.wxx - l.wx*l.wx
	if determinant <= 1e-9*l.w*l.wxx {
		return l.wy / l.w
	}
	each := max(0, (l.w*l.wxy-l.wx*l.wy)/determinant)
	base := (l.wy - each*l.wx) / l.w
	return max(base+each*x, l.least/2)
}
