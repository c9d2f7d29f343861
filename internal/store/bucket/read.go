package bucket

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Readings yields what is stored for the query, in time order, out of buckets
// of any granularity and all their parts. Readings of one millisecond come in
// the order of their parts and places. It ends with an error if one occurs.
func (s *Store) Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	return func(yield func(telemetry.Reading, error) bool) {
		if err := s.readings(ctx, q, yield); err != nil {
			yield(telemetry.Reading{}, err)
		}
	}
}

func (s *Store) readings(ctx context.Context, q telemetry.Query, yield func(telemetry.Reading, error) bool) error {
	// Keys compare field by field, so {s, b} precedes every {s, b, g, p}. A
	// bucket that began up to the longest window earlier may reach into the span.
	bound := func(ms int64) bson.D {
		return bson.D{{Key: "s", Value: q.Sensor}, {Key: "b", Value: bson.DateTime(ms)}}
	}
	cursor, err := s.coll.Find(ctx,
		bson.D{{Key: "_id", Value: bson.D{
			{Key: "$gte", Value: bound(q.From - store.MaxGranularity.Milliseconds())},
			{Key: "$lt", Value: bound(q.To)},
		}}},
		options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).
			SetProjection(bson.D{{Key: "bucketStart", Value: 1}, {Key: "tags", Value: 1}, {Key: "measurements", Value: 1}}))
	if err != nil {
		return fmt.Errorf("find buckets of sensor %q: %w", q.Sensor, err)
	}
	defer cursor.Close(context.WithoutCancel(ctx))

	var held []telemetry.Reading // may still be overtaken by a later bucket's
	for cursor.Next(ctx) {
		start := cursor.Current.Lookup("bucketStart").DateTime()
		var more bool
		if held, more = emit(held, start, yield); !more {
			return nil
		}
		if held, err = appendReadings(held, cursor.Current, q); err != nil {
			return err
		}
	}
	if err := cursor.Err(); err != nil {
		return fmt.Errorf("read buckets of sensor %q: %w", q.Sensor, err)
	}
	emit(held, q.To, yield)
	return nil
}

// emit yields what is held and older than before, in time order, and returns
// the rest, and whether the reader wants more.
func emit(held []telemetry.Reading, before int64, yield func(telemetry.Reading, error) bool) ([]telemetry.Reading, bool) {
	slices.SortStableFunc(held, func(a, b telemetry.Reading) int { return a.Time.Compare(b.Time) })
	n, _ := slices.BinarySearchFunc(held, before, func(r telemetry.Reading, ms int64) int {
		return cmp.Compare(r.Time.UnixMilli(), ms)
	})
	for _, r := range held[:n] {
		if !yield(r, nil) {
			return nil, false
		}
	}
	return append(held[:0], held[n:]...), true
}

func appendReadings(dst []telemetry.Reading, doc bson.Raw, q telemetry.Query) ([]telemetry.Reading, error) {
	tags := store.TagsOf(doc.Lookup("tags"))
	measurements, err := doc.Lookup("measurements").Array().Values()
	if err != nil {
		return dst, fmt.Errorf("read a bucket of sensor %q: %w", q.Sensor, err)
	}
	for _, m := range measurements {
		at, ok := m.Document().Lookup(store.TimeKey).DateTimeOK()
		if !ok || at < q.From || at >= q.To {
			continue
		}
		r, err := store.ReadingOf(m.Document(), q.Sensor)
		if err != nil {
			return dst, err
		}
		r.Tags = tags
		dst = append(dst, r)
	}
	return dst, nil
}
