package timeseries

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A copy is a reading from another collection of the stream. Its _id consists of a hash of that
// collection's name, the reading's time, and its index among the readings with that time, so that
// it is the same whenever the reading is copied:
//
//	origin (4) │ milliseconds (6) │ place (2)
//
// The _ids of other readings begin with a hash of their session. They practically never begin like
// an origin and continue with the reading's own time.
type origin [4]byte

func originOf(collection string) (o origin) {
	binary.BigEndian.PutUint32(o[:], uint32(xxhash.Sum64String("copies of "+collection))) //nolint:gosec // bits
	return o
}

func (o origin) id(ms int64, place uint16) (id bson.ObjectID) {
	binary.BigEndian.PutUint64(id[2:], uint64(ms)) //nolint:gosec // bits
	copy(id[:], o[:])
	binary.BigEndian.PutUint16(id[10:], place)
	return id
}

// isCopy reports whether a reading is a copy from one of the origins.
func isCopy(id bson.ObjectID, ms int64, of []origin) bool {
	place := binary.BigEndian.Uint16(id[10:])
	return slices.ContainsFunc(of, func(o origin) bool { return id == o.id(ms, place) })
}

// copyBatchSize is how many readings are copied with one command.
const copyBatchSize = 1000

// copiedReading is a reading that is being copied.
type copiedReading struct {
	id bson.ObjectID
	ms int64
	telemetry.Reading
}

// CopyReadings inserts copies of all readings of a sensor, which must be in time order, from an
// origin that no longer accepts readings. It skips copies that an earlier attempt has inserted.
func (s *Store) CopyReadings(ctx context.Context, o store.Origin, sensor string, readings iter.Seq2[telemetry.Reading, error]) (n int64, err error) {
	of := originOf(o.Collection)
	var chunk []copiedReading
	last, place := int64(math.MinInt64), 0
	for r, err := range readings {
		if err != nil {
			return 0, err
		}
		ms := r.Time.UnixMilli()
		if place++; ms != last {
			if last, place = ms, 0; len(chunk) >= copyBatchSize {
				if err := s.copyChunk(ctx, sensor, chunk); err != nil {
					return 0, err
				}
				chunk = chunk[:0]
			}
		}
		if place > math.MaxUint16 {
			return 0, fmt.Errorf("sensor %q has more than %d readings at %s, which cannot be copied into a time series", sensor, math.MaxUint16, r.Time.Format(time.RFC3339Nano))
		}
		chunk = append(chunk, copiedReading{of.id(ms, uint16(place)), ms, r})
		n++
	}
	return n, s.copyChunk(ctx, sensor, chunk)
}

// DropCopies reports whether there are copies of a sensor. It cannot remove them: before MongoDB
// 7.0, only all readings of a sensor can be deleted from a time series.
func (s *Store) DropCopies(ctx context.Context, o store.Origin, sensor string) (left bool, err error) {
	of := []origin{originOf(o.Collection)}
	for doc, err := range s.Each(ctx, bson.D{{Key: idField, Value: sensor}}, options.Find().SetProjection(bson.D{{Key: timeField, Value: 1}}), 0) {
		if err != nil {
			return false, fmt.Errorf("look for copies of sensor %q: %w", sensor, err)
		}
		id, _ := doc.Lookup("_id").ObjectIDOK()
		if at, _ := doc.Lookup(timeField).DateTimeOK(); isCopy(id, at, of) {
			return true, nil
		}
	}
	return false, nil
}

// copyAttempts is how often a chunk is sent if its outcome is unknown.
const copyAttempts = 3

// copyChunk inserts the readings that are missing.
func (s *Store) copyChunk(ctx context.Context, sensor string, chunk []copiedReading) (err error) {
	for range copyAttempts {
		var missing []bson.Raw
		if missing, err = s.missing(ctx, sensor, chunk); err != nil || len(missing) == 0 {
			return err
		}
		var settled bool
		if settled, err = s.insertCopies(ctx, missing); err == nil {
			return nil
		}
		if !settled {
			break
		}
	}
	return fmt.Errorf("insert copies of sensor %q into collection %q: %w", sensor, s.Name, err)
}

// insertCopies inserts copies. If the outcome is unknown, it waits until the command has ended or
// can no longer be executed, see session, and then reports settled.
func (s *Store) insertCopies(ctx context.Context, copies []bson.Raw) (settled bool, err error) {
	one, err := s.sessions.get(s.Database)
	if err != nil {
		return false, err
	}
	short, cancel := context.WithTimeout(ctx, s.WriteTimeout)
	defer cancel()
	var c command
	for len(copies) > 0 {
		c.begin(s.Name, store.WriteConcern{}, &store.Prepared{})
		for len(copies) > 0 && !c.full() {
			c.key()
			c.doc, copies = append(c.doc, copies[0]...), copies[1:]
		}
		c.end()
		if err := one.run(short, c.doc); err != nil {
			fenced := s.fence(ctx, one)
			return fenced == nil, errors.Join(err, fenced)
		}
	}
	s.sessions.put(one)
	return true, nil
}

// missing returns the documents of the readings that are not in the collection.
func (s *Store) missing(ctx context.Context, sensor string, chunk []copiedReading) (out []bson.Raw, err error) {
	if len(chunk) == 0 {
		return nil, nil
	}
	ids := make([]bson.ObjectID, len(chunk))
	for i, c := range chunk {
		ids[i] = c.id
	}
	there, err := s.storedIDs(ctx, telemetry.Query{Sensor: sensor, From: chunk[0].ms, To: chunk[len(chunk)-1].ms + 1}, ids)
	if err != nil {
		return nil, fmt.Errorf("look up copies of sensor %q: %w", sensor, err)
	}
	for _, c := range chunk {
		if !there[c.id] {
			out = append(out, c.document(sensor))
		}
	}
	return out, nil
}

// document returns the reading as a daemon would have stored it.
func (c *copiedReading) document(sensor string) bson.Raw {
	at, doc := bsoncore.AppendDocumentStart(nil)
	doc = bsoncore.AppendObjectIDElement(doc, "_id", c.id)
	doc = bsoncore.AppendDateTimeElement(doc, timeField, c.ms)
	meta, doc := bsoncore.AppendDocumentElementStart(doc, metaField)
	doc = bsoncore.AppendStringElement(doc, "id", sensor)
	doc, _ = bsoncore.AppendDocumentEnd(store.AppendTags(doc, c.Tags), meta)
	doc, _ = bsoncore.AppendDocumentEnd(store.AppendReadingFields(doc, c.Fields), at)
	return doc
}
