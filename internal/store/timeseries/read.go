package timeseries

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Readings yields what is stored for the query, and what of q.Unstored is not,
// in time order, and in the order of their names within a millisecond, so that
// pages fit together; the unstored ones come behind those. The server does not
// keep the order of a document's keys, so fields come sorted by name. It ends
// with an error if one occurs.
func (s *Store) Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	return func(yield func(telemetry.Reading, error) bool) {
		r := reader{yield: yield, left: q.Limit, overlay: store.NewOverlay(q, batch.ReadingID)}
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
	cursor, err := s.answers().Find(ctx, filter(q), find.SetAllowDiskUse(true))
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

// inTime is the order by time alone. With anything behind it the server would
// gather and sort all that is asked for, where it now goes along the index and
// unpacks as much as is read.
var inTime = bson.D{{Key: timeField, Value: 1}}

// reader brings readings of one millisecond into order, and merges in what is
// not stored.
type reader struct {
	yield   func(telemetry.Reading, error) bool
	left    int // readings that are still wanted; 0: all
	overlay *store.Overlay
	at      int64   // time of those that are held
	held    []named // of one millisecond
}

type named struct {
	id      bson.ObjectID
	reading telemetry.Reading
}

func (r *reader) hold(reading telemetry.Reading, doc bson.Raw) {
	id, _ := doc.Lookup("_id").ObjectIDOK() // others have no order among them
	r.overlay.Saw(id)
	r.held = append(r.held, named{id, reading})
}

// emit yields all that is older than ms, which is where the next ones stand,
// and reports whether the reader wants more.
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

// unstored yields what is not stored and older than ms.
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
	return bson.D{{Key: metaField + ".id", Value: q.Sensor}, {Key: timeField, Value: span}}
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
