package chart

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// apply sets an axis of a plot for the values, with about as many ticks as
// wanted.
func (a Axis) apply(to *plot.Axis, values []float64, wanted int) {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) && (!a.Log || v > 0) {
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	set := a.Min != 0 || a.Max != 0
	switch {
	case a.Log:
		if set && a.Min > 0 && a.Max > a.Min {
			lo, hi = a.Min, a.Max
		}
		if lo > hi {
			lo, hi = 1, 10
		}
		lo, hi = niceBelow(lo), niceAbove(hi)
		if hi < lo*9 {
			hi = lo * 10
		}
		to.Scale = logScale{}
		to.Tick.Marker = logTicks(a.Unit, lo, hi, wanted)
	case set && a.Max > a.Min:
		lo, hi = a.Min, a.Max
		to.Tick.Marker = linearTicks(a.Unit, lo, hi, wanted)
	default:
		lo = min(lo, 0)
		if hi <= lo {
			hi = lo + 1
		}
		step := a.Unit.step(hi-lo, wanted)
		lo, hi = math.Floor(lo/step)*step, math.Ceil(hi/step-1e-9)*step
		to.Tick.Marker = linearTicks(a.Unit, lo, hi, wanted)
	}
	to.Min, to.Max = lo, hi
}

// step is the distance of ticks: 1, 2 or 5 times a power of ten of what the
// unit is read in.
func (u Unit) step(span float64, wanted int) float64 {
	rough := span / float64(max(wanted, 1))
	factor := u.scaleOf(span).factor
	return niceAbove(rough/factor*0.999) * factor
}

func niceAbove(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range [...]float64{1, 2, 5} {
		if v <= n*power*(1+1e-9) {
			return n * power
		}
	}
	return 10 * power
}

func niceBelow(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range [...]float64{5, 2} {
		if v >= n*power*(1-1e-9) {
			return n * power
		}
	}
	return power
}

// linearTicks are all told in one scale, that of the highest.
func linearTicks(u Unit, lo, hi float64, wanted int) plot.Ticker {
	step := u.step(hi-lo, wanted)
	s := u.scaleOf(max(math.Abs(hi), math.Abs(lo)))
	var ticks plot.ConstantTicks
	for i := math.Ceil(lo/step - 1e-9); i*step <= hi*(1+1e-9); i++ {
		label := number(threeDigits(i * step / s.factor))
		if i != 0 || u == Ratio {
			label += s.suffix
		}
		ticks = append(ticks, plot.Tick{Value: i * step, Label: label})
	}
	return ticks
}

// logTicks are the powers of ten, with 2 and 5 times them where there are few.
func logTicks(u Unit, lo, hi float64, wanted int) plot.Ticker {
	decades := math.Log10(hi / lo)
	between := []float64{1}
	if decades*3 <= float64(wanted)*1.5 {
		between = []float64{1, 2, 5}
	}
	every := max(1, math.Ceil(decades/float64(max(wanted, 1))/1.5))
	var ticks plot.ConstantTicks
	for e := math.Floor(math.Log10(lo)); e <= math.Ceil(math.Log10(hi)); e += every {
		for _, n := range between {
			if v := n * math.Pow(10, e); v >= lo*(1-1e-9) && v <= hi*(1+1e-9) {
				ticks = append(ticks, plot.Tick{Value: v, Label: Format(u, v)})
			}
		}
	}
	return ticks
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

// hidden has no ticks.
type hidden struct{}

// Ticks returns none.
func (hidden) Ticks(_, _ float64) []plot.Tick { return nil }

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
	var ticks []plot.Tick
	for v := math.Ceil(low/step) * step; v <= high; v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: clock(v, step, high <= 0)})
	}
	return ticks
}

// clock tells a time of an axis whose ticks are step apart.
func clock(v, step float64, beforeNow bool) string {
	switch {
	case v == 0 && beforeNow:
		return "now"
	case step >= 3600:
		return minus(v/3600) + " h"
	case step >= 60:
		return minus(v/60) + " min"
	default:
		return minus(v) + " s"
	}
}

func minus(v float64) string {
	if v < 0 {
		return "−" + strconv.FormatFloat(-v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v+0, 'f', -1, 64)
}
