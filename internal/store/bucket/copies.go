package bucket

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A copy is a document with readings from another collection of the stream:
//
//	{_id: {s, b, g, p: -2147418108}, from: "readings", full: true, count: 37, measurements: […], …}
//
// Its part number is negative, and encodes the generation and the part of the original. So each
// copy has exactly one possible _id, and a second insert is refused. Updates go to parts from 0
// on, so they never touch a copy. It has no w, because no session that wrote the original has
// anything left to write.
const fromKey = "from"

// maxParts bounds the parts of a bucket that is copied. The encoding allows for 32,767
// generations.
const maxParts = 1 << 16

// copyNumber returns the part number of a copy.
func copyNumber(o store.Origin, part int32) (int32, error) {
	switch {
	case part < 0: // it is a copy, and its generation was never this one
		return part, nil
	case part >= maxParts || o.Number > math.MaxInt16:
		return 0, fmt.Errorf("part %d of generation %d cannot be copied; allowed: parts below %d and generations up to %d", part, o.Number, maxParts, math.MaxInt16)
	}
	return (int32(o.Number)-math.MaxInt16-1)*maxParts + part, nil
}

// withoutCopies extends a filter to exclude copies from these collections.
func withoutCopies(filter bson.D, of []string) bson.D {
	if len(of) == 0 {
		return filter
	}
	return append(filter, bson.E{Key: fromKey, Value: bson.D{{Key: "$nin", Value: of}}})
}

// partsBatch is the batch size of the cursor. Documents are processed slowly, and MongoDB closes a
// cursor that is idle for ten minutes.
const partsBatch = 16

// Parts yields all documents with readings, starting with those of a sensor, in the order of their
// _ids. A document is valid until the next one. It ends with an error if one occurs.
func (s *Store) Parts(ctx context.Context, sensor string) iter.Seq2[bson.Raw, error] {
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: firstKey(sensor)}}}, {Key: "count", Value: bson.D{{Key: "$gt", Value: 0}}}}
	return func(yield func(bson.Raw, error) bool) {
		for doc, err := range store.FindEach(ctx, s.Majority, filter, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetBatchSize(partsBatch)) {
			if err != nil {
				err = fmt.Errorf("read collection %q: %w", s.Name, err)
			}
			if !yield(doc, err) {
				return
			}
		}
	}
}

// CopyParts inserts copies of documents of the origin, which must no longer accept updates. It
// returns the _ids of copies whose originals were deleted meanwhile, for RemoveCopies. A deletion
// removes originals first, so if an original still exists after the copy was inserted, the
// deletion will find the copy.
func (s *Store) CopyParts(ctx context.Context, o store.Origin, from *Store, docs []bson.Raw) (gone bson.A, err error) {
	originals, ids, copies := make(bson.A, len(docs)), make(bson.A, len(docs)), make([]bson.Raw, len(docs))
	for i, doc := range docs {
		if copies[i], err = copyOf(o, doc); err != nil {
			return nil, err
		}
		originals[i], ids[i] = doc.Lookup("_id"), copies[i].Lookup("_id")
	}
	if refused, err := s.insertCopies(ctx, copies); err != nil {
		return nil, err
	} else if len(refused) > 0 {
		// These exist already; wait until they cannot be rolled back.
		if err := (store.WriteConcern{}).Fence(ctx, s.Database); err != nil {
			return nil, err
		}
	}
	found, err := store.FindAll[bson.Raw](ctx, from.Majority, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: originals}}}}, options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, fmt.Errorf("look up what was copied from collection %q: %w", from.Name, err)
	}
	there := make(map[string]bool, len(found))
	for _, doc := range found {
		there[string(doc.Lookup("_id").Value)] = true
	}
	for i, doc := range docs {
		if !there[string(doc.Lookup("_id").Value)] {
			gone = append(gone, ids[i])
		}
	}
	return gone, nil
}

// RemoveCopies removes copies by their _ids.
func (s *Store) RemoveCopies(ctx context.Context, ids bson.A) error {
	if _, err := s.Majority.DeleteMany(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}); err != nil {
		return fmt.Errorf("remove copies of what was deleted: %w", err)
	}
	return nil
}

// copyOf makes the copy of a document.
func copyOf(o store.Origin, doc bson.Raw) (bson.Raw, error) {
	at, out := bsoncore.AppendDocumentStart(make([]byte, 0, len(doc)+64))
	err := store.EachElement(doc, func(_ int, e bsoncore.Element) error {
		switch e.Key() {
		case "_id":
			of, ok := e.Value().DocumentOK()
			part, isNumber := of.Lookup("p").Int32OK()
			if !ok || !isNumber {
				return fmt.Errorf("the document with _id %v is no bucket", e.Value())
			}
			part, err := copyNumber(o, part)
			if err != nil {
				return err
			}
			var id int32
			id, out = bsoncore.AppendDocumentElementStart(out, "_id")
			for _, key := range []string{"s", "b", "g"} {
				out = bsoncore.AppendValueElement(out, key, of.Lookup(key))
			}
			out = end(bsoncore.AppendInt32Element(out, "p", part), id)
			out = bsoncore.AppendStringElement(out, fromKey, o.Collection)
		case "w", "full", fromKey:
		default:
			out = append(out, e...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("copy a document of collection %q: %w", o.Collection, err)
	}
	return end(bsoncore.AppendBooleanElement(out, "full", true), at), nil
}

// insertCopies inserts copies, and returns the indexes of those that exist already.
func (s *Store) insertCopies(ctx context.Context, copies []bson.Raw) (there []int, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.WriteTimeout)
	defer cancel()
	_, err = s.Majority.InsertMany(ctx, copies, options.InsertMany().SetOrdered(false))
	var failed mongo.BulkWriteException
	if errors.As(err, &failed) && failed.WriteConcernError == nil {
		err = nil
		for _, e := range failed.WriteErrors {
			if e.Code != duplicateKey {
				err = e
			}
			there = append(there, e.Index)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("insert copies into collection %q: %w", s.Name, err)
	}
	return there, nil
}

// CopyReadings inserts copies of all readings of a sensor, which must be in time order, from an
// origin that no longer accepts readings. On store.ErrOtherCopies, call DropCopies and try again.
func (s *Store) CopyReadings(ctx context.Context, o store.Origin, sensor string, readings iter.Seq2[telemetry.Reading, error]) (n int64, err error) {
	t := copyWriter{sealer: s.NewSealer(), ctx: ctx, origin: o, sensor: sensor, now: s.Live.Load(), start: math.MinInt64}
	for r, err := range readings {
		if err == nil {
			err = t.add(r)
		}
		if err != nil {
			return 0, err
		}
		n++
	}
	if err := t.close(); err != nil {
		return 0, err
	}
	return n, t.flush()
}

// DropCopies removes the copies of a sensor.
func (s *Store) DropCopies(ctx context.Context, o store.Origin, sensor string) (left bool, err error) {
	_, err = s.Majority.DeleteMany(ctx, s.ofSensor(sensor, bson.D{{Key: "_id", Value: keysOf(sensor)}, {Key: fromKey, Value: o.Collection}}))
	if err != nil {
		return false, fmt.Errorf("remove copies of sensor %q: %w", sensor, err)
	}
	return false, nil
}

// A copyWriter groups readings into parts, and inserts those.
type copyWriter struct {
	sealer *Sealer
	ctx    context.Context //nolint:containedctx // of one call
	origin store.Origin
	sensor string
	now    *store.Live

	done     []bson.Raw // parts that are not inserted yet
	inserted int        // total bytes of done

	// The part that readings are being added to:
	start        int64 // of its window
	number       int32 // before it is encoded with the origin
	readings     []orderedReading
	measurements bson.A
	bytes        int64
}

func (t *copyWriter) add(r telemetry.Reading) error {
	start := store.WindowStart(r.Time.UnixMilli(), t.sealer.store.Granularity)
	m := t.measurement(r)
	full := len(t.readings) >= t.now.MaxReadings || len(t.readings) > 0 && t.bytes+readingBytes(m) > int64(t.now.MaxBytes)
	if start != t.start || full {
		if err := t.close(); err != nil {
			return err
		}
		if t.number++; start != t.start {
			t.start, t.number = start, 0
		}
		m = t.measurement(r) // now it is the first one
	}
	t.readings, t.measurements, t.bytes = append(t.readings, orderedReading{Reading: r}), append(t.measurements, m), t.bytes+readingBytes(m)
	return nil
}

// measurement returns the reading as it is stored in the part, whose tags are those of its first
// reading.
func (t *copyWriter) measurement(r telemetry.Reading) bson.Raw {
	at, dst := bsoncore.AppendDocumentStart(nil)
	dst = bsoncore.AppendDateTimeElement(dst, store.TimeKey, r.Time.UnixMilli())
	dst = end(store.AppendReadingFields(dst, r.Fields), at)
	if len(t.readings) > 0 && !store.SameTags(r.Tags, t.readings[0].Tags) {
		dst = store.AppendOwnTags(dst, 0, r.Tags)
	}
	return dst
}

// close encodes the part as a document.
func (t *copyWriter) close() error {
	n := len(t.readings)
	if n == 0 {
		return nil
	}
	doc, err := t.document()
	if err != nil {
		return err
	}
	raw, err := bson.Marshal(doc)
	if err != nil {
		return fmt.Errorf("encode a copy: %w", err)
	}
	t.readings, t.measurements, t.bytes = t.readings[:0], nil, 0
	t.done, t.inserted = append(t.done, raw), t.inserted+len(raw)
	if t.inserted < commandBytes {
		return nil
	}
	return t.flush()
}

func (t *copyWriter) document() (bson.D, error) {
	number, err := copyNumber(t.origin, t.number)
	if err != nil {
		return nil, err
	}
	var sums store.Sums
	for i := range t.readings {
		sums.AddReading(&t.readings[i].Reading)
	}
	n, start := len(t.readings), bson.DateTime(t.start)
	doc := bson.D{
		{Key: "_id", Value: bson.D{{Key: "s", Value: t.sensor}, {Key: "b", Value: start}, {Key: "g", Value: int32(t.sealer.store.Granularity / time.Second)}, {Key: "p", Value: number}}},
		{Key: fromKey, Value: t.origin.Collection}, {Key: "sensorId", Value: t.sensor}, {Key: "bucketStart", Value: start},
		{Key: "count", Value: int32(n)}, {Key: "bytes", Value: t.bytes},
		{Key: "first", Value: bson.NewDateTimeFromTime(t.readings[0].Time)}, {Key: "last", Value: bson.NewDateTimeFromTime(t.readings[n-1].Time)},
	}
	if stats := statisticsDocument(sums.Fields); len(stats) > 0 {
		doc = append(doc, bson.E{Key: "stats", Value: stats})
	}
	tags := t.readings[0].Tags
	if len(tags) > 0 {
		of := make(bson.D, len(tags))
		for i, tag := range tags {
			of[i] = bson.E{Key: tag.Name, Value: tag.Value}
		}
		doc = append(doc, bson.E{Key: "tags", Value: of})
	}
	if t.now.Format == store.Columns {
		data, _, err := t.sealer.pack(t.readings, tags, !t.now.View)
		if err != nil {
			return nil, err
		}
		doc = append(doc, bson.E{Key: "sealed", Value: bson.D{{Key: "at", Value: bson.NewDateTimeFromTime(time.Now())}, {Key: "v", Value: int32(sealedVersion)}, {Key: "n", Value: int32(n)}}},
			bson.E{Key: blocksKey, Value: bson.A{bson.Binary{Data: data}}})
	} else {
		doc = append(doc, bson.E{Key: "measurements", Value: t.measurements})
	}
	return append(doc, bson.E{Key: "full", Value: true}), nil
}

// flush inserts the finished parts. One that exists already must be the same.
func (t *copyWriter) flush() error {
	if len(t.done) == 0 {
		return nil
	}
	there, err := t.sealer.store.insertCopies(t.ctx, t.done)
	if err != nil {
		return err
	}
	if len(there) > 0 { // so that a majority read shows them, and they are not rolled back
		if err := (store.WriteConcern{}).Fence(t.ctx, t.sealer.store.Database); err != nil {
			return err
		}
	}
	for _, i := range there {
		var same bson.D
		for _, key := range []string{"_id", "from", "count", "bytes", "first", "last"} {
			same = append(same, bson.E{Key: key, Value: t.done[i].Lookup(key)})
		}
		err := t.sealer.store.Majority.FindOne(t.ctx, same, options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Err()
		switch {
		case errors.Is(err, mongo.ErrNoDocuments):
			return store.ErrOtherCopies
		case err != nil:
			return fmt.Errorf("compare copies in collection %q: %w", t.sealer.store.Name, err)
		}
	}
	t.done, t.inserted = nil, 0
	return nil
}
