package fill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/launch"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/internal/store"
)

// A Phase is load on a daemon for a while, of sensors in step.
type Phase struct {
	Granularity time.Duration
	Sensors     int
	Speedup     float64       // of event time compared with the clock
	Duration    time.Duration // by the clock
	Start       time.Time     // of event time; zero: so that it ends at the newest boundary of a window
	Prefix      string        // of the sensors' ids; empty: one that no other has
	// Drain is how long to wait, when the load has ended, until all is stored. What is
	// not by then does not count. 0: two minutes, and then it is an error.
	Drain time.Duration
}

// flags are those of `brim load`.
func (p Phase) flags(seed uint64) []string {
	flags := []string{
		"--sensors", strconv.Itoa(p.Sensors), "--interval", interval.String(), "--duration", p.Duration.String(), "--seed", strconv.FormatUint(max(seed, 1), 10),
		"--speedup", strconv.FormatFloat(p.Speedup, 'f', -1, 64), "--batch", strconv.Itoa(perRequest),
	}
	if !p.Start.IsZero() {
		flags = append(flags, "--start", p.Start.UTC().Format(time.RFC3339Nano))
	}
	if p.Prefix != "" {
		flags = append(flags, "--sensor-prefix", p.Prefix)
	}
	return flags
}

// oneWindow reports whether a phase is just one window long, so that a tenth
// of its time is one of the window.
func (p Phase) oneWindow() bool {
	return p.Start.IsZero() && math.Abs(p.Duration.Seconds()*p.Speedup/p.Granularity.Seconds()-1) < 0.001
}

const (
	defaultDrain = 2 * time.Minute
	// stopTimeout keeps a daemon from storing what does not count.
	stopTimeout = "1s"
)

// measure runs a phase on a daemon of its own, with further flags of `brim serve`,
// and an empty database. The daemon is gone then, and the database empty.
func measure(ctx context.Context, lab *bench.Lab, m *bench.MongoDB, p Phase, serve ...string) *outcome {
	d := lab.Daemon(ctx, m, append([]string{"--granularity", p.Granularity.String(), "--stop-timeout", stopTimeout}, serve...)...)
	o := p.run(ctx, lab, m, d)
	bench.Check(d.Close())
	m.Drop(ctx)
	return o
}

// run waits until MongoDB is quiet, puts the load on a daemon, samples both, and
// returns when all is stored.
func (p Phase) run(ctx context.Context, lab *bench.Lab, m *bench.MongoDB, d *bench.Daemon) *outcome {
	m.Settle(ctx)
	o := &outcome{phase: p}
	sample := func(ctx context.Context) {
		o.samples = append(o.samples, sample{time.Now(), bench.Must(machine.CPU(d.Pid())), bench.Must(d.Look(ctx)), m.Counters(ctx)})
	}
	sample(ctx)
	stop := bench.Every(ctx, sampleEvery, sample)
	o.load = d.Load(ctx, p.flags(lab.Seed)...)
	if err := d.Flush(ctx, cmp.Or(p.Drain, defaultDrain)); p.Drain == 0 || !errors.Is(err, launch.ErrNotInTime) {
		bench.Check(err)
	}
	o.stored = time.Now()
	bench.Check(stop())
	sample(ctx)
	if o.load.Acked == 0 {
		bench.Check(fmt.Errorf("the daemon accepted none of %d readings: %v", o.load.Sent, o.load.FirstErrors))
	}
	return o
}

// An outcome is what a phase measured. What it did not measure is NaN, or a
// histogram of nothing.
type outcome struct {
	phase   Phase
	load    *load.Result
	samples []sample  // the first before the load, the last when all was stored
	stored  time.Time // when all was, or the wait for it ended
}

func (o *outcome) first() *sample { return &o.samples[0] }
func (o *outcome) last() *sample  { return &o.samples[len(o.samples)-1] }

// readings are those that were stored.
func (o *outcome) readings() float64 { return o.updates().Sum }

// behind is how long it took, once the last reading was acknowledged, until all
// were stored.
func (o *outcome) behind() float64 {
	return max(0, o.stored.Sub(o.load.Began).Seconds()-o.load.Seconds)
}

func (o *outcome) left() float64 { return max(0, float64(o.load.Acked)-o.readings()) }

func (o *outcome) updates() scrape.Histogram { return o.last().updates().Since(o.first().updates()) }

// counted is the growth of a counter of the server, until the last was stored.
func (o *outcome) counted(name string) float64 {
	return o.last().counters.Since(o.first().counters, name)
}

// each is the same for a reading.
func (o *outcome) each(counter string) float64 { return max(0, o.counted(counter)) / o.readings() }

// writes are those into some tenths of the window.
func (o *outcome) writes(from, to int) scrape.Histogram {
	return o.last().writes(from, to).Since(o.first().writes(from, to))
}

func (o *outcome) at(part float64) time.Time {
	return o.load.Began.Add(time.Duration(part * float64(o.phase.Duration)))
}

// during are the writes in a part of the time while readings came. If MongoDB falls
// behind, it has the machine to itself when the load has ended.
func (o *outcome) during(from, to float64) scrape.Histogram {
	return nearest(o.samples, o.at(to)).writes(0, 10).Since(nearest(o.samples, o.at(from)).writes(0, 10))
}

// window are the same where a phase is one window long.
func (o *outcome) window(from, to float64) scrape.Histogram {
	if !o.phase.oneWindow() {
		return scrape.Histogram{}
	}
	return o.during(from, to)
}

// rate is that of storing in a part of the time, in readings a second: behind what
// was acknowledged by as long as readings gather.
func (o *outcome) rate(from, to float64) float64 {
	a, b := nearest(o.samples, o.at(from)), nearest(o.samples, o.at(to))
	return b.updates().Since(a.updates()).Sum / b.at.Sub(a.at).Seconds()
}

// nearest is the sample that is closest to a time.
func nearest(samples []sample, at time.Time) *sample {
	best := &samples[0]
	for i := range samples {
		if samples[i].at.Sub(at).Abs() < best.at.Sub(at).Abs() {
			best = &samples[i]
		}
	}
	return best
}

// sampleEvery is short enough for a checkpoint to stand out, and long against the
// few milliseconds that a sample costs.
const sampleEvery = 500 * time.Millisecond

// A sample is what the daemon and MongoDB report at a moment.
type sample struct {
	at       time.Time
	brim     time.Duration // CPU time so far
	metrics  scrape.Sample
	counters doctor.Counters
}

func (l *sample) updates() scrape.Histogram {
	return l.metrics.Histogram("brim_store_update_readings", nil)
}

// writes are the writes into some tenths of their window.
func (l *sample) writes(from, to int) (h scrape.Histogram) {
	for _, fill := range store.Fills[from:to] {
		h = h.Add(l.metrics.Histogram("brim_store_write_seconds", scrape.Labels{"fill": fill}))
	}
	return h
}
