package timeseries

import (
	"bytes"
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

// Readings yields what is stored for the query, and what of q.Unstored is not,
// in time order, and in the order of their _ids within a millisecond, so that
// pages fit together; the unstored ones come after those. The server does not
// keep the order of a document's keys, so fields are sorted by name. It ends
// with an error if one occurs.
func (s *Store) Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	return func(yield func(telemetry.Reading, error) bool) {
		r := reader{yield: yield, left: q.Limit, overlay: store.NewOverlay(q)}
		if err := s.readings(ctx, q, &r); err != nil {
			yield(telemetry.Reading{}, err)
		}
	}
}

// Batches of a limited read hold a few more than are wanted: readings of the
// last millisecond are read to its end.
const batchReserve = 10

func (s *Store) readings(ctx context.Context, q telemetry.Query, to *reader) error {
	find := options.Find().SetSort(inTime)
	if q.Limit > 0 {
		find.SetBatchSize(int32(min(q.Limit, 10_000) + batchReserve))
	}
	cursor, err := s.Answers().Find(ctx, filter(q), find.SetAllowDiskUse(true))
	if err != nil {
		return fmt.Errorf("find readings of sensor %q: %w", q.Sensor, err)
	}
	defer cursor.Close(context.WithoutCancel(ctx))
	for cursor.Next(ctx) {
		r, err := current(ctx, cursor, q.Sensor)
		if err != nil {
			return err
		}
		ms := r.Time.UnixMilli()
		if ms >= q.To {
			break
		}
		if ms != to.at && !to.emit(ms) {
			return nil
		}
		to.hold(r, cursor.Current)
	}
	if err := cursor.Err(); err != nil {
		return fmt.Errorf("read readings of sensor %q: %w", q.Sensor, err)
	}
	to.emit(q.To)
	return nil
}

// inTime is the order by time alone. With another key the server would gather and
// sort everything, where it now follows the index and unpacks as much as is read.
var inTime = bson.D{{Key: timeField, Value: 1}}

// reader sorts the readings of one millisecond, and merges in the unstored ones.
type reader struct {
	yield   func(telemetry.Reading, error) bool
	left    int // readings still to yield; 0: all
	overlay *store.Overlay
	at      int64   // time of those that are held
	held    []named // of one millisecond
}

type named struct {
	id      bson.ObjectID
	reading telemetry.Reading
}

func (r *reader) hold(reading telemetry.Reading, doc bson.Raw) {
	id, _ := doc.Lookup("_id").ObjectIDOK() // others stay in the order in which they came
	r.overlay.Saw(id)
	r.held = append(r.held, named{id, reading})
}

// emit yields all that is older than ms, the time of the next ones, and reports
// whether the consumer wants more.
func (r *reader) emit(ms int64) bool {
	slices.SortStableFunc(r.held, func(a, b named) int { return bytes.Compare(a.id[:], b.id[:]) })
	for _, h := range r.held {
		if !r.unstored(r.at) || !r.one(h.reading) {
			return false
		}
	}
	clear(r.held)
	r.held, r.at = r.held[:0], ms
	return r.unstored(ms)
}

// unstored yields the unstored readings that are older than ms.
func (r *reader) unstored(ms int64) bool {
	for _, u := range r.overlay.Before(ms) {
		if !r.one(byName(u)) {
			return false
		}
	}
	return true
}

func (r *reader) one(reading telemetry.Reading) bool {
	if !r.yield(reading, nil) {
		return false
	}
	r.left--
	return r.left != 0
}

// lastBound is the latest end of a span that is sent to the server. The server
// finds its buckets by _ids with seconds in 32 bits, so a later end would wrap
// around, and nothing would be found.
const lastBound = math.MaxInt32 * 1000

// filter matches the stored readings of the query and, if that ends after
// lastBound, later ones.
func filter(q telemetry.Query) bson.D {
	span := bson.D{{Key: "$gte", Value: bson.DateTime(q.From)}}
	if q.To <= lastBound {
		span = append(span, bson.E{Key: "$lt", Value: bson.DateTime(q.To)})
	}
	return bson.D{{Key: idField, Value: q.Sensor}, {Key: timeField, Value: span}}
}

// current returns the reading that the cursor is at.
func current(ctx context.Context, cursor *mongo.Cursor, sensor string) (telemetry.Reading, error) {
	if err := telemetry.Spend(ctx, len(cursor.Current)); err != nil {
		return telemetry.Reading{}, err
	}
	r, err := store.ReadingOf(cursor.Current, sensor, nil, "_id")
	return byName(r), err
}

// byName returns the reading with its fields sorted by name.
func byName(r telemetry.Reading) telemetry.Reading {
	r.Fields = slices.SortedFunc(slices.Values(r.Fields), func(a, b telemetry.Field) int { return strings.Compare(a.Name, b.Name) })
	return r
}

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
	overlay := store.NewOverlay(q.Query)
	projection := bson.D{{Key: metaField, Value: 0}}
	if len(q.Unstored) == 0 {
		projection = append(projection, bson.E{Key: "_id", Value: 0})
	}
	cursor, err := s.Answers().Find(ctx, filter(q.Query), options.Find().SetSort(inTime).SetAllowDiskUse(true).SetProjection(projection))
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

// Latest returns the sensor's newest reading, stored or among the unstored ones, and
// whether there is one. Of several of one time it is the last unstored one, or else
// the last in the order of Readings.
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
	then := bson.D{{Key: idField, Value: sensor}, {Key: timeField, Value: bson.DateTime(at)}}
	cursor, err := s.Answers().Find(ctx, then, options.Find().SetSort(bson.D{{Key: "_id", Value: -1}}).SetLimit(1))
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

// recently is how far back the newest reading is searched for at first. Most sensors
// send more often, and the index leads to that span.
const recently = time.Hour

// newest returns the time of the sensor's newest reading. To sort them by time
// MongoDB would unpack all that the sensor has. So it is asked for the last hour,
// and then for the last bucket.
func (s *Store) newest(ctx context.Context, sensor string) (ms int64, found bool, err error) {
	mine := bson.E{Key: idField, Value: sensor}
	since := bson.E{Key: timeField, Value: bson.D{{Key: "$gte", Value: bson.NewDateTimeFromTime(time.Now().Add(-recently))}}}
	cursor, err := s.Answers().Find(ctx, bson.D{mine, since}, options.Find().
		SetSort(bson.D{{Key: timeField, Value: -1}}).SetLimit(1).SetProjection(bson.D{{Key: "_id", Value: 0}, {Key: timeField, Value: 1}}))
	if err != nil {
		return 0, false, err
	}
	if ms, found, err = timeOf(ctx, cursor); err != nil || found {
		return ms, found, err
	}
	if cursor, err = s.Answers().Aggregate(ctx, lastBucket(sensor)); err != nil {
		return 0, false, err
	}
	return timeOf(ctx, cursor)
}

// lastBucket has the server sort a sensor's buckets by their newest times, and
// unpack the first: it does so if a group takes the first of such an order.
func lastBucket(sensor string) mongo.Pipeline {
	return mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: idField, Value: sensor}}}},
		{{Key: "$sort", Value: bson.D{{Key: idField, Value: 1}, {Key: timeField, Value: -1}}}},
		{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$" + idField}, {Key: timeField, Value: bson.D{{Key: "$first", Value: "$" + timeField}}}}}},
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

// Sensors yields the sensors that have readings stored, in the order of their
// ids' bytes, each with the time of its newest reading. By the index a sensor takes
// two queries, and if it has not sent for an hour a third, which reads its buckets and
// unpacks one of them; grouping by sensor would unpack every bucket of the
// collection. It ends with an error if one occurs.
func (s *Store) Sensors(ctx context.Context, q telemetry.SensorQuery) iter.Seq2[telemetry.SensorSeen, error] {
	return store.SensorIndex{Next: s.nextSensor, Newest: s.newest}.Sensors(ctx, q)
}

// nextSensor returns the first sensor of the span, "" if there is none.
func (s *Store) nextSensor(ctx context.Context, span store.NameSpan) (string, error) {
	from := "$gte"
	if span.Behind {
		from = "$gt"
	}
	ids := bson.D{{Key: from, Value: span.From}}
	if span.To != "" {
		ids = append(ids, bson.E{Key: "$lt", Value: span.To})
	}
	cursor, err := s.Answers().Find(ctx, bson.D{{Key: idField, Value: ids}},
		options.Find().SetSort(bson.D{{Key: idField, Value: 1}}).SetLimit(1).SetProjection(bson.D{{Key: "_id", Value: 0}, {Key: idField, Value: 1}}))
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

// Delete removes all readings of the sensor and returns how many there were, since
// the server would count its own buckets; see store.Base.Delete.
func (s *Store) Delete(ctx context.Context, sensor string) (int64, error) {
	return s.Base.Delete(ctx, sensor, bson.D{{Key: idField, Value: sensor}}, 1)
}
