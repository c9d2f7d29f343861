package main

import "github.com/brim-telemetry/brim/internal/bench/fit"

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
func knee(l fit.Line) (readings float64, ok bool) {
	if l.Base <= 0 || l.Each <= 0 {
		return 0, false
	}
	return l.Base * kneeFactor / l.Each, true
}

// A mergeFit is what an update costs by the readings that it carries, in
// microseconds.
type mergeFit struct {
	Sensors int      `json:"sensors"`
	Mongod  fit.Line `json:"mongod_cpu"`
	Trip    fit.Line `json:"round_trip"`
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
	f.Mongod, ok = fit.Through(k, cpu)
	f.Trip, trips = fit.Through(k, apply(points, func(p *growthPoint) float64 { return p.TripUpdate }))
	for i := range k {
		f.Off = max(f.Off, f.Mongod.At(k[i])/cpu[i]-1, 1-f.Mongod.At(k[i])/cpu[i])
	}
	return f, ok && trips
}
