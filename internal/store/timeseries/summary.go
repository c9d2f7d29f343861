package timeseries

import (
	"context"
	"fmt"
	"iter"
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Summary yields the summaries of q's steps, in time order, with what of
// q.Unstored is not stored. It ends with an error if one occurs.
//
// The readings are added up here: the server could only do so for fields whose
// names it is told, and a stream does not know its fields.
func (s *Store) Summary(ctx context.Context, q telemetry.SummaryQuery) iter.Seq2[telemetry.Summary, error] {
	return func(yield func(telemetry.Summary, error) bool) {
		steps := store.NewSteps(q)
		more, err := s.summary(ctx, q, steps, yield)
		switch {
		case err != nil:
			yield(telemetry.Summary{}, err)
		case more:
			steps.CloseAll(yield)
		}
	}
}

func (s *Store) summary(ctx context.Context, q telemetry.SummaryQuery, steps *store.Steps, yield func(telemetry.Summary, error) bool) (more bool, err error) {
	overlay := store.NewOverlay(q.Query, batch.ReadingID)
	projection := bson.D{{Key: metaField, Value: 0}}
	if len(q.Unstored) == 0 {
		projection = append(projection, bson.E{Key: "_id", Value: 0})
	}
	cursor, err := s.answers().Find(ctx, filter(q.Query), options.Find().SetSort(inTime).SetAllowDiskUse(true).SetProjection(projection))
	if err != nil {
		return false, fmt.Errorf("find readings of sensor %q: %w", q.Sensor, err)
	}
	defer cursor.Close(context.WithoutCancel(ctx))
	last := int64(math.MinInt64)
	for cursor.Next(ctx) {
		if err := telemetry.Spend(ctx, len(cursor.Current)); err != nil {
			return false, err
		}
		at, ok := cursor.Current.Lookup(timeField).DateTimeOK()
		if ok && at >= q.To {
			break
		}
		if ok && at != last {
			last = at
			addUnstored(steps, overlay, at)
			if !steps.Close(at, yield) {
				return false, nil
			}
		}
		if id, ok := cursor.Current.Lookup("_id").ObjectIDOK(); ok {
			overlay.Saw(id)
		}
		if err := steps.AddDocument(cursor.Current); err != nil {
			return false, fmt.Errorf("sum up readings of sensor %q: %w", q.Sensor, err)
		}
	}
	if err := cursor.Err(); err != nil {
		return false, fmt.Errorf("read readings of sensor %q: %w", q.Sensor, err)
	}
	addUnstored(steps, overlay, q.To)
	return true, nil
}

func addUnstored(steps *store.Steps, overlay *store.Overlay, before int64) {
	for _, r := range overlay.Before(before) {
		steps.Add(r)
	}
}
