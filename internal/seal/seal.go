// Package seal packs the windows of bucket streams once they have ended: each part's readings are
// replaced by one block, which takes a fraction of the bytes.
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
	// Budget is the share of a CPU core that sealing may take, in MongoDB and in this process
	// together; 0: a quarter.
	Budget float64
	// Flush stores what is journaled, before a pass that was requested. Nil: nothing waits.
	Flush func(ctx context.Context) error
	// Busy reports whether ingestion is falling behind. While it is, sealing slows down. Nil:
	// never.
	Busy       func() bool
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: metrics are kept and not registered
}

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
	if cfg.Budget <= 0 {
		cfg.Budget = 0.25
	}
	if cfg.Busy == nil {
		cfg.Busy = func() bool { return false }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Sealer{streams: make(map[string]*stream, len(cfg.Streams))}
	m := newMetrics(cfg.Registerer)
	rollups := newRollupMetrics(cfg.Registerer)
	for name, of := range cfg.Streams {
		one := &stream{
			cfg: &cfg, opts: of, log: cfg.Logger.With("stream", name), sealer: of.Store.NewSealer(),
			metrics: m.of(name), wake: make(chan struct{}, 1),
		}
		one.after.Store(int64(of.After))
		m.lag(name, one.lag)
		if of.Store.Rollup > 0 {
			one.rollups = rollups.of(name)
			rollups.lag(name, one.rollupLag)
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
	Changed  int64 `json:"changed"` // parts that were appended to meanwhile; the next pass seals them
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
	defer one.mu.Unlock()
	p := one.progress
	p.LagSeconds = one.lagLocked(one.sealed)
	if one.opts.Store.Rollup > 0 {
		p.RollupLagSeconds = one.lagLocked(one.rollupsUntil)
	}
	return p, true
}

// A stream is the state of sealing one stream, by one goroutine.
type stream struct {
	cfg     *Config
	opts    Stream
	log     *slog.Logger
	sealer  *bucket.Sealer
	metrics streamMetrics
	after   atomic.Int64
	wake    chan struct{} // holds one

	mu        sync.Mutex
	requested int64 // number of the last pass that was requested, which seals all windows that have ended
	progress  Progress
	sealed    time.Time // windows that ended before are sealed; zero: none is known to be
	since     time.Time // when sealing began
	// Rollup steps that ended before this time are up to date; zero: none is known to be.
	rollupsUntil  time.Time
	rollups       *rollupMetrics // nil: there are no rollups
	refusedLogged atomic.Bool

	lastFullPass time.Time // when the last pass over all windows began; zero: the next pass is one
	logged       string    // the error of the last pass
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

// lag returns how long parts may have been due.
func (s *stream) lag() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lagLocked(s.sealed)
}

// lagLocked returns the lag if everything that ended before done is finished; s.mu must be held.
func (s *stream) lagLocked(done time.Time) float64 {
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
	from, late := s.from(ended, all)
	began := time.Now()
	b := batch{stream: s, ended: ended.UnixMilli()}
	for sensor, err := range s.sensors(ctx) {
		if err == nil {
			start := from
			if at, ok := late[sensor]; ok {
				start = min(start, at)
			}
			err = b.add(ctx, sensor, start)
		}
		if err != nil {
			return err
		}
	}
	if err := b.send(ctx); err != nil {
		return err
	}
	if err := s.makeRollups(ctx, ended, from, late); err != nil {
		return err
	}
	if from == 0 {
		s.lastFullPass = began
	}
	return nil
}

var errOldDaemons = errors.New("a daemon of an earlier release, which cannot read sealed windows, stores this stream, or did until a few seconds ago: sealing waits until it is upgraded or stopped")

// from returns the start of the first window that a pass must check, in general and for each
// sensor with late readings.
func (s *stream) from(ended time.Time, all bool) (from int64, late map[string]int64) {
	late, others := s.opts.Store.TakeLate(ended.UnixMilli())
	s.mu.Lock()
	sealed := s.sealed
	s.mu.Unlock()
	if all || sealed.IsZero() || time.Since(s.lastFullPass) > fullPassInterval {
		return 0, nil
	}
	// The pass over all sensors finds longer windows of an earlier granularity.
	longest := max(s.opts.Store.Granularity, store.MaxGranularity)
	return min(sealed.Add(-longest).UnixMilli(), others), late
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
	began  time.Time // start of the work that no pause was made for yet
}

// add seals the parts of a sensor, page by page.
func (b *batch) add(ctx context.Context, sensor string, from int64) error {
	for {
		found, sealed, last, err := b.page(ctx, sensor, from)
		if err == nil {
			err = b.pause(ctx)
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
	if b.began.IsZero() {
		b.began = time.Now()
	}
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
func (b *batch) pause(ctx context.Context) error {
	worked := time.Since(b.began)
	if worked < 10*time.Millisecond {
		return nil
	}
	b.began = time.Time{}
	rest := time.Duration(float64(worked) * (1/b.stream.cfg.Budget - 1))
	if b.stream.cfg.Busy() {
		rest = busyFactor * max(rest, worked)
	}
	return machine.Pause(ctx, min(rest, maxPause))
}

func (s *stream) failed(err error) {
	s.metrics.failed.Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.progress.Failed++; s.progress.Failed == 1 {
		s.log.Error("a bucket was not sealed, or not counted in a rollup, because its content is not valid; only the first one in each pass is logged, all are counted in brim_seal_parts_total{outcome=\"failed\"}", "err", err)
	}
}

// applied records seals of which n matched.
func (s *stream) applied(seals []bucket.Seal, n int) {
	var p Progress
	for _, seal := range seals {
		p.Readings += int64(seal.Readings)
		p.Before += int64(seal.Before)
		p.After += int64(seal.After)
	}
	changed := len(seals) - n
	part := float64(n) / float64(len(seals)) // MongoDB does not say which ones matched
	p.Readings, p.Before, p.After = int64(part*float64(p.Readings)), int64(part*float64(p.Before)), int64(part*float64(p.After))
	s.metrics.sealed.Add(float64(n))
	s.metrics.changed.Add(float64(changed))
	s.metrics.before.Add(float64(p.Before))
	s.metrics.after.Add(float64(p.After))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress.Parts += int64(n)
	s.progress.Changed += int64(changed)
	s.progress.Readings += p.Readings
	s.progress.Before += p.Before
	s.progress.After += p.After
}

// streamMetrics are those of one stream.
type streamMetrics struct {
	sealed, changed, failed prometheus.Counter
	before, after           prometheus.Counter
}

type metrics struct {
	factory promauto.Factory
	parts   *prometheus.CounterVec
	bytes   *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	factory := promauto.With(registerer)
	return &metrics{
		factory: factory,
		parts: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "brim_seal_parts_total",
			Help: "Parts of buckets processed by sealing, by outcome. sealed: packed; changed: appended to in the meantime and left to a later pass; failed: not valid and left unchanged.",
		}, []string{"stream", "outcome"}),
		bytes: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "brim_seal_bytes_total", Help: "BSON bytes of sealed parts, before and after sealing.",
		}, []string{"stream", "state"}),
	}
}

func (m *metrics) of(stream string) streamMetrics {
	return streamMetrics{
		sealed: m.parts.WithLabelValues(stream, "sealed"), changed: m.parts.WithLabelValues(stream, "changed"), failed: m.parts.WithLabelValues(stream, "failed"),
		before: m.bytes.WithLabelValues(stream, "before"), after: m.bytes.WithLabelValues(stream, "after"),
	}
}

func (m *metrics) lag(stream string, lag func() float64) {
	m.factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "brim_seal_lag_seconds", Help: "Longest time that parts may have been waiting to be sealed, in seconds; 0 without --seal-after.",
		ConstLabels: prometheus.Labels{"stream": stream},
	}, lag)
}
