package bucket

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A piece of an answer is a document whose window starts at start, or readings
// of such a window that are not stored yet. A window's documents come first.
type piece struct {
	start    int64 // milliseconds since the epoch
	doc      bson.Raw
	unstored []telemetry.Reading
}

// walk yields what a query needs, the windows in the order of their starts: the
// documents that may hold readings of the span, as the projection shows them,
// and tombstones; and what of q.Unstored is not stored. A piece's document is
// valid until the next piece.
//
// Windows with something unstored are read by themselves, each at one moment, since
// the parts' w is only to be believed together:
//
//	10:00   10:05   10:10   10:15   10:20
//	└───── one cursor ────┘ └─ w ─┘ └ w ┘
func (s *Store) walk(ctx context.Context, q telemetry.Query, projection bson.D) iter.Seq2[piece, error] {
	return func(yield func(piece, error) bool) {
		if q.From >= q.To {
			return
		}
		w := walk{store: s, ctx: ctx, query: q, projection: projection}
		w.yield = func(p piece, err error) bool {
			w.given = true
			return yield(p, err)
		}
		err := w.begin()
		for attempt := 1; meetsExchange(err) && !w.given && attempt < exchangeAttempts; attempt++ {
			err = w.begin()
		}
		if meetsExchange(err) {
			err = s.exchanged(err)
		}
		if err != nil {
			yield(piece{}, err)
		}
	}
}

type walk struct {
	store      *Store
	ctx        context.Context //nolint:containedctx // it is that of one call, and the walk ends with it
	query      telemetry.Query
	projection bson.D
	yield      func(piece, error) bool

	waiting map[int64][]telemetry.Unstored // by start of their window
	starts  []int64                        // of waiting, in order
	given   bool                           // something was yielded
	ended   bool                           // the reader wants no more

	collection string // the UUID of the stream's before anything was read; only where windows are read by themselves
}

// begin walks from the start.
func (w *walk) begin() (err error) {
	w.gather()
	if len(w.starts) > 0 {
		if w.collection, err = w.store.collectionID(w.ctx, identityAge); err != nil {
			return err
		}
	}
	return w.run()
}

// gather sorts what is unstored, and lies in the span, into windows.
func (w *walk) gather() {
	w.waiting = make(map[int64][]telemetry.Unstored)
	for _, u := range w.query.Unstored {
		at := u.Reading.Time.UnixMilli()
		if at < w.query.From || at >= w.query.To {
			continue
		}
		if u.Granularity == 0 {
			u.Granularity = w.store.Granularity
		}
		start := store.WindowStart(at, u.Granularity)
		w.waiting[start] = append(w.waiting[start], u)
	}
	w.starts = slices.Sorted(maps.Keys(w.waiting))
}

// Batches of a limited read begin small and double.
const firstBatch = 2

func (w *walk) run() error {
	find := options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetProjection(w.projection)
	batch := int32(0)
	if w.query.Limit > 0 {
		batch = firstBatch
		find.SetBatchSize(batch)
	}
	cursor, err := w.store.Answers().Find(w.ctx, w.filter(), find)
	if err != nil {
		return fmt.Errorf("find buckets of sensor %q: %w", w.query.Sensor, err)
	}
	defer cursor.Close(context.WithoutCancel(w.ctx))
	for cursor.Next(w.ctx) {
		if err := telemetry.Spend(w.ctx, len(cursor.Current)); err != nil {
			return err
		}
		start, err := startOf(cursor.Current)
		if err != nil {
			return fmt.Errorf("read buckets of sensor %q: %w", w.query.Sensor, err)
		}
		if err := w.windowsBefore(start); err != nil || w.ended {
			return err
		}
		if !w.yield(piece{start: start, doc: cursor.Current}, nil) {
			return nil
		}
		if batch > 0 && cursor.RemainingBatchLength() == 0 {
			batch = min(2*batch, 128)
			cursor.SetBatchSize(batch)
		}
	}
	if err := cursor.Err(); err != nil {
		return fmt.Errorf("read buckets of sensor %q: %w", w.query.Sensor, err)
	}
	return w.windowsBefore(w.query.To)
}

// filter matches the documents that may hold readings of the span, but for
// windows that are read by themselves.
func (w *walk) filter() bson.D {
	from, to := bson.DateTime(w.query.From), bson.DateTime(w.query.To)
	filter := bson.D{
		// A bucket that began up to the longest window earlier may reach into the
		// span.
		{Key: "_id", Value: bson.D{
			{Key: "$gte", Value: startKey(w.query.Sensor, w.query.From-store.MaxGranularity.Milliseconds()+1)},
			{Key: "$lt", Value: startKey(w.query.Sensor, w.query.To)},
		}},
		// Documents without first and last are looked at, too.
		{Key: "$nor", Value: bson.A{
			bson.D{{Key: "last", Value: bson.D{{Key: "$lt", Value: from}}}},
			bson.D{{Key: "first", Value: bson.D{{Key: "$gte", Value: to}}}},
		}},
	}
	if len(w.starts) > 0 {
		starts := make(bson.A, len(w.starts))
		for i, start := range w.starts {
			starts[i] = bson.DateTime(start)
		}
		filter = append(filter, bson.E{Key: "_id.b", Value: bson.D{{Key: "$nin", Value: starts}}})
	}
	return w.store.ofSensor(w.query.Sensor, filter)
}

// startKey precedes every key of the sensor's windows from ms on, since keys
// compare field by field, and follows all earlier ones.
func startKey(sensor string, ms int64) bson.D {
	return bson.D{{Key: "s", Value: sensor}, {Key: "b", Value: bson.DateTime(ms)}}
}

func startOf(doc bson.Raw) (int64, error) {
	start, ok := doc.Lookup("_id", "b").DateTimeOK()
	if !ok {
		return 0, fmt.Errorf("the document with _id %v is no bucket", doc.Lookup("_id"))
	}
	return start, nil
}

// windowsBefore yields the windows that are read by themselves and start before
// the time.
func (w *walk) windowsBefore(ms int64) error {
	for len(w.starts) > 0 && w.starts[0] < ms && !w.ended {
		start := w.starts[0]
		w.starts = w.starts[1:]
		docs, err := w.window(start)
		if err == nil {
			err = w.sameCollection(docs)
		}
		if err != nil {
			return err
		}
		unstored := notIn(docs, w.waiting[start])
		delete(w.waiting, start)
		for _, doc := range docs {
			if w.ended = !w.yield(piece{start: start, doc: doc}, nil); w.ended {
				return nil
			}
		}
		if len(unstored) > 0 {
			w.ended = !w.yield(piece{start: start, unstored: unstored}, nil)
		}
	}
	return nil
}

// windowAttempts is how often a window is read whose parts do not fit together:
// it was read while a part was closed and the next one begun.
const windowAttempts = 3

// window returns the documents of the windows that start there, in order.
func (w *walk) window(start int64) ([]bson.Raw, error) {
	for attempt := 1; ; attempt++ {
		docs, err := w.windowOnce(start)
		if err != nil || attempt == windowAttempts || fitTogether(docs) {
			return docs, err
		}
	}
}

func (w *walk) windowOnce(start int64) ([]bson.Raw, error) {
	projection := append(slices.Clone(w.projection), bson.E{Key: "w", Value: 1}, bson.E{Key: "full", Value: 1}, bson.E{Key: migratedMark, Value: 1})
	window := w.store.ofSensor(w.query.Sensor, bson.D{{Key: "_id", Value: bson.D{
		{Key: "$gte", Value: startKey(w.query.Sensor, start)},
		{Key: "$lt", Value: startKey(w.query.Sensor, start+1)},
	}}})
	cursor, err := w.store.Answers().Find(w.ctx, window, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetProjection(projection))
	if err != nil {
		return nil, fmt.Errorf("find buckets of sensor %q: %w", w.query.Sensor, err)
	}
	defer cursor.Close(context.WithoutCancel(w.ctx))
	var docs []bson.Raw
	for cursor.Next(w.ctx) {
		if err := telemetry.Spend(w.ctx, len(cursor.Current)); err != nil {
			return nil, err
		}
		docs = append(docs, slices.Clone(cursor.Current))
	}
	if err := cursor.Err(); err != nil {
		return nil, fmt.Errorf("read buckets of sensor %q: %w", w.query.Sensor, err)
	}
	return docs, nil
}

// fitTogether reports whether the parts, in order, can have stood so at one
// moment: a part is begun only when the one before it is closed.
func fitTogether(docs []bson.Raw) bool {
	var grain, next int32
	closed := true
	for _, doc := range docs {
		g, p := grainOf(doc), doc.Lookup("_id", "p").AsInt64()
		if g != grain {
			grain, next, closed = g, 0, true
		}
		if !closed || int64(next) != p {
			return false
		}
		closed, _ = doc.Lookup("full").BooleanOK()
		next++
	}
	return true
}

func grainOf(doc bson.Raw) int32 {
	g, _ := doc.Lookup("_id", "g").AsInt64OK()
	return int32(g)
}

// notIn returns the readings that no part of their bucket holds, in the order
// of their sequences: the largest sequence of their session in any part says it.
func notIn(docs []bson.Raw, unstored []telemetry.Unstored) []telemetry.Reading {
	type bucket struct {
		grain   int32
		session string
	}
	largest := make(map[bucket]int64)
	var out []telemetry.Reading
	for _, u := range unstored {
		of := bucket{int32(u.Granularity / time.Second), u.Session}
		last, known := largest[of]
		if !known {
			for _, doc := range docs {
				if grainOf(doc) == of.grain {
					w, _ := doc.Lookup("w", of.session).AsInt64OK()
					last = max(last, w)
				}
			}
			largest[of] = last
		}
		if last < int64(u.Sequence) {
			out = append(out, u.Reading)
		}
	}
	return out
}

// A migration exchanges the stream's collection by name for one whose readings
// lie in other documents. A walk that has read one window in the old collection and
// another in the new one would leave readings out, or give them twice:
//
//	old   10:00 ■■■  10:01 ■■■  10:02 ■■   ← the cursor, which left 10:02 out
//	new   10:00 ■■■■■■■■        10:02 †    ← 10:02 by itself: its readings are in 10:00 now
//
// A cursor of the old one the server ends by itself. A window read by itself
// then shows what the migration made, and only there is the server asked whether the
// name still stands for the same collection.
var errExchanged = errors.New("the collection was exchanged during a read")

const (
	// exchangeAttempts is how often a read is begun that met an exchange.
	exchangeAttempts = 3
	// identityAge is how old the identity that a read begins with may be. A read
	// that begins so soon after an exchange is taken for one that met it.
	identityAge = 10 * time.Second
	// queryPlanKilled is what ends the cursor of a renamed or dropped collection.
	queryPlanKilled = 175
	// migratedMark stands in tombstones, and in w of parts that hold what was moved.
	migratedMark = "migrated"
)

// An identity is which collection the stream's name stood for, and when.
type identity struct {
	mu   sync.Mutex
	uuid string // empty: none
	at   time.Time
}

// collectionID returns the UUID of the collection that has the stream's name now, or had
// it up to maxAge ago; empty where there is none.
func (s *Store) collectionID(ctx context.Context, maxAge time.Duration) (string, error) {
	s.identity.mu.Lock()
	uuid, at := s.identity.uuid, s.identity.at
	s.identity.mu.Unlock()
	asked := time.Now()
	if !at.IsZero() && asked.Sub(at) < maxAge {
		return uuid, nil
	}
	found, err := s.Database.ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: s.Stream}})
	if err != nil {
		return "", fmt.Errorf("look which collection has the name %q: %w", s.Stream, err)
	}
	uuid = ""
	if len(found) > 0 && found[0].UUID != nil {
		uuid = string(found[0].UUID.Data)
	}
	s.identity.mu.Lock()
	defer s.identity.mu.Unlock()
	if asked.After(s.identity.at) {
		s.identity.uuid, s.identity.at = uuid, asked
	}
	return uuid, nil
}

// exchanged makes the error of a read that met an exchange, and has given
// something already, or met it too often.
func (s *Store) exchanged(err error) error {
	return &telemetry.Error{
		Kind: telemetry.Unavailable, Code: "stream_moved", RetryAfter: time.Second, Err: err,
		Message: fmt.Sprintf("stream %q was migrated while it was read, so the answer would not be whole; ask again", s.Stream),
	}
}

// meetsExchange reports whether an error says that the collection was exchanged.
func meetsExchange(err error) bool {
	return errors.Is(err, errExchanged) || store.HasCode(err, queryPlanKilled)
}

// sameCollection returns errExchanged if one of the documents, of a window that
// was read by itself, was made by a migration that came after the walk began.
func (w *walk) sameCollection(docs []bson.Raw) error {
	for _, doc := range docs {
		if !wasMigrated(doc) {
			continue
		}
		now, err := w.store.collectionID(w.ctx, 0)
		if err == nil && now != w.collection {
			err = errExchanged
		}
		return err
	}
	return nil
}

func wasMigrated(doc bson.Raw) bool {
	_, top := doc.LookupErr(migratedMark)
	_, part := doc.LookupErr("w", migratedMark)
	return top == nil || part == nil
}

// Readings yields what is stored for the query, and what of q.Unstored is not,
// in time order, out of buckets of any granularity and all their parts. Readings
// of one millisecond come in the order of their windows, parts and places, the
// unstored ones of a window behind them. It ends with an error if one occurs.
//
// It holds the documents of the windows that are open at one time in memory, an
// hour's at most, and unpacks those that overlap.
func (s *Store) Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	return func(yield func(telemetry.Reading, error) bool) {
		e := emitter{query: q, yield: yield, left: q.Limit}
		projection := bson.D{{Key: "tags", Value: 1}, {Key: "first", Value: 1}, {Key: "measurements", Value: 1}}
		for p, err := range s.walk(ctx, q, projection) {
			more := true
			if err == nil {
				more, err = e.emit(p.start)
			}
			if err != nil {
				yield(telemetry.Reading{}, err)
			}
			if err != nil || !more {
				return
			}
			e.hold(p)
		}
		if _, err := e.emit(q.To); err != nil {
			yield(telemetry.Reading{}, err)
		}
	}
}

// emitter brings the readings of documents into time order.
type emitter struct {
	query  telemetry.Query
	yield  func(telemetry.Reading, error) bool
	left   int   // readings that the reader still wants; 0: all
	last   int64 // time before which all was yielded
	pieces int   // taken in so far

	packed []run // documents as they came
	open   runs  // those that the next readings may come from
}

// A run is a document, or readings that are not stored.
type run struct {
	order    int                 // among the pieces
	first    int64               // none of its readings is older
	doc      bson.Raw            // nil once it is unpacked
	readings []telemetry.Reading // in time order
}

// hold takes a piece in.
func (e *emitter) hold(p piece) {
	e.pieces++
	r := run{order: e.pieces, first: math.MinInt64}
	if p.doc == nil {
		r.readings = inTimeOrder(p.unstored)
		heap.Push(&e.open, r)
		return
	}
	if first, ok := p.doc.Lookup("first").DateTimeOK(); ok {
		r.first = first
	}
	r.doc = slices.Clone(p.doc)
	e.packed = append(e.packed, r)
}

// emit yields what is held and older than before, and reports whether the
// reader wants more. A document is unpacked when its first reading is due.
func (e *emitter) emit(before int64) (more bool, err error) {
	if before <= e.last {
		return true, nil
	}
	e.last = before
	slices.SortStableFunc(e.packed, func(a, b run) int { return cmp.Compare(a.first, b.first) })
	for len(e.packed) > 0 && e.packed[0].first < before {
		next := e.packed[0]
		if !e.drain(next.first) {
			return false, nil
		}
		if next.readings, err = unpack(next.doc, e.query); err != nil {
			return false, err
		}
		next.doc, e.packed[0] = nil, run{} // it need not be held any more
		if e.packed = e.packed[1:]; len(next.readings) > 0 {
			heap.Push(&e.open, next)
		}
	}
	return e.drain(before), nil
}

// drain yields what is unpacked and older than before.
func (e *emitter) drain(before int64) bool {
	for len(e.open) > 0 && e.open[0].readings[0].Time.UnixMilli() < before {
		r := e.open[0].readings[0]
		if e.open[0].readings = e.open[0].readings[1:]; len(e.open[0].readings) == 0 {
			heap.Pop(&e.open)
		} else {
			heap.Fix(&e.open, 0)
		}
		if !e.yield(r, nil) {
			return false
		}
		if e.left--; e.left == 0 {
			return false
		}
	}
	return true
}

// runs is a heap, by the time of the next reading, then by order.
type runs []run

func (r runs) Len() int      { return len(r) }
func (r runs) Swap(i, j int) { r[i], r[j] = r[j], r[i] }
func (r runs) Less(i, j int) bool {
	return cmp.Or(r[i].readings[0].Time.Compare(r[j].readings[0].Time), cmp.Compare(r[i].order, r[j].order)) < 0
}
func (r *runs) Push(x any) { *r = append(*r, x.(run)) } //nolint:forcetypeassert // only this file pushes
func (r *runs) Pop() any {
	last := len(*r) - 1
	x := (*r)[last]
	(*r)[last] = run{}
	*r = (*r)[:last]
	return x
}

// unpack returns the readings of a document that lie in the query's span.
func unpack(doc bson.Raw, q telemetry.Query) ([]telemetry.Reading, error) {
	var out []telemetry.Reading
	tags := store.TagsOf(doc.Lookup("tags"))
	err := eachMeasurement(doc, q.Sensor, func(m bson.Raw) error {
		at, ok := m.Lookup(store.TimeKey).DateTimeOK()
		if !ok || at < q.From || at >= q.To {
			return nil
		}
		r, err := store.ReadingOf(m, q.Sensor, tags)
		out = append(out, r)
		return err
	})
	return inTimeOrder(out), err
}

// inTimeOrder sorts readings; those of one time stay as they are.
func inTimeOrder(readings []telemetry.Reading) []telemetry.Reading {
	slices.SortStableFunc(readings, func(a, b telemetry.Reading) int { return a.Time.Compare(b.Time) })
	return readings
}

// eachMeasurement calls do for the readings of a document, in their order.
func eachMeasurement(doc bson.Raw, sensor string, do func(bson.Raw) error) error {
	array, ok := doc.Lookup("measurements").ArrayOK()
	if !ok {
		return nil
	}
	return store.EachElement(bson.Raw(array), func(_ int, e bsoncore.Element) error {
		m, ok := e.Value().DocumentOK()
		if !ok {
			return fmt.Errorf("read a bucket of sensor %q: a measurement is no document but %v", sensor, e.Value().Type)
		}
		return do(bson.Raw(m))
	})
}
