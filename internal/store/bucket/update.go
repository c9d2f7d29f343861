package bucket

import (
	"math"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// encoder turns operations into BSON. It is the hot path: documents are
// appended to, never built from maps, and its scratch memory is reused from
// operation to operation.
type encoder struct {
	stats  []fieldStats
	index  []int // of each field of the shape at hand in stats
	faults *fault.Injector
}

// fieldStats are the statistics of one field over the rows of an operation.
type fieldStats struct {
	name       string
	n          int64
	sum        float64
	min, max   uint64 // words, of the kinds beside them
	minK, maxK telemetry.Kind
}

// model returns the guarded upsert of op.
func (e *encoder) model(op *operation) *mongo.UpdateOneModel {
	size := 512 + int(op.bytes)
	for _, t := range op.tags() {
		size += len(t.Name) + len(t.Value) + 8
	}
	filter := e.filter(make([]byte, 0, 256+len(op.share.Sensor)+len(op.share.Session)), op)
	update := e.update(make([]byte, 0, size), op)
	return mongo.NewUpdateOneModel().SetFilter(bson.Raw(filter)).SetUpdate(bson.Raw(update)).SetUpsert(true)
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
	return document(dst, "_id", func(dst []byte) []byte { return appendKey(dst, share, number) })
}

func appendKey(dst []byte, share *batch.Share, number int32) []byte {
	dst = bsoncore.AppendStringElement(dst, "s", share.Sensor)
	dst = bsoncore.AppendDateTimeElement(dst, "b", share.Start)
	dst = bsoncore.AppendInt32Element(dst, "g", int32(share.Granularity.Seconds()))
	return bsoncore.AppendInt32Element(dst, "p", number)
}

// filter matches the part unless it holds the first row already, is closed, or
// has no room. Guarding on the first row keeps the update repeatable when the
// rows are cut differently the second time.
func (e *encoder) filter(dst []byte, op *operation) []byte {
	at, dst := bsoncore.AppendDocumentStart(dst)
	dst = appendID(dst, op.share, op.number)
	if !e.faults.Off(fault.Guard) {
		dst = document(dst, "w."+op.share.Session, func(dst []byte) []byte {
			return document(dst, "$not", func(dst []byte) []byte {
				return bsoncore.AppendInt64Element(dst, "$gte", e.guard(op.rows))
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
	return end(dst, at)
}

// guard returns the sequence that the part must not have reached.
func (e *encoder) guard(rows []batch.Ref) int64 {
	if e.faults.Off(fault.GuardFirst) {
		return int64(rows[len(rows)-1].Seq())
	}
	return int64(rows[0].Seq())
}

func (e *encoder) update(dst []byte, op *operation) []byte {
	first, last := e.gather(op.rows)
	at, dst := bsoncore.AppendDocumentStart(dst)
	dst = document(dst, "$push", func(dst []byte) []byte {
		return document(dst, "measurements", func(dst []byte) []byte { return appendEach(dst, op.rows) })
	})
	dst = document(dst, "$inc", func(dst []byte) []byte {
		dst = bsoncore.AppendInt32Element(dst, "count", int32(len(op.rows)))
		dst = bsoncore.AppendInt32Element(dst, "bytes", int32(op.bytes))
		for i := range e.stats {
			dst = bsoncore.AppendDoubleElement(dst, "stats."+e.stats[i].name+".sum", e.stats[i].sum)
			dst = bsoncore.AppendInt64Element(dst, "stats."+e.stats[i].name+".n", e.stats[i].n)
		}
		return dst
	})
	dst = document(dst, "$min", func(dst []byte) []byte {
		dst = bsoncore.AppendDateTimeElement(dst, "first", first)
		for i := range e.stats {
			dst = appendNumber(dst, "stats."+e.stats[i].name+".min", e.stats[i].minK, e.stats[i].min)
		}
		return dst
	})
	dst = document(dst, "$max", func(dst []byte) []byte {
		dst = bsoncore.AppendDateTimeElement(dst, "last", last)
		for i := range e.stats {
			dst = appendNumber(dst, "stats."+e.stats[i].name+".max", e.stats[i].maxK, e.stats[i].max)
		}
		return dst
	})
	dst = document(dst, "$set", func(dst []byte) []byte {
		dst = bsoncore.AppendInt64Element(dst, "w."+op.share.Session, int64(op.rows[len(op.rows)-1].Seq()))
		if op.fills {
			dst = bsoncore.AppendBooleanElement(dst, "full", true)
		}
		return dst
	})
	dst = document(dst, "$setOnInsert", func(dst []byte) []byte {
		dst = bsoncore.AppendStringElement(dst, "sensorId", op.share.Sensor)
		dst = bsoncore.AppendDateTimeElement(dst, "bucketStart", op.share.Start)
		return store.AppendTags(dst, op.tags())
	})
	return end(dst, at)
}

func appendEach(dst []byte, rows []batch.Ref) []byte {
	at, dst := bsoncore.AppendArrayElementStart(dst, "$each")
	for i, r := range rows {
		dst = append(dst, byte(bsoncore.TypeEmbeddedDocument))
		dst = append(strconv.AppendInt(dst, int64(i), 10), 0)
		var doc int32
		doc, dst = bsoncore.AppendDocumentStart(dst)
		dst = bsoncore.AppendDateTimeElement(dst, store.TimeKey, r.Row().Time)
		dst = end(store.AppendFields(dst, r.Batch, r.Row()), doc)
	}
	dst, _ = bsoncore.AppendArrayEnd(dst, at)
	return dst
}

func appendNumber(dst []byte, key string, kind telemetry.Kind, word uint64) []byte {
	if kind == telemetry.Int {
		return bsoncore.AppendInt64Element(dst, key, int64(word))
	}
	return bsoncore.AppendDoubleElement(dst, key, math.Float64frombits(word))
}

// gather computes the statistics of the rows, and the first and last of their
// times.
func (e *encoder) gather(rows []batch.Ref) (first, last int64) {
	e.stats = e.stats[:0]
	first, last = math.MaxInt64, math.MinInt64
	var shape *batch.Shape
	for _, r := range rows {
		row := r.Row()
		first, last = min(first, row.Time), max(last, row.Time)
		if s := r.Batch.Shape(row); s != shape {
			shape = s
			e.indexShape(s)
		}
		for i, word := range r.Batch.Values(row) {
			if at := e.index[i]; at >= 0 {
				e.stats[at].add(shape.Fields[i].Kind, word)
			}
		}
	}
	return first, last
}

// indexShape finds the statistics that each field of the shape belongs to, -1
// for those that have none.
func (e *encoder) indexShape(s *batch.Shape) {
	e.index = e.index[:0]
	for i, f := range s.Fields {
		at := -1
		if f.Kind.Numeric() {
			at = e.find(f.Name, i)
		}
		e.index = append(e.index, at)
	}
}

// find returns the place of a field's statistics; rows mostly agree in their
// fields, so it first looks where the field stands in its row.
func (e *encoder) find(name string, guess int) int {
	if guess < len(e.stats) && e.stats[guess].name == name {
		return guess
	}
	for i := range e.stats {
		if e.stats[i].name == name {
			return i
		}
	}
	e.stats = append(e.stats, fieldStats{name: name})
	return len(e.stats) - 1
}

func (f *fieldStats) add(kind telemetry.Kind, word uint64) {
	v := number(kind, word)
	f.sum += v
	if f.n++; f.n == 1 {
		f.min, f.minK, f.max, f.maxK = word, kind, word, kind
		return
	}
	if less(kind, word, f.minK, f.min) {
		f.min, f.minK = word, kind
	}
	if less(f.maxK, f.max, kind, word) {
		f.max, f.maxK = word, kind
	}
}

func number(kind telemetry.Kind, word uint64) float64 {
	if kind == telemetry.Int {
		return float64(int64(word))
	}
	return math.Float64frombits(word)
}

// less compares integers as integers, so that none loses its last bits.
func less(aK telemetry.Kind, a uint64, bK telemetry.Kind, b uint64) bool {
	if aK == telemetry.Int && bK == telemetry.Int {
		return int64(a) < int64(b)
	}
	return number(aK, a) < number(bK, b)
}
