package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// VolatileConfig says how to do without a disk.
type VolatileConfig struct {
	Session       string            // that readings are taken in under, see batch.NewSession
	Streams       map[string]Stream // that may be written to, by name
	MaxBytes      int64             // of batches with readings that are not at rest; 0: 64 MiB, above half a million small readings
	StoredTimeout time.Duration     // how long Append waits for the store; 0: 10 s
	// Admit is asked for each stream of a request before anything is taken; its
	// error refuses a request that could only wait in memory for a database that
	// is away. It may be nil.
	Admit      func(stream string) error
	KeyWindow  time.Duration // how long idempotency keys are known; 0: 15 min
	MaxKeys    int           // known at most, the newest; 0: 1,000,000, see Config.MaxKeys
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: metrics are kept and not registered
	Faults     *fault.Injector
	Now        func() time.Time     // nil: time.Now
	Elapsed    func() time.Duration // see Config
}

// A Volatile stands where there is no disk for a journal. It gives readings
// their order and lets them be followed as a Journal does, but keeps them in
// memory alone; hence it acknowledges nothing but what is stored.
type Volatile struct {
	cfg       VolatileConfig
	windows   func(stream string) time.Duration // granularity of the streams
	metrics   *metrics
	keys      *keys
	progress  progress
	closed    chan struct{}
	closeOnce sync.Once
	bytes     atomic.Int64 // of batches with readings that are not at rest

	mu       sync.Mutex
	own      []string // sessions that this process created, the current one last
	clock    clock
	nextSeq  uint64
	stopping bool
	records  deque[volatileRecord] // a record's position is its number
	taken    uint64
	grown    chan struct{}
}

// volatileRecord is a batch at its place; nil once all its rows are at rest.
type volatileRecord struct {
	batch *batch.Batch
}

// OpenVolatile returns an empty one.
func OpenVolatile(cfg VolatileConfig) (*Volatile, error) {
	setDefault(&cfg.MaxBytes, 64<<20)
	if err := setCommon(&cfg.StoredTimeout, &cfg.KeyWindow, &cfg.MaxKeys); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Now, cfg.Elapsed = clocks(cfg.Now, cfg.Elapsed)
	if cfg.Admit == nil {
		cfg.Admit = func(string) error { return nil }
	}
	switch {
	case cfg.Session == "":
		return nil, errors.New("a journal needs a session")
	case cfg.MaxBytes < 1<<20:
		return nil, fmt.Errorf("queue-max-bytes %d is too small; it needs 1MiB", cfg.MaxBytes)
	}
	v := &Volatile{cfg: cfg, windows: granularityOf(cfg.Streams), keys: newKeys(cfg.KeyWindow, cfg.MaxKeys, cfg.Now), closed: make(chan struct{}), nextSeq: 1, own: []string{cfg.Session}, clock: newClock(cfg.Now(), cfg.Elapsed())}
	var err error
	if v.metrics, err = newMetrics(cfg.Registerer, gauges{
		max: v.cfg.MaxBytes, bytes: func() float64 { return float64(v.bytes.Load()) }, oldest: v.oldestUnapplied, keys: v.keys.count,
		markFailures: func() float64 { return 0 },
	}); err != nil {
		return nil, fmt.Errorf("register metrics of the journal: %w", err)
	}
	return v, nil
}

// Append takes all readings of b, or none, and returns when all are at rest.
// Errors are *telemetry.Error: of kind Unavailable when nothing was taken, of
// kind UnknownOutcome when the readings were taken but are not known to be
// stored within StoredTimeout or ctx; they are kept and still written.
func (v *Volatile) Append(ctx context.Context, b *batch.Batch, r batch.Request) (batch.Receipt, error) {
	v.cfg.Faults.At(fault.BeforeAppend)
	receipt, err := v.appendOnce(ctx, b, &r)
	if err != nil {
		v.metrics.refuse(err)
		return batch.Receipt{}, err
	}
	v.cfg.Faults.At(fault.AfterAck)
	return receipt, nil
}

func (v *Volatile) appendOnce(ctx context.Context, b *batch.Batch, r *batch.Request) (batch.Receipt, error) {
	if r.Want != telemetry.Stored {
		return batch.Receipt{}, telemetry.Errorf(telemetry.Invalid, "ack_unavailable", "ack %s needs a journal, and this daemon has none; allowed is stored", r.Want)
	}
	if r.Key == "" || v.cfg.Faults.Off(fault.Keys) {
		return v.take(ctx, b, r, nil)
	}
	return v.keys.once(ctx, r,
		func(f *flight) (batch.Receipt, error) { return v.take(ctx, b, r, f) },
		func(known *keyEntry) (batch.Receipt, error) { return v.repeated(ctx, known) })
}

// Repeat implements ingest.Journal: it answers a request whose key is known, as
// Append does, and never appends anything.
func (v *Volatile) Repeat(ctx context.Context, r batch.Request) (batch.Receipt, error) {
	if v.cfg.Faults.Off(fault.Keys) {
		return batch.Receipt{}, nil
	}
	return v.keys.once(ctx, &r, nil, func(known *keyEntry) (batch.Receipt, error) { return v.repeated(ctx, known) })
}

// repeated answers a request that was taken before, when it is stored.
func (v *Volatile) repeated(ctx context.Context, known *keyEntry) (batch.Receipt, error) {
	refused, stored := repetition{v.keys, &v.progress, v.patience()}.wait(ctx, known)
	if !stored {
		return batch.Receipt{}, v.unknown(ctx, true)
	}
	v.cfg.Faults.At(fault.BeforeAck)
	return batch.Receipt{Ack: telemetry.Stored, Refused: refused, Repeated: true, Answer: []byte(known.answer)}, nil
}

func (v *Volatile) patience() patience {
	return patience{timeout: v.cfg.StoredTimeout, closed: v.closed}
}

// unknown tells a client what to do whose request, with an idempotency key or
// without, was taken and is not known to be stored.
func (v *Volatile) unknown(ctx context.Context, keyed bool) error {
	advice := "repeating it may store them twice; an Idempotency-Key prevents that"
	if keyed {
		advice = "repeat it with the same Idempotency-Key"
	}
	if err := ctx.Err(); err != nil {
		return errUnknownOutcome("the request ended before the readings were known to be stored; "+advice, err)
	}
	return errUnknownOutcome(fmt.Sprintf("MongoDB did not confirm the request's readings within %v, they may be stored; %s", v.cfg.StoredTimeout, advice), nil)
}

func (v *Volatile) take(ctx context.Context, b *batch.Batch, r *batch.Request, f *flight) (batch.Receipt, error) {
	w, err := v.enter(b, f)
	if err != nil {
		if f != nil {
			v.keys.failed(f, err)
		}
		return batch.Receipt{}, err
	}
	if r.Journaled != nil {
		r.Journaled()
	}
	if !v.patience().wait(ctx, w.done) {
		return batch.Receipt{}, v.unknown(ctx, f != nil)
	}
	v.cfg.Faults.At(fault.BeforeAck)
	return batch.Receipt{Ack: telemetry.Stored, Refused: w.result()}, nil
}

// enter admits b and publishes it.
func (v *Volatile) enter(b *batch.Batch, f *flight) (*waiter, error) {
	if err := v.admit(b); err != nil {
		return nil, err
	}
	size := b.MemorySize()
	if held := v.bytes.Add(size); held > v.cfg.MaxBytes && held > size && !v.cfg.Faults.Off(fault.Limit) {
		v.bytes.Add(-size)
		return nil, unavailable(codeQueue, "the queue is full, MongoDB is slower than what arrives (--queue-max-bytes)", nil)
	}
	w := newWaiter(b.Len())
	b.Tracker = w
	b.SetGranularity(v.windows)
	drawn := uint64(0)
	if v.cfg.Faults.Off(fault.Order) {
		drawn = v.drawEarly(uint64(b.Len()))
	}
	v.mu.Lock()
	if v.stopping {
		v.mu.Unlock()
		v.bytes.Add(-size)
		return nil, errStopping()
	}
	if v.clock.jumped(v.cfg.Now(), v.cfg.Elapsed()) {
		v.own = append(v.own, batch.NewSession())
	}
	b.Session, b.FirstSeq = v.own[len(v.own)-1], drawn
	if drawn == 0 {
		b.FirstSeq = v.nextSeq
		v.nextSeq += uint64(b.Len())
	}
	position := v.end()
	w.whenAtRest(func() { v.free(position, size) })
	if f != nil {
		f.waiter = w
		v.keys.taken(f, position+1) // before any reading can be at rest
	}
	v.records.push(volatileRecord{b})
	v.taken += uint64(b.Len())
	if v.grown != nil {
		close(v.grown)
		v.grown = nil
	}
	v.mu.Unlock()
	return w, nil
}

// admit asks for each stream of b whether it can take readings now.
func (v *Volatile) admit(b *batch.Batch) error {
	asked := ""
	for i := range b.SeriesLen() {
		s := b.SeriesAt(i)
		if s.Stream == asked {
			continue
		}
		if _, ok := v.cfg.Streams[s.Stream]; !ok {
			return errUnknownStream(s.Stream)
		}
		asked = s.Stream
		if err := v.cfg.Admit(asked); err != nil {
			return unavailable(codeAway, "MongoDB does not answer, and without a journal nothing can be taken", err)
		}
	}
	return nil
}

// drawEarly takes the sequences apart from the position, and lets others go
// first every other time.
func (v *Volatile) drawEarly(n uint64) uint64 {
	v.mu.Lock()
	drawn, before := v.nextSeq, v.end()
	v.nextSeq += n
	v.mu.Unlock()
	if drawn%2 == 1 {
		yieldWhile(func() bool { return v.End() == before })
	}
	return drawn
}

// free forgets a batch whose rows are all at rest.
func (v *Volatile) free(position uint64, size int64) {
	v.bytes.Add(-size)
	v.mu.Lock()
	defer v.mu.Unlock()
	if position >= v.records.base {
		v.records.at(int(position - v.records.base)).batch = nil
	}
}

func (v *Volatile) end() uint64 { return v.records.base + uint64(v.records.len()) }

// Oldest is where the records begin.
func (v *Volatile) Oldest() uint64 { return 0 }

// End is the position behind the last record.
func (v *Volatile) End() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.end()
}

// Taken counts the readings that were taken.
func (v *Volatile) Taken() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.taken
}

// Lose ends the use of a session: what comes from now on is taken in under another
// one. No later process replays what is in memory.
func (v *Volatile) Lose(session string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.own[len(v.own)-1] == session {
		v.own = append(v.own, batch.NewSession())
	}
	return nil
}

// LostSessions is empty: nothing was left by an earlier process.
func (v *Volatile) LostSessions() []string { return nil }

// Sessions are those that readings were taken in under, the present one first.
func (v *Volatile) Sessions() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	sessions := slices.Clone(v.own)
	slices.Reverse(sessions)
	return sessions
}

// Unapplied is empty: nothing was left by an earlier process.
func (v *Volatile) Unapplied() []Unapplied { return nil }

// Follow returns a cursor at a position. It leaves out the records whose rows
// are all at rest. Records are shared in memory, whatever part is wanted.
func (v *Volatile) Follow(position uint64, _ batch.Part) batch.Cursor {
	return &volatileCursor{journal: v, position: position}
}

// Grown returns a channel that is closed once a record at or behind the
// position can be followed.
func (v *Volatile) Grown(position uint64) <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.end() > position {
		done := make(chan struct{})
		close(done)
		return done
	}
	if v.grown == nil {
		v.grown = make(chan struct{})
	}
	return v.grown
}

// Trim says that everything before the position is at rest.
func (v *Volatile) Trim(position uint64) {
	if !v.progress.advance(position) {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for v.records.len() > 0 && v.records.base < position {
		v.records.drop()
	}
}

func (v *Volatile) oldestUnapplied() time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range v.records.len() {
		if b := v.records.at(i).batch; b != nil {
			return max(0, v.cfg.Now().Sub(b.Received))
		}
	}
	return 0
}

// Err tells why nothing can be taken, nil if it can.
func (v *Volatile) Err() error {
	v.mu.Lock()
	stopping := v.stopping
	v.mu.Unlock()
	if stopping {
		return errStopping()
	}
	names := make([]string, 0, len(v.cfg.Streams))
	for name := range v.cfg.Streams {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if err := v.cfg.Admit(name); err != nil {
			return err
		}
	}
	return nil
}

// Status returns what is held now.
func (v *Volatile) Status() Status {
	s := Status{
		Volatile: true, Session: v.Sessions()[0], Bytes: v.bytes.Load(), MaxBytes: v.cfg.MaxBytes,
		Applied: v.progress.applied.Load(), End: v.End(), OldestUnappliedS: v.oldestUnapplied().Seconds(), Keys: v.keys.count(),
	}
	if err := v.Err(); err != nil {
		s.Error = err.Error()
	}
	return s
}

// Stop refuses what comes from now on.
func (v *Volatile) Stop() {
	v.mu.Lock()
	v.stopping = true
	v.mu.Unlock()
}

// Close answers those who still wait: nobody knows whether their readings are
// stored.
func (v *Volatile) Close() error {
	v.Stop()
	v.closeOnce.Do(func() { close(v.closed) })
	return nil
}
