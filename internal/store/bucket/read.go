package bucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/block"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A piece of an answer is either a document whose window begins at start, or the unstored readings
// of such a window, which follow its documents.
type piece struct {
	start    int64 // milliseconds since the epoch
	doc      bson.Raw
	unstored []telemetry.Unstored
}

// walk yields the pieces that a query needs, ordered by the start of their windows: documents that
// may hold readings in the query's time range, with the projection applied, and readings of
// q.Unstored that are not stored. The documents include tombstones, which are closed parts without
// readings that `brim migrate` of an earlier release left behind. A piece's document is valid
// until the next piece.
//
// Windows with unstored readings are queried separately, several neighboring ones at a time. Each
// must be read as of one point in time, because the w of its parts belong together:
//
//	10:00   10:05   10:10   10:15   10:20
//	└───── one cursor ────┘ └─ w ─┴── w ┘
func (s *Store) walk(ctx context.Context, q telemetry.Query, projection bson.D) iter.Seq2[piece, error] {
	return func(yield func(piece, error) bool) {
		if q.From >= q.To {
			return
		}
		w := s.newWalk(ctx, q, projection)
		w.yield = yield
		find := options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetProjection(projection)
		batch := int32(0)
		if n := cmp.Or(q.Limit, q.Expected); n > 0 {
			batch = int32(max(firstBatch, min(n/typicalReadings, 100)))
		}
		if err := w.run(s.Each(ctx, w.filter(), find, batch)); err != nil {
			yield(piece{}, err)
		}
	}
}

type walk struct {
	store      *Store
	ctx        context.Context //nolint:containedctx // of one call, and the walk ends with it
	query      telemetry.Query
	projection bson.D
	yield      func(piece, error) bool

	waiting map[int64][]telemetry.Unstored // by start of their window
	starts  []int64                        // of waiting, in order
	found   map[int64][]bson.Raw           // documents of these windows; nil: they are queried separately
	ended   bool                           // the consumer has stopped
}

// newWalk groups the unstored readings in the query's time range by window.
func (s *Store) newWalk(ctx context.Context, q telemetry.Query, projection bson.D) *walk {
	w := &walk{store: s, ctx: ctx, query: q, projection: projection, waiting: make(map[int64][]telemetry.Unstored)}
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
	return w
}

// The batches of a limited read begin small and double. The first has two documents, or as many as
// are needed if all are full, so that a sensor with few readings takes one round trip.
const (
	firstBatch      = 2
	typicalReadings = 1000 // of a full document
)

// run yields the pieces of these documents, and of the windows with unstored readings.
func (w *walk) run(docs iter.Seq2[bson.Raw, error]) error {
	for doc, err := range docs {
		var start int64
		if err == nil {
			start, err = startOf(doc)
		}
		if err != nil {
			return w.failed(err)
		}
		if _, separate := w.waiting[start]; separate {
			w.found[start] = append(w.found[start], slices.Clone(doc))
			continue
		}
		if err := w.windowsBefore(start); err != nil || w.ended {
			return err
		}
		if !w.yield(piece{start: start, doc: doc}, nil) {
			return nil
		}
	}
	return w.windowsBefore(w.query.To)
}

func (w *walk) failed(err error) error {
	return fmt.Errorf("read buckets of sensor %q: %w", w.query.Sensor, err)
}

// filter matches the documents that may hold readings in the query's time range, except windows
// that are queried separately.
func (w *walk) filter() bson.D {
	filter := bson.D{{Key: "$or", Value: appendWindows(nil, &w.query, store.LongWindows(w.query.From))}, notOutside(&w.query)}
	if len(w.starts) > 0 {
		filter = append(filter, bson.E{Key: "_id.b", Value: bson.D{{Key: "$nin", Value: dates(w.starts)}}})
	}
	return w.store.ofSensor(w.query.Sensor, withoutCopies(filter, w.query.Hidden))
}

// appendWindows appends filters for the windows that overlap the query's time range. Those of up
// to an hour start less than an hour before it. Longer ones are looked up by their possible starts,
// store.LongWindows.
func appendWindows(to bson.A, q *telemetry.Query, long []int64) bson.A {
	to = append(to, bson.D{startingIn(q.Sensor, q.From-store.MaxGranularity.Milliseconds()+1, q.To)})
	for _, start := range long {
		to = append(to, bson.D{startingIn(q.Sensor, start, start+1)})
	}
	return to
}

// notOutside matches documents except those with no reading in the query's time range. Documents
// without first and last also match.
func notOutside(q *telemetry.Query) bson.E {
	return bson.E{Key: "$nor", Value: bson.A{
		bson.D{{Key: "last", Value: bson.D{{Key: "$lt", Value: bson.DateTime(q.From)}}}},
		bson.D{{Key: "first", Value: bson.D{{Key: "$gte", Value: bson.DateTime(q.To)}}}},
	}}
}

func dates(ms []int64) bson.A {
	out := make(bson.A, len(ms))
	for i, one := range ms {
		out[i] = bson.DateTime(one)
	}
	return out
}

// startingIn matches the documents of a sensor whose windows start in [from, to).
func startingIn(sensor string, from, to int64) bson.E {
	return bson.E{Key: "_id", Value: bson.D{{Key: "$gte", Value: startKey(sensor, from)}, {Key: "$lt", Value: startKey(sensor, to)}}}
}

// startKey sorts before the keys of all windows of the sensor that start at ms or later, and after
// all earlier ones: keys are compared field by field.
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

// windowsBefore yields the separately queried windows that begin before ms.
func (w *walk) windowsBefore(ms int64) error {
	for len(w.starts) > 0 && w.starts[0] < ms && !w.ended {
		starts := w.neighbors(ms)
		w.starts = w.starts[len(starts):]
		found := w.found
		if found == nil {
			var err error
			if found, err = w.windowsOnce(starts[0], starts[len(starts)-1]+1); err != nil {
				return err
			}
		}
		for _, start := range starts {
			docs := found[start]
			delete(found, start)
			if err := w.window(start, docs); err != nil || w.ended {
				return err
			}
		}
	}
	return nil
}

// windowsPerQuery is how many windows one query asks for, unless the read has a limit. Their
// documents are held in memory.
const windowsPerQuery = 12

// neighbors returns the next windows before ms that are close to each other.
func (w *walk) neighbors(ms int64) []int64 {
	n := 1
	for n < min(len(w.starts), windowsPerQuery) && w.query.Limit == 0 && w.starts[n] < ms && w.starts[n]-w.starts[n-1] <= store.MaxGranularity.Milliseconds() {
		n++
	}
	return w.starts[:n]
}

// window yields the pieces of a window, whose documents were found as docs.
func (w *walk) window(start int64, docs []bson.Raw) error {
	docs, err := w.consistentWindow(start, docs)
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
	return nil
}

// windowAttempts is how often a window is queried if its parts are inconsistent, because the query
// ran while one part was closed and the next one begun.
const windowAttempts = 3

// consistentWindow returns the documents of the windows that begin at start, in order. It queries
// them again if docs are inconsistent.
func (w *walk) consistentWindow(start int64, docs []bson.Raw) ([]bson.Raw, error) {
	for attempt := 1; attempt < windowAttempts && !consistentParts(docs); attempt++ {
		found, err := w.windowsOnce(start, start+1)
		if err != nil {
			return nil, err
		}
		docs = found[start]
	}
	return docs, nil
}

// windowsOnce returns the documents of the windows that start in [from, to), in order, by the
// start of their window.
func (w *walk) windowsOnce(from, to int64) (map[int64][]bson.Raw, error) {
	projection := withSequences(w.projection)
	windows := w.store.ofSensor(w.query.Sensor, withoutCopies(bson.D{startingIn(w.query.Sensor, from, to)}, w.query.Hidden))
	found := make(map[int64][]bson.Raw)
	for doc, err := range w.store.Each(w.ctx, windows, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetProjection(projection), 0) {
		var start int64
		if err == nil {
			start, err = startOf(doc)
		}
		if err != nil {
			return nil, w.failed(err)
		}
		if _, wanted := w.waiting[start]; wanted {
			found[start] = append(found[start], slices.Clone(doc))
		}
	}
	return found, nil
}

// withSequences adds what notIn and consistentParts need to a projection.
func withSequences(projection bson.D) bson.D {
	return append(slices.Clone(projection), bson.E{Key: "w", Value: 1}, bson.E{Key: "full", Value: 1})
}

// consistentParts reports whether the parts, in order, can have existed in this state at the same
// time: a part is begun only when the previous one is closed.
func consistentParts(docs []bson.Raw) bool {
	var grain, next int32
	closed := true
	for _, doc := range docs {
		g, p := grainOf(doc), doc.Lookup("_id", "p").AsInt64()
		if p < 0 { // a copy
			continue
		}
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

// notIn returns the readings that are in no part of their bucket, in the order of their sequences:
// those whose sequence is above the largest one of their session in any part.
func notIn(docs []bson.Raw, unstored []telemetry.Unstored) (out []telemetry.Unstored) {
	type bucket struct {
		grain   int32
		session string
	}
	largest := make(map[bucket]int64)
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
			out = append(out, u)
		}
	}
	return out
}

// Readings yields the readings for the query in time order: the stored ones, from buckets of any
// granularity and all their parts, and those of q.Unstored that are not stored. Readings with the
// same time are ordered by window, part and position, with a window's unstored readings last. It
// ends with an error if one occurs.
//
// It holds the documents of overlapping windows in memory, at most those of an hour, and unpacks
// those whose readings overlap.
func (s *Store) Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	return func(yield func(telemetry.Reading, error) bool) {
		emit(ctx, q, s.walk(ctx, q, ofReadings()), yield)
	}
}

// ofReadings is the projection for readings.
func ofReadings() bson.D {
	return bson.D{{Key: "tags", Value: 1}, {Key: "first", Value: 1}, {Key: "measurements", Value: 1}, {Key: blocksKey, Value: 1}}
}

// emit yields the readings of pieces, and reports whether it yielded all.
func emit(ctx context.Context, q telemetry.Query, pieces iter.Seq2[piece, error], yield func(telemetry.Reading, error) bool) bool {
	e := emitter{query: q, yield: yield, left: q.Limit, decoder: store.Decoder{Sensor: q.Sensor, Fields: q.Fields}}
	for p, err := range pieces {
		more := true
		if err == nil {
			more, err = e.emit(ctx, p.start)
		}
		if err != nil {
			yield(telemetry.Reading{}, err)
		}
		if err != nil || !more {
			return false
		}
		e.hold(p)
	}
	more, err := e.emit(ctx, q.To)
	if err != nil {
		yield(telemetry.Reading{}, err)
	}
	return more && err == nil
}

// ReadingsOf yields what Readings yields for each query, one query after the other, with a single
// query to the server. The queries have the same time range and no Limit, and are in the order of
// their sensors. It holds the documents of one sensor's windows with unstored readings.
//
// The documents of all sensors come from one cursor, in the order of their _ids:
//
//	└── sensor 1 ──┴─ w ─┴── sensor 2 ──┴── …
func (s *Store) ReadingsOf(ctx context.Context, qs []telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	return func(yield func(telemetry.Reading, error) bool) {
		if len(qs) == 0 || qs[0].From >= qs[0].To {
			return
		}
		walks, long := make([]*walk, len(qs)), store.LongWindows(qs[0].From)
		sensors, windows, starts := make(bson.A, len(qs)), bson.A{}, []int64{}
		for i := range qs {
			walks[i] = s.newWalk(ctx, qs[i], ofReadings())
			walks[i].found = make(map[int64][]bson.Raw)
			sensors[i], windows, starts = qs[i].Sensor, appendWindows(windows, &qs[i], long), append(starts, walks[i].starts...)
		}
		slices.Sort(starts)
		filter := bson.D{{Key: "$or", Value: windows}, {Key: "$and", Value: bson.A{bson.D{{Key: "$or", Value: bson.A{
			bson.D{notOutside(&qs[0])},
			bson.D{{Key: "_id.b", Value: bson.D{{Key: "$in", Value: dates(slices.Compact(starts))}}}},
		}}}}}}
		if s.sharded.Load() {
			filter = append(filter, bson.E{Key: "_id.s", Value: bson.D{{Key: "$in", Value: sensors}}})
		}
		find := options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetProjection(withSequences(ofReadings()))
		next, stop := iter.Pull2(s.Each(ctx, filter, find, 0))
		defer stop()
		doc, err, more := next()
		for _, w := range walks {
			docs := func(yield func(bson.Raw, error) bool) {
				for more && (err != nil || sensorOf(doc) == w.query.Sensor) && yield(doc, err) {
					doc, err, more = next()
				}
			}
			pieces := func(yield func(piece, error) bool) {
				w.yield = yield
				if err := w.run(docs); err != nil {
					yield(piece{}, err)
				}
			}
			if !emit(ctx, w.query, pieces, yield) {
				return
			}
		}
	}
}

func sensorOf(doc bson.Raw) string {
	sensor, _ := doc.Lookup("_id", "s").StringValueOK()
	return sensor
}

// An emitter yields the readings of documents in time order.
type emitter struct {
	query  telemetry.Query
	yield  func(telemetry.Reading, error) bool
	left   int   // readings still to yield; 0: all
	last   int64 // all readings before this time were yielded
	pieces int   // held so far
	most   int   // how many readings a document may have; 0: any number

	packed  []heldDocument   // documents none of whose readings is due yet
	open    []orderedReading // sorted by time from yielded on
	yielded int              // of open
	decoder store.Decoder
	blocks  block.Decoder
	spare   bson.Raw // memory for the next document to hold
}

// A heldDocument is a document whose readings are not decoded yet.
type heldDocument struct {
	order int   // among the pieces
	first int64 // none of its readings is older
	doc   bson.Raw
}

// An orderedReading is a decoded reading, with its position in the output order.
type orderedReading struct {
	order int
	key   block.Key // set with store.LastWins
	telemetry.Reading
}

// hold adds a piece.
func (e *emitter) hold(p piece) {
	e.pieces++
	if p.doc == nil {
		for _, u := range p.unstored {
			e.open = append(e.open, orderedReading{e.pieces, block.Key{Arrival: u.Arrival, Session: u.Session, Sequence: u.Sequence}, u.Reading})
		}
		e.sort()
		return
	}
	first, ok := p.doc.Lookup("first").DateTimeOK()
	if !ok {
		first = math.MinInt64
	}
	e.packed = append(e.packed, heldDocument{order: e.pieces, first: first, doc: append(e.spare[:0], p.doc...)})
	e.spare = nil
}

// sort sorts the decoded readings. Those with the same time are ordered by their pieces, and by
// their positions in it.
func (e *emitter) sort() {
	slices.SortStableFunc(e.open[e.yielded:], func(a, b orderedReading) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.order, b.order)) })
}

// emit yields all held readings older than before, and reports whether the consumer wants more. A
// document is decoded when its first reading is due.
func (e *emitter) emit(ctx context.Context, before int64) (more bool, err error) {
	if before <= e.last {
		return true, nil
	}
	e.last = before
	slices.SortStableFunc(e.packed, func(a, b heldDocument) int { return cmp.Compare(a.first, b.first) })
	due := 0
	for ; due < len(e.packed) && e.packed[due].first < before; due++ {
		next := &e.packed[due]
		if !e.drain(next.first) {
			return false, nil
		}
		if err := e.unpack(ctx, *next); err != nil {
			return false, err
		}
		e.spare, next.doc = next.doc, nil
	}
	e.packed = slices.Delete(e.packed, 0, due)
	return e.drain(before), nil
}

// drain yields the decoded readings older than before.
func (e *emitter) drain(before int64) bool {
	for e.yielded < len(e.open) && e.open[e.yielded].Time.UnixMilli() < before {
		r, n := e.open[e.yielded].Reading, 1
		if e.query.LastWins {
			same := sameTime(e.open[e.yielded:])
			r, n = mergeLastWins(same), len(same)
		}
		clear(e.open[e.yielded:][:n])
		if e.yielded += n; !e.yield(r, nil) {
			return false
		}
		if e.left--; e.left == 0 {
			return false
		}
	}
	if e.yielded == len(e.open) {
		if e.open, e.yielded = e.open[:0], 0; e.query.Transient {
			e.decoder.Reuse()
			e.blocks.Reuse()
		}
	}
	return true
}

// unpack adds a document's readings in the query's time range, those of its blocks first.
func (e *emitter) unpack(ctx context.Context, p heldDocument) error {
	tags := e.decoder.Tags(p.doc.Lookup("tags"))
	err := eachBlock(p.doc, e.query.Sensor, func(b *block.Block) error {
		if e.most > 0 && b.Len() > e.most-len(e.open) {
			return errors.New("it has more readings than its document counts")
		}
		if err := spend(ctx, b, e.query.Fields); err != nil {
			return err
		}
		var keys []block.Key
		if e.query.LastWins {
			var err error
			if keys, err = b.Keys(); err != nil {
				return err
			}
		}
		e.open = slices.Grow(e.open, b.Len())
		at := -1
		for r, err := range e.blocks.Readings(b, e.query.Sensor, tags, e.query.Fields) {
			if err != nil {
				return err
			}
			one := orderedReading{order: p.order, Reading: r}
			if at++; keys != nil {
				one.key = keys[at]
			}
			if ms := r.Time.UnixMilli(); ms >= e.query.From && ms < e.query.To {
				e.open = append(e.open, one)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = eachMeasurement(p.doc, e.query.Sensor, func(m bson.Raw) error {
		at, ok := m.Lookup(store.TimeKey).DateTimeOK()
		if !ok || at < e.query.From || at >= e.query.To {
			return nil
		}
		r, err := e.decoder.Reading(m, tags)
		e.open = append(e.open, orderedReading{order: p.order, Reading: r})
		return err
	})
	e.sort()
	return err
}

// unpackedBytes is roughly what a time or value in a block would take in a document.
const unpackedBytes = 16

// spend charges the budget of ctx for the wanted fields of a block before they are decoded, at
// their decoded size, which is about ten times that of the block.
func spend(ctx context.Context, b *block.Block, wanted []string) error {
	values, err := b.Values(wanted)
	if err != nil {
		return err
	}
	return telemetry.Spend(ctx, unpackedBytes*(b.Len()+values))
}

// blocksKey is the key of the blocks in a document.
const blocksKey = "blocks"

// eachBlock calls do for the blocks of a document, in their order.
func eachBlock(doc bson.Raw, sensor string, do func(*block.Block) error) error {
	array, ok := doc.Lookup(blocksKey).ArrayOK()
	if !ok {
		return nil
	}
	return store.EachElement(bson.Raw(array), func(i int, e bsoncore.Element) error {
		_, data, ok := e.Value().BinaryOK()
		if !ok {
			return fmt.Errorf("read a bucket of sensor %q: block %d is not binary but %v", sensor, i, e.Value().Type)
		}
		b, err := block.Open(data)
		if err == nil {
			err = do(b)
		}
		if err != nil {
			return fmt.Errorf("read block %d of the bucket %v: %w", i, doc.Lookup("_id"), err)
		}
		return nil
	})
}

// eachMeasurement calls do for the readings in measurements of a document, in their order.
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
