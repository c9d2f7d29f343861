package generation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// source has the methods of read.Source.
type source interface {
	Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error]
	ReadingsOf(ctx context.Context, qs []telemetry.Query) iter.Seq2[telemetry.Reading, error]
	Summary(ctx context.Context, q telemetry.SummaryQuery) iter.Seq2[telemetry.Summary, error]
	Sensors(ctx context.Context, q telemetry.SensorQuery) iter.Seq2[telemetry.SensorSeen, error]
	Newest(ctx context.Context, sensor string) (ms int64, found bool, err error)
	Latest(ctx context.Context, sensor string, unstored []telemetry.Unstored) (r telemetry.Reading, found bool, err error)
	Delete(ctx context.Context, sensor string) (int64, error)
}

// snapshot is a version of the list, with the stores of its generations.
type snapshot struct {
	list     *List
	backends []backend // one for each generation
	at       time.Time
}

// errUnlisted says that the list does not exist yet.
func errUnlisted() error {
	return &telemetry.Error{
		Kind: telemetry.Unavailable, Code: "starting", RetryAfter: time.Second,
		Message: "the stream is being prepared; ask again in a moment",
	}
}

// freshSnapshot returns a list that was read less than listTTL ago. The caller must have collected
// the unstored readings before: a reading that was stored since is in these generations.
func (s *Store) freshSnapshot(ctx context.Context) (*snapshot, error) {
	if last := s.snapshot.Load(); last != nil && time.Since(last.at) < listTTL {
		return last, nil
	}
	began := time.Now()
	list, err := Read(ctx, s.cfg.Database, s.cfg.Stream)
	switch {
	case err != nil:
		return nil, err
	case list == nil:
		return nil, errUnlisted()
	}
	return s.setSnapshot(list, began)
}

// forSensor is freshSnapshot for a query of one sensor.
func (s *Store) forSensor(ctx context.Context, sensor string) (*snapshot, error) {
	n, err := s.freshSnapshot(ctx)
	if err != nil && sensor != "" {
		return nil, fmt.Errorf("read sensor %q: %w", sensor, err)
	}
	return n, err
}

// errMoved says that an answer may lack readings.
func errMoved(stream string, err error) error {
	return &telemetry.Error{
		Kind: telemetry.Unavailable, Code: "stream_moved", RetryAfter: time.Second, Err: err,
		Message: fmt.Sprintf("readings of stream %q were moved into another collection during the read, so the answer would be incomplete; ask again", stream),
	}
}

// check is called at the end of an answer. A collection is dropped some time after it was removed
// from the list, so an answer that took longer may have missed its readings. In this case check
// returns an error instead of err, which may be nil.
func (s *Store) check(ctx context.Context, n *snapshot, err error) error {
	now := time.Now() // after a suspension, only the wall clock is ahead
	if max(now.Sub(n.at), now.Round(0).Sub(n.at.Round(0))) < propagationDelay {
		return err
	}
	list, failed := Read(ctx, s.cfg.Database, s.cfg.Stream)
	if failed != nil || list == nil {
		return cmp.Or(err, failed)
	}
	for _, g := range n.list.Generations {
		if slices.ContainsFunc(list.Moved, func(m Moved) bool { return m.Collection == g.Collection && m.Dropped }) {
			return errMoved(s.cfg.Stream, err)
		}
	}
	return err
}

// answer yields what of returns for a fresh snapshot, and calls check at the end. The sensor may be
// empty.
func answer[T any](ctx context.Context, s *Store, sensor string, of func(*snapshot) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		n, err := s.forSensor(ctx, sensor)
		if err != nil {
			yield(none, err)
			return
		}
		for item, err := range of(n) {
			if err != nil {
				yield(none, s.check(ctx, n, err))
				return
			}
			if !yield(item, nil) {
				return
			}
		}
		if err := s.check(ctx, n, nil); err != nil {
			yield(none, err)
		}
	}
}

// setSnapshot makes a list, read at a certain time, the one for queries.
func (s *Store) setSnapshot(list *List, at time.Time) (*snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := s.snapshot.Load(); last != nil && last.list.Version > list.Version {
		return last, nil // it was read later
	}
	next := &snapshot{list: list, at: at}
	for i, g := range list.Generations {
		of := s.backends[g.Collection]
		if of == nil {
			var err error
			if of, err = s.open(g, i == 0); err != nil {
				return nil, err
			}
			s.backends[g.Collection] = of
		}
		next.backends = append(next.backends, of)
	}
	s.snapshot.Store(next)
	return next, nil
}

// divide groups the unstored readings by their generation. Readings without a generation are
// stored in none, so they go to the first.
func (n *snapshot) divide(all []telemetry.Unstored) [][]telemetry.Unstored {
	out := make([][]telemetry.Unstored, len(n.backends))
	places := make(map[string]int)
	for _, u := range all {
		at, known := places[u.Target]
		if !known {
			if u.Target != "" { // otherwise it is from a release that knew one generation
				at = max(0, n.list.find(parseTarget(u.Target)))
			}
			places[u.Target] = at
		}
		out[at] = append(out[at], u)
	}
	return out
}

// Readings implements read.Source. Readings with the same time come in the order of the
// generations.
func (s *Store) Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	return answer(ctx, s, q.Sensor, func(n *snapshot) iter.Seq2[telemetry.Reading, error] {
		q.Hidden = n.list.hidden(q.Sensor)
		if len(n.backends) == 1 {
			return n.backends[0].Readings(ctx, q)
		}
		of := make([]iter.Seq2[telemetry.Reading, error], len(n.backends))
		for i, unstored := range n.divide(q.Unstored) {
			part := q
			part.Unstored, part.Transient = unstored, false
			of[i] = n.backends[i].Readings(ctx, part)
		}
		all := merged(of, func(a, b telemetry.Reading) int { return a.Time.Compare(b.Time) })
		if q.LastWins {
			all = joined(all, func(a, b telemetry.Reading) bool { return a.Time.Equal(b.Time) }, lastWins)
		}
		return first(all, q.Limit)
	})
}

// ReadingsOf implements read.Source.
func (s *Store) ReadingsOf(ctx context.Context, qs []telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	return answer(ctx, s, "", func(n *snapshot) iter.Seq2[telemetry.Reading, error] {
		hidden := func(q telemetry.Query) bool { return len(n.list.hidden(q.Sensor)) > 0 }
		if len(n.backends) == 1 && !slices.ContainsFunc(qs, hidden) {
			return n.backends[0].ReadingsOf(ctx, qs)
		}
		return store.ReadEach(ctx, qs, s.Readings)
	})
}

// lastWins merges two readings with the same time: fields of the later generation replace those of
// the earlier one. This is the order in which daemons began to use them.
func lastWins(a, b telemetry.Reading) telemetry.Reading {
	later := make(map[string]struct{}, len(b.Fields))
	for _, f := range b.Fields {
		later[f.Name] = struct{}{}
	}
	fields := make([]telemetry.Field, 0, len(a.Fields)+len(b.Fields))
	for _, f := range a.Fields {
		if _, replaced := later[f.Name]; !replaced {
			fields = append(fields, f)
		}
	}
	b.Fields = append(fields, b.Fields...)
	return b
}

// Summary implements read.Source.
func (s *Store) Summary(ctx context.Context, q telemetry.SummaryQuery) iter.Seq2[telemetry.Summary, error] {
	return answer(ctx, s, q.Sensor, func(n *snapshot) iter.Seq2[telemetry.Summary, error] {
		q.Hidden = n.list.hidden(q.Sensor)
		if len(n.backends) == 1 || q.Gone { // only the first can have rollups
			return n.backends[0].Summary(ctx, q)
		}
		if q.Readings != nil { // already merged from all generations
			q.Limit = 0
			return store.Summarize(q, q.Readings(ctx, q.Query), nil)
		}
		of := make([]iter.Seq2[telemetry.Summary, error], len(n.backends))
		for i, unstored := range n.divide(q.Unstored) {
			part := q
			part.Unstored = unstored
			of[i] = n.backends[i].Summary(ctx, part)
		}
		all := merged(of, func(a, b telemetry.Summary) int { return cmp.Compare(a.Start, b.Start) })
		return joined(all, func(a, b telemetry.Summary) bool { return a.Start == b.Start }, store.MergeSummaries)
	})
}

// Sensors implements read.Source.
func (s *Store) Sensors(ctx context.Context, q telemetry.SensorQuery) iter.Seq2[telemetry.SensorSeen, error] {
	return answer(ctx, s, "", func(n *snapshot) iter.Seq2[telemetry.SensorSeen, error] {
		of := make([]iter.Seq2[telemetry.SensorSeen, error], len(n.backends))
		for i, one := range n.backends {
			of[i] = one.Sensors(ctx, q)
		}
		all := merged(of, func(a, b telemetry.SensorSeen) int { return strings.Compare(a.Sensor, b.Sensor) })
		all = joined(all, func(a, b telemetry.SensorSeen) bool { return a.Sensor == b.Sensor }, func(a, b telemetry.SensorSeen) telemetry.SensorSeen {
			a.Newest = max(a.Newest, b.Newest)
			return a
		})
		return first(s.existing(ctx, n, all), q.Limit)
	})
}

// Newest implements read.Source.
func (s *Store) Newest(ctx context.Context, sensor string) (ms int64, found bool, err error) {
	n, err := s.forSensor(ctx, sensor)
	if err != nil {
		return 0, false, err
	}
	defer func() { err = s.check(ctx, n, err) }()
	if len(n.list.deletedFrom(sensor)) > 0 {
		r, found, err := s.last(ctx, n, sensor)
		return r.Time.UnixMilli(), found, err
	}
	for _, of := range n.backends {
		at, there, err := of.Newest(ctx, sensor)
		if err != nil {
			return 0, false, err
		}
		if there && (!found || at > ms) {
			ms, found = at, true
		}
	}
	return ms, found, nil
}

// Latest implements read.Source. Of several with the same time, it returns the last unstored one,
// or else that of the newest generation.
func (s *Store) Latest(ctx context.Context, sensor string, unstored []telemetry.Unstored) (r telemetry.Reading, found bool, err error) {
	n, err := s.forSensor(ctx, sensor)
	if err != nil {
		return r, false, err
	}
	defer func() { err = s.check(ctx, n, err) }()
	gone := len(n.list.deletedFrom(sensor)) > 0
	if len(n.backends) == 1 && !gone {
		return n.backends[0].Latest(ctx, sensor, unstored)
	}
	return store.Latest(sensor, unstored, func() (r telemetry.Reading, found bool, err error) {
		if gone {
			return s.last(ctx, n, sensor)
		}
		for _, of := range n.backends {
			one, there, err := of.Latest(ctx, sensor, nil)
			if err != nil {
				return r, false, err
			}
			if there && (!found || !one.Time.Before(r.Time)) {
				r, found = one, true
			}
		}
		return r, found, nil
	})
}

// Delete implements read.Source. It deletes first in collections that are being moved, and last in
// the one that this process writes to. So a copy is either deleted here, or created afterwards and
// then removed by the Mover.
func (s *Store) Delete(ctx context.Context, sensor string) (int64, error) {
	n, err := s.forSensor(ctx, sensor)
	if err != nil {
		return 0, err
	}
	var moving, others, own []backend
	for i, of := range n.backends {
		switch {
		case n.list.Generations[i].Moving != nil:
			moving = append(moving, of)
		case of == s.own:
			own = append(own, of)
		default:
			others = append(others, of)
		}
	}
	sum, unknown := int64(0), len(moving) > 0 // would include copies
	for i, of := range slices.Concat(moving, others, own) {
		deleted, err := of.Delete(ctx, sensor)
		if err != nil {
			return 0, deletedInPart(err, i)
		}
		unknown = unknown || deleted < 0
		sum += max(0, deleted)
	}
	if unknown {
		return -1, nil
	}
	return sum, nil
}

// last returns the sensor's last stored reading by reading all of them, for a sensor with leftover
// copies that must be ignored.
func (s *Store) last(ctx context.Context, n *snapshot, sensor string) (last telemetry.Reading, found bool, err error) {
	q := telemetry.Query{Sensor: sensor, From: firstTime, To: lastTime, Hidden: n.list.hidden(sensor)}
	for _, of := range n.backends {
		for r, err := range of.Readings(ctx, q) {
			if err != nil {
				return last, false, err
			}
			if !found || !r.Time.Before(last.Time) {
				last, found = r, true
			}
		}
	}
	return last, found, nil
}

// existing leaves out sensors of which only such copies are left.
func (s *Store) existing(ctx context.Context, n *snapshot, all iter.Seq2[telemetry.SensorSeen, error]) iter.Seq2[telemetry.SensorSeen, error] {
	return func(yield func(telemetry.SensorSeen, error) bool) {
		for one, err := range all {
			found := true
			if err == nil && len(n.list.deletedFrom(one.Sensor)) > 0 {
				_, found, err = s.last(ctx, n, one.Sensor)
			}
			if (found || err != nil) && !yield(one, err) {
				return
			}
		}
	}
}

// deletedInPart returns err, with a corrected message if the sensor was already deleted from some
// generations.
func deletedInPart(err error, emptied int) error {
	var of *telemetry.Error
	if emptied == 0 || !errors.As(err, &of) {
		return err
	}
	part := *of
	part.Message = fmt.Sprintf("the readings of the sensor were deleted from %d of the stream's collections, not yet from the others; repeat the request", emptied)
	if of.Kind == telemetry.Forbidden {
		part.Message += " once the daemon's MongoDB user has the action remove on all of them"
	}
	return &part
}

// merged merges sorted sequences. Of equal items, those of an earlier sequence come first. It ends
// with the first error.
func merged[T any](of []iter.Seq2[T, error], compare func(a, b T) int) iter.Seq2[T, error] {
	all := of[0]
	for _, more := range of[1:] {
		all = merge(all, more, compare)
	}
	return all
}

func merge[T any](a, b iter.Seq2[T, error], compare func(a, b T) int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		next, stop := iter.Pull2(b)
		defer stop()
		other, err, some := next()
		for item, failed := range a {
			for failed == nil && err == nil && some && compare(other, item) < 0 {
				if !yield(other, nil) {
					return
				}
				other, err, some = next()
			}
			failed = cmp.Or(failed, err)
			if !yield(item, failed) || failed != nil {
				return
			}
		}
		for ; some; other, err, some = next() {
			if !yield(other, err) || err != nil {
				return
			}
		}
	}
}

// first yields at most limit items; 0: all.
func first[T any](of iter.Seq2[T, error], limit int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for item, err := range of {
			if !yield(item, err) || err != nil {
				return
			}
			if limit--; limit == 0 {
				return
			}
		}
	}
}

// joined combines neighboring items that are the same.
func joined[T any](of iter.Seq2[T, error], same func(a, b T) bool, join func(a, b T) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var last T
		some := false
		for item, err := range of {
			switch {
			case err != nil:
				if !some || yield(last, nil) {
					yield(item, err)
				}
				return
			case some && same(last, item):
				last = join(last, item)
				continue
			case some && !yield(last, nil):
				return
			}
			last, some = item, true
		}
		if some {
			yield(last, nil)
		}
	}
}
