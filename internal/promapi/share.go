package promapi

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/brim-telemetry/brim/internal/read"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// shares lets queries share reads. The panels of a dashboard query the same sensors at the same
// time, so one read of a sensor can serve all of them:
//
//	arrivals   A    B
//	reads of A    ├ s-1 ┤├ s-2 ┤├ s-3 ┤
//	reads of B           ├ s-1 ┤          s-2 and s-3 come from A
//
// A query uses only reads that began after it arrived. So its answer has all readings that were
// acknowledged before, as if it had read them itself.
//
// When a read begins, it covers what all active queries are expected to need of a sensor. It is
// kept until they have ended, because queries may still be waiting for a slot.
type shares struct {
	maxSamples int // that all reads together may hold
	readers    *semaphore.Weighted
	scheduler  *scheduler
	log        *slog.Logger

	mu     sync.Mutex
	clock  uint64 // incremented when a query arrives or a read begins
	active map[*activeQuery]struct{}
	reads  map[readKey][]*sharedRead // that queries can still use
	held   int                       // samples in those, or the equivalent
}

func newShares(maxSamples, readers int, scheduler *scheduler, log *slog.Logger) *shares {
	return &shares{
		maxSamples: maxSamples, readers: semaphore.NewWeighted(int64(readers)), scheduler: scheduler, log: log,
		active: make(map[*activeQuery]struct{}), reads: make(map[readKey][]*sharedRead),
	}
}

// A client identifies a client and the stream that it reads. Reads are shared only within one
// client, because its credentials are used for requests to other daemons.
type client struct{ stream, name, credentials string }

// A readKey identifies what is read, and for which client.
type readKey struct {
	client
	sensor string // of the readings; empty: a list of sensors
	key    string // for a list, that of the matchers
}

// A readRange is what to read of a sensor.
type readRange struct {
	from, to int64    // milliseconds since the epoch; to is exclusive
	fields   []string // sorted; nil: all
}

func (w *readRange) query(sensor string) telemetry.Query {
	return telemetry.Query{Sensor: sensor, From: w.from, To: w.to, Fields: w.fields, Transient: true}
}

// covers reports whether w includes o.
func (w *readRange) covers(o *readRange) bool {
	return w.from <= o.from && o.to <= w.to && (w.fields == nil || o.fields != nil && !slices.ContainsFunc(o.fields, func(name string) bool {
		_, found := slices.BinarySearch(w.fields, name)
		return !found
	}))
}

// extend makes w cover another one that overlaps, unless its span would then be longer
// than most.
func (w *readRange) extend(o *readRange, maxSpan int64) bool {
	from, to := min(w.from, o.from), max(w.to, o.to)
	if to-from > maxSpan || w.to < o.from || o.to < w.from {
		return false
	}
	w.from, w.to, w.fields = from, to, allOf(w.fields, o.fields)
	return true
}

// allOf returns the union of two sorted lists, where nil means all.
func allOf(a, b []string) []string {
	if a == nil || b == nil {
		return nil
	}
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// A activeQuery is a query from its arrival to its end.
type activeQuery struct {
	client
	arrived  uint64
	expected readRange // what it will read of each of its sensors; empty: unknown
}

// A sharedRead is a read of a sensor, or of a list of sensors, which has no time range. All fields
// except err, session, load and result are guarded by the mutex of shares.
type sharedRead struct {
	readRange
	readKey
	maxSpan int64  // maximum length of the time range
	begun   uint64 // 0: it waits for a slot, and can still be extended
	ended   bool
	joined  int // number of queries that wait for it
	held    int // samples
	cancel  context.CancelFunc
	load    func(context.Context, *read.Session, readRange, func(samples int) error) (any, error)

	done    chan struct{} // closed when the following are final
	session *read.Session
	result  any
	err     error
}

// register adds a query that has arrived.
func (s *shares) register(of client) *activeQuery {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock++
	v := &activeQuery{client: of, arrived: s.clock}
	s.active[v] = struct{}{}
	return v
}

// expect sets what the query will probably read.
func (s *shares) expect(v *activeQuery, w readRange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.expected = w
}

// unregister removes a query that has ended, and drops the reads that no query can use any more.
// All queries that used them have also ended, so their memory can be used again.
func (s *shares) unregister(v *activeQuery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.active, v)
	oldest := s.clock + 1
	for other := range s.active {
		oldest = min(oldest, other.arrived)
	}
	s.drop(func(r *sharedRead) bool {
		if r.begun >= oldest {
			return false
		}
		if got, ok := r.result.(*record); ok {
			got.free()
		}
		return true
	})
}

// drop drops those reads that have ended.
func (s *shares) drop(which func(*sharedRead) bool) {
	for at, list := range s.reads {
		list = slices.DeleteFunc(list, func(r *sharedRead) bool {
			if !r.ended || !which(r) {
				return false
			}
			s.held -= r.held
			return true
		})
		if s.reads[at] = list; len(list) == 0 {
			delete(s.reads, at)
		}
	}
}

// errNoRoom says that a read cannot be shared.
var errNoRoom = errors.New("no room to share what is read")

// read reads a sensor, and reports whether another query's read was used. The session is charged
// for it. The error is errNoRoom if the query has to read by itself.
func (s *shares) read(ctx context.Context, session *read.Session, v *activeQuery, sensor string, w readRange) (_ *record, joined bool, err error) {
	return joinRead[*record](ctx, s, session, v, &sharedRead{
		readRange: w, readKey: readKey{client: v.client, sensor: sensor}, maxSpan: 2 * (w.to - w.from),
		load: func(ctx context.Context, session *read.Session, w readRange, grow func(int) error) (any, error) {
			r := &record{}
			return r, r.read(ctx, session, w.query(sensor), grow)
		},
	})
}

const (
	sampleBytes = 16     // of a sample
	maxShared   = 20_000 // sensors of a list
)

// size estimates the memory of a sensor in a list, in samples.
func size(one *telemetry.Sensor) int {
	n := 160 + len(one.ID) + 32*(len(one.Fields)+len(one.Texts))
	for i := range one.Sets {
		n += 64 + 64*len(one.Sets[i].Tags)
	}
	return n / sampleBytes
}

// list is like read for a list of sensors. It may omit sensors that have none of the fields. The
// key must be the same for queries that differ only in their fields.
func (s *shares) list(ctx context.Context, session *read.Session, v *activeQuery, key string, q telemetry.SensorQuery) ([]telemetry.Sensor, error) {
	w := readRange{}
	if len(q.Fields) > 0 {
		w.fields = q.Fields
	}
	found, _, err := joinRead[[]telemetry.Sensor](ctx, s, session, v, &sharedRead{
		readRange: w, readKey: readKey{client: v.client, key: key},
		load: func(ctx context.Context, session *read.Session, w readRange, grow func(int) error) (any, error) {
			var all []telemetry.Sensor
			q := q
			q.Fields = w.fields
			for one, err := range session.Find(ctx, q) {
				if err == nil {
					err = grow(size(&one))
				}
				if err == nil && len(all) == maxShared {
					err = errNoRoom
				}
				if err != nil {
					return nil, err
				}
				all = append(all, one)
			}
			return all, nil
		},
	})
	return found, err
}

// joinRead returns the result of a matching shared read, or else of own.
func joinRead[T any](ctx context.Context, s *shares, session *read.Session, v *activeQuery, own *sharedRead) (none T, joined bool, err error) {
	w := own.readRange
	r, joined := s.join(ctx, session, v, own)
	select {
	case <-r.done:
	case <-ctx.Done():
	}
	s.detach(r)
	switch {
	case ctx.Err() != nil:
		_ = session.Charge(r.session, 1) // only records whether MongoDB was asked, and answered
		return none, joined, ctx.Err()
	case errors.Is(r.err, errNoRoom), r.err != nil && (joined || !w.covers(&r.readRange)):
		return none, joined, errNoRoom // the failed read was larger than needed
	}
	result, _ := r.result.(T)
	return result, joined, errors.Join(r.err, session.Charge(r.session, w.shareOf(&r.readRange)))
}

// shareOf estimates the share of w in a larger read, of, which covers w. Timestamps count as one
// field.
func (w *readRange) shareOf(of *readRange) float64 {
	share := 1.0
	if of.to > of.from {
		share = float64(w.to-w.from) / float64(of.to-of.from)
	}
	if w.fields != nil && of.fields != nil {
		share *= float64(1+len(w.fields)) / float64(1+len(of.fields))
	}
	return share
}

// join returns a read that covers own; if there is none, it starts own.
func (s *shares) join(ctx context.Context, session *read.Session, v *activeQuery, own *sharedRead) (r *sharedRead, joined bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.reads[own.readKey] {
		switch {
		case r.begun == 0 && r.extend(&own.readRange, min(own.maxSpan, r.maxSpan)):
			r.maxSpan = min(own.maxSpan, r.maxSpan)
		case r.begun <= v.arrived || !r.covers(&own.readRange) || r.to-r.from > own.maxSpan:
			continue
		}
		r.joined++
		return r, true
	}
	own.joined, own.done = 1, make(chan struct{})
	// It is shared by all that join it, so it must not end with the first of them.
	ctx, own.cancel = context.WithCancel(context.WithoutCancel(ctx))
	ctx, own.session = session.Detached(ctx)
	s.reads[own.readKey] = append(s.reads[own.readKey], own)
	go s.run(ctx, own)
	return own, false
}

// detach ends one query's wait for a read. A read that no query waits for is canceled.
func (s *shares) detach(r *sharedRead) {
	s.mu.Lock()
	r.joined--
	given := r.joined == 0 && !r.ended
	if given {
		s.remove(r)
	}
	s.mu.Unlock()
	if given {
		r.cancel()
		<-r.done
	}
}

// remove prevents other queries from using a read.
func (s *shares) remove(r *sharedRead) {
	list := s.reads[r.readKey]
	if i := slices.Index(list, r); i >= 0 {
		s.reads[r.readKey] = slices.Delete(list, i, i+1)
	}
	if len(s.reads[r.readKey]) == 0 {
		delete(s.reads, r.readKey)
	}
}

// run executes a read.
func (s *shares) run(ctx context.Context, r *sharedRead) {
	defer close(r.done)
	defer r.cancel()
	if r.err = s.readers.Acquire(ctx, 1); r.err == nil {
		defer s.readers.Release(1)
		r.err = s.scheduler.acquire(ctx, r.name)
	}
	if r.err == nil {
		defer s.scheduler.release(r.name)
		r.err = guard(s.log, func() (err error) {
			r.result, err = r.load(ctx, r.session, s.begin(r), func(n int) error { return s.grow(r, n) })
			return err
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.ended = true; r.err != nil || !slices.Contains(s.reads[r.readKey], r) {
		s.held -= r.held
		s.remove(r)
	}
}

// begin returns what to read: what was requested, and what the active queries will probably
// request.
func (s *shares) begin(r *sharedRead) readRange {
	s.mu.Lock()
	defer s.mu.Unlock()
	for v := range s.active {
		switch {
		case v.client != r.client || v.expected.fields == nil || r.fields == nil:
		case r.sensor == "":
			r.fields = allOf(r.fields, v.expected.fields)
		default:
			r.extend(&v.expected, r.maxSpan)
		}
	}
	s.clock++
	r.begun = s.clock
	return r.readRange
}

// grow makes room for more samples of a read, or returns errNoRoom.
func (s *shares) grow(r *sharedRead, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.held += n
	s.held += n
	if s.held > s.maxSamples {
		s.drop(func(*sharedRead) bool { return true })
	}
	if s.held > s.maxSamples {
		return errNoRoom
	}
	return nil
}
