package queue

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const stream = "readings"

var base = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// fakeStore stores everything at once, unless told otherwise, and holds the
// queue to what it promises a store.
type fakeStore struct {
	heard arrivals

	t *testing.T
	// before is called for each write, outside any lock; it may block.
	before func(ctx context.Context, writes []*batch.Pending)
	// verdict decides the outcome of a bucket's rows; nil stores them.
	verdict func(pending *batch.Pending) (batch.Verdict, error)

	mu       sync.Mutex
	inFlight map[fakeKey]bool
	lastSeq  map[fakeKey]uint64
	stored   map[string][]uint64 // sequences by sensor, in the order of storing
	sent     map[uint64]bool     // sequences that were in some write
	done     map[uint64]bool     // sequences that are stored
	updates  int
	writes   int
}

func newFakeStore(t *testing.T) *fakeStore {
	return &fakeStore{t: t, inFlight: make(map[fakeKey]bool), lastSeq: make(map[fakeKey]uint64), stored: make(map[string][]uint64), sent: make(map[uint64]bool), done: make(map[uint64]bool)}
}

type fakeKey struct {
	sensor string
	start  int64
}

func keyOf(pending *batch.Pending) fakeKey { return fakeKey{pending.Sensor, pending.Start} }

func (s *fakeStore) Write(ctx context.Context, writes []*batch.Pending) {
	s.mu.Lock()
	s.writes++
	for _, pending := range writes {
		if s.inFlight[keyOf(pending)] || len(pending.Rows) == 0 {
			s.t.Errorf("%d rows of %v are written, already in flight: %t", len(pending.Rows), keyOf(pending), s.inFlight[keyOf(pending)])
		}
		s.inFlight[keyOf(pending)] = true
		for _, r := range pending.Rows {
			if s.sent[r.Seq()] && pending.State == nil && !pending.Recovered {
				s.t.Errorf("row %d was sent again without being marked as recovered", r.Seq())
			}
			s.sent[r.Seq()] = true
		}
		pending.State = "known"
	}
	s.mu.Unlock()
	if s.before != nil {
		s.before(ctx, writes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pending := range writes {
		delete(s.inFlight, keyOf(pending))
		pending.Verdict, pending.Err = batch.Stored, nil
		if pending.Recovered {
			s.look(pending)
		}
		if ctx.Err() != nil {
			pending.Verdict, pending.Err = batch.Wait, ctx.Err()
		} else if s.verdict != nil {
			pending.Verdict, pending.Err = s.verdict(pending)
		}
		if pending.Verdict == batch.Stored {
			s.keep(pending)
		}
	}
}

// look drops the rows that are stored already, as a store does with rows that may
// have been sent before.
func (s *fakeStore) look(pending *batch.Pending) {
	pending.Found += pending.DropStored(s.lastSeq[keyOf(pending)]) // the stored rows of a bucket are a prefix
}

func (s *fakeStore) keep(pending *batch.Pending) { s.keepSome(pending, len(pending.Rows)) }

// keepSome stores the first n rows.
func (s *fakeStore) keepSome(pending *batch.Pending, n int) {
	s.updates++
	last, stored := s.lastSeq[keyOf(pending)], s.stored[pending.Sensor]
	for _, r := range pending.Rows[:n] {
		if r.Seq() <= last {
			s.t.Errorf("sequence %d of %v comes after %d", r.Seq(), keyOf(pending), last)
		}
		last = r.Seq()
		s.done[last] = true
		stored = append(stored, last)
	}
	s.lastSeq[keyOf(pending)], s.stored[pending.Sensor] = last, stored
	pending.Drop(n)
}

func (s *fakeStore) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, seqs := range s.stored {
		n += len(seqs)
	}
	return n
}

// fakeLetters keeps dead letters in memory.
type fakeLetters struct {
	mu      sync.Mutex
	err     error
	letters []DeadLetter
}

func (f *fakeLetters) Put(letter DeadLetter) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	f.letters = append(f.letters, letter)
	return nil
}

// A line is a journal with the queue behind it.
type line struct {
	*Queue
	*fakeJournal
}

// start returns a line before the store, which is closed at the test's end.
func start(t *testing.T, store Store, cfg Config) *line {
	t.Helper()
	return startOn(t, newFakeJournal(), store, cfg)
}

func startOn(t *testing.T, j *fakeJournal, store Store, cfg Config) *line {
	t.Helper()
	cfg.Journal = j
	one := cfg.Streams[stream] // with its policy
	one.Store, one.Granularity = store, 5*time.Minute
	if fake, ok := store.(*fakeStore); ok {
		one.Arrivals = &fake.heard
	}
	cfg.Streams = map[string]Stream{stream: one}
	cfg.Logger = slog.New(slog.DiscardHandler)
	if cfg.Registerer == nil {
		cfg.Registerer = prometheus.NewRegistry()
	}
	if cfg.DeadLetters == nil {
		cfg.DeadLetters = &fakeLetters{}
	}
	q, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		q.Close(cancelled())
		assert.Zero(t, testutil.ToFloat64(q.metrics.impossible), "events came in states where they cannot")
	})
	return &line{q, j}
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// request makes a batch of n readings of a sensor, a second apart.
func request(sensor string, n int) *batch.Batch {
	b := batch.NewBuilder(time.Now())
	for i := range n {
		b.Begin(stream, i, telemetry.TimeRange{Newest: math.MaxInt64})
		b.Sensor([]byte(sensor))
		b.Time(base.Add(time.Duration(i) * time.Second).UnixMilli())
		b.Float([]byte("v"), float64(i))
		if refusal := b.End(); refusal != nil {
			panic(refusal)
		}
	}
	return b.Batch()
}

var errAway = errors.New("away")

// fakeJournal keeps records in memory and fsyncs nothing. Positions count
// records.
type fakeJournal struct {
	mu      sync.Mutex
	records []*batch.Batch
	trimmed uint64
	taken   uint64
	grown   chan struct{}
	readErr error // of every cursor
	follows int   // cursors that were made
	reads   int   // of records, by all of them
	short   bool
	flushTo uint64
	of      map[string]uint64 // sensors that were trimmed individually, up to this position
}

func newFakeJournal() *fakeJournal { return &fakeJournal{grown: make(chan struct{})} }

// fakeTracker waits for the rows of one batch.
type fakeTracker struct {
	left    atomic.Int64
	done    chan struct{}
	mu      sync.Mutex
	refused []batch.Refused
}

func (w *fakeTracker) Released(n int) {
	if w.left.Add(-int64(n)) == 0 {
		close(w.done)
	}
}

func (w *fakeTracker) Refused(row *batch.Row, why *telemetry.Refusal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = append(w.refused, batch.Refused{Index: int(row.Index), Refusal: *why})
}

// add journals a batch. Someone waits for it if tracker is not nil.
func (j *fakeJournal) add(b *batch.Batch, tracker batch.Tracker) {
	j.mu.Lock()
	defer j.mu.Unlock()
	b.Session, b.FirstSeq, b.Tracker = "s1", j.taken+1, tracker
	j.taken += uint64(b.Len())
	j.records = append(j.records, b)
	close(j.grown)
	j.grown = make(chan struct{})
}

// Append takes readings, and waits until they are stored.
func (j *fakeJournal) Append(ctx context.Context, b *batch.Batch) ([]batch.Refused, error) {
	w := &fakeTracker{done: make(chan struct{})}
	w.left.Store(int64(b.Len()))
	j.add(b, w)
	select {
	case <-w.done:
		return w.refused, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (j *fakeJournal) Oldest() uint64 { return 0 }

func (j *fakeJournal) FlushTo() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.flushTo
}

func (j *fakeJournal) TrimSensor(_, sensor string, before uint64) (bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.of == nil {
		j.of = make(map[string]uint64)
	}
	j.of[sensor] = before
	return true, nil
}

func (j *fakeJournal) Trimmed(_, sensor string, position uint64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return position < j.of[sensor]
}

func (j *fakeJournal) Short() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.short
}

func (j *fakeJournal) End() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return uint64(len(j.records))
}

func (j *fakeJournal) Taken() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.taken
}

func (j *fakeJournal) Grown(position uint64) <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if position < uint64(len(j.records)) {
		ch := make(chan struct{})
		close(ch)
		return ch
	}
	return j.grown
}

func (j *fakeJournal) Trim(position uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.trimmed = max(j.trimmed, position)
}

func (j *fakeJournal) Follow(position uint64, _ batch.Part) batch.Cursor {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.follows++
	return &fakeCursor{j, position}
}

type fakeCursor struct {
	journal *fakeJournal
	at      uint64
}

func (c *fakeCursor) Next() (r batch.Record, found bool, err error) {
	j := c.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	if c.at < j.trimmed {
		panic("a record is asked for that was trimmed")
	}
	if j.readErr != nil || c.at >= uint64(len(j.records)) {
		return r, false, j.readErr
	}
	r = batch.Record{Batch: j.records[c.at], Position: c.at, Next: c.at + 1}
	c.at++
	j.reads++
	return r, true, nil
}

func (c *fakeCursor) Position() uint64 { return c.at }
