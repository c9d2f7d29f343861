// Package seal packs the windows of bucket streams once they have ended: each part's readings are
// replaced by one block, a fraction of the size.
//
//	every few minutes, or on request:
//	sensor ─▶ its parts that are not sealed ─▶ blocks ─▶ one command for up to 100 parts
//	  ▲                                                        │
//	  └────────── pause, so that it keeps to its budget ◀──────┘
//
// internal/store/bucket has the update, which is safe at any time and may be sent by several
// daemons. The next pass finds what a pass did not reach. A pass checks windows that may have
// ended since the last one, and sensors with late readings; the first pass, and one a day, check
// all windows. rollup.go updates rollups from sealed parts.
package seal

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
)

// A Stream is a bucket stream.
type Stream struct {
	Store *bucket.Store
	After time.Duration   // delay between the end of a window and sealing it; 0: only on request
	Ready <-chan struct{} // closed once the stream's collection is prepared; nil: it is
}

// Config configures a Sealer.
type Config struct {
	Streams map[string]Stream
	// Flush stores what is journaled, before a pass that was requested. Nil: nothing waits.
	Flush func(ctx context.Context) error
	// Busy reports whether ingestion is falling behind. While it is, sealing slows down. Nil:
	// never.
	Busy       func() bool
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: metrics are kept and not registered
}

// budget is the share of a CPU core that sealing may take, in MongoDB and in this process together.
const budget = 0.25

const (
	maxBatchParts    = 100
	maxBatchBytes    = 4 << 20 // of documents as they were read
	fullPassInterval = 24 * time.Hour
	minInterval      = 10 * time.Second // between two passes
	maxInterval      = 5 * time.Minute
	maxSealAge       = time.Second // the longer a seal waits, the more likely its part has changed
	maxPause         = 30 * time.Second
	retryRefused     = 2 * time.Second
	flushTimeout     = time.Minute      // then what is stored is sealed
	startupGrace     = 30 * time.Second // after a start, the other daemons may not be known yet
	busyFactor       = 4                // while busy, pauses are this many times as long
	timeout          = 30 * time.Second
)

// A Sealer seals the streams of a daemon.
type Sealer struct {
	streams map[string]*stream
}

// New returns a Sealer; it does no I/O before Run.
func New(cfg Config) *Sealer {
	if cfg.Busy == nil {
		cfg.Busy = func() bool { return false }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Sealer{streams: make(map[string]*stream, len(cfg.Streams))}
	factory := promauto.With(cfg.Registerer)
	m := newMetrics(factory)
	for name, of := range cfg.Streams {
		one := &stream{
			cfg: &cfg, opts: of, log: cfg.Logger.With("stream", name), sealer: of.Store.NewSealer(),
			metrics: m.of(name, of.Store.Rollup > 0), budget: budget, wake: make(chan struct{}, 1),
		}
		one.after.Store(int64(of.After))
		labels := prometheus.Labels{"stream": name}
		factory.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "brim_seal_lag_seconds", Help: "Longest time that parts may have been waiting to be sealed, in seconds; 0 without --seal-after.", ConstLabels: labels,
		}, func() float64 { return one.lag(&one.sealed) })
		if of.Store.Rollup > 0 {
			factory.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "brim_rollup_lag_seconds", Help: "Longest time that steps of rollups may have been waiting to be written, in seconds.", ConstLabels: labels,
			}, func() float64 { return one.lag(&one.rollupsUntil) })
		}
		s.streams[name] = one
	}
	return s
}

// Run seals until ctx ends.
func (s *Sealer) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, name := range slices.Sorted(maps.Keys(s.streams)) {
		running.Go(func() { s.streams[name].run(ctx) })
	}
	running.Wait()
}

// SetAfter changes Stream.After.
func (s *Sealer) SetAfter(stream string, after time.Duration) {
	if one := s.streams[stream]; one != nil && time.Duration(one.after.Swap(int64(after))) != after {
		one.notify()
	}
}

// Seal requests a pass over all windows that have ended, after the current pass if there is one,
// and returns its number; false if there is no such stream.
func (s *Sealer) Seal(stream string) (pass int64, ok bool) {
	one := s.streams[stream]
	if one == nil {
		return 0, false
	}
	return one.request(), true
}

// A Progress is the progress of sealing a stream.
type Progress struct {
	Pass     int64 `json:"pass"`    // the number of the last pass that began
	Running  bool  `json:"running"` // it has not ended
	Sensors  int64 `json:"sensors"` // that it has looked at
	Parts    int64 `json:"parts"`   // that it sealed
	Readings int64 `json:"readings"`
	Changed  int64 `json:"changed"` // parts that were appended to in between; the next pass seals them
	Failed   int64 `json:"failed"`  // parts that are not what a store writes; the log names them
	Before   int64 `json:"bytes_before"`
	After    int64 `json:"bytes_after"`
	// LagSeconds is how long parts may have been due for sealing.
	LagSeconds float64 `json:"lag_seconds"`
	// Rollups is the number of rollup steps written, RollupLagSeconds how long steps may have been
	// due.
	Rollups          int64   `json:"rollups,omitempty"`
	RollupLagSeconds float64 `json:"rollup_lag_seconds,omitempty"`
	Error            string  `json:"error,omitempty"` // why the last pass did not reach its end
}

// Progress returns a stream's progress; false if there is no such stream.
func (s *Sealer) Progress(stream string) (Progress, bool) {
	one := s.streams[stream]
	if one == nil {
		return Progress{}, false
	}
	one.mu.Lock()
	p := one.progress
	one.mu.Unlock()
	p.LagSeconds = one.lag(&one.sealed)
	if one.opts.Store.Rollup > 0 {
		p.RollupLagSeconds = one.lag(&one.rollupsUntil)
	}
	return p, true
}

// A stream is the state of sealing one stream, by one goroutine.
type stream struct {
	cfg     *Config
	opts    Stream
	log     *slog.Logger
	sealer  *bucket.Sealer
	metrics metrics
	budget  float64
	after   atomic.Int64
	wake    chan struct{} // holds one

	mu        sync.Mutex
	requested int64 // number of the last pass that was requested, which seals all windows that have ended
	progress  Progress
	sealed    time.Time // windows that ended before are sealed; zero: none is known to be
	since     time.Time // when sealing began
	// Rollup steps that ended before this time are up to date; zero: none is known to be.
	rollupsUntil time.Time

	// The following fields belong to the goroutine that makes passes.
	resumed       time.Time // when the last pause ended
	refusedLogged bool
	lastFullPass  time.Time // when the last pass over all windows began; zero: the next pass is one
	logged        string    // the error of the last pass
	// refused is the time since which sealing waits for other daemons, which cannot read sealed
	// windows or are not known yet.
	refused time.Time
}

func (s *stream) request() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requested = s.progress.Pass + 1
	s.notify()
	return s.requested
}

func (s *stream) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// lag returns how long something may have been due, if all that ended before done is finished.
func (s *stream) lag(done *time.Time) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	after := time.Duration(s.after.Load())
	from := s.since
	if due := done.Add(after); due.After(from) {
		from = due
	}
	if after == 0 || s.since.IsZero() {
		return 0
	}
	return max(0, time.Since(from).Seconds())
}

// interval is the time from the end of a pass to the next.
func (s *stream) interval() time.Duration {
	return min(max(s.opts.Store.Granularity/10, minInterval), maxInterval)
}

func (s *stream) run(ctx context.Context) {
	if s.opts.Ready != nil {
		select {
		case <-s.opts.Ready:
		case <-ctx.Done():
			return
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.wake:
		}
		s.passIfDue(ctx)
		timer.Reset(s.interval())
		if !s.refused.IsZero() {
			timer.Reset(retryRefused)
		}
	}
}

func (s *stream) passIfDue(ctx context.Context) {
	after, now := time.Duration(s.after.Load()), time.Now()
	s.mu.Lock()
	if s.since.IsZero() && after > 0 {
		s.since = now
	}
	requested := s.requested > s.progress.Pass
	if !requested && after == 0 {
		s.mu.Unlock()
		return
	}
	if !s.opts.Store.CanWriteBlocks() {
		s.refuse(now)
		s.mu.Unlock()
		return
	}
	s.progress, s.refused = Progress{Pass: s.progress.Pass + 1, Running: true}, time.Time{}
	s.mu.Unlock()

	ended := now.Add(-after)
	if requested {
		ended = now
	}
	if requested && s.cfg.Flush != nil {
		flush, cancel := context.WithTimeout(ctx, flushTimeout)
		if err := s.cfg.Flush(flush); err != nil {
			s.log.Warn("sealing without readings that are not stored yet", "err", err)
		}
		cancel()
	}
	err := s.pass(ctx, ended, requested)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress.Running = false
	if err != nil {
		s.lastFullPass = time.Time{} // late sensors may have been lost
		s.progress.Error = err.Error()
		if ctx.Err() == nil && s.logged != err.Error() {
			s.logged = err.Error()
			s.log.Warn("sealing was interrupted; the next pass will continue", "err", err)
		}
		return
	}
	s.logged = ""
	s.sealed = ended
	if p := s.progress; requested && p.Parts > 0 {
		s.log.Info("windows are sealed", "parts", p.Parts, "readings", p.Readings, "bytes_before", p.Before, "bytes_after", p.After)
	}
}

// refuse records that sealing must wait, because not all daemons are known to read sealed windows.
// After a start, it takes some seconds until they are known.
func (s *stream) refuse(now time.Time) {
	if s.refused.IsZero() {
		s.refused = now
	}
	s.progress.Error = errOldDaemons.Error()
	if now.Sub(s.refused) > startupGrace && s.logged != s.progress.Error {
		s.logged = s.progress.Error
		s.log.Warn("sealing waits for other daemons", "err", errOldDaemons)
	}
}

// pass seals the windows that ended before a time.
func (s *stream) pass(ctx context.Context, ended time.Time, all bool) error {
	if s.opts.Store.Rollup > 0 && s.rollupsUntil.IsZero() {
		if err := s.opts.Store.UnmarkWithoutRollups(ctx); err != nil {
			return err
		}
	}
	began := time.Now()
	s.resumed = began
	from := s.from(ended, all)
	b := batch{stream: s, ended: ended.UnixMilli()}
	for sensor, err := range s.sensors(ctx) {
		if err == nil {
			err = b.add(ctx, sensor, from.of(sensor))
		}
		if err != nil {
			return err
		}
	}
	if err := b.send(ctx); err != nil {
		return err
	}
	if err := s.makeRollups(ctx, ended, from); err != nil {
		return err
	}
	if from.start == 0 {
		s.lastFullPass = began
	}
	return nil
}

var errOldDaemons = errors.New("a daemon of an earlier release, which cannot read sealed windows, stores this stream, or did until a few seconds ago: sealing waits until it is upgraded or stopped")

// firstWindows has the start of the first window that a pass must check, in general and for each
// sensor with late readings.
type firstWindows struct {
	start int64
	late  map[string]int64
}

func (f firstWindows) of(sensor string) int64 {
	if at, ok := f.late[sensor]; ok {
		return min(f.start, at)
	}
	return f.start
}

// from returns where a pass begins.
func (s *stream) from(ended time.Time, all bool) firstWindows {
	late, others := s.opts.Store.TakeLate(ended.UnixMilli())
	s.mu.Lock()
	sealed := s.sealed
	s.mu.Unlock()
	if all || sealed.IsZero() || time.Since(s.lastFullPass) > fullPassInterval {
		return firstWindows{}
	}
	return firstWindows{min(sealed.Add(-s.longestWindow()).UnixMilli(), others), late}
}

// longestWindow is how long windows that end now may be. The pass over all sensors finds longer ones
// of an earlier granularity.
func (s *stream) longestWindow() time.Duration {
	return max(s.opts.Store.Granularity, store.MaxGranularity)
}

// sensors yields all sensors of the stream.
func (s *stream) sensors(ctx context.Context) func(yield func(string, error) bool) {
	return func(yield func(string, error) bool) {
		for sensor := ""; ; {
			asked, cancel := context.WithTimeout(ctx, timeout)
			next, err := s.opts.Store.NextSensor(asked, sensor)
			cancel()
			if err == nil && next == "" {
				return
			}
			if !yield(next, err) || err != nil {
				return
			}
			sensor = next
		}
	}
}

// A batch has the seals that are sent with one command.
type batch struct {
	stream *stream
	ended  int64
	seals  []bucket.Seal
	bytes  int
	first  time.Time // when the first of them was made
}

// add seals the parts of a sensor, page by page.
func (b *batch) add(ctx context.Context, sensor string, from int64) error {
	for {
		found, sealed, last, err := b.page(ctx, sensor, from)
		if err == nil {
			err = b.stream.pause(ctx)
		}
		if err != nil || found < maxBatchParts {
			b.stream.mu.Lock()
			b.stream.progress.Sensors++
			b.stream.mu.Unlock()
			return err
		}
		if last == from && sealed == 0 { // documents that cannot be sealed would be found again
			last++
		}
		from = last
	}
}

// page seals the next parts of a sensor, and returns how many it found, how many of them it seals,
// and the start of the last one. If there may be more, it sends all seals.
func (b *batch) page(ctx context.Context, sensor string, from int64) (found, sealed int, last int64, err error) {
	s := b.stream
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	last = from
	for doc, err := range s.opts.Store.Unsealed(ctx, sensor, from, b.ended, maxBatchParts) {
		if err != nil {
			return found, sealed, last, err
		}
		found++
		if start, ok := doc.Lookup("_id", "b").DateTimeOK(); ok {
			last = start
		}
		seal, err := s.sealer.Seal(slices.Clone(doc), time.Now())
		if err != nil {
			s.failed(err)
			continue
		}
		if sealed++; len(b.seals) == 0 {
			b.first = time.Now()
		}
		b.seals, b.bytes = append(b.seals, seal), b.bytes+seal.Before
		if b.bytes >= maxBatchBytes {
			if err := b.send(ctx); err != nil {
				return found, sealed, last, err
			}
		}
	}
	if found == maxBatchParts || len(b.seals) >= maxBatchParts || time.Since(b.first) > maxSealAge {
		err = b.send(ctx)
	}
	return found, sealed, last, err
}

// send applies the seals.
func (b *batch) send(ctx context.Context) error {
	if len(b.seals) == 0 {
		return nil
	}
	if !b.stream.opts.Store.CanWriteBlocks() {
		return errOldDaemons
	}
	n, err := b.stream.opts.Store.ApplySeals(ctx, b.seals)
	if err != nil {
		return err
	}
	b.stream.applied(b.seals, n)
	b.seals, b.bytes = b.seals[:0], 0
	return nil
}

// pause keeps sealing to its budget.
func (s *stream) pause(ctx context.Context) error {
	worked := time.Since(s.resumed)
	if worked < 10*time.Millisecond {
		return nil
	}
	rest := time.Duration(float64(worked) * (1/s.budget - 1))
	if s.cfg.Busy() {
		rest = busyFactor * max(rest, worked)
	}
	err := machine.Pause(ctx, min(rest, maxPause))
	s.resumed = time.Now()
	return err
}

func (s *stream) failed(err error) {
	s.metrics.parts.WithLabelValues("failed").Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.progress.Failed++; s.progress.Failed == 1 {
		s.log.Error("a bucket was not sealed, or not counted in a rollup, because its content is not valid; only the first one in each pass is logged, all are counted in brim_seal_parts_total{outcome=\"failed\"}", "err", err)
	}
}

// applied records seals of which n matched.
func (s *stream) applied(seals []bucket.Seal, n int) {
	share := float64(n) / float64(len(seals)) // MongoDB does not say which ones matched
	var readings, before, after float64
	for _, seal := range seals {
		readings += share * float64(seal.Readings)
		before += share * float64(seal.Before)
		after += share * float64(seal.After)
	}
	changed := len(seals) - n
	s.metrics.parts.WithLabelValues("sealed").Add(float64(n))
	s.metrics.parts.WithLabelValues("changed").Add(float64(changed))
	s.metrics.bytes.WithLabelValues("before").Add(before)
	s.metrics.bytes.WithLabelValues("after").Add(after)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress.Parts += int64(n)
	s.progress.Changed += int64(changed)
	s.progress.Readings += int64(readings)
	s.progress.Before += int64(before)
	s.progress.After += int64(after)
}

// metrics have a label for the stream, and one of a closed set.
type metrics struct {
	parts, bytes   *prometheus.CounterVec
	steps, refused *prometheus.CounterVec // of rollups
}

func newMetrics(factory promauto.Factory) metrics {
	return metrics{
		parts: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "brim_seal_parts_total",
			Help: "Parts of buckets processed by sealing, by outcome. sealed: packed; changed: appended to in the meantime and left to a later pass; failed: not valid and left unchanged.",
		}, []string{"stream", "outcome"}),
		bytes: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "brim_seal_bytes_total", Help: "BSON bytes of sealed parts, before and after sealing.",
		}, []string{"stream", "state"}),
		steps: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "brim_rollup_steps_total",
			Help: "Steps of rollups, by outcome. written; changed: days that another daemon changed in the meantime and that were left to a later pass.",
		}, []string{"stream", "outcome"}),
		refused: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "brim_rollup_refused_readings_total",
			Help: "Readings that a rollup did not count, by reason. expired: other readings that the step counts have expired, so it cannot be made again; these readings stay stored. replayed: they had expired and were written again; the rollup counts them already.",
		}, []string{"stream", "reason"}),
	}
}

// of returns the metrics of a stream, with the other label alone.
func (m metrics) of(stream string, rollups bool) metrics {
	of := func(v *prometheus.CounterVec, values ...string) *prometheus.CounterVec {
		v = v.MustCurryWith(prometheus.Labels{"stream": stream})
		for _, value := range values {
			v.WithLabelValues(value) // begins at 0
		}
		return v
	}
	m.parts, m.bytes = of(m.parts, "sealed", "changed", "failed"), of(m.bytes, "before", "after")
	if rollups {
		m.steps, m.refused = of(m.steps, "written", "changed"), of(m.refused, "expired", "replayed")
	}
	return m
}
