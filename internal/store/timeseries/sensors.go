package timeseries

import (
	"context"
	"iter"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Sensors yields the sensors that have readings stored, in the order of their
// ids' bytes, each with the time of its newest reading. Along the index a sensor
// costs two questions, and one more that reads its buckets and unpacks one of them
// if it is silent; grouping by sensor would unpack every bucket of the collection.
// It ends with an error if one occurs.
func (s *Store) Sensors(ctx context.Context, q telemetry.SensorQuery) iter.Seq2[telemetry.SensorSeen, error] {
	return store.SensorIndex{Next: s.nextSensor, Newest: s.newest}.Sensors(ctx, q)
}

// nextSensor returns the first sensor of the span, "" if there is none.
func (s *Store) nextSensor(ctx context.Context, span store.NameSpan) (string, error) {
	const id = metaField + ".id"
	cursor, err := s.answers().Find(ctx, bson.D{{Key: id, Value: idsOf(span)}},
		options.Find().SetSort(bson.D{{Key: id, Value: 1}}).SetLimit(1).SetProjection(bson.D{{Key: "_id", Value: 0}, {Key: id, Value: 1}}))
	if err != nil {
		return "", err
	}
	defer cursor.Close(context.WithoutCancel(ctx))
	if !cursor.Next(ctx) {
		return "", cursor.Err()
	}
	found, _ := cursor.Current.Lookup(metaField, "id").StringValueOK()
	return found, telemetry.Spend(ctx, len(cursor.Current))
}

func idsOf(span store.NameSpan) bson.D {
	from := "$gte"
	if span.Behind {
		from = "$gt"
	}
	ids := bson.D{{Key: from, Value: span.From}}
	if span.To != "" {
		ids = append(ids, bson.E{Key: "$lt", Value: span.To})
	}
	return ids
}
