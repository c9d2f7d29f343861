package bucket

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/store"
)

// Delete removes all documents of the sensor, tombstones too, and returns how
// many readings they held. What is not yet stored may open buckets of the sensor
// again; who wants it gone sees to it that it is stored before.
func (s *Store) Delete(ctx context.Context, sensor string) (int64, error) {
	mine := s.ofSensor(sensor, bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: firstKey(sensor)}, {Key: "$lt", Value: lastKey(sensor)}}}})
	cursor, err := s.answers().Aggregate(ctx, bson.A{
		bson.D{{Key: "$match", Value: mine}},
		bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: nil}, {Key: "readings", Value: bson.D{{Key: "$sum", Value: "$count"}}}}}},
	})
	if err != nil {
		return 0, store.CountError(sensor, err)
	}
	var counts []struct {
		Readings int64 `bson:"readings"`
	}
	if err := cursor.All(ctx, &counts); err != nil {
		return 0, store.CountError(sensor, err)
	}
	if _, err := s.coll.DeleteMany(ctx, mine); err != nil {
		return 0, store.DeleteError(sensor, err)
	}
	if len(counts) == 0 {
		return 0, nil
	}
	return counts[0].Readings, nil
}
