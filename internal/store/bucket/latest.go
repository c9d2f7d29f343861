package bucket

import (
	"context"
	"errors"
	"fmt"

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
	r, found = store.Newer(r, found, unstored)
	return r, found, nil
}

// latest is Latest of what is stored. The last window that holds readings is
// one seek away; a window that began before it can hold a newer one only if it is
// longer, and then it began less than an hour before the newest so far.
//
//	9:00 ├──────────────── 1h ── newer ──┤
//	                  9:50 ├ 1m ┤
func (s *Store) latest(ctx context.Context, sensor string) (telemetry.Reading, bool, error) {
	doc, err := s.newestDocument(ctx, s.ofSensor(sensor, withReadings(sensor)), bson.D{{Key: "_id", Value: -1}})
	if err != nil || doc == nil {
		return telemetry.Reading{}, false, err
	}
	last := doc.Lookup("last").DateTime()
	near := bson.D{
		{Key: "$gte", Value: startKey(sensor, last-store.MaxGranularity.Milliseconds()+1)},
		{Key: "$lt", Value: doc.Lookup("_id")},
	}
	newer, err := s.newestDocument(ctx,
		s.ofSensor(sensor, bson.D{{Key: "_id", Value: near}, {Key: "last", Value: bson.D{{Key: "$gt", Value: bson.DateTime(last)}}}}),
		bson.D{{Key: "last", Value: -1}, {Key: "_id", Value: -1}})
	if err != nil {
		return telemetry.Reading{}, false, err
	}
	if newer != nil {
		doc = newer
	}
	return lastReading(doc, sensor)
}

// withReadings matches the sensor's documents but for tombstones.
func withReadings(sensor string) bson.D {
	return bson.D{
		{Key: "_id", Value: bson.D{{Key: "$gt", Value: firstKey(sensor)}, {Key: "$lt", Value: lastKey(sensor)}}},
		{Key: "last", Value: bson.D{{Key: "$type", Value: "date"}}},
	}
}

func (s *Store) newestDocument(ctx context.Context, filter, sort bson.D) (bson.Raw, error) {
	doc, err := s.answers().FindOne(ctx, filter, options.FindOne().SetSort(sort).
		SetProjection(bson.D{{Key: "last", Value: 1}, {Key: "tags", Value: 1}, {Key: "measurements", Value: 1}})).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return doc, telemetry.Spend(ctx, len(doc))
}

// lastReading returns the last of the newest readings of a document.
func lastReading(doc bson.Raw, sensor string) (r telemetry.Reading, found bool, err error) {
	var newest bson.Raw
	var at int64
	err = eachMeasurement(doc, sensor, func(m bson.Raw) error {
		if ms, ok := m.Lookup(store.TimeKey).DateTimeOK(); ok && (newest == nil || ms >= at) {
			newest, at = m, ms
		}
		return nil
	})
	if err != nil || newest == nil {
		return r, false, err
	}
	r, err = store.ReadingOf(newest, sensor, store.TagsOf(doc.Lookup("tags")))
	return r, err == nil, err
}

// firstKey precedes and lastKey follows every key of the sensor, and no other
// sensor's.
func firstKey(sensor string) bson.D {
	return bson.D{{Key: "s", Value: sensor}, {Key: "b", Value: bson.MinKey{}}}
}

func lastKey(sensor string) bson.D {
	return bson.D{{Key: "s", Value: sensor}, {Key: "b", Value: bson.MaxKey{}}}
}
