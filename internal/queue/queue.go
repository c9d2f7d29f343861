// Package queue writes readings from the journal to the stores. It merges readings of one
// bucket, so that one update has many, and has at most one update of a bucket in flight:
//
//	Journal ─┬─ cursor ─▶ lane 0: parcels ─▶ pending rows per bucket ─▶ flush ─▶ Store.Write ─▶ settle
//	         ├─ cursor ─▶ lane 1: …             ▲                                                │
//	         └─ cursor ─▶ lane n: …             └────────── what is left, after a back-off ──────┘
//
// A sensor always belongs to the same lane of its stream. Each lane follows the journal with
// its own cursor and takes the rows of its sensors, up to its memory limit; the rest stays in
// the journal until there is memory. A Policy says how long rows gather; until then they are
// safe in the journal. A lane makes one write at a time; rows that arrive during it gather for
// the next one.
//
//	queue.go       configuration, starting, flushing, how far everything is stored
//	schedule.go    when a bucket is sent
//	lane.go        a lane: reading, merging, writing, backing off
//	bucket.go      the states of a bucket; what a lane holds of a record
//	gather.go      packing readings that wait long
//	waiting.go     what is not stored yet, for queries
//	aside.go       buckets that cannot be written while others can
//	deadletter.go  readings that MongoDB refuses
package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/batch"
)

// Journal is the journal that the lanes follow. Its methods are called by several goroutines
// concurrently and do not block.
type Journal interface {
	// Oldest is the position of the first record that is not known to be stored.
	Oldest() uint64
	// End is the position after the last record that can be followed.
	End() uint64
	// Follow returns a cursor at a position, which must not have been trimmed. The cursor may
	// omit rows that do not belong to the part.
	Follow(position uint64, part batch.Part) batch.Cursor
	// Grown returns a channel that is closed when a record at or after the position can be
	// followed.
	Grown(position uint64) <-chan struct{}
	// Trim says that everything before the position is stored, and will not be read again.
	Trim(position uint64)
	// TrimSensor records durably that one sensor's readings before the position are stored. It
	// returns false if the journal can record no more sensors now.
	TrimSensor(stream, sensor string, before uint64) (bool, error)
	// Trimmed reports whether TrimSensor was called, perhaps in an earlier process, for the
	// sensor's readings in the record at the position.
	Trimmed(stream, sensor string, position uint64) bool
	// Short reports whether the journal is nearly full, so that its readings should be stored
	// soon.
	Short() bool
	// FlushTo returns a position. A client waits until everything before it is stored.
	FlushTo() uint64
	// Taken counts the readings that were not known to be stored when the journal was
	// opened, and those accepted since.
	Taken() uint64
}

// Store is the store of a stream.
//
// Write is called by several lanes concurrently, but never with the same bucket twice. It
// blocks until every bucket has a verdict, or ctx ends. It removes the rows that are durably
// stored, and only those, on the calling goroutine; the verdict says what happened to the
// others. It keeps no reference to the rows.
type Store interface {
	Write(ctx context.Context, writes []*batch.Pending)
}

// DeadLetters stores readings that the database refuses for their content. Put returns when the
// reading is durable.
type DeadLetters interface {
	Put(letter DeadLetter) error
}

// Arrivals records when readings of a sensor arrived. Came is called by several lanes
// at once, for each bucket about once a second while readings arrive, and must not block.
type Arrivals interface {
	Came(sensor string, at time.Time)
}

// Catalog records all series and their fields. Saw is called by several lanes concurrently, and
// must not block. It is called for each bucket when it gets its first row, and when the series
// or the shape of its rows changes.
type Catalog interface {
	Saw(series *batch.Series, shape *batch.Shape, ms int64)
}

// Stream configures one stream.
type Stream struct {
	Store       Store
	Granularity time.Duration
	Policy      Policy
	// Prepared is closed when the store can be written to; nil: it can already.
	Prepared <-chan struct{}
	Arrivals Arrivals // may be nil
	Catalog  Catalog  // may be nil
}

// Config configures a queue.
type Config struct {
	Journal     Journal
	Streams     map[string]Stream
	Lanes       int   // of each stream, 1 to 256; 0: 4, since more writers do not make one mongod faster
	MaxBytes    int64 // of readings that lanes hold; 0: 32 MiB, some 200,000 readings of ten fields that are not packed yet
	Remembered  int   // buckets that lanes remember at most, except those with readings; 0: 50,000
	DeadLetters DeadLetters
	// LimitAge returns the current upper limit for every Policy.Max; 0 or nil: none.
	LimitAge   func() time.Duration
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (c *Config) setDefaults() error {
	c.Lanes = cmp.Or(c.Lanes, 4)
	c.MaxBytes = cmp.Or(c.MaxBytes, 32<<20)
	c.Remembered = cmp.Or(c.Remembered, maxRemembered)
	switch {
	case c.Journal == nil:
		return errors.New("a queue needs a journal")
	case len(c.Streams) == 0:
		return errors.New("a queue needs a stream")
	case c.DeadLetters == nil:
		return errors.New("a queue needs a place for dead letters")
	case c.Lanes < 1 || c.Lanes > 256:
		return fmt.Errorf("lanes %d is out of range; allowed: 1 to 256", c.Lanes)
	case c.MaxBytes < 1<<20:
		return fmt.Errorf("queue-max-bytes %d is too small; it needs 1MiB", c.MaxBytes)
	}
	c.Streams = maps.Clone(c.Streams)
	for name, stream := range c.Streams {
		if err := stream.Policy.setDefaults(); err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		c.Streams[name] = stream
	}
	return nil
}

// Queue merges readings and writes them to their stores.
type Queue struct {
	cfg     Config
	metrics *metrics
	lanes   []*lane
	cancel  context.CancelFunc // ends the lanes
	turn    chan struct{}      // semaphore for writes that nothing waits for
	running sync.WaitGroup

	released      atomic.Uint64 // readings that are stored or refused
	failureLogged atomic.Int64  // when a failed write was last logged, in ns
	asideLogged   atomic.Int64  // when a bucket that was set aside was last logged, in ns

	mu      sync.Mutex
	applied uint64        // everything before this position is stored
	moved   chan struct{} // closed when applied changes
}

// New starts the lanes at the journal's oldest record.
func New(cfg Config) (*Queue, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	from := cfg.Journal.Oldest()
	q := &Queue{cfg: cfg, applied: from, turn: make(chan struct{}, 1), moved: make(chan struct{})}
	for _, name := range slices.Sorted(maps.Keys(cfg.Streams)) {
		last := &lastWrite{began: time.Now()}
		for number := range cfg.Lanes {
			l := newLane(q, name, number, cfg.Streams[name], last)
			l.phase = time.Duration(len(q.lanes)) * time.Microsecond
			q.lanes = append(q.lanes, l)
		}
	}
	var err error
	if q.metrics, err = newMetrics(cfg.Registerer, q); err != nil {
		return nil, fmt.Errorf("register metrics of the queue: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	q.cancel = cancel
	for _, l := range q.lanes {
		l.follow(from)
		q.running.Go(func() { l.run(ctx) })
	}
	return q, nil
}

// SetPolicy changes a stream's policy.
func (q *Queue) SetPolicy(stream string, p Policy) error {
	if err := p.setDefaults(); err != nil {
		return fmt.Errorf("stream %s: %w", stream, err)
	}
	for _, l := range q.lanes {
		if l.stream == stream {
			l.wanted.Store(&p)
			l.awake()
		}
	}
	return nil
}

// Flush returns when all readings that were durable in the journal before the call
// are stored or dead letters, or with ctx's error.
func (q *Queue) Flush(ctx context.Context) error {
	before := q.cfg.Journal.End()
	for _, l := range q.lanes {
		l.requestFlush(before)
	}
	for {
		soon, cancel := context.WithTimeout(ctx, flushProgress)
		err := q.Wait(soon, before)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("flush the queue: %w; %d readings are not stored", ctx.Err(), q.waiting())
		}
		q.cfg.Logger.Info("flushing", "readings_left", q.waiting())
	}
}

// FlushSensor returns when all readings of a sensor that were durable in the journal before
// the call are stored or dead letters, or with ctx's error. If it returns true, they will
// not be stored again after a crash; if it returns false, only Flush ensures that.
func (q *Queue) FlushSensor(ctx context.Context, stream, sensor string) (durable bool, err error) {
	before, hash := q.cfg.Journal.End(), batch.SeriesHash(stream, sensor)
	l := q.laneOf(stream, hash)
	if l == nil {
		return false, nil
	}
	for !l.flushSensor(sensor, hash, before) {
		select {
		case <-time.After(flushPoll):
		case <-ctx.Done():
			return false, fmt.Errorf("flush the readings of a sensor: %w", ctx.Err())
		}
	}
	return q.cfg.Journal.TrimSensor(stream, sensor, before)
}

// flushPoll is how often FlushSensor checks whether the readings are stored.
const flushPoll = 5 * time.Millisecond

// laneOf returns the lane of a sensor; nil: the queue has no such stream.
func (q *Queue) laneOf(stream string, hash uint64) *lane {
	for _, l := range q.lanes {
		if l.stream == stream && l.part.Has(hash) {
			return l
		}
	}
	return nil
}

// flushProgress is how often a flush logs the number of readings left.
const flushProgress = 5 * time.Second

// Wait returns when everything before a position of the journal is stored, or with
// ctx's error.
func (q *Queue) Wait(ctx context.Context, before uint64) error {
	for {
		q.mu.Lock()
		applied, moved := q.applied, q.moved
		q.mu.Unlock()
		if applied >= before {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// advance computes how far everything is stored, and trims the journal before it wakes Wait, so
// that the callers of Wait see the trimmed journal.
func (q *Queue) advance() {
	q.mu.Lock()
	defer q.mu.Unlock()
	applied := uint64(math.MaxUint64)
	for _, l := range q.lanes {
		applied = min(applied, l.applied.Load())
	}
	if applied <= q.applied {
		return
	}
	q.applied = applied
	q.cfg.Journal.Trim(applied)
	close(q.moved)
	q.moved = make(chan struct{})
}

// Close stores the readings in the journal until ctx ends, and then ends the lanes. Nothing may
// be appended to the journal any more. It returns how many readings are not stored; a journal
// on disk still has them.
func (q *Queue) Close(ctx context.Context) (left int) {
	_ = q.Flush(ctx) // the number left is returned, and the caller knows what happens to them
	q.cancel()
	q.running.Wait()
	return q.waiting()
}

// longestTurn is how long a write waits for that of another lane, which may hang.
const longestTurn = 100 * time.Millisecond

// inTurn makes a write that nothing waits for, after those of other lanes. On a small machine,
// four concurrent writes would use all CPUs, and delay requests that wait for an
// acknowledgement.
func (q *Queue) inTurn(ctx context.Context, write func()) {
	timer := time.NewTimer(longestTurn)
	defer timer.Stop()
	select {
	case q.turn <- struct{}{}:
		defer func() { <-q.turn }()
	case <-timer.C:
	case <-ctx.Done():
	}
	write()
}

// KnownUntil returns the time up to which a stream's Arrivals knows all arrivals. It lags while
// readings wait in the journal.
func (q *Queue) KnownUntil(stream string) time.Time {
	until := time.Now()
	for _, l := range q.lanes {
		if at := l.knownUntil.Load(); l.stream == stream && at != asleep && at < until.UnixNano() {
			until = time.Unix(0, at)
		}
	}
	return until.Add(-noteAgain)
}

// waiting counts the readings that are not stored.
func (q *Queue) waiting() int {
	// In this order, so that the difference is not negative.
	released := q.released.Load()
	return max(0, int(q.cfg.Journal.Taken())-int(released))
}

// Status is what the queue holds.
type Status struct {
	Readings int    `json:"readings"`  // accepted and not stored, in memory or not
	Released uint64 `json:"released"`  // stored or refused since the start
	Bytes    int64  `json:"bytes"`     // memory of waiting readings
	MaxBytes int64  `json:"max_bytes"` // the maximum of Bytes
	Buckets  int    `json:"buckets"`   // that lanes remember
	SetAside int    `json:"set_aside"` // buckets that cannot be written, while others can
	Rest     uint64 `json:"-"`         // everything before this position of the journal is stored
	// PastDue is how late the most overdue update is, in seconds.
	PastDue float64 `json:"past_due_seconds"`
	// Oldest is the age of the oldest reading in memory, in seconds.
	Oldest float64 `json:"oldest_seconds"`
}

// Status returns what the queue holds now.
func (q *Queue) Status() Status {
	s := Status{Readings: q.waiting(), Released: q.released.Load(), MaxBytes: q.cfg.MaxBytes}
	for _, l := range q.lanes {
		s.Buckets += int(l.active.Load())
		s.SetAside += int(l.stuck.Load())
		s.Bytes += l.held.Load()
		s.PastDue = max(s.PastDue, secondsSince(l.overdue.Load()))
		s.Oldest = max(s.Oldest, secondsSince(l.oldest.Load()))
	}
	q.mu.Lock()
	s.Rest = q.applied
	q.mu.Unlock()
	return s
}

// secondsSince returns how many seconds ago a time from nanosOf was; 0 if it is in the
// future, or none.
func secondsSince(nanos int64) float64 {
	if nanos == 0 {
		return 0
	}
	return max(0, time.Since(time.Unix(0, nanos)).Seconds())
}

// logEvery is the minimum time between two log lines of one kind: all buckets fail together when
// MongoDB is unavailable, and many may be set aside. The metrics count all of them.
const logEvery = 5 * time.Second

// mayLog reports whether logEvery has passed since the last time, and if so sets it to now.
func mayLog(last *atomic.Int64) bool {
	now, before := time.Now().UnixNano(), last.Load()
	return now-before >= int64(logEvery) && last.CompareAndSwap(before, now)
}

func (q *Queue) logFailure(stream string, attempt int, err error) {
	if mayLog(&q.failureLogged) {
		q.cfg.Logger.Warn("write failed, will retry", "stream", stream, "attempt", attempt, "readings_waiting", q.waiting(), "err", err)
	}
}

func (q *Queue) logAside(stream string, b *bucket, err error) {
	if mayLog(&q.asideLogged) {
		q.cfg.Logger.Warn("set a bucket aside: its writes fail while others succeed; its readings wait in the journal", "stream", stream,
			"sensor", b.key.sensor, "bucket", time.UnixMilli(b.key.start).UTC(), "set_aside", q.Status().SetAside, "err", err)
	}
}
