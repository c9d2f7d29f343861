package bucket

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

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
			u.Granularity = w.store.cfg.Granularity
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
	cursor, err := w.store.answers().Find(w.ctx, w.filter(), find)
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
	cursor, err := w.store.answers().Find(w.ctx, window, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetProjection(projection))
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
