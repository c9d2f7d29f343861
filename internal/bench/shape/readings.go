package shape

import (
	"cmp"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/bench/lane"
)

// Begin is when readings of experiments begin: at the boundary of every window,
// and the same in all runs.
func Begin() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// Readings are what is loaded: the same for every shape.
type Readings struct {
	Source   lane.Source
	Sensors  int           // of the source that report
	Count    int           // readings of each sensor
	Begin    time.Time     // of reading 0
	Interval time.Duration // between two readings of a sensor
	// Phase is how long after Begin a sensor of Brim's shapes begins, less than
	// Interval. nil: all begin at once.
	Phase func(sensor int) time.Duration
	Late  Late
}

// Late says which readings arrive late.
type Late struct {
	Share    float64       // of the readings, 0 to 1
	From, To time.Duration // by so much
	Seed     uint64
}

// Total is how many readings there are.
func (r Readings) Total() int { return r.Sensors * r.Count }

// Time returns that of reading k.
func (r Readings) Time(k uint64) time.Time {
	return r.Begin.Add(time.Duration(k) * r.Interval) //nolint:gosec // readings of years
}

// commands yields the portions of each command, in the order in which they
// arrive: perUpdate readings of each sensor, then the next, at most size readings
// in a command. A portion of late readings is a command of its own: they come
// when they come.
func (r Readings) commands(perUpdate, size int) iter.Seq[[]lane.Portion] {
	if r.Late.Share > 0 {
		return r.lateCommands(perUpdate)
	}
	return func(yield func([]lane.Portion) bool) {
		var portions []lane.Portion
		rows := 0
		for first := 0; first < r.Count; first += perUpdate {
			n := min(perUpdate, r.Count-first)
			for sensor := range r.Sensors {
				if rows > 0 && rows+n > size {
					if !yield(portions) {
						return
					}
					portions, rows = portions[:0], 0
				}
				portions = append(portions, lane.Portion{Sensor: sensor, First: uint64(first), Count: n}) //nolint:gosec // counts from 0
				rows += n
			}
		}
		if rows > 0 {
			yield(portions)
		}
	}
}

// lateCommands yields runs of up to size readings that follow each other and arrive one
// behind the other, sensor by sensor.
func (r Readings) lateCommands(size int) iter.Seq[[]lane.Portion] {
	return func(yield func([]lane.Portion) bool) {
		for sensor := range r.Sensors {
			order := r.arrivals(sensor)
			for at := 0; at < len(order); {
				n := 1
				for at+n < len(order) && order[at+n] == order[at]+uint64(n) && n < size { //nolint:gosec // counts from 1
					n++
				}
				if !yield([]lane.Portion{{Sensor: sensor, First: order[at], Count: n}}) {
					return
				}
				at += n
			}
		}
	}
}

// arrivals returns the numbers of a sensor's readings in the order in which they
// arrive.
func (r Readings) arrivals(sensor int) []uint64 {
	type arrival struct {
		k  uint64
		at time.Duration // since reading 0
	}
	random := rand.New(rand.NewPCG(r.Late.Seed, uint64(sensor))) //nolint:gosec // no secret, and counts from 0
	all := make([]arrival, r.Count)
	for i := range all {
		all[i] = arrival{uint64(i), time.Duration(i) * r.Interval} //nolint:gosec // counts from 0
		if random.Float64() < r.Late.Share {
			all[i].at += r.Late.From + time.Duration(random.Int64N(int64(r.Late.To-r.Late.From)+1))
		}
	}
	slices.SortStableFunc(all, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	order := make([]uint64, len(all))
	for i, a := range all {
		order[i] = a.k
	}
	return order
}
