package bucket

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

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
