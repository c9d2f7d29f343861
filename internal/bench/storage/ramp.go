package storage

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/store"
)

const (
	boundFactor = 10 // times the idle p99: the end of a ramp
	rampEvery   = 500 * time.Millisecond
	p99Over     = time.Second // window of the p99
	steady      = 4           // consecutive samples with p99 over the bound: a single stall is not the limit
	rampLanes   = 16          // as four daemons have
	rampStream  = "ramp"
	idleRate    = 100 // writes/s
	rateFactor  = 1.5 // from one step to the next

	diskBusy, diskAwait, checkpointDuration = "disk_busy", "disk_await", "checkpoint_duration"
)

// A step offers writes at a rate for a while.
type step struct {
	rate   float64 // writes/s
	length time.Duration
}

// A schedule is a sequence of steps.
type schedule []step

// due returns when write n, counted from 0, is due after the start of the schedule; false: the
// schedule ended before.
func (s schedule) due(n int) (at time.Duration, ok bool) {
	left, from := float64(n), time.Duration(0)
	for _, step := range s {
		if count := step.rate * step.length.Seconds(); left >= count {
			left, from = left-count, from+step.length
			continue
		}
		return from + time.Duration(left/step.rate*float64(time.Second)), true
	}
	return 0, false
}

func (s schedule) length() (all time.Duration) {
	for _, step := range s {
		all += step.length
	}
	return all
}

// A rampConfig is how long the parts of a ramp take, and its data.
type rampConfig struct {
	idle, step time.Duration
	steps      int // of rising load, at most
	sensors    int
	readings   int // in each bucket beforehand
}

func (c rampConfig) schedule() schedule {
	s := schedule{{idleRate, c.idle}}
	rate := float64(idleRate)
	for range c.steps {
		rate *= rateFactor
		s = append(s, step{rate, c.step})
	}
	return s
}

// A ramp raises the load from next to nothing until p99 is ten times its idle value, with one
// cache.
type ramp struct {
	plan    schedule
	idle    time.Duration // when the load began to rise
	bound   float64       // of p99, in seconds
	reached time.Duration // when p99 exceeded the bound for good; -1: never
	samples []sample
	// checkpoint is the signal after a requested checkpoint at the bound, with the load still
	// running.
	checkpoint doctor.Signal
	traffic    *shape.Traffic
}

// A sample is what the doctor saw at one moment; rates are since the previous sample.
type sample struct {
	doctor.Seen

	at  time.Duration
	p99 float64 // of writes in the last second
}

// climb runs one ramp on its own MongoDB.
func climb(ctx context.Context, lab *bench.Lab, c rampConfig, cache string) *ramp {
	setting := bench.Setting{}
	if cache == small {
		setting.CacheGB = smallCacheGB
	}
	r := &ramp{plan: c.schedule(), reached: -1, bound: math.NaN()}
	lab.On(ctx, setting, func(m *bench.MongoDB) {
		fleet := newFleet(ctx, m, rampStream, writers{load.SensorsConfig{Count: c.sensors, Seed: lab.Seed, Prefix: "s-"}, rampLanes, c.readings})
		m.Settle(ctx)
		monitor := bench.Must(doctor.New(doctor.Config{
			Database: m.Database(), DBPath: m.DBPath(), Interval: time.Second, Streams: []doctor.Stream{{Name: rampStream, Storage: store.Bucket}},
		}))
		monitor.Sample(ctx) // baseline of the rates
		fleet.During(ctx, r.plan.due, func(ctx context.Context, t *shape.Traffic) {
			r.traffic = t
			r.run(ctx, lab, m, monitor, c)
		})
	})
	return r
}

// run samples until the bound is reached or the schedule ends.
func (r *ramp) run(ctx context.Context, lab *bench.Lab, m *bench.MongoDB, monitor *doctor.Monitor, c rampConfig) {
	t, above := r.traffic, 0 // consecutive samples
	for next := rampEvery; next <= r.plan.length() && above < steady; next = max(next, t.Now().Truncate(rampEvery)) + rampEvery {
		bench.Check(machine.Pause(ctx, next-t.Now()))
		at := t.Now()
		if math.IsNaN(r.bound) && at >= c.idle {
			r.idle, r.bound = at, boundFactor*t.Between(0, at).Quantile(0.99)
		}
		monitor.Sample(ctx)
		s := sample{monitor.Seen(), at, t.Between(at-p99Over, at).Quantile(0.99)}
		r.samples = append(r.samples, s)
		if at > r.idle && s.p99 >= r.bound {
			above++
		} else {
			above = 0
		}
	}
	if above == steady {
		r.reached = r.samples[len(r.samples)-steady].at
	} else {
		lab.LeaveOut("what happens when p99 is ten times idle", "the load of a ramp did not rise far enough; its figures are those of the end")
	}
	if !lab.Own() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	m.Checkpoint(ctx)
	monitor.Sample(ctx)
	seen := monitor.Seen()
	r.checkpoint = seen.Signal(checkpointDuration)
}

// boundSample returns the sample at which p99 reached its bound, or the last one.
func (r *ramp) boundSample() int {
	for i, s := range r.samples {
		if r.reached >= 0 && s.at >= r.reached {
			return i
		}
	}
	return len(r.samples) - 1
}

// A crossing is how one signal developed until p99 reached its bound.
type crossing struct {
	signal        doctor.Signal // at the bound
	before, worst float64       // median before the ramp, and worst until the bound
	degrading     float64       // since when, in seconds; NaN: never
	already       bool          // over the threshold even before the ramp
	rank          int           // place in the order of degradation, from 1; 0: never degraded
}

func (c crossing) crossed() bool { return c.already || !math.IsNaN(c.degrading) }

// crossings returns those of all signals, in the doctor's order.
func (r *ramp) crossings() []crossing {
	if len(r.samples) == 0 {
		return nil
	}
	last := r.boundSample()
	out := make([]crossing, len(r.samples[0].Signals))
	for i := range out {
		out[i] = r.crossing(i, last)
	}
	for i := range out {
		if !out[i].crossed() {
			continue
		}
		out[i].rank = 1
		for _, other := range out {
			if !out[i].already && (other.already || other.degrading < out[i].degrading) {
				out[i].rank++
			}
		}
	}
	return out
}

func (r *ramp) crossing(i, last int) crossing {
	c := crossing{signal: r.samples[last].Signals[i], worst: math.NaN(), degrading: r.since(i, last)}
	var before bench.Samples
	bad := 0
	for _, s := range r.samples[:last+1] {
		one := s.Signals[i]
		switch {
		case math.IsNaN(one.Value):
		case s.at <= r.idle:
			before = append(before, one.Value)
			if one.Class >= doctor.Degrading {
				bad++
			}
		case math.IsNaN(c.worst), one.Threshold.Below && one.Value < c.worst, !one.Threshold.Below && one.Value > c.worst:
			c.worst = one.Value
		}
	}
	c.before, c.already = before.Median(), len(before) > 0 && 2*bad > len(before)
	if c.already {
		c.degrading = math.NaN()
	}
	return c
}

// since returns when signal i first degraded once the load rose: in two samples, because one is
// chance, and for rates in a row, because others may use the disk.
func (r *ramp) since(i, last int) float64 {
	const least = 2
	first, count := math.NaN(), 0
	for _, s := range r.samples[:last+1] {
		signal := s.Signals[i]
		rate := signal.Name == diskBusy || signal.Name == diskAwait || strings.HasSuffix(signal.Unit, "/s")
		switch {
		case s.at <= r.idle:
		case signal.Class >= doctor.Degrading:
			if count++; count == 1 {
				first = s.at.Seconds()
			}
		case rate && count < least:
			count = 0
		}
	}
	if count < least {
		return math.NaN()
	}
	return first
}

// add adds a ramp to the tables; only the first one is plotted.
func (r *ramp) add(lab *bench.Lab, cache string, first bool) {
	table, all := "signals, "+cache, r.crossings()
	ofDisk := func(c crossing) bool { return c.signal.Name == diskBusy || c.signal.Name == diskAwait }
	behind := 1 // place of signals that did not degrade
	for _, c := range all {
		if c.crossed() && !ofDisk(c) {
			behind++
		}
	}
	disk, diskOver := math.Inf(1), false // the disk's place, and whether it came first
	for _, c := range all {
		if c.signal.Class == doctor.Unknown {
			continue
		}
		over, place := bench.Flag(c.crossed()), float64(behind)
		if c.crossed() {
			place = float64(c.rank)
		}
		if c.signal.Name == checkpointDuration {
			if r.checkpoint.Name == "" {
				continue // no checkpoint was requested
			}
			c.signal, over = r.checkpoint, bench.Flag(r.checkpoint.Class >= doctor.Degrading)
		}
		lab.Row(table, c.signal.Name, c.before, c.worst, c.signal.Value, c.degrading, place, over)
		if ofDisk(c) {
			disk, diskOver = min(disk, place), diskOver || c.crossed() && c.rank == 1
		}
	}
	if !math.IsInf(disk, 1) {
		lab.Add(table, diskFirst, placeOf, disk)
		lab.Add(table, diskFirst, overOf, bench.Flag(diskOver))
	} else if first {
		lab.LeaveOut("whether the disk is the first to show that writes become slow, with the "+cache+" cache", "the disk's signals cannot be seen here")
	}
	r.addSteps(lab, "ramp, "+cache)
	if !first {
		return
	}
	for _, s := range r.samples {
		at := fmt.Sprintf("%.1f", s.at.Seconds())
		lab.Add("p99, "+cache, at, "p99", s.p99)
		lab.Add("p99, "+cache, at, "ten times idle", r.bound)
	}
}

// addSteps adds what the load's steps showed, as far as they were reached.
func (r *ramp) addSteps(lab *bench.Lab, table string) {
	from, end := time.Duration(0), r.samples[len(r.samples)-1].at
	for _, step := range r.plan {
		to := min(from+step.length, end)
		if to <= from {
			return
		}
		took := r.traffic.Between(from, to)
		mean := func(rates ...string) (sum float64) {
			for _, name := range rates {
				var s bench.Samples
				for i := range r.samples {
					if one := &r.samples[i]; one.at > from && one.at <= to && !math.IsNaN(one.Rate(name)) {
						s = append(s, one.Rate(name))
					}
				}
				sum += s.Mean()
			}
			return sum
		}
		lab.Row(table, fmt.Sprintf("%.0f", step.rate*readingsPerWrite),
			float64(len(took)*readingsPerWrite)/(to-from).Seconds(), took.Quantile(0.5), took.Quantile(0.99),
			mean("mongod_processors"), mean("machine_busy")/100*float64(lab.Environment.Cores), mean("disk_busy")/100, mean("disk_await")/1000,
			mean("disk_reads", "disk_writes"), 1e6*mean("disk_read_bytes", "disk_written_bytes"))
		from += step.length
	}
}
