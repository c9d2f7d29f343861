package trend

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A point is what a series was in one block of time.
type point struct {
	at    time.Time
	value float64
}

// A line is a fit to points.
type line struct {
	perSecond float64
	origin    time.Time
	at        float64 // the value at the origin
	noise     float64 // how far points are from the line, as a standard deviation
}

func (l line) value(at time.Time) float64 { return l.at + l.perSecond*at.Sub(l.origin).Seconds() }

// reaches returns when the line is at a value; false if it never is after
// its origin, or only after centuries.
func (l line) reaches(value float64) (time.Time, bool) {
	const most = float64(math.MaxInt64 / int64(time.Second))
	seconds := (value - l.at) / l.perSecond
	if math.IsNaN(seconds) || seconds < 0 || seconds > most {
		return time.Time{}, false
	}
	return l.origin.Add(time.Duration(seconds * float64(time.Second))), true
}

// fit is the Theil-Sen line: the median of the slopes between all pairs, so
// that a third of the points may be anything. There must be two points.
func fit(points []point) line {
	l := line{origin: points[0].at}
	slopes := make([]float64, 0, len(points)*(len(points)-1)/2)
	for i, a := range points {
		for _, b := range points[i+1:] {
			slopes = append(slopes, (b.value-a.value)/b.at.Sub(a.at).Seconds())
		}
	}
	l.perSecond = median(slopes)
	rests := make([]float64, len(points))
	for i, p := range points {
		rests[i] = p.value - l.perSecond*p.at.Sub(l.origin).Seconds()
	}
	l.at = median(rests)
	for i := range rests {
		rests[i] = math.Abs(rests[i] - l.at)
	}
	const ofNormal = 1.4826 // the standard deviation of normal noise over its median distance
	l.noise = ofNormal * median(rests)
	return l
}

// rising is the Mann-Kendall test: how many standard deviations away from none
// at all is the number of pairs that rise less those that fall.
func rising(points []point) float64 {
	n := float64(len(points))
	sum := 0
	ties := make(map[float64]float64)
	for i, a := range points {
		ties[a.value]++
		for _, b := range points[i+1:] {
			sum += cmp.Compare(b.value, a.value)
		}
	}
	variance := n * (n - 1) * (2*n + 5)
	for _, t := range ties {
		variance -= t * (t - 1) * (2*t + 5)
	}
	if sum == 0 || variance <= 0 {
		return 0
	}
	// One less, since the sum goes in steps and the normal distribution does not.
	return (math.Abs(float64(sum)) - 1) / math.Sqrt(variance/18) * math.Copysign(1, float64(sum))
}

// correlation is Spearman's: how far two series of equal length rise and fall
// together, -1 to 1. NaN if one of them is constant.
func correlation(a, b []float64) float64 {
	x, y := ranks(a), ranks(b)
	middle := (float64(len(a)) + 1) / 2
	var xy, xx, yy float64
	for i := range x {
		dx, dy := x[i]-middle, y[i]-middle
		xy, xx, yy = xy+dx*dy, xx+dx*dx, yy+dy*dy
	}
	if xx == 0 || yy == 0 {
		return math.NaN()
	}
	return xy / math.Sqrt(xx*yy)
}

// ranks numbers values by size from 1 on; equal ones share the mean of theirs.
func ranks(values []float64) []float64 {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(values[i], values[j]) })
	out := make([]float64, len(values))
	for from := 0; from < len(order); {
		to := from + 1
		for to < len(order) && values[order[to]] == values[order[from]] {
			to++
		}
		for _, i := range order[from:to] {
			out[i] = float64(from+to+1) / 2
		}
		from = to
	}
	return out
}

// median changes the order of the values. That of none is NaN.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle]
	}
	return (values[middle-1] + values[middle]) / 2
}
