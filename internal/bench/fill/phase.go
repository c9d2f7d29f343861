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

// A phase puts load on a daemon for a while; its sensors report in step.
type phase struct {
	Granularity time.Duration
	Sensors     int
	Speedup     float64       // of event time over wall-clock time
	Duration    time.Duration // in wall-clock time
	Start       time.Time     // of event time; zero: chosen to end at the newest window boundary
	Prefix      string        // of the sensor IDs; empty: a unique one
	// Drain is how long to wait after the load until all is stored; what is stored later does
	// not count. 0: wait two minutes, then fail.
	Drain time.Duration
}

// flags returns the flags of `brim load`.
func (p phase) flags(seed uint64) []string {
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

// oneWindow reports whether a phase covers exactly one window, so that a tenth of the phase is
// a tenth of the window.
func (p phase) oneWindow() bool {
	return p.Start.IsZero() && math.Abs(p.Duration.Seconds()*p.Speedup/p.Granularity.Seconds()-1) < 0.001
}

const (
	defaultDrain = 2 * time.Minute
	// stopTimeout keeps a daemon from storing what no longer counts.
	stopTimeout = "1s"
)

// measure runs a phase on its own daemon, with extra flags for `brim serve`, and an empty
// database. Afterwards the daemon is gone and the database empty again.
func measure(ctx context.Context, lab *bench.Lab, m *bench.MongoDB, p phase, serve ...string) *outcome {
	d := lab.Daemon(ctx, m, append([]string{"--granularity", p.Granularity.String(), "--stop-timeout", stopTimeout}, serve...)...)
	o := p.run(ctx, lab, m, d)
	bench.Check(d.Close())
	m.Drop(ctx)
	return o
}

// run waits until MongoDB is quiet, puts the load on a daemon, samples both, and returns once
// all is stored.
func (p phase) run(ctx context.Context, lab *bench.Lab, m *bench.MongoDB, d *bench.Daemon) *outcome {
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

// An outcome is what a phase measured. What it did not measure is NaN or an empty histogram.
type outcome struct {
	phase   phase
	load    *load.Result
	samples []sample  // the first before the load, the last once all was stored
	stored  time.Time // when all was, or the wait ended
}

func (o *outcome) first() *sample { return &o.samples[0] }
func (o *outcome) last() *sample  { return &o.samples[len(o.samples)-1] }

// readings returns how many were stored.
func (o *outcome) readings() float64 { return o.updates().Sum }

// behind returns the time from the last acknowledgement until all readings were stored.
func (o *outcome) behind() float64 {
	return max(0, o.stored.Sub(o.load.Began).Seconds()-o.load.Seconds)
}

func (o *outcome) left() float64 { return max(0, float64(o.load.Acked)-o.readings()) }

func (o *outcome) updates() scrape.Histogram { return o.last().updates().Since(o.first().updates()) }

// counted returns the growth of a server counter until the last reading was stored.
func (o *outcome) counted(name string) float64 {
	return o.last().counters.Since(o.first().counters, name)
}

// each is counted, per reading.
func (o *outcome) each(counter string) float64 { return max(0, o.counted(counter)) / o.readings() }

// writes returns the writes into a range of tenths of the window.
func (o *outcome) writes(from, to int) scrape.Histogram {
	return o.last().writes(from, to).Since(o.first().writes(from, to))
}

func (o *outcome) at(part float64) time.Time {
	return o.load.Began.Add(time.Duration(part * float64(o.phase.Duration)))
}

// during returns the writes in a part of the load. After the load, a MongoDB that fell behind
// has the machine to itself.
func (o *outcome) during(from, to float64) scrape.Histogram {
	return nearest(o.samples, o.at(to)).writes(0, 10).Since(nearest(o.samples, o.at(from)).writes(0, 10))
}

// window is during for phases of exactly one window; otherwise empty.
func (o *outcome) window(from, to float64) scrape.Histogram {
	if !o.phase.oneWindow() {
		return scrape.Histogram{}
	}
	return o.during(from, to)
}

// rate returns readings stored per second in a part of the load. It lags acknowledgement by the
// time readings gather.
func (o *outcome) rate(from, to float64) float64 {
	a, b := nearest(o.samples, o.at(from)), nearest(o.samples, o.at(to))
	return b.updates().Since(a.updates()).Sum / b.at.Sub(a.at).Seconds()
}

// nearest returns the sample closest to a time.
func nearest(samples []sample, at time.Time) *sample {
	best := &samples[0]
	for i := range samples {
		if samples[i].at.Sub(at).Abs() < best.at.Sub(at).Abs() {
			best = &samples[i]
		}
	}
	return best
}

// sampleEvery is short enough for a checkpoint to stand out, and long compared with the few
// milliseconds a sample takes.
const sampleEvery = 500 * time.Millisecond

// A sample is what the daemon and MongoDB report at one moment.
type sample struct {
	at       time.Time
	brim     time.Duration // CPU time so far
	metrics  scrape.Sample
	counters doctor.Counters
}

func (s *sample) updates() scrape.Histogram {
	return s.metrics.Histogram("brim_store_update_readings", nil)
}

// writes returns the writes into a range of tenths of their window.
func (s *sample) writes(from, to int) (h scrape.Histogram) {
	for _, fill := range store.Fills[from:to] {
		h = h.Add(s.metrics.Histogram("brim_store_write_seconds", scrape.Labels{"fill": fill}))
	}
	return h
}
