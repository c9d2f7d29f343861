package timeseries

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Readings yields what is stored for the query, in time order, and in the order
// of their names within a millisecond, so that pages fit together. The server does
// not keep the order of a document's keys, so fields come sorted by name. It
// ends with an error if one occurs.
func (s *Store) Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	return func(yield func(telemetry.Reading, error) bool) {
		if err := s.readings(ctx, q, yield); err != nil {
			yield(telemetry.Reading{}, err)
		}
	}
}

func (s *Store) readings(ctx context.Context, q telemetry.Query, yield func(telemetry.Reading, error) bool) error {
	find := options.Find().SetSort(bson.D{{Key: timeField, Value: 1}, {Key: "_id", Value: 1}}).SetAllowDiskUse(true)
	if q.Limit > 0 {
		find.SetLimit(int64(q.Limit))
	}
	cursor, err := s.coll.Find(ctx, bson.D{
		{Key: metaField + ".id", Value: q.Sensor},
		{Key: timeField, Value: bson.D{{Key: "$gte", Value: bson.DateTime(q.From)}, {Key: "$lt", Value: bson.DateTime(q.To)}}},
	}, find)
	if err != nil {
		return fmt.Errorf("find readings of sensor %q: %w", q.Sensor, err)
	}
	defer cursor.Close(context.WithoutCancel(ctx))
	for cursor.Next(ctx) {
		r, err := store.ReadingOf(cursor.Current, q.Sensor, "_id", metaField)
		if err != nil {
			return err
		}
		slices.SortFunc(r.Fields, func(a, b telemetry.Field) int { return strings.Compare(a.Name, b.Name) })
		r.Tags = store.TagsOf(cursor.Current.Lookup(metaField, "tags"))
		if !yield(r, nil) {
			return nil
		}
	}
	if err := cursor.Err(); err != nil {
		return fmt.Errorf("read readings of sensor %q: %w", q.Sensor, err)
	}
	return nil
}
