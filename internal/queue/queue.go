// Package queue stands between the door and the store. It merges what belongs
// to one bucket, so that one update carries many readings, and it keeps at most
// one operation of a bucket in flight:
//
//	Append ─▶ sequence + lane position (one critical section)
//	             │
//	             ├─▶ lane 0: inbox ─▶ shares per bucket ─▶ flush ─▶ Store.Write ─▶ settle
//	             ├─▶ lane 1: …            ▲                                          │
//	             └─▶ lane n: …            └──────────── what is left, after a wait ──┘
//
// A sensor always belongs to the same lane of its stream, and a lane writes one
// flush at a time; what arrives meanwhile gathers for the next, so updates grow
// by themselves under load.
package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Store is where a stream's lanes bring their shares.
//
// Write is called by several lanes at once, never with the same bucket twice.
// It blocks until every share has a verdict, or ctx ends. It takes the rows
// that are durably stored out of the shares, and only those; whatever else went
// wrong is in the verdict. It keeps no reference to a share's rows.
type Store interface {
	Write(ctx context.Context, shares []*batch.Share)
}

// DeadLetters is where readings go that the database refuses for their
// content. Put returns when the reading is durable there.
type DeadLetters interface {
	Put(stream string, reading telemetry.Reading, reason error) error
}

// Stream is one stream's place in the queue.
type Stream struct {
	Store       Store
	Granularity time.Duration
}

// Config says how to queue.
type Config struct {
	Streams       map[string]Stream
	Session       string        // that readings are taken in under, see batch.NewSession
	Lanes         int           // of each stream, 1 to 256; 0: 4, as many writers as one mongod gains from
	FlushInterval time.Duration // oldest age at which a reading is written; 0: 1 s
	MaxBytes      int64         // of readings held in memory; 0: 64 MiB, above half a million small readings
	StoredTimeout time.Duration // how long Append waits for the store; 0: 10 s
	DeadLetters   DeadLetters
	// Admit is asked for each stream of a request before anything is taken; its
	// error refuses a request that could only wait in memory for a database that
	// is away.
	Admit      func(stream string) error
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// A flush ends when its shares or their rows reach these numbers, so that one
// command stays within a second of the server's work and a few megabytes.
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
		c.MaxBytes = 64 << 20
	}
	if c.StoredTimeout == 0 {
		c.StoredTimeout = 10 * time.Second
	}
	if c.Admit == nil {
		c.Admit = func(string) error { return nil }
	}
	switch {
	case len(c.Streams) == 0:
		return errors.New("a queue needs a stream")
	case c.Session == "":
		return errors.New("a queue needs a session")
	case c.DeadLetters == nil:
		return errors.New("a queue needs a place for dead letters")
	case c.Lanes < 1 || c.Lanes > 256:
		return fmt.Errorf("lanes %d is out of range; allowed are 1 to 256", c.Lanes)
	case c.FlushInterval < time.Millisecond || c.FlushInterval > time.Hour:
		return fmt.Errorf("flush-interval %v is out of range; allowed are 1ms to 1h", c.FlushInterval)
	case c.MaxBytes < 1<<20:
		return fmt.Errorf("queue-max-bytes %d is too small; it needs 1MiB", c.MaxBytes)
	case c.StoredTimeout < 0:
		return fmt.Errorf("stored-timeout %v is negative", c.StoredTimeout)
	}
	return nil
}

// Queue merges readings and brings them to their stores.
type Queue struct {
	cfg     Config
	metrics *metrics
	lanes   map[string][]*lane // by stream
	cancel  context.CancelFunc // ends the lanes, whatever they hold
	running sync.WaitGroup

	stopping atomic.Bool
	bytes    atomic.Int64
	warned   atomic.Int64 // when a put-off write was last logged, in ns

	// place guards the sequence and the tails of all inboxes: each bucket sees
	// strictly rising sequences because both are taken together.
	place   sync.Mutex
	nextSeq uint64

	outstanding outstanding
	faults      faults
}

// faults switch protections off, so that tests can show what each is for.
type faults struct {
	// sequenceOutside takes the sequence before the lane position and calls the
	// function in between.
	sequenceOutside func()
}

// New starts the lanes.
func New(cfg Config) (*Queue, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	q := &Queue{cfg: cfg, nextSeq: 1, lanes: make(map[string][]*lane)}
	q.outstanding.init()
	var err error
	if q.metrics, err = newMetrics(cfg.Registerer, q); err != nil {
		return nil, fmt.Errorf("register metrics of the queue: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	q.cancel = cancel
	for name, stream := range cfg.Streams {
		for range cfg.Lanes {
			l := newLane(q, name, stream)
			q.lanes[name] = append(q.lanes[name], l)
			q.running.Go(func() { l.run(ctx) })
		}
	}
	return q, nil
}

// Append takes all readings of b, or none, and returns when every one is
// stored or put aside as a dead letter. Errors are *telemetry.Error: of kind
// Unavailable when nothing was taken, of kind UnknownOutcome when the readings
// were taken but not known to be stored within the timeout or ctx; they are
// kept and still written. The batch belongs to the queue from here on.
func (q *Queue) Append(ctx context.Context, b *batch.Batch, want telemetry.Ack) (batch.Receipt, error) {
	if want != telemetry.Stored {
		return batch.Receipt{}, telemetry.Errorf(telemetry.Invalid, "ack_unavailable", "ack %s needs a journal, and this daemon has none; allowed is stored", want)
	}
	t, err := q.take(b)
	if err != nil {
		return batch.Receipt{}, err
	}
	timeout := time.NewTimer(q.cfg.StoredTimeout)
	defer timeout.Stop()
	select {
	case <-t.done:
		return batch.Receipt{Ack: telemetry.Stored, Refused: t.refused}, nil
	case <-timeout.C:
		return batch.Receipt{}, telemetry.Errorf(telemetry.UnknownOutcome, "outcome_unknown",
			"MongoDB did not confirm within %v whether the readings are stored; repeating the request may store them twice", q.cfg.StoredTimeout)
	case <-ctx.Done():
		return batch.Receipt{}, &telemetry.Error{
			Kind: telemetry.UnknownOutcome, Code: "outcome_unknown",
			Message: "the request ended before the readings were known to be stored", Err: ctx.Err(),
		}
	}
}

// take admits b and hands it to the lanes.
func (q *Queue) take(b *batch.Batch) (*tracker, error) {
	if q.stopping.Load() {
		return nil, unavailable("stopping", "the daemon is stopping", nil)
	}
	size := b.MemorySize()
	if held := q.bytes.Add(size); held > q.cfg.MaxBytes && held > size {
		q.bytes.Add(-size)
		return nil, unavailable("queue_full", "the queue is full, MongoDB is slower than what arrives (--queue-max-bytes)", nil)
	}
	plan, err := q.plan(b)
	if err != nil {
		q.bytes.Add(-size)
		return nil, err
	}
	t := &tracker{queue: q, batch: b, size: size, done: make(chan struct{})}
	t.left.Store(int64(b.Len()))
	b.Session, b.Tracker = q.cfg.Session, t
	if err := q.enter(t, plan); err != nil {
		q.bytes.Add(-size)
		return nil, err
	}
	for _, d := range plan {
		d.lane.wakeUp()
	}
	return t, nil
}

// enter gives the batch its sequences and its place in the lanes.
func (q *Queue) enter(t *tracker, plan []delivery) error {
	n := uint64(t.batch.Len())
	if between := q.faults.sequenceOutside; between != nil {
		q.place.Lock()
		t.batch.FirstSeq, q.nextSeq = q.nextSeq, q.nextSeq+n
		q.place.Unlock()
		between()
		q.place.Lock()
		defer q.place.Unlock()
	} else {
		q.place.Lock()
		defer q.place.Unlock()
		t.batch.FirstSeq, q.nextSeq = q.nextSeq, q.nextSeq+n
	}
	// Checked under the same lock as Close sets it, so nothing comes after it.
	if q.stopping.Load() {
		return unavailable("stopping", "the daemon is stopping", nil)
	}
	q.outstanding.add(t)
	q.metrics.readings.Add(float64(n))
	for _, d := range plan {
		d.lane.push(d.rows, t.batch)
	}
	return nil
}

func unavailable(code, message string, cause error) *telemetry.Error {
	return &telemetry.Error{Kind: telemetry.Unavailable, Code: code, Message: message, RetryAfter: time.Second, Err: cause}
}

// delivery is what one lane gets of a batch.
type delivery struct {
	lane *lane
	rows []uint32 // in rising order; nil: every row
}

// plan sorts the rows of b by lane.
func (q *Queue) plan(b *batch.Batch) ([]delivery, error) {
	target := make([]*lane, b.SeriesLen())
	single := true
	for i := range target {
		s := b.SeriesAt(i)
		lanes := q.lanes[s.Stream]
		if lanes == nil {
			return nil, telemetry.Errorf(telemetry.NotFound, "unknown_stream", "stream %s does not exist", telemetry.Quote([]byte(s.Stream)))
		}
		target[i] = lanes[s.Hash%uint64(len(lanes))]
		single = single && target[i] == target[0]
	}
	if err := q.admit(b); err != nil {
		return nil, err
	}
	if single {
		return []delivery{{lane: target[0]}}, nil
	}
	var plan []delivery
	at := make(map[*lane]int)
	for i := range uint32(b.Len()) {
		l := target[b.SeriesNumber(b.Row(i))]
		k, ok := at[l]
		if !ok {
			k = len(plan)
			at[l] = k
			plan = append(plan, delivery{lane: l})
		}
		plan[k].rows = append(plan[k].rows, i)
	}
	return plan, nil
}

// admit asks for each stream of b whether it can take readings now.
func (q *Queue) admit(b *batch.Batch) error {
	asked := ""
	for i := range b.SeriesLen() {
		name := b.SeriesAt(i).Stream
		if name == asked {
			continue
		}
		asked = name
		if err := q.cfg.Admit(name); err != nil {
			return unavailable("mongodb_away", "MongoDB does not answer, and without a journal nothing can be taken", err)
		}
	}
	return nil
}

// Flush returns when all readings that were taken before the call are stored,
// or with ctx's error.
func (q *Queue) Flush(ctx context.Context) error {
	q.place.Lock()
	before := q.nextSeq
	q.place.Unlock()
	q.hurry()
	select {
	case <-q.outstanding.passed(before):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("flush the queue: %w", ctx.Err())
	}
}

// hurry makes every lane write what it holds.
func (q *Queue) hurry() {
	for _, lanes := range q.lanes {
		for _, l := range lanes {
			l.hurry()
		}
	}
}

// Close refuses what comes, writes what is held until ctx ends, and then ends
// the lanes. It returns how many readings were left unwritten.
func (q *Queue) Close(ctx context.Context) (dropped int) {
	q.place.Lock()
	q.stopping.Store(true)
	q.place.Unlock()
	if err := q.Flush(ctx); err != nil {
		q.cfg.Logger.Warn("stop before everything is stored", "readings", q.outstanding.readings(), "err", err)
	}
	q.cancel()
	q.running.Wait()
	return q.outstanding.readings()
}

// Status is what the queue holds.
type Status struct {
	Session  string        `json:"session"`
	Readings int           `json:"readings"`
	Bytes    int64         `json:"bytes"`
	Buckets  int           `json:"buckets"` // that lanes remember
	Oldest   time.Duration `json:"-"`       // age of the oldest reading
}

// Status returns what the queue holds now.
func (q *Queue) Status() Status {
	s := Status{
		Session: q.cfg.Session, Readings: q.outstanding.readings(),
		Bytes: q.bytes.Load(), Oldest: q.outstanding.age(time.Now()),
	}
	for _, lanes := range q.lanes {
		for _, l := range lanes {
			s.Buckets += int(l.active.Load())
		}
	}
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
	q.cfg.Logger.Warn("put off a write", "stream", stream, "attempt", attempt, "readings_waiting", q.outstanding.readings(), "err", err)
}
