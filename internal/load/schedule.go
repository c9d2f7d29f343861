package load

import (
	"fmt"
	"iter"
	"math"
	"sort"
	"strconv"
	"strings"
	"time"
)

// A Rate in readings per second: From at the start of the run, To at its end. The zero Rate
// means that sensors and interval determine it.
type Rate struct{ From, To float64 }

// maxRate is more than one process can generate.
const maxRate = 1e8

// ParseRate parses a rate such as 2000, or a ramp such as 500..5000.
func ParseRate(s string) (Rate, error) {
	from, to, ramp := strings.Cut(s, "..")
	if !ramp {
		to = from
	}
	var r Rate
	var err error
	if r.From, err = strconv.ParseFloat(from, 64); err == nil {
		r.To, err = strconv.ParseFloat(to, 64)
	}
	inside := func(v float64) bool { return v >= 0 && v <= maxRate }
	if err != nil || !inside(r.From) || !inside(r.To) || r.Max() == 0 {
		return Rate{}, fmt.Errorf("%q is not a rate; allowed: readings a second like 2000, or a ramp like 500..5000, up to %.0f", s, maxRate)
	}
	return r, nil
}

// Max returns the larger end.
func (r Rate) Max() float64 { return max(r.From, r.To) }

// String returns the form that ParseRate reads, empty for the zero Rate.
func (r Rate) String() string {
	text := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	switch {
	case r == Rate{}:
		return ""
	case r.From == r.To:
		return text(r.From)
	default:
		return text(r.From) + ".." + text(r.To)
	}
}

// A schedule determines when each reading of a run is due. Reading n is due when the integral
// of the rate reaches n, computed afresh for each n, so that errors do not accumulate. It is
// read-only.
type schedule struct {
	pieces []piece
	total  int64 // readings due before the end
}

// A piece is a part of the run in which the rate changes linearly.
type piece struct {
	start    float64 // seconds since the run began
	arrivals float64 // readings due before start
	rate     float64 // at the start, readings per second
	slope    float64 // change of the rate per second
}

// newSchedule returns a schedule for rate r over the duration. The rate changes linearly or,
// with at least 2 steps, in equally long steps, the first at r.From and the last at r.To.
func newSchedule(r Rate, duration time.Duration, steps int) *schedule {
	s := &schedule{}
	length := duration.Seconds()
	var end float64 // of the last piece, in arrivals
	if steps < 2 {
		s.pieces = []piece{{rate: r.From, slope: (r.To - r.From) / length}}
		end = (r.From + r.To) / 2 * length
	} else {
		for i := range steps {
			p := piece{
				start: length * float64(i) / float64(steps), arrivals: end,
				rate: r.From + (r.To-r.From)*float64(i)/float64(steps-1),
			}
			s.pieces = append(s.pieces, p)
			end += p.rate * length / float64(steps)
		}
	}
	// A rounding error must not add a reading.
	s.total = int64(math.Ceil(end - 1e-9*max(end, 1)))
	return s
}

// due returns when reading n, from 0, is due, in seconds since the run began.
func (s *schedule) due(n int64) float64 {
	x := float64(n)
	// The last piece that begins with at most n done. A step at rate 0 begins with as many as
	// its successor, and is skipped.
	i := sort.Search(len(s.pieces), func(i int) bool { return s.pieces[i].arrivals > x }) - 1
	return s.pieces[i].due(x)
}

// A job is a request that is due.
type job struct {
	due   time.Duration // since the run began
	first int64         // reading
	count int           // readings
}

// jobs yields the requests of a run in order of time. Each has a batch of readings, and is due
// with the last of them.
func (s *schedule) jobs(batch int) iter.Seq[job] {
	return func(yield func(job) bool) {
		for first := int64(0); first < s.total; first += int64(batch) {
			count := min(int64(batch), s.total-first)
			if !yield(job{due: toDuration(s.due(first + count - 1)), first: first, count: int(count)}) {
				return
			}
		}
	}
}

// due solves rate t + slope t²/2 = n for t, in a form that loses no digits for a small slope or
// rate.
func (p piece) due(n float64) float64 {
	n -= p.arrivals
	if n <= 0 {
		return p.start
	}
	return p.start + 2*n/(p.rate+math.Sqrt(max(p.rate*p.rate+2*p.slope*n, 0)))
}

// rateAt returns the rate at a time, in readings a second.
func (s *schedule) rateAt(seconds float64) float64 {
	i := max(sort.Search(len(s.pieces), func(i int) bool { return s.pieces[i].start > seconds })-1, 0)
	p := s.pieces[i]
	return max(p.rate+p.slope*(seconds-p.start), 0)
}

// toDuration converts seconds to a duration, limited to a century.
func toDuration(seconds float64) time.Duration {
	const century = 100 * 365 * 86_400
	return time.Duration(math.Round(min(max(seconds, -century), century) * float64(time.Second)))
}
