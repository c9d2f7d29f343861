package bucket

import (
	"context"
	"errors"
	"iter"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Sensors yields the sensors that have readings stored, in the order of their
// ids' bytes, each with the time of its newest reading: behind the last key of
// one, the first key is the next one's. It ends with an error if one occurs.
func (s *Store) Sensors(ctx context.Context, q telemetry.SensorQuery) iter.Seq2[telemetry.SensorSeen, error] {
	return store.SensorIndex{Next: s.nextSensor, Newest: s.newest}.Sensors(ctx, q)
}

// nextSensor returns the sensor of the first key of the span, "" if there is none.
func (s *Store) nextSensor(ctx context.Context, span store.NameSpan) (string, error) {
	from := firstKey(span.From)
	if span.Behind {
		from = lastKey(span.From)
	}
	keys := bson.D{{Key: "$gt", Value: from}}
	if span.To != "" {
		keys = append(keys, bson.E{Key: "$lt", Value: firstKey(span.To)})
	}
	doc, err := s.answers().FindOne(ctx, bson.D{{Key: "_id", Value: keys}},
		options.FindOne().SetSort(bson.D{{Key: "_id", Value: 1}}).SetProjection(bson.D{{Key: "_id", Value: 1}})).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if err := telemetry.Spend(ctx, len(doc)); err != nil {
		return "", err
	}
	id, _ := doc.Lookup("_id", "s").StringValueOK()
	return id, nil
}

// Windows that are looked at in one go for the newest reading of a sensor: an
// hour of five minutes, and a few.
const newestBatch = 16

// newest returns the time of the sensor's newest reading. It goes back from the
// last window, until none that began earlier can reach as far.
func (s *Store) newest(ctx context.Context, sensor string) (ms int64, found bool, err error) {
	cursor, err := s.answers().Find(ctx, s.ofSensor(sensor, withReadings(sensor)), options.Find().SetSort(bson.D{{Key: "_id", Value: -1}}).
		SetProjection(bson.D{{Key: "last", Value: 1}}).SetBatchSize(newestBatch))
	if err != nil {
		return 0, false, err
	}
	defer cursor.Close(context.WithoutCancel(ctx))
	for cursor.Next(ctx) {
		if err := telemetry.Spend(ctx, len(cursor.Current)); err != nil {
			return 0, false, err
		}
		start, err := startOf(cursor.Current)
		if err != nil {
			return 0, false, err
		}
		if found && start+store.MaxGranularity.Milliseconds() <= ms {
			break
		}
		last, _ := cursor.Current.Lookup("last").DateTimeOK()
		ms, found = max(ms, last), true
	}
	return ms, found, cursor.Err()
}
