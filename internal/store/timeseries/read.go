package timeseries

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Readings yields the readings for the query in time order: the stored ones, and those of
// q.Unstored that are not stored. Stored readings with the same time are in the order of their
// _ids, so that pages are consistent; unstored ones follow them. The server does not preserve the
// order of a document's keys, so fields are sorted by name, unless q names the fields. It ends
// with an error if one occurs.
func (s *Store) Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	return func(yield func(telemetry.Reading, error) bool) {
		for r, err := range store.Merge(q, s.stored(ctx, q)) {
			if q.Fields == nil {
				r = byName(r)
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// Batches of a limited read have a few readings more than the limit, because all readings of the
// last millisecond are read.
const batchReserve = 10

// stored yields the stored readings for the query, in the order of Readings.
func (s *Store) stored(ctx context.Context, q telemetry.Query) iter.Seq2[store.Stored, error] {
	find := options.Find()
	if q.Fields != nil { // the server unpacks only these
		projection := bson.D{{Key: timeField, Value: 1}, {Key: metaField, Value: 1}}
		for _, name := range q.Fields {
			projection = append(projection, bson.E{Key: name, Value: 1})
		}
		find.SetProjection(projection)
	}
	if n := cmp.Or(q.Limit, q.Expected); n > 0 {
		find.SetBatchSize(int32(min(n, 10_000) + batchReserve))
	}
	return func(yield func(store.Stored, error) bool) {
		var held []store.Stored // all readings of one millisecond
		emit := func() bool {
			slices.SortStableFunc(held, func(a, b store.Stored) int { return bytes.Compare(a.ID[:], b.ID[:]) })
			for _, h := range held {
				if !yield(h, nil) {
					return false
				}
			}
			clear(held)
			held = held[:0]
			return true
		}
		decoder := decoderOf(q.Sensor, q.Fields)
		for doc, err := range s.documents(ctx, q, find) {
			var next store.Stored
			if err == nil {
				next.Reading, err = decoder.Reading(doc, nil)
			}
			if err != nil {
				yield(next, err)
				return
			}
			if len(held) > 0 && !next.Reading.Time.Equal(held[0].Reading.Time) && !emit() {
				return
			}
			next.ID, _ = doc.Lookup("_id").ObjectIDOK() // others keep their order
			held = append(held, next)
		}
		emit()
	}
}

func decoderOf(sensor string, fields []string) *store.Decoder {
	return &store.Decoder{Sensor: sensor, Fields: fields, Skip: []string{"_id"}}
}

// documents yields the sensor's documents in the query's time range, in time order. Each is valid
// until the next. The projection must include _id: while a bucket grows it moves in the server's index,
// so that the server may return its readings twice.
func (s *Store) documents(ctx context.Context, q telemetry.Query, find *options.FindOptionsBuilder) iter.Seq2[bson.Raw, error] {
	return func(yield func(bson.Raw, error) bool) {
		// Sort by time only. With an additional key, the server would collect and sort everything;
		// like this, it follows the index and unpacks only what is read.
		find.SetSort(bson.D{{Key: timeField, Value: 1}}).SetAllowDiskUse(true)
		hidden := make([]origin, len(q.Hidden))
		for i, collection := range q.Hidden {
			hidden[i] = originOf(collection)
		}
		var seen distinct
		for doc, err := range s.Each(ctx, filter(q), find, 0) {
			if err != nil {
				yield(nil, fmt.Errorf("read readings of sensor %q: %w", q.Sensor, err))
				return
			}
			at, _ := doc.Lookup(timeField).DateTimeOK()
			if at < q.From {
				continue
			}
			if id, ok := doc.Lookup("_id").ObjectIDOK(); ok && (isCopy(id, at, hidden) || !seen.add(id, at)) {
				continue
			}
			if at >= q.To || !yield(doc, nil) {
				return
			}
		}
	}
}

// distinct recognizes readings that were seen before. They come in time order, so it remembers those
// of one millisecond.
type distinct struct {
	at  int64
	ids map[bson.ObjectID]struct{}
}

// add reports whether a reading is seen for the first time.
func (d *distinct) add(id bson.ObjectID, at int64) bool {
	if d.ids == nil {
		d.ids = make(map[bson.ObjectID]struct{})
	}
	if at != d.at {
		clear(d.ids)
		d.at = at
	}
	known := len(d.ids)
	d.ids[id] = struct{}{}
	return len(d.ids) > known
}

// firstBound and lastBound limit the time range that is sent to the server. The server finds its
// buckets, which span a year at most, by _ids that hold seconds in 32 bits. Bounds outside these
// limits would wrap around: MongoDB 6.0 would find nothing.
const (
	firstBound = 366 * 24 * 3600 * 1000
	lastBound  = math.MaxInt32 * 1000
)

// filter matches the stored readings of the query and, if it begins before firstBound or ends
// after lastBound, also others.
func filter(q telemetry.Query) bson.D {
	match := bson.D{{Key: idField, Value: q.Sensor}}
	var span bson.D
	if q.From >= firstBound {
		span = append(span, bson.E{Key: "$gte", Value: bson.DateTime(q.From)})
	}
	if q.To <= lastBound {
		span = append(span, bson.E{Key: "$lt", Value: bson.DateTime(q.To)})
	}
	if len(span) > 0 {
		match = append(match, bson.E{Key: timeField, Value: span})
	}
	return match
}

// byName returns the reading with its fields sorted by name.
func byName(r telemetry.Reading) telemetry.Reading {
	r.Fields = slices.SortedFunc(slices.Values(r.Fields), func(a, b telemetry.Field) int { return strings.Compare(a.Name, b.Name) })
	return r
}

// ReadingsOf yields what Readings yields for each query, one query after the other.
func (s *Store) ReadingsOf(ctx context.Context, qs []telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	return store.ReadEach(ctx, qs, s.Readings)
}

// Summary yields the summaries of q's steps, in time order, including the readings of q.Unstored
// that are not stored. It ends with an error if one occurs.
//
// The readings are aggregated here. The server can only aggregate fields that are named in the
// query, and a stream does not know its fields.
func (s *Store) Summary(ctx context.Context, q telemetry.SummaryQuery) iter.Seq2[telemetry.Summary, error] {
	q.Limit = 0
	if q.Readings != nil {
		return store.Summarize(q, q.Readings(ctx, q.Query), nil)
	}
	return store.Summarize(q, store.Merge(q.Query, s.stored(ctx, q.Query)), nil)
}

// Latest returns the sensor's newest reading, stored or among the unstored ones, and whether there
// is one. Of several with the same time, it is the last unstored one, or else the last in the
// order of Readings.
func (s *Store) Latest(ctx context.Context, sensor string, unstored []telemetry.Unstored) (telemetry.Reading, bool, error) {
	r, found, err := store.Latest(sensor, unstored, func() (telemetry.Reading, bool, error) { return s.latest(ctx, sensor) })
	return byName(r), found, err
}

// latest is Latest for stored readings: it finds the newest time, then the last reading with that
// time.
func (s *Store) latest(ctx context.Context, sensor string) (r telemetry.Reading, found bool, err error) {
	at, found, err := s.Newest(ctx, sensor)
	if err != nil || !found {
		return r, false, err
	}
	then := filter(telemetry.Query{Sensor: sensor, From: at, To: at + 1})
	doc, found, err := s.One(ctx, then, options.FindOne().SetSort(bson.D{{Key: timeField, Value: -1}, {Key: "_id", Value: -1}}))
	if err != nil || !found {
		return r, false, err
	}
	r, err = decoderOf(sensor, nil).Reading(doc, nil)
	return r, err == nil, err
}

// recentSpan is how far back the newest reading is searched for first. Most sensors send more
// often, and the index covers this search.
const recentSpan = time.Hour

// Newest returns the time of the sensor's newest reading. To sort by time, MongoDB would unpack
// all readings of the sensor. So the last hour is searched first, and then the last bucket.
func (s *Store) Newest(ctx context.Context, sensor string) (ms int64, found bool, err error) {
	mine := bson.E{Key: idField, Value: sensor}
	since := bson.E{Key: timeField, Value: bson.D{{Key: "$gte", Value: bson.NewDateTimeFromTime(time.Now().Add(-recentSpan))}}}
	doc, found, err := s.One(ctx, bson.D{mine, since}, options.FindOne().
		SetSort(bson.D{{Key: timeField, Value: -1}}).SetProjection(bson.D{{Key: "_id", Value: 0}, {Key: timeField, Value: 1}}))
	if err == nil && !found {
		var last []bson.Raw
		var cursor *mongo.Cursor
		if cursor, err = s.Answers.Aggregate(ctx, lastBucket(sensor)); err == nil {
			err = cursor.All(ctx, &last)
		}
		if err == nil && len(last) > 0 {
			doc, found, err = last[0], true, telemetry.Spend(ctx, len(last[0]))
		}
	}
	if err != nil || !found {
		return 0, false, err
	}
	ms, ok := doc.Lookup(timeField).DateTimeOK()
	if !ok {
		return 0, false, fmt.Errorf("decode a reading: its %s is not a date", timeField)
	}
	return ms, true, nil
}

// lastBucket makes the server sort a sensor's buckets by their newest times and unpack only the
// first. It does so for a $group that takes the $first of such an order.
func lastBucket(sensor string) mongo.Pipeline {
	return mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: idField, Value: sensor}}}},
		{{Key: "$sort", Value: bson.D{{Key: idField, Value: 1}, {Key: timeField, Value: -1}}}},
		{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$" + idField}, {Key: timeField, Value: bson.D{{Key: "$first", Value: "$" + timeField}}}}}},
	}
}

// Sensors yields the sensors that have readings stored, in the order of their ids' bytes, each
// with the time of its newest reading. With the index, a sensor takes two queries, and a third one
// if it has not sent for an hour, which reads its buckets and unpacks one of them. Grouping by
// sensor would unpack every bucket of the collection. It ends with an error if one occurs.
func (s *Store) Sensors(ctx context.Context, q telemetry.SensorQuery) iter.Seq2[telemetry.SensorSeen, error] {
	return store.SensorIndex{Next: s.nextSensor, Newest: s.Newest}.Sensors(ctx, q)
}

// nextSensor implements store.SensorIndex.Next.
func (s *Store) nextSensor(ctx context.Context, from string, exclusive bool) (string, error) {
	operator := "$gte"
	if exclusive {
		operator = "$gt"
	}
	doc, _, err := s.One(ctx, bson.D{{Key: idField, Value: bson.D{{Key: operator, Value: from}}}},
		options.FindOne().SetSort(bson.D{{Key: idField, Value: 1}}).SetProjection(bson.D{{Key: "_id", Value: 0}, {Key: idField, Value: 1}}))
	found, _ := doc.Lookup(metaField, "id").StringValueOK() // "" without a document
	return found, err
}

// Delete removes all readings of the sensor and returns how many there were, see
// store.Base.Delete. The server's own count is of buckets.
func (s *Store) Delete(ctx context.Context, sensor string) (int64, error) {
	return s.Base.Delete(ctx, sensor, bson.D{{Key: idField, Value: sensor}}, 1)
}
