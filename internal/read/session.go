package read

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A SessionConfig says what a Session reads, and on whose behalf.
type SessionConfig struct {
	Stream string // empty: the default stream
	// Credentials is the value of the client's header Authorization, which is sent to
	// other daemons.
	Credentials string
	StoredOnly  bool // leave out what is not stored yet
	// Wait is how long to wait for a slot; 0: a second.
	Wait time.Duration
}

// A Session reads a stream for one answer, like a request over HTTP: acknowledged
// readings that are not stored yet are included, and only sensors that the identity of
// the context may access can be read. All its queries together use one slot of
// --max-queries and one budget of bytes. Its methods may be called by several goroutines.
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

// Begin begins a session, and returns the context for all its methods. The context ends
// after Config.Timeout, or when the stream's database becomes unavailable. The caller calls
// End.
//
// Errors are *telemetry.Error: NotFound for an unknown stream, Unavailable if there is
// no free slot, if the database is unavailable or if the daemon is starting.
func (r *Reader) Begin(ctx context.Context, cfg SessionConfig) (context.Context, *Session, error) {
	stored, err := r.opened()
	if err != nil {
		return nil, nil, err
	}
	s := &Session{reader: r, stored: stored, stream: cfg.Stream, who: access.From(ctx), credentials: cfg.Credentials, storedOnly: cfg.StoredOnly}
	if s.stream, s.source, err = r.sourceOf(stored, cfg.Stream); err != nil {
		return nil, nil, err
	}
	if ctx, err = s.enter(ctx, cmp.Or(cfg.Wait, slotWait)); err != nil {
		return nil, nil, err
	}
	return ctx, s, nil
}

// enter takes a slot, and starts the timeout and the budget of the session.
func (s *Session) enter(ctx context.Context, wait time.Duration) (context.Context, error) {
	r := s.reader
	if err := s.stored.Available(s.stream); err != nil {
		return nil, unavailable(err)
	}
	up, goDown := context.WithCancelCause(ctx)
	s.end = append(s.end, func() { goDown(nil) })
	if s.stored.Up != nil {
		stop := context.AfterFunc(s.stored.Up(s.stream), func() { goDown(errDatabaseDown) })
		s.end = append(s.end, func() { stop() })
	}
	leave, err := r.slots.enter(up, s.who, wait)
	if err != nil {
		s.End()
		if cause := s.stored.Available(s.stream); cause != nil {
			err = unavailable(cause)
		}
		return nil, err
	}
	s.end = append(s.end, leave)
	limited, cancel := context.WithTimeoutCause(up, r.cfg.Timeout, errTimeout)
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

// Detached returns a session for the same client without a slot and with a budget of its own,
// and its context. Neither Config.Timeout nor the state of the database ends that context.
func (s *Session) Detached(ctx context.Context) (context.Context, *Session) {
	detached := &Session{
		reader: s.reader, stored: s.stored, stream: s.stream, source: s.source, who: s.who,
		credentials: s.credentials, storedOnly: s.storedOnly, budget: telemetry.NewBudget(s.reader.cfg.MaxBytes),
	}
	return telemetry.WithBudget(ctx, detached.budget), detached
}

// Charge charges the session for its share, from 0 to 1, of what another session has read,
// and adds the other session's missing daemons. It returns an error if the budget is
// exceeded.
func (s *Session) Charge(from *Session, share float64) error {
	s.addMissing(from.Missing())
	s.asking.Add(from.asking.Load())
	return telemetry.Spend(telemetry.WithBudget(context.Background(), s.budget), int(share*float64(from.budget.Spent())))
}

// Stream is the name of the stream that is read.
func (s *Session) Stream() string { return s.stream }

// Explain returns the error for the client after a context of the session has ended.
func (s *Session) Explain(ctx context.Context) error { return s.explain(ctx, ctx.Err()) }

// Missing returns the addresses of the daemons that could not be asked for their unstored
// readings. Their stored readings are included.
func (s *Session) Missing() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.missing)
}

// addMissing notes which daemons could not be asked.
func (s *Session) addMissing(daemons []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range daemons {
		if !slices.Contains(s.missing, d) {
			s.missing = append(s.missing, d)
		}
	}
}

// Readings yields the readings of q in time order; q.Unstored must be empty. An error
// comes last; it is a *telemetry.Error if the client can act on it.
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

// ReadingsOf yields the readings of several sensors, whose ids must ascend: those of q, for one
// sensor after the other. It is for short time ranges of many sensors.
func (s *Session) ReadingsOf(ctx context.Context, q telemetry.Query, sensors []string) iter.Seq2[telemetry.Reading, error] {
	return func(yield func(telemetry.Reading, error) bool) {
		qs, err := s.waitingOf(ctx, q, sensors)
		known, _ := errors.AsType[*telemetry.Error](err)
		switch {
		case err == nil:
			passOn(s, ctx, s.source.ReadingsOf(ctx, qs), yield)
		case known != nil && known.Code == codeTooLong: // for all together
			store.ReadEach(ctx, qs, s.Readings)(yield)
		default:
			yield(telemetry.Reading{}, s.explain(ctx, err))
		}
	}
}

// waitingOf returns q for each sensor, with the readings that may not be stored yet.
func (s *Session) waitingOf(ctx context.Context, q telemetry.Query, sensors []string) ([]telemetry.Query, error) {
	qs, finds, together := make([]telemetry.Query, len(sensors)), make([]*search, len(sensors)), new(int)
	for i, sensor := range sensors {
		if err := s.who.RequireSensor(sensor); err != nil {
			return nil, err
		}
		q.Sensor = sensor
		find := s.newSearch(q)
		find.bytes = together
		qs[i], finds[i] = q, &find
	}
	err := s.unstoredOf(ctx, finds)
	for i, find := range finds {
		qs[i].Unstored = find.found
	}
	return qs, err
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

// passOn yields the items of a source, and passes errors through explain.
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
	// The oldest readings of a backlog may all be duplicates, so the page may need later ones.
	if !dropsReadings(s.source) {
		find.limit = q.Limit
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
