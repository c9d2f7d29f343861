package fill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

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
	Interval    time.Duration // between two readings of a sensor, event time
	Speedup     float64       // of event time against the clock; 0: 1
	Duration    time.Duration // by the clock
	Start       time.Time     // of event time; zero: so that it ends at the newest boundary of a window
	Prefix      string        // of the sensors' ids; empty: one that no other has
	Fields      int           // of a reading; 0: 4
	Batch       int           // readings of a request; 0: 1
	// Checkpoint makes the mongod write one in the middle; only a mongod of the
	// experiment's own can be made to.
	Checkpoint bool
	// Drain is how long is waited, when the load has ended, until all is stored.
	// What is not by then does not count. 0: two minutes.
	Drain time.Duration
}

// flags are those of `brim load`.
func (p Phase) flags(seed uint64) []string {
	flags := []string{
		"--sensors", strconv.Itoa(p.Sensors), "--interval", p.Interval.String(), "--duration", p.Duration.String(),
		"--seed", strconv.FormatUint(max(seed, 1), 10),
	}
	if p.Speedup != 0 {
		flags = append(flags, "--speedup", strconv.FormatFloat(p.Speedup, 'f', -1, 64))
	}
	if !p.Start.IsZero() {
		flags = append(flags, "--start", p.Start.UTC().Format(time.RFC3339Nano))
	}
	if p.Prefix != "" {
		flags = append(flags, "--sensor-prefix", p.Prefix)
	}
	if p.Fields != 0 {
		flags = append(flags, "--fields", strconv.Itoa(p.Fields))
	}
	if p.Batch != 0 {
		flags = append(flags, "--batch", strconv.Itoa(p.Batch))
	}
	return flags
}

// speedup is the one that is meant.
func (p Phase) speedup() float64 {
	if p.Speedup == 0 {
		return 1
	}
	return p.Speedup
}

// oneWindow reports whether a phase is just one window long, so that a tenth
// of its time is one of the window.
func (p Phase) oneWindow() bool {
	return p.Start.IsZero() && math.Abs(p.Duration.Seconds()*p.speedup()/p.Granularity.Seconds()-1) < 0.001
}

const (
	defaultDrain = 2 * time.Minute
	// stopTimeout keeps a daemon from storing what does not count.
	stopTimeout = "1s"
)

// measure starts a daemon with further flags of `brim serve` on an empty
// database, waits until MongoDB is quiet, puts the load of a phase on it, and
// returns what came. The daemon is gone then, and the database empty.
func measure(ctx context.Context, lab *bench.Lab, m *bench.MongoDB, p Phase, serve ...string) (f *Figures, err error) {
	d, err := lab.Daemon(ctx, m, append([]string{"--granularity", p.Granularity.String(), "--stop-timeout", stopTimeout}, serve...)...)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err = errors.Join(err, d.Close()); err == nil {
			err = m.Drop(ctx)
		}
	}()
	return p.run(ctx, lab, m, d)
}

// run puts the load on a daemon, samples on, and returns when all is stored.
func (p Phase) run(ctx context.Context, lab *bench.Lab, m *bench.MongoDB, d *bench.Daemon) (*Figures, error) {
	if err := m.Settle(ctx); err != nil {
		return nil, err
	}
	w := &watch{daemon: d, mongodb: m}
	if err := w.sample(ctx); err != nil {
		return nil, err
	}
	var came *load.Result
	var stored time.Time
	over := make(chan struct{})
	sides, under := errgroup.WithContext(ctx)
	sides.Go(func() (err error) {
		defer close(over)
		if came, err = d.Load(under, p.flags(lab.Seed)...); err != nil {
			return err
		}
		if err = d.Flush(under, cmp.Or(p.Drain, defaultDrain)); errors.Is(err, launch.ErrNotInTime) && p.Drain != 0 {
			err = nil
		}
		stored = time.Now()
		return err
	})
	sides.Go(func() error { return w.run(under, over) })
	if p.Checkpoint {
		sides.Go(func() error {
			if err := machine.Pause(under, p.Duration/2); err != nil {
				return err
			}
			return m.Checkpoint(under)
		})
	}
	if err := sides.Wait(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	if err := w.sample(ctx); err != nil {
		return nil, err
	}
	if came.Acked == 0 {
		return nil, fmt.Errorf("measure writes: the daemon took none of %d readings: %v", came.Sent, came.FirstErrors)
	}
	return p.figures(came, w.samples, stored), nil
}

// A Latency is that of writes, in seconds; all 0 where there were none.
type Latency struct {
	P50  float64
	P99  float64
	Mean float64
}

// A Tenth is one of a window, by the time of the readings.
type Tenth struct {
	From     float64
	To       float64
	Updates  float64
	Write    Latency
	Seconds  float64 // of all its updates, those of one command side by side
	Response Latency // of the requests of its readings; without mean
	// Clock is of the writes in this tenth of the time, and MongodCPU processor
	// seconds a reading that was stored in it; 0 where a phase is not one window
	// long.
	Clock     Latency
	MongodCPU float64
}

// Figures are what a phase measured.
type Figures struct {
	OfferedRate  float64 // readings a second
	AchievedRate float64
	// FirstRate and LastRate are the readings that MongoDB stored a second in the
	// first and in the last sixth of the time: behind what was acknowledged by as
	// long as readings gather.
	FirstRate float64
	LastRate  float64
	// BehindSeconds is how long it took, once the last reading was acknowledged,
	// until all were stored, or the wait for that ended; Left were not stored then.
	BehindSeconds     float64
	Left              float64
	Readings          float64 // stored
	ReadingsPerUpdate float64
	UpdateRate        float64

	// Write is of all writes, Loaded of those while readings came: where MongoDB
	// falls behind, it has the machine to itself when the load has ended.
	Write    Latency
	Loaded   Latency
	Response Latency
	// First and Last are of the first and the last third of the window.
	First  Latency
	Last   Latency
	Tenths [10]Tenth

	// By the clock, where a phase is one window long: the writes in the first six
	// minutes of an hour, between 36 and 48 minutes, and after 48.
	Start   Latency
	After40 Latency
	After55 Latency

	// Processor seconds a reading; of mongod's also those in the first and in the
	// last third of the time, where a phase is one window long.
	MongodCPU      float64
	MongodCPUFirst float64
	MongodCPULast  float64
	BrimCPU        float64

	// By the server's counters, a reading, all until the last was stored.
	JournalBytes   float64 // WiredTiger's log
	FileBytes      float64 // written to its other files
	HistoryInserts float64
	HistoryBytes   float64 // its file's growth

	Checkpoints       float64
	CheckpointSeconds float64 // of all together
	// During and Outside are of the half seconds in which a checkpoint ran, and of
	// the others; 0 without one.
	During  Latency
	Outside Latency
}

// figures are made of samples, the first before the load, the last when all was
// stored.
func (p Phase) figures(came *load.Result, samples []sample, stored time.Time) *Figures {
	first, last := &samples[0], &samples[len(samples)-1]
	readings := last.readings - first.readings
	per := func(v float64) float64 { return finite(v / readings) }
	counted := func(name string) float64 { return last.counters.Since(first.counters, name) }
	updates := last.updates.Since(first.updates)
	f := &Figures{
		OfferedRate: came.OfferedRate, AchievedRate: came.AchievedRate,
		BehindSeconds: max(0, stored.Sub(came.Began).Seconds()-came.Seconds),
		Left:          max(0, float64(came.Acked)-readings),
		Readings:      readings, ReadingsPerUpdate: finite(updates.Mean()), UpdateRate: finite(updates.Count / p.Duration.Seconds()),
		Write:     latency(last.all().Since(first.all())),
		Response:  Latency{P50: came.Response.P50, P99: came.Response.P99, Mean: came.Response.Mean},
		First:     latency(last.tenths(0, 3).Since(first.tenths(0, 3))),
		Last:      latency(last.tenths(7, 10).Since(first.tenths(7, 10))),
		MongodCPU: per((last.mongod - first.mongod).Seconds()), BrimCPU: per((last.brim - first.brim).Seconds()),
		JournalBytes: per(counted("journal_written_bytes_total")), FileBytes: per(counted("block_written_bytes_total")),
		HistoryInserts: per(counted("history_store_inserts_total")), HistoryBytes: per(max(0, counted("history_store_bytes"))),
		Checkpoints: finite(counted("checkpoints_total")), CheckpointSeconds: finite(counted("checkpoint_seconds_total")),
	}
	f.FirstRate, f.LastRate = sixths(samples, came.Began, p.Duration)
	for i := range f.Tenths {
		h := last.writes[i].Since(first.writes[i])
		f.Tenths[i] = Tenth{From: float64(i) / 10, To: float64(i+1) / 10, Updates: h.Count, Write: latency(h), Seconds: h.Sum}
		if i < len(came.ByFill) {
			f.Tenths[i].Response = Latency{P50: came.ByFill[i].P50, P99: came.ByFill[i].P99}
		}
	}
	f.Loaded = writesBetween(samples, came.Began, came.Began.Add(p.Duration))
	if p.oneWindow() {
		f.byClock(came.Began, p.Duration, samples)
	}
	f.checkpoints(samples)
	return f
}

// byClock sets what mongod took in parts of the time.
func (f *Figures) byClock(began time.Time, took time.Duration, samples []sample) {
	between := func(from, to float64) float64 {
		at := func(part float64) (cpu, readings float64) {
			return along(samples, began.Add(time.Duration(part*float64(took))))
		}
		cpu, readings := at(from)
		cpuEnd, readingsEnd := at(to)
		return finite((cpuEnd - cpu) / (readingsEnd - readings))
	}
	writes := func(from, to float64) Latency {
		return writesBetween(samples, began.Add(time.Duration(from*float64(took))), began.Add(time.Duration(to*float64(took))))
	}
	for i := range f.Tenths {
		from, to := float64(i)/10, float64(i+1)/10
		f.Tenths[i].MongodCPU, f.Tenths[i].Clock = between(from, to), writes(from, to)
	}
	f.Start, f.After40, f.After55 = writes(0, 0.1), writes(0.6, 0.8), writes(0.8, 1)
	f.MongodCPUFirst, f.MongodCPULast = between(0, 1./3), between(2./3, 1)
}

// along returns mongod's processor seconds and the readings stored at a time,
// on the straight line between two samples.
func along(samples []sample, at time.Time) (cpu, readings float64) {
	i := 1
	for i < len(samples)-1 && samples[i].at.Before(at) {
		i++
	}
	if i >= len(samples) {
		return samples[0].mongod.Seconds(), samples[0].readings
	}
	a, b := &samples[i-1], &samples[i]
	part := min(max(at.Sub(a.at).Seconds()/b.at.Sub(a.at).Seconds(), 0), 1)
	return a.mongod.Seconds() + part*(b.mongod-a.mongod).Seconds(), a.readings + part*(b.readings-a.readings)
}

// writesBetween are those between the samples that are nearest to two times.
func writesBetween(samples []sample, from, to time.Time) Latency {
	a, b := nearest(samples, from), nearest(samples, to)
	return latency(b.all().Since(a.all()))
}

func nearest(samples []sample, at time.Time) *sample {
	best := &samples[0]
	for i := range samples {
		if samples[i].at.Sub(at).Abs() < best.at.Sub(at).Abs() {
			best = &samples[i]
		}
	}
	return best
}

// sixths are the rates of storing in the first and the last sixth of a run.
func sixths(samples []sample, began time.Time, took time.Duration) (first, last float64) {
	stored := func(part float64) float64 {
		_, readings := along(samples, began.Add(time.Duration(part*float64(took))))
		return readings
	}
	seconds := took.Seconds() / 6
	return finite((stored(1./6) - stored(0)) / seconds), finite((stored(1) - stored(5./6)) / seconds)
}

// checkpoints parts the writes by whether a checkpoint ran.
func (f *Figures) checkpoints(samples []sample) {
	var during, outside scrape.Histogram
	for i := 1; i < len(samples); i++ {
		a, b := &samples[i-1], &samples[i]
		h := b.all().Since(a.all())
		if b.counters.Since(a.counters, "checkpoints_total") > 0 || a.counters.Value("checkpoint_running") > 0 || b.counters.Value("checkpoint_running") > 0 {
			during = during.Add(h)
		} else {
			outside = outside.Add(h)
		}
	}
	if during.Count > 0 && outside.Count > 0 {
		f.During, f.Outside = latency(during), latency(outside)
	}
}

func latency(h scrape.Histogram) Latency {
	return Latency{P50: finite(h.Quantile(0.5)), P99: finite(h.Quantile(0.99)), Mean: finite(h.Mean())}
}

// finite makes 0 of what is not known, which JSON has no word for.
func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}

// sampleEvery is short enough for a checkpoint to stand out, and long against the
// few milliseconds that a sample costs.
const sampleEvery = 500 * time.Millisecond

// A sample is what daemon and MongoDB say at a moment.
type sample struct {
	at       time.Time
	mongod   time.Duration // processor time so far
	brim     time.Duration
	readings float64 // stored so far
	updates  scrape.Histogram
	writes   [len(store.Fills)]scrape.Histogram // store_write_seconds, by tenth
	counters doctor.Counters
}

// all are the writes of all tenths.
func (l *sample) all() scrape.Histogram { return l.tenths(0, len(l.writes)) }

// tenths are the writes of those from one up to, not including, another.
func (l *sample) tenths(from, to int) (h scrape.Histogram) {
	for _, w := range l.writes[from:to] {
		h = h.Add(w)
	}
	return h
}

// A watch samples at a daemon and its MongoDB again and again.
type watch struct {
	daemon  *bench.Daemon
	mongodb *bench.MongoDB
	samples []sample
}

// run samples until that is over.
func (w *watch) run(ctx context.Context, over <-chan struct{}) error {
	ticks := time.NewTicker(sampleEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-over:
			return nil
		case <-ticks.C:
			if err := w.sample(ctx); err != nil {
				return err
			}
		}
	}
}

func (w *watch) sample(ctx context.Context) (err error) {
	l := sample{at: time.Now()}
	if l.mongod, err = w.mongodb.CPU(ctx); err != nil {
		return err
	}
	if l.brim, err = machine.CPU(w.daemon.Pid()); err != nil {
		return err
	}
	metrics, err := w.daemon.Look(ctx)
	if err != nil {
		return err
	}
	for i, fill := range store.Fills {
		l.writes[i] = metrics.Histogram("brim_store_write_seconds", scrape.Labels{"fill": fill})
	}
	l.updates = metrics.Histogram("brim_store_update_readings", nil)
	l.readings = l.updates.Sum
	if l.counters, err = w.mongodb.Counters(ctx); err != nil {
		return err
	}
	w.samples = append(w.samples, l)
	return nil
}
