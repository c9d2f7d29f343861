package storage

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/machine"
)

// A ramp is one climb of the load from next to nothing until p99 is ten times
// what it was, with one cache.
type ramp struct {
	CacheMiB int64   `json:"cache_mib"`
	IdleP50  number  `json:"idle_p50_seconds"`
	IdleP99  number  `json:"idle_p99_seconds"`
	Bound    number  `json:"bound_seconds"` // of p99
	Idle     number  `json:"idle_until_seconds"`
	Reached  number  `json:"bound_reached_at_seconds"` // null: never
	Looks    []look  `json:"looks"`
	Steps    []stage `json:"steps"`
	// Checkpoint is the signal after one that was asked for when the bound was
	// reached, with the load going on.
	Checkpoint doctor.Signal `json:"checkpoint"`
}

// A look is what was seen in one interval of a ramp.
type look struct {
	At      number `json:"at_seconds"`
	Offered number `json:"offered_readings_per_second"`
	P99     number `json:"p99_seconds"` // of the writes of the last second
	sight
}

// A stage is what one step of a ramp's load showed.
type stage struct {
	Offered    number `json:"offered_readings_per_second"`
	Stored     number `json:"stored_readings_per_second"`
	P50        number `json:"p50_seconds"`
	P99        number `json:"p99_seconds"`
	Processors number `json:"mongod_processors"`
	Operations number `json:"disk_operations_per_second"`
	Bytes      number `json:"disk_bytes_per_second"`
	Busy       number `json:"disk_busy_percent"`
	Await      number `json:"disk_await_milliseconds"`
}

const (
	boundFactor = 10 // times the idle p99: where a ramp ends
	lookEvery   = 500 * time.Millisecond
	p99Over     = time.Second // of the writes of so long
	steady      = 4           // looks on end with p99 over the bound: one stall of the machine is none
	rampLanes   = 16          // as four daemons have
	rampStream  = "ramp"
	idleRate    = 100 // writes/s
	rateFactor  = 1.5 // from one step to the next
	mostSteps   = 16  // up to 650 times the idle rate
	checkpoints = 30 * time.Second
)

// A rampConfig says how long its parts take.
type rampConfig struct {
	cacheGB    float64 // 0: as pinned
	idle, step time.Duration
	steps      int // of rising load, at most
	sensors    int
	readings   int // in each bucket before
}

// climb makes one ramp on a MongoDB of its own.
func climb(ctx context.Context, lab *bench.Lab, c rampConfig) (r *ramp, err error) {
	m, err := lab.Start(ctx, bench.Setting{CacheGB: c.cacheGB})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	all, err := newWriters(ctx, writersConfig{
		database: m.Database(), stream: rampStream, prefix: "s-", sensors: c.sensors, lanes: rampLanes, granularity: time.Hour, seed: lab.Seed,
	})
	if err != nil {
		return nil, err
	}
	// The buckets are there before, so that the ramp's writes are appends.
	if err := all.fill(ctx, c.readings); err != nil {
		return nil, err
	}
	if err := m.Settle(ctx); err != nil {
		return nil, err
	}
	o, err := newObserver(m, rampStream)
	if err != nil {
		return nil, err
	}
	counters, err := m.Counters(ctx)
	if err != nil {
		return nil, err
	}
	r = &ramp{CacheMiB: int64(counters.Value("cache_max_bytes")) >> 20, Reached: unknown(), Bound: unknown()}
	return r, r.run(ctx, lab, o, all, c)
}

// schedule is that of a ramp.
func (c rampConfig) schedule() schedule {
	s := schedule{{idleRate, c.idle}}
	rate := float64(idleRate)
	for range c.steps {
		rate *= rateFactor
		s = append(s, step{rate, c.step})
	}
	return s
}

// run writes and looks until the bound is reached or the schedule ends.
func (r *ramp) run(ctx context.Context, lab *bench.Lab, o *observer, all *writers, c rampConfig) (err error) {
	if _, err := o.look(ctx); err != nil { // what rates are since
		return err
	}
	plan := c.schedule()
	t := all.begin(ctx, plan)
	defer func() { err = errors.Join(err, t.end()) }()
	above := 0 // looks in a row
	for next := lookEvery; next <= plan.length() && above < steady; next = max(next, t.now().Truncate(lookEvery)) + lookEvery {
		if err := machine.Pause(t.ctx, next-t.now()); err != nil {
			return err
		}
		at := t.now()
		if !r.Bound.known() && at >= c.idle {
			idle := t.took.between(0, at)
			r.IdleP50, r.IdleP99, r.Idle = number(idle.p50()), number(idle.p99()), number(at.Seconds())
			r.Bound = boundFactor * r.IdleP99
		}
		if err := r.note(t, o, plan, at); err != nil {
			return err
		}
		if last := r.Looks[len(r.Looks)-1]; last.At > r.Idle && last.P99 >= r.Bound {
			above++
		} else {
			above = 0
		}
	}
	if above == steady {
		r.Reached = r.Looks[len(r.Looks)-steady].At
	}
	r.stages(t, plan)
	return r.checkpoint(t.ctx, lab, o)
}

// note takes a look and what the writes of the last second took.
func (r *ramp) note(t *traffic, o *observer, plan schedule, at time.Duration) error {
	seen, err := o.look(t.ctx)
	if err != nil {
		return err
	}
	r.Looks = append(r.Looks, look{
		At: number(at.Seconds()), Offered: number(readingsPerWrite * plan.at(at-1)), sight: seen,
		P99: number(t.took.between(at-p99Over, at).p99()),
	})
	return nil
}

// checkpoint has mongod write one while the load goes on. It is asked of a
// mongod of its own only.
func (r *ramp) checkpoint(ctx context.Context, lab *bench.Lab, o *observer) error {
	if !lab.Own() {
		r.Checkpoint = doctor.Signal{Name: checkpoint, Class: doctor.Unknown, Value: math.NaN(), Why: bench.OwnOnly}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkpoints)
	defer cancel()
	if err := o.mongodb.Checkpoint(ctx); err != nil {
		return err
	}
	seen, err := o.look(ctx)
	if err != nil {
		return err
	}
	r.Checkpoint = seen.signal(checkpoint)
	return nil
}

// stages sums up what was seen by the steps of the load that were reached.
func (r *ramp) stages(t *traffic, plan schedule) {
	from, end := time.Duration(0), time.Duration(float64(r.Looks[len(r.Looks)-1].At)*float64(time.Second))
	for _, step := range plan {
		to := min(from+step.length, end)
		if to <= from {
			return
		}
		took := t.took.between(from, to)
		s := stage{
			Offered: number(step.rate * readingsPerWrite), Stored: number(float64(len(took)*readingsPerWrite) / (to - from).Seconds()),
			P50: number(took.p50()), P99: number(took.p99()),
		}
		var seen []look
		for _, l := range r.Looks {
			if at := time.Duration(float64(l.At) * float64(time.Second)); at > from && at <= to {
				seen = append(seen, l)
			}
		}
		s.Processors = mean(seen, processors)
		s.Operations = mean(seen, func(l look) number { return l.DiskOperations })
		s.Bytes = mean(seen, func(l look) number { return l.DiskBytes })
		s.Busy = mean(seen, busy)
		s.Await = mean(seen, await)
		r.Steps = append(r.Steps, s)
		from += step.length
	}
}

func busy(l look) number       { return number(l.signal(diskBusy).Value) }
func await(l look) number      { return number(l.signal(diskAwait).Value) }
func processors(l look) number { return l.Processors }

// mean is of what is known.
func mean(looks []look, of func(look) number) number {
	sum, n := number(0), 0
	for _, l := range looks {
		if v := of(l); v.known() {
			sum, n = sum+v, n+1
		}
	}
	return sum / number(n)
}
