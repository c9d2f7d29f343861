package bucket

import (
	"context"
	"iter"
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Sensors yields the sensors that have readings stored, or rollups, in the order of their
// ids' bytes, each with the time of its newest reading: the first key after the
// last one of a sensor is the next sensor's. It ends with an error if one occurs.
func (s *Store) Sensors(ctx context.Context, q telemetry.SensorQuery) iter.Seq2[telemetry.SensorSeen, error] {
	next := s.nextSensor
	if s.Rollup > 0 {
		next = s.nextSensorOrRollup
	}
	return store.SensorIndex{Next: next, Newest: s.Newest}.Sensors(ctx, q)
}

// Newest returns the time of the sensor's newest reading that is stored, or counted in a
// rollup, in milliseconds since the epoch, and whether there is one.
func (s *Store) Newest(ctx context.Context, sensor string) (ms int64, found bool, err error) {
	_, ms, found, err = s.newest(ctx, sensor)
	if err == nil && !found && s.Rollup > 0 {
		return s.newestInRollups(ctx, sensor)
	}
	return ms, found, err
}

// nextSensor implements store.SensorIndex.Next.
func (s *Store) nextSensor(ctx context.Context, from string, exclusive bool) (string, error) {
	key := firstKey(from)
	if exclusive {
		key = lastKey(from)
	}
	doc, _, err := s.One(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: key}}}},
		options.FindOne().SetSort(bson.D{{Key: "_id", Value: 1}}).SetProjection(bson.D{{Key: "_id", Value: 1}}))
	id, _ := doc.Lookup("_id", "s").StringValueOK() // "" without a document
	return id, err
}

// newestBatch is the batch size of newest: an hour of five-minute windows, and a few more.
const newestBatch = 16

// newest returns the _id of the document with the sensor's newest reading, the last one of
// several, and that reading's time. It scans back from the last window to the first that cannot
// contain a newer reading, and then looks up longer windows that may:
//
//	0:00 ├───────────────────────── 24h ── newest ──┤
//	                   9:00 ├─────── 1h ───────┤
//	                                9:50 ├ 1m ┤
func (s *Store) newest(ctx context.Context, sensor string) (id bson.RawValue, ms int64, found bool, err error) {
	back := func(in bson.E, until func(start int64) bool) error {
		withReadings := bson.D{in, {Key: "last", Value: bson.D{{Key: "$type", Value: "date"}}}} // tombstones have none
		find := options.Find().SetSort(bson.D{{Key: "_id", Value: -1}}).SetProjection(bson.D{{Key: "last", Value: 1}}).SetBatchSize(newestBatch)
		for doc, err := range s.Each(ctx, s.ofSensor(sensor, withReadings), find, 0) {
			if err != nil {
				return err
			}
			start, err := startOf(doc)
			if err != nil {
				return err
			}
			if found && until(start) {
				break
			}
			if last, _ := doc.Lookup("last").DateTimeOK(); !found || last > ms {
				of := doc.Lookup("_id")
				id, ms, found = bson.RawValue{Type: of.Type, Value: append([]byte(nil), of.Value...)}, last, true
			}
		}
		return nil
	}
	err = back(bson.E{Key: "_id", Value: keysOf(sensor)}, func(start int64) bool { return start+store.MaxGranularity.Milliseconds() <= ms })
	if err != nil || !found {
		return id, 0, false, err
	}
	windows := bson.A{}
	for _, start := range store.LongWindows(ms) {
		windows = append(windows, bson.D{startingIn(sensor, start, start+1)})
	}
	if len(windows) > 0 {
		err = back(bson.E{Key: "$or", Value: windows}, func(int64) bool { return false })
	}
	return id, ms, found, err
}

// Latest returns the sensor's newest reading, stored or among the unstored ones, and whether there
// is one. Of several with the same time, it is the last unstored one, or else the last in the
// order of Readings.
func (s *Store) Latest(ctx context.Context, sensor string, unstored []telemetry.Unstored) (telemetry.Reading, bool, error) {
	return store.Latest(sensor, unstored, func() (telemetry.Reading, bool, error) { return s.latest(ctx, sensor) })
}

// latestAttempts is how often the newest document is looked up.
const latestAttempts = 3

func (s *Store) latest(ctx context.Context, sensor string) (r telemetry.Reading, found bool, err error) {
	for range latestAttempts {
		id, at, stored, err := s.newest(ctx, sensor)
		if err != nil || !stored {
			return r, false, err
		}
		doc, _, err := s.One(ctx, bson.D{{Key: "_id", Value: id}}, options.FindOne().SetProjection(bson.D{{Key: "tags", Value: 1}, {Key: "measurements", Value: 1}, {Key: blocksKey, Value: 1}}))
		last := emitter{query: telemetry.Query{Sensor: sensor, From: at, To: math.MaxInt64}, decoder: store.Decoder{Sensor: sensor}}
		if err == nil && doc != nil {
			err = last.unpack(ctx, heldDocument{doc: doc})
		}
		if err != nil {
			return r, false, err
		}
		if n := len(last.open); n > 0 { // otherwise it was removed in between
			return last.open[n-1].Reading, true, nil
		}
	}
	return r, false, nil
}

// Delete removes all documents of the sensor, including tombstones and rollups, and
// returns how many readings they held, see store.Base.Delete.
func (s *Store) Delete(ctx context.Context, sensor string) (int64, error) {
	n, err := s.Base.Delete(ctx, sensor, s.ofSensor(sensor, bson.D{{Key: "_id", Value: keysOf(sensor)}}), "$count")
	if err == nil && s.Rollup > 0 {
		err = s.deleteRollups(ctx, sensor)
	}
	return n, err
}

// firstKey sorts before, and lastKey after, all keys of the sensor; keysOf matches the keys in
// between.
func firstKey(sensor string) bson.D {
	return bson.D{{Key: "s", Value: sensor}, {Key: "b", Value: bson.MinKey{}}}
}

func lastKey(sensor string) bson.D {
	return bson.D{{Key: "s", Value: sensor}, {Key: "b", Value: bson.MaxKey{}}}
}

func keysOf(sensor string) bson.D {
	return bson.D{{Key: "$gt", Value: firstKey(sensor)}, {Key: "$lt", Value: lastKey(sensor)}}
}
