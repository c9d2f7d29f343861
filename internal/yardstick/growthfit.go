package main

// A straight is the straight line base + each·x.
type straight struct {
	Base float64 `json:"base"`
	Each float64 `json:"each"`
}

func (s straight) at(x float64) float64 { return s.Base + s.Each*x }

// fit returns the line of least squares through points. Each deviation counts
// in proportion to its own value: the cost of the smallest update says as much
// as that of the largest, though it is a hundredth of it. It takes points of
// two places at least, and values above 0.
func fit(x, y []float64) (s straight, ok bool) {
	var w, wx, wy, wxx, wxy float64
	for i := range x {
		if y[i] <= 0 {
			return s, false
		}
		weight := 1 / (y[i] * y[i])
		w, wx, wy = w+weight, wx+weight*x[i], wy+weight*y[i]
		wxx, wxy = wxx+weight*x[i]*x[i], wxy+weight*x[i]*y[i]
	}
	determinant := w*wxx - wx*wx
	if determinant <= 1e-12*w*wxx {
		return s, false
	}
	s.Each = (w*wxy - wx*wy) / determinant
	s.Base = (wy - s.Each*wx) / w
	return s, true
}

// littleGain is the gain of a doubling below which merging more is not worth
// its wait.
const littleGain = 0.10

// kneeFactor is how many times the base the rest of an update must cost at the
// knee. A reading costs base/K + each; from K to 2K the rate gains
// base/2K : (base/2K + each), which is less than the little gain g from
// each·K = base·(1-g)/2g on.
const kneeFactor = (1 - littleGain) / (2 * littleGain)

// knee is the number of readings an update from which on a further doubling
// gains little; false where the costs have none.
func (s straight) knee() (readings float64, ok bool) {
	if s.Base <= 0 || s.Each <= 0 {
		return 0, false
	}
	return s.Base * kneeFactor / s.Each, true
}

// A mergeFit is what an update costs by the readings that it carries, in
// microseconds.
type mergeFit struct {
	Sensors int      `json:"sensors"`
	Mongod  straight `json:"mongod_cpu"`
	Trip    straight `json:"round_trip"`
	Off     float64  `json:"mongod_cpu_off"` // largest deviation of a point from the line, as a part of it
}

// fitMerges takes the points of one number of sensors; false where there are
// too few.
func fitMerges(points []growthPoint) (f mergeFit, ok bool) {
	if len(points) < 2 {
		return f, false
	}
	k := apply(points, func(p *growthPoint) float64 { return float64(p.PerUpdate) })
	cpu := apply(points, func(p *growthPoint) float64 { return p.MongodUpdate })
	f.Sensors = points[0].Sensors
	var trips bool
	f.Mongod, ok = fit(k, cpu)
	f.Trip, trips = fit(k, apply(points, func(p *growthPoint) float64 { return p.TripUpdate }))
	for i := range k {
		f.Off = max(f.Off, f.Mongod.at(k[i])/cpu[i]-1, 1-f.Mongod.at(k[i])/cpu[i])
	}
	return f, ok && trips
}
