package read

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// An Ask says what a Session reads, and for whom.
type Ask struct {
	Stream string // empty: the default stream
	// Credentials are the client's, the value of its header Authorization. Other
	// daemons get them.
	Credentials string
	StoredOnly  bool // leave out what is not stored yet
	// Wait is how long to wait for a slot; 0: a second.
	Wait time.Duration
}

// A Session reads a stream for one answer, as the requests over HTTP do: readings that
// are acknowledged and not stored yet are included, and only sensors that the identity
// of the context may access can be read. It holds a slot of --max-queries and has one
// budget of bytes, however much it is asked for. Its methods may be called by several
// goroutines.
type Session struct {
	reader *Reader
	stored *Stored
	stream string
	source Source
	who    *access.Identity

	credentials string
	storedOnly  bool
	waitingOnly bool // see params

	budget *telemetry.Budget
	asking atomic.Int64 // queries to MongoDB that failed or are still running
	end    []func()

	mu      sync.Mutex
	missing []string
}

// Begin begins a session. It ends by itself after Config.Timeout, or when the stream's
// database goes away, and so does the context that it returns, which is to be used for
// all its methods. The caller calls End.
//
// Errors are *telemetry.Error: NotFound for an unknown stream, Unavailable if there is
// no free slot, if the database is away or if the daemon is starting.
func (r *Reader) Begin(ctx context.Context, ask Ask) (context.Context, *Session, error) {
	stored, err := r.opened()
	if err != nil {
		return nil, nil, err
	}
	s := &Session{reader: r, stored: stored, stream: ask.Stream, who: access.From(ctx), credentials: ask.Credentials, storedOnly: ask.StoredOnly}
	if s.stream, s.source, err = r.sourceOf(stored, ask.Stream); err != nil {
		return nil, nil, err
	}
	if ctx, err = s.enter(ctx, cmp.Or(ask.Wait, slotWait)); err != nil {
		return nil, nil, err
	}
	return ctx, s, nil
}

// enter takes a slot, and begins the time and the budget of the session.
func (s *Session) enter(ctx context.Context, wait time.Duration) (context.Context, error) {
	r := s.reader
	if err := s.stored.Available(s.stream); err != nil {
		return nil, away(err)
	}
	present, goAway := context.WithCancelCause(ctx)
	s.end = append(s.end, func() { goAway(nil) })
	if s.stored.Up != nil {
		stop := context.AfterFunc(s.stored.Up(s.stream), func() { goAway(errAway) })
		s.end = append(s.end, func() { stop() })
	}
	leave, err := r.slots.enter(present, s.who, wait)
	if err != nil {
		s.End()
		if cause := s.stored.Available(s.stream); cause != nil {
			err = away(cause)
		}
		return nil, err
	}
	s.end = append(s.end, leave)
	limited, cancel := context.WithTimeoutCause(present, r.cfg.Timeout, errTimeout)
	s.end = append(s.end, cancel)
	s.budget = telemetry.NewBudget(r.cfg.MaxBytes)
	return telemetry.WithBudget(limited, s.budget), nil
}

// End ends the session.
func (s *Session) End() {
	for _, end := range slices.Backward(s.end) {
		end()
	}
	s.end = nil
}

// Apart returns a session for the same client that holds no slot and has a budget of its
// own, and its context. It lasts as long as that, which has no other end than ctx.
func (s *Session) Apart(ctx context.Context) (context.Context, *Session) {
	apart := &Session{
		reader: s.reader, stored: s.stored, stream: s.stream, source: s.source, who: s.who,
		credentials: s.credentials, storedOnly: s.storedOnly, budget: telemetry.NewBudget(s.reader.cfg.MaxBytes),
	}
	return telemetry.WithBudget(ctx, apart.budget), apart
}

// TakeOver charges the session for its share, from 0 to 1, of what another one has read, and
// notes what the other session lacks. It returns the error of a budget that is exceeded.
func (s *Session) TakeOver(from *Session, share float64) error {
	s.lack(from.Missing())
	s.asking.Add(from.asking.Load())
	return telemetry.Spend(telemetry.WithBudget(context.Background(), s.budget), int(share*float64(from.budget.Spent())))
}

// Stream is the name of the stream that is read.
func (s *Session) Stream() string { return s.stream }

// Explain returns what the client should know about the end of a context of the session.
func (s *Session) Explain(ctx context.Context) error { return s.explain(ctx, ctx.Err()) }

// Missing returns the addresses of the daemons that did not say what they have not
// stored yet. Their stored readings are included.
func (s *Session) Missing() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.missing)
}

// lack notes which daemons could not be asked.
func (s *Session) lack(daemons []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range daemons {
		if !slices.Contains(s.missing, d) {
			s.missing = append(s.missing, d)
		}
	}
}

// Readings yields the readings of q in time order; q.Unstored must be empty. An error
// comes last, and is a *telemetry.Error where the client can do something about it.
func (s *Session) Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	return func(yield func(telemetry.Reading, error) bool) {
		var err error
		if q.Unstored, err = s.waiting(ctx, q); err != nil {
			yield(telemetry.Reading{}, s.explain(ctx, err))
			return
		}
		passOn(s, ctx, s.source.Readings(ctx, q), yield)
	}
}

// Summary yields the steps of q that have readings, in time order, like Readings.
func (s *Session) Summary(ctx context.Context, q telemetry.SummaryQuery) iter.Seq2[telemetry.Summary, error] {
	return func(yield func(telemetry.Summary, error) bool) {
		var err error
		ask := q.Query
		ask.Limit = 0
		if q.Gone {
			err = s.who.RequireSensor(q.Sensor)
		} else {
			q.Unstored, err = s.waiting(ctx, ask)
		}
		if err != nil {
			yield(telemetry.Summary{}, s.explain(ctx, err))
			return
		}
		passOn(s, ctx, s.source.Summary(ctx, q), yield)
	}
}

// passOn yields what a source has, with explained errors.
func passOn[T any](s *Session, ctx context.Context, from iter.Seq2[T, error], yield func(T, error) bool) { //nolint:revive // the session is like a receiver
	s.asking.Add(1)
	for item, err := range from {
		if err != nil {
			yield(item, s.explain(ctx, err))
			return
		}
		if !yield(item, nil) {
			break
		}
	}
	s.asking.Add(-1)
}

// waiting gathers the readings of a query that may not be stored yet.
func (s *Session) waiting(ctx context.Context, q telemetry.Query) ([]telemetry.Unstored, error) {
	if err := s.who.RequireSensor(q.Sensor); err != nil {
		return nil, err
	}
	find := s.newSearch(q)
	// The oldest readings of a backlog may all be repeats, so that the page needs later ones.
	if !dropsReadings(s.source) {
		find.most = q.Limit
	}
	return s.unstored(ctx, find)
}

// latest returns the sensor's newest reading, and whether there is one.
func (s *Session) latest(ctx context.Context, sensor string) (telemetry.Reading, bool, error) {
	unstored, err := s.unstored(ctx, s.newestSearch(sensor))
	if err != nil {
		return telemetry.Reading{}, false, err
	}
	r, found, err := s.source.Latest(ctx, sensor, newest(unstored))
	if _, lastWins := s.source.(lastWinsSource); !lastWins || !found || err != nil {
		return r, found, err
	}
	at := r.Time.UnixMilli() // other readings of that time may have more fields
	for whole, err := range s.Readings(ctx, telemetry.Query{Sensor: sensor, From: at, To: at + 1}) {
		return whole, err == nil, err
	}
	return r, true, nil // it was removed meanwhile
}
