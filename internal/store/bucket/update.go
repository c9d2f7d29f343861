package bucket

import (
	"strconv"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// encoder turns operations into BSON. It is the hot path: documents are
// appended to, never built from maps; what rows of one shape have in common is
// made once (form) and copied. Its memory is reused from operation to
// operation, and it belongs to one goroutine at a time.
type encoder struct {
	faults *fault.Injector
	stats  statistics
	guard  string // key of the write guard
	of     string // session that guard is of
}

// document appends a sub-document, filled by fill.
func document(dst []byte, key string, fill func([]byte) []byte) []byte {
	at, dst := bsoncore.AppendDocumentElementStart(dst, key)
	return end(fill(dst), at)
}

// end closes the document that began at. It cannot fail for a length that
// AppendDocumentElementStart gave.
func end(dst []byte, at int32) []byte {
	dst, _ = bsoncore.AppendDocumentEnd(dst, at)
	return dst
}

func appendID(dst []byte, share *batch.Share, number int32) []byte {
	at, dst := bsoncore.AppendDocumentElementStart(dst, "_id")
	return end(appendKey(dst, share, number), at)
}

func appendKey(dst []byte, share *batch.Share, number int32) []byte {
	dst = bsoncore.AppendStringElement(dst, "s", share.Sensor)
	dst = bsoncore.AppendDateTimeElement(dst, "b", share.Start)
	dst = bsoncore.AppendInt32Element(dst, "g", int32(share.Granularity.Seconds()))
	return bsoncore.AppendInt32Element(dst, "p", number)
}

// guardKey is the path of the largest sequence of the session that was
// applied to a part.
func (e *encoder) guardKey(session string) string {
	if session != e.of || e.guard == "" {
		e.of, e.guard = session, "w."+session
	}
	return e.guard
}

// filter matches the part unless it holds the first row already, is closed, has
// no room, or has other tags than the operation was made for. Guarding on the
// first row keeps the update repeatable when the rows are cut differently the
// second time.
func (e *encoder) filter(dst []byte, op *operation) []byte {
	at, dst := bsoncore.AppendDocumentStart(dst)
	dst = appendID(dst, op.share, op.number)
	if !e.faults.Off(fault.Guard) {
		dst = document(dst, e.guardKey(op.share.Session), func(dst []byte) []byte {
			return document(dst, "$not", func(dst []byte) []byte {
				return bsoncore.AppendInt64Element(dst, "$gte", e.guarded(op.rows))
			})
		})
	}
	if !e.faults.Off(fault.Fence) {
		dst = document(dst, "full", func(dst []byte) []byte { return bsoncore.AppendBooleanElement(dst, "$ne", true) })
	}
	if !e.faults.Off(fault.DocumentRule) {
		dst = document(dst, "count", func(dst []byte) []byte {
			return bsoncore.AppendInt64Element(dst, "$lte", op.maxReadings-int64(len(op.rows)))
		})
		dst = document(dst, "bytes", func(dst []byte) []byte {
			return bsoncore.AppendInt64Element(dst, "$lte", op.maxBytes-op.bytes)
		})
	}
	if !e.faults.Off(fault.PartTags) {
		dst = appendTagsFilter(dst, *op.tags)
	}
	return end(dst, at)
}

// appendTagsFilter matches parts that have just these tags. A part that the upsert
// creates gets the tags from the filter's equality match.
func appendTagsFilter(dst []byte, tags []telemetry.Tag) []byte {
	if len(tags) > 0 {
		return store.AppendTags(dst, tags)
	}
	return document(dst, "tags", func(dst []byte) []byte { return bsoncore.AppendBooleanElement(dst, "$exists", false) })
}

// guarded returns the sequence that the part must not have reached.
func (e *encoder) guarded(rows []batch.Ref) int64 {
	if e.faults.Off(fault.GuardFirst) {
		return int64(rows[len(rows)-1].Seq())
	}
	return int64(rows[0].Seq())
}

// update appends the readings and all that the document says of them.
func (e *encoder) update(dst []byte, op *operation) []byte {
	at, dst := bsoncore.AppendDocumentStart(dst)
	dst = document(dst, "$push", func(dst []byte) []byte {
		return document(dst, "measurements", func(dst []byte) []byte { return e.appendEach(dst, op) })
	})
	dst = document(dst, "$inc", func(dst []byte) []byte {
		dst = bsoncore.AppendInt32Element(dst, "count", int32(len(op.rows)))
		dst = bsoncore.AppendInt32Element(dst, "bytes", int32(op.bytes))
		return e.stats.appendSums(dst)
	})
	dst = document(dst, "$min", func(dst []byte) []byte {
		return e.stats.appendMins(bsoncore.AppendDateTimeElement(dst, "first", e.stats.first))
	})
	dst = document(dst, "$max", func(dst []byte) []byte {
		return e.stats.appendMaxs(bsoncore.AppendDateTimeElement(dst, "last", e.stats.last))
	})
	dst = document(dst, "$set", func(dst []byte) []byte {
		dst = bsoncore.AppendInt64Element(dst, e.guardKey(op.share.Session), int64(op.rows[len(op.rows)-1].Seq()))
		if op.fills {
			dst = bsoncore.AppendBooleanElement(dst, "full", true)
		}
		return dst
	})
	dst = document(dst, "$setOnInsert", func(dst []byte) []byte {
		dst = bsoncore.AppendStringElement(dst, "sensorId", op.share.Sensor)
		dst = bsoncore.AppendDateTimeElement(dst, "bucketStart", op.share.Start)
		if e.faults.Off(fault.PartTags) {
			dst = store.AppendTags(dst, *op.tags)
		}
		return dst
	})
	op.newest = e.stats.last
	return end(dst, at)
}

// appendEach appends the readings as an array, and gathers their statistics on
// the way.
func (e *encoder) appendEach(dst []byte, op *operation) []byte {
	at, dst := bsoncore.AppendArrayElementStart(dst, "$each")
	e.stats.reset()
	key := append(make([]byte, 0, 8), '0')
	for i, r := range op.rows {
		row := r.Row()
		f := e.stats.of(r.Batch.Shape(row))
		dst = append(dst, byte(bsoncore.TypeEmbeddedDocument))
		dst = append(append(dst, key...), 0)
		from := len(dst)
		dst = f.AppendDocument(dst, r.Batch, row)
		if op.own > 0 {
			if tags := op.ownTags(r); tags != nil {
				dst = store.AppendOwnTags(dst, from, *tags)
			}
		}
		e.stats.add(f, row.Time, r.Batch.Values(row))
		if key[len(key)-1]++; key[len(key)-1] > '9' {
			key = strconv.AppendInt(key[:0], int64(i+1), 10)
		}
	}
	dst, _ = bsoncore.AppendArrayEnd(dst, at)
	return dst
}
