package timeseries

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/store"
)

// Delete removes all readings of the sensor and returns how many there were
// just before, since the server counts its own buckets. What is not yet stored
// may come afterwards; who wants it gone sees to it that it is stored before.
func (s *Store) Delete(ctx context.Context, sensor string) (int64, error) {
	mine := bson.D{{Key: metaField + ".id", Value: sensor}}
	n, err := s.answers().CountDocuments(ctx, mine)
	if err != nil {
		return 0, store.CountError(sensor, err)
	}
	if _, err := s.coll.DeleteMany(ctx, mine); err != nil {
		return 0, store.DeleteError(sensor, err)
	}
	return n, nil
}
