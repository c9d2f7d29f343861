package timeseries

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Latest returns the sensor's newest reading, stored or among those that are
// unstored, and whether there is one. Of several of one time it is the last of
// those that are unstored, else the last in the order of Readings.
func (s *Store) Latest(ctx context.Context, sensor string, unstored []telemetry.Unstored) (telemetry.Reading, bool, error) {
	r, found, err := s.latest(ctx, sensor)
	if err != nil {
		return telemetry.Reading{}, false, fmt.Errorf("find the latest reading of sensor %q: %w", sensor, err)
	}
	r, found = store.Newer(byName(r), found, unstored)
	return byName(r), found, nil
}

// latest is Latest of what is stored: its time first, then the last of that time.
func (s *Store) latest(ctx context.Context, sensor string) (r telemetry.Reading, found bool, err error) {
	at, found, err := s.newest(ctx, sensor)
	if err != nil || !found {
		return r, false, err
	}
	then := bson.D{{Key: metaField + ".id", Value: sensor}, {Key: timeField, Value: bson.DateTime(at)}}
	cursor, err := s.answers().Find(ctx, then, options.Find().SetSort(bson.D{{Key: "_id", Value: -1}}).SetLimit(1))
	if err != nil {
		return r, false, err
	}
	defer cursor.Close(context.WithoutCancel(ctx))
	if !cursor.Next(ctx) {
		return r, false, cursor.Err()
	}
	r, err = current(ctx, cursor, sensor)
	return r, err == nil, err
}

// recently is how far back the newest reading is looked for at first. Most
// sensors send more often, and the index leads to that span.
const recently = time.Hour

// newest returns the time of the sensor's newest reading. MongoDB would unpack
// all that the sensor has to sort it by time. So it is asked for the last hour,
// and then for its last bucket.
func (s *Store) newest(ctx context.Context, sensor string) (ms int64, found bool, err error) {
	mine := bson.E{Key: metaField + ".id", Value: sensor}
	since := bson.E{Key: timeField, Value: bson.D{{Key: "$gte", Value: bson.NewDateTimeFromTime(time.Now().Add(-recently))}}}
	cursor, err := s.answers().Find(ctx, bson.D{mine, since}, options.Find().
		SetSort(bson.D{{Key: timeField, Value: -1}}).SetLimit(1).SetProjection(bson.D{{Key: "_id", Value: 0}, {Key: timeField, Value: 1}}))
	if err != nil {
		return 0, false, err
	}
	if ms, found, err = timeOf(ctx, cursor); err != nil || found {
		return ms, found, err
	}
	if cursor, err = s.answers().Aggregate(ctx, lastBucket(sensor)); err != nil {
		return 0, false, err
	}
	return timeOf(ctx, cursor)
}

// lastBucket has the server sort a sensor's buckets by their newest times, and
// unpack the first: it does so where a group takes the first of such an order.
func lastBucket(sensor string) mongo.Pipeline {
	const id = metaField + ".id"
	return mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: id, Value: sensor}}}},
		{{Key: "$sort", Value: bson.D{{Key: id, Value: 1}, {Key: timeField, Value: -1}}}},
		{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$" + id}, {Key: timeField, Value: bson.D{{Key: "$first", Value: "$" + timeField}}}}}},
	}
}

// timeOf returns the time of the one document of a cursor, which it closes.
func timeOf(ctx context.Context, cursor *mongo.Cursor) (ms int64, found bool, err error) {
	defer cursor.Close(context.WithoutCancel(ctx))
	if !cursor.Next(ctx) {
		return 0, false, cursor.Err()
	}
	ms, ok := cursor.Current.Lookup(timeField).DateTimeOK()
	if !ok {
		return 0, false, fmt.Errorf("decode a reading: its %s is no date", timeField)
	}
	return ms, true, telemetry.Spend(ctx, len(cursor.Current))
}
