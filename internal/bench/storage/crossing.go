package storage

import (
	"math"
	"slices"
	"strings"

	"github.com/brim-telemetry/brim/internal/doctor"
)

// A crossing is what became of one signal in a ramp, until p99 reached its
// bound.
type crossing struct {
	Signal     doctor.Signal `json:"signal"` // as it stood at the bound
	Before     number        `json:"before"` // its value before the ramp, the median
	Worst      number        `json:"worst"`  // value until the bound
	Degrading  number        `json:"degrading_at_seconds"`
	Bottleneck number        `json:"bottleneck_at_seconds"`
	// Place in the order in which signals began to degrade, from 1; 0: it did not.
	Place int `json:"place"`
	// Already: it did not stand well before the ramp, and is first.
	Already bool `json:"already,omitempty"`
}

// crossings are those of all signals that the looks have, in the doctor's order.
func (r *ramp) crossings() []crossing {
	if len(r.Looks) == 0 {
		return nil
	}
	last := r.boundLook()
	out := make([]crossing, len(r.Looks[0].Signals))
	for i := range out {
		out[i] = r.crossing(i, last)
	}
	for i := range out {
		if !out[i].crossed() {
			continue
		}
		out[i].Place = 1
		for _, other := range out {
			if !out[i].Already && (other.Already || other.Degrading < out[i].Degrading) {
				out[i].Place++
			}
		}
	}
	return out
}

// boundLook is the look at which p99 reached its bound, the last if it never did.
func (r *ramp) boundLook() int {
	for i, l := range r.Looks {
		if r.Reached.known() && l.At >= r.Reached {
			return i
		}
	}
	return len(r.Looks) - 1
}

// crossing is that of signal i until a look.
func (r *ramp) crossing(i, last int) crossing {
	c := crossing{
		Signal: r.Looks[last].Signals[i], Worst: unknown(),
		Degrading: r.since(i, last, doctor.Degrading), Bottleneck: r.since(i, last, doctor.Bottleneck),
	}
	var idle []float64
	bad := 0
	for _, l := range r.Looks[:last+1] {
		s := l.Signals[i]
		v := number(s.Value)
		switch {
		case !v.known():
			continue
		case l.At <= r.Idle:
			idle = append(idle, s.Value)
			if s.Class >= doctor.Degrading {
				bad++
			}
		case !c.Worst.known(), s.Threshold.Below && v < c.Worst, !s.Threshold.Below && v > c.Worst:
			c.Worst = v
		}
	}
	slices.Sort(idle)
	c.Before, c.Already = number(sorted(idle).p50()), len(idle) > 0 && 2*bad > len(idle)
	if c.Already {
		c.Degrading = unknown()
	}
	return c
}

// since is when signal i first was in a class, or in a worse one, after the
// ramp's beginning: in two looks at least, for one alone is chance, and of a
// rate in two on end, for others may use the disk too.
func (r *ramp) since(i, last int, class doctor.Class) number {
	first, count := unknown(), 0
	for _, l := range r.Looks[:last+1] {
		switch {
		case l.At <= r.Idle:
		case l.Signals[i].Class >= class:
			if count++; count == 1 {
				first = l.At
			}
		case isRate(l.Signals[i]) && count < leastLooks:
			count = 0
		}
	}
	if count < leastLooks {
		return unknown()
	}
	return first
}

const leastLooks = 2

// isRate reports whether a signal is of the time between two looks.
func isRate(s doctor.Signal) bool {
	return s.Name == diskBusy || s.Name == diskAwait || strings.HasSuffix(s.Unit, "/s")
}

// crossed reports whether the signal did not stand well before the bound.
func (c crossing) crossed() bool { return c.Already || c.Degrading.known() }

// first are the titles of the signals that did not stand well first.
func first(all []crossing) string {
	var out []string
	before := ""
	for _, c := range all {
		if c.Place == 1 {
			out = append(out, c.Signal.Title)
		}
		if c.Already {
			before = ", already before the load rose"
		}
	}
	if len(out) == 0 {
		return "no signal"
	}
	return strings.Join(out, " and ") + before
}

// pressure is how near a value is to the one where its signal is the bottleneck: 1 is
// there.
func pressure(s doctor.Signal) float64 {
	switch {
	case s.Threshold.Bottleneck == 0:
		return math.NaN()
	case s.Threshold.Below:
		return s.Threshold.Bottleneck / s.Value
	}
	return s.Value / s.Threshold.Bottleneck
}
