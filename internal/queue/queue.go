// Package queue stands between the journal and the store. It merges what
// belongs to one bucket, so that one update carries many readings, and it keeps
// at most one operation of a bucket in flight:
//
//	Journal ─┬─ cursor ─▶ lane 0: parcels ─▶ shares per bucket ─▶ flush ─▶ Store.Write ─▶ settle
//	         ├─ cursor ─▶ lane 1: …             ▲                                          │
//	         └─ cursor ─▶ lane n: …             └──────── what is left, after a wait ──────┘
//
// A sensor always belongs to the same lane of its stream. Each lane walks along
// the journal by itself and takes the rows of its sensors, as many as its memory
// may hold; the rest stays where it is until there is room. A lane writes one
// flush at a time; what arrives meanwhile gathers for the next, so updates grow
// by themselves under load.
package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
)

// Journal is what the lanes follow. Its methods are called by several
// goroutines at once and do not wait.
type Journal interface {
	// Oldest is the position of the first record that is not known to be at rest.
	Oldest() uint64
	// End is the position behind the last record that can be followed.
	End() uint64
	// Follow returns a cursor at a position, which must not lie before what was
	// trimmed. It may leave out rows that are not of the part. Cursors are closed by
	// their lanes.
	Follow(position uint64, part batch.Part) batch.Cursor
	// Grown returns a channel that is closed once a record at or behind the
	// position can be followed.
	Grown(position uint64) <-chan struct{}
	// Trim says that everything before the position is at rest: it is never asked
	// for again.
	Trim(position uint64)
	// Taken counts the readings that were not at rest when the journal was opened
	// and those taken since.
	Taken() uint64
}

// Store is where a stream's lanes bring their shares.
//
// Write is called by several lanes at once, never with the same bucket twice.
// It blocks until every share has a verdict, or ctx ends. It takes the rows
// that are durably stored out of the shares, and only those; whatever else went
// wrong is in the verdict. It keeps no reference to a share's rows, and drops
// them on the goroutine that called.
type Store interface {
	Write(ctx context.Context, shares []*batch.Share)
}

// DeadLetters is where readings go that the database refuses for their
// content. Put returns when the reading is durable there.
type DeadLetters interface {
	Put(letter DeadLetter) error
}

// Stream is one stream's place in the queue.
type Stream struct {
	Store       Store
	Granularity time.Duration
	// Prepared is closed when the store can be written to; nil: it can already.
	Prepared <-chan struct{}
	Arrivals Arrivals // nil: nobody listens
}

// Config says how to queue.
type Config struct {
	Journal       Journal
	Streams       map[string]Stream
	Lanes         int           // of each stream, 1 to 256; 0: 4, as many writers as one mongod gains from
	FlushInterval time.Duration // how long readings gather before they are written, see pace; 0: 1 s
	MaxBytes      int64         // of readings that lanes hold; 0: 32 MiB, some 200,000 readings of ten fields
	DeadLetters   DeadLetters
	Faults        *fault.Injector
	Logger        *slog.Logger
	Registerer    prometheus.Registerer
}

// A flush ends when its shares or their rows reach these numbers, so that one
// write of the store stays within a second of the server's work.
const (
	maxFlushShares = 1000
	maxFlushRows   = 20_000
)

func (c *Config) setDefaults() error {
	if c.Lanes == 0 {
		c.Lanes = 4
	}
	if c.FlushInterval == 0 {
		c.FlushInterval = time.Second
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 32 << 20
	}
	switch {
	case c.Journal == nil:
		return errors.New("a queue needs a journal")
	case len(c.Streams) == 0:
		return errors.New("a queue needs a stream")
	case c.DeadLetters == nil:
		return errors.New("a queue needs a place for dead letters")
	case c.Lanes < 1 || c.Lanes > 256:
		return fmt.Errorf("lanes %d is out of range; allowed are 1 to 256", c.Lanes)
	case c.FlushInterval < time.Millisecond || c.FlushInterval > time.Hour:
		return fmt.Errorf("flush-interval %v is out of range; allowed are 1ms to 1h", c.FlushInterval)
	case c.MaxBytes < 1<<20:
		return fmt.Errorf("queue-max-bytes %d is too small; it needs 1MiB", c.MaxBytes)
	}
	return nil
}

// Queue merges readings and brings them to their stores.
type Queue struct {
	cfg     Config
	metrics *metrics
	lanes   []*lane
	cancel  context.CancelFunc // ends the lanes, whatever they hold
	turn    chan struct{}      // taken by a write that nobody is in a hurry for
	running sync.WaitGroup

	released atomic.Uint64 // readings that came to rest
	warned   atomic.Int64  // when a put-off write was last logged, in ns
	told     atomic.Int64  // when a bucket that was set aside was

	mu      sync.Mutex
	rest    uint64 // everything before this position is at rest
	waiters []waiter
}

// waiter waits until everything before a position is at rest.
type waiter struct {
	before uint64
	passed chan struct{}
}

// New starts the lanes, where the journal's oldest record is.
func New(cfg Config) (*Queue, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	from := cfg.Journal.Oldest()
	if cfg.Faults.Off(fault.Replay) {
		from = cfg.Journal.End()
	}
	q := &Queue{cfg: cfg, rest: from, turn: make(chan struct{}, 1)}
	began := time.Now()
	for name, stream := range cfg.Streams {
		last := &lastWrite{began: began}
		for number := range cfg.Lanes {
			l := newLane(q, name, number, stream)
			l.lastWrite = last
			q.lanes = append(q.lanes, l)
		}
	}
	var err error
	// From here on a scrape asks the queue.
	if q.metrics, err = newMetrics(cfg.Registerer, q); err != nil {
		return nil, fmt.Errorf("register metrics of the queue: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	q.cancel = cancel
	for _, l := range q.lanes {
		l.remembered = maxRemembered / len(q.lanes)
		l.toldUntil.Store(time.Now().UnixNano())
		l.budget = cfg.MaxBytes / int64(len(q.lanes))
		l.rest.Store(from)
		l.settled.Store(from)
		l.cursor = cfg.Journal.Follow(from, l.part)
		q.running.Go(func() { l.run(ctx) })
	}
	return q, nil
}

// Flush returns when all readings that were durable in the journal before the
// call are stored or put aside as dead letters, or with ctx's error.
func (q *Queue) Flush(ctx context.Context) error {
	before := q.cfg.Journal.End()
	for _, l := range q.lanes {
		l.hurry(before)
	}
	passed := q.Passed(before)
	select {
	case <-passed:
		return nil
	case <-ctx.Done():
		q.forget(passed)
		return fmt.Errorf("flush the queue: %w", ctx.Err())
	}
}

// forget takes a channel back that nobody waits for any more.
func (q *Queue) forget(passed <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiters = slices.DeleteFunc(q.waiters, func(w waiter) bool { return w.passed == passed })
}

// Passed returns a channel that is closed when everything before the position
// is at rest.
func (q *Queue) Passed(before uint64) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	ch := make(chan struct{})
	if q.rest >= before {
		close(ch)
		return ch
	}
	q.waiters = append(q.waiters, waiter{before, ch})
	return ch
}

// advance finds out how far everything is at rest, and tells those who want to
// know.
func (q *Queue) advance() {
	q.mu.Lock()
	rest := uint64(math.MaxUint64)
	for _, l := range q.lanes {
		rest = min(rest, l.rest.Load())
	}
	if rest <= q.rest {
		q.mu.Unlock()
		return
	}
	q.rest = rest
	var passed []waiter
	waiting := q.waiters[:0]
	for _, w := range q.waiters {
		if rest < w.before {
			waiting = append(waiting, w)
			continue
		}
		passed = append(passed, w)
	}
	q.waiters = waiting
	q.mu.Unlock()
	q.cfg.Journal.Trim(rest)
	for _, w := range passed { // the journal knows before those who ask it next
		close(w.passed)
	}
}

// Close writes what the journal holds until ctx ends, and then ends the lanes.
// Nothing may be appended to the journal any more. It returns how many readings
// are not at rest; a journal on disk still has them.
func (q *Queue) Close(ctx context.Context) (left int) {
	err := q.Flush(ctx)
	q.cancel()
	q.running.Wait()
	if left = q.waiting(); left > 0 && err != nil {
		q.cfg.Logger.Warn("stop before everything is stored", "readings", left, "err", err)
	}
	return left
}

// longestTurn is how long a write waits for another lane's. One that hangs must
// not hold up the rest.
const longestTurn = 100 * time.Millisecond

// inTurn does a write that nobody is in a hurry for, after those of other lanes:
// four at once would keep MongoDB, on a small machine, from leaving a processor
// to those who wait for an acknowledgement.
func (q *Queue) inTurn(ctx context.Context, write func()) {
	patience := time.NewTimer(longestTurn)
	defer patience.Stop()
	select {
	case q.turn <- struct{}{}:
		defer func() { <-q.turn }()
	case <-patience.C:
	case <-ctx.Done():
	}
	write()
}

// waiting counts the readings that are not at rest.
func (q *Queue) waiting() int {
	// In this order, so that what comes meanwhile does not make it negative.
	released := q.released.Load()
	return max(0, int(q.cfg.Journal.Taken())-int(released))
}

// Status is what the queue holds.
type Status struct {
	Readings int    `json:"readings"`  // taken and not at rest, in memory or not
	Released uint64 `json:"released"`  // that came to rest since the start
	Bytes    int64  `json:"bytes"`     // of those in memory
	Buckets  int    `json:"buckets"`   // that lanes remember
	SetAside int    `json:"set_aside"` // buckets that cannot be written, while others can
	Rest     uint64 `json:"rest"`      // everything before this position of the journal is at rest
	// FlushInterval is how long readings gather now, in seconds, in the lane where that is longest.
	FlushInterval float64 `json:"flush_interval_seconds"`
}

// Status returns what the queue holds now.
func (q *Queue) Status() Status {
	s := Status{Readings: q.waiting(), Released: q.released.Load()}
	for _, l := range q.lanes {
		s.Buckets += int(l.active.Load())
		s.SetAside += int(l.stuck.Load())
		s.Bytes += l.held.Load()
		s.FlushInterval = max(s.FlushInterval, time.Duration(l.gathers.Load()).Seconds())
	}
	q.mu.Lock()
	s.Rest = q.rest
	q.mu.Unlock()
	return s
}

// warn logs a write that was put off: the first time, and then ever more
// rarely, since all buckets fail together when MongoDB is away.
func (q *Queue) warn(stream string, attempt int, err error) {
	now := time.Now().UnixNano()
	last := q.warned.Load()
	if now-last < int64(5*time.Second) || !q.warned.CompareAndSwap(last, now) {
		return
	}
	q.cfg.Logger.Warn("put off a write", "stream", stream, "attempt", attempt, "readings_waiting", q.waiting(), "err", err)
}

// toldAside logs that a bucket was set aside, one in five seconds, for there
// may be very many; the metrics count them.
func (q *Queue) toldAside(stream string, b *bucket) {
	now := time.Now().UnixNano()
	last := q.told.Load()
	if now-last < int64(5*time.Second) || !q.told.CompareAndSwap(last, now) {
		return
	}
	q.cfg.Logger.Warn("set a bucket aside: its writes fail while others succeed; its readings wait in the journal", "stream", stream,
		"sensor", b.key.sensor, "bucket", time.UnixMilli(b.key.start).UTC(), "set_aside", q.Status().SetAside, "err", b.share.Err)
}
