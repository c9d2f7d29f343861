package trend

import (
	"math"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/doctor"
)

// A Direction says where a series goes.
type Direction string

// The directions.
const (
	Rising  Direction = "rising"
	Falling Direction = "falling"
	Flat    Direction = "none"    // what there is of a trend is no more than noise
	Unsure  Direction = "unknown" // too little was seen
)

// What must be so that a trend is more than noise: enough blocks, an order in
// them that chance makes once in some three hundred times, and a change that
// stands out from how they scatter and matters at all.
const (
	leastBlocks  = 7
	certain      = 2.9  // standard deviations of rising
	overNoise    = 1.5  // times the noise
	leastChange  = 0.02 // of the series, or of where it degrades
	turns        = 1.5  // from so many times the slope on the last half goes its own way
	withinAYear  = 365 * day
	mostlyBeyond = 0.8 // of the blocks from one on: it is beyond since then
)

// direct fits a line to points and says whether it is a trend. scale is what a
// change is held against besides the points themselves.
func direct(points []point, scale float64) (line, Direction) {
	if len(points) < leastBlocks {
		return line{}, Unsure
	}
	l := fit(points)
	first, last := points[0].at, points[len(points)-1].at
	change := l.value(last) - l.value(first)
	large := max(math.Abs(l.value(first)), math.Abs(l.value(last)), scale)
	switch {
	case math.Abs(rising(points)) < certain, math.Abs(change) < overNoise*l.noise, math.Abs(change) < leastChange*large, change == 0:
		return l, Flat
	case change > 0:
		return l, Rising
	default:
		return l, Falling
	}
}

// directNow is direct, but where the last half goes another way than the whole,
// or clearly faster, its line is what goes on.
func directNow(points []point, scale float64) (l line, d Direction, recent bool) {
	l, d = direct(points, scale)
	half := points[len(points)/2:]
	lately, there := direct(half, scale)
	if there != Rising && there != Falling {
		return l, d, false
	}
	if there != d || math.Abs(lately.perSecond) > turns*math.Abs(l.perSecond) {
		return lately, there, true
	}
	return l, d, false
}

// A Crossing tells when a threshold is, or was, crossed.
type Crossing struct {
	State CrossingState `json:"state"`
	At    *time.Time    `json:"at,omitempty"` // of crossed: nil if that was before what was seen
}

// A CrossingState says whether a threshold is crossed.
type CrossingState string

// The states.
const (
	Crossed    CrossingState = "crossed"
	Ahead      CrossingState = "ahead"             // if it goes on like this
	Far        CrossingState = "not within a year" // likewise
	NotInSight CrossingState = "not in sight"      // there is no trend towards it
)

// crossings tells when a signal degrades and when it is the bottleneck.
func (s *Series) crossings(points []point, l line, now time.Time) (degrading, bottleneck *Crossing) {
	of := func(class doctor.Class, threshold float64) *Crossing {
		switch {
		case s.rule.At(float64(s.Now)).Class >= class:
			return &Crossing{State: Crossed, At: since(points, func(v float64) bool { return s.rule.At(v).Class >= class })}
		case s.Trend == Unsure, s.Trend == Flat, (s.Trend == Falling) != s.rule.Threshold.Below:
			return &Crossing{State: NotInSight}
		}
		at, ok := l.reaches(threshold)
		if !ok || at.Sub(now) > withinAYear {
			return &Crossing{State: Far}
		}
		if at.Before(now) {
			at = now // the line is there, the last of what was seen not quite
		}
		return &Crossing{State: Ahead, At: &at}
	}
	return of(doctor.Degrading, s.rule.Threshold.Degrading), of(doctor.Bottleneck, s.rule.Threshold.Bottleneck)
}

// since returns from which block on points are mostly beyond; nil: from the
// first.
func since(points []point, beyond func(float64) bool) *time.Time {
	count, from := 0, len(points)-1
	for i, p := range slices.Backward(points) {
		if !beyond(p.value) {
			continue
		}
		if count++; float64(count) >= mostlyBeyond*float64(len(points)-i) {
			from = i
		}
	}
	if from <= 0 {
		return nil
	}
	return &points[from].at
}

// together is the rank correlation of two series over the blocks that both
// have; NaN for few.
func together(a, b *Series) float64 {
	var x, y []float64
	for i, p := range a.Points {
		if j, ok := slices.BinarySearch(b.index, a.index[i]); ok {
			x, y = append(x, float64(p.Value)), append(y, float64(b.Points[j].Value))
		}
	}
	if len(x) < leastBlocks {
		return math.NaN()
	}
	return correlation(x, y)
}
