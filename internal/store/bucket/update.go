package bucket

import (
	"encoding/binary"
	"math"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/block"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// encoder encodes operations as BSON. It is on the hot path: it appends to byte slices and never
// builds documents from maps; the bytes that rows of one shape share are encoded once (form) and
// copied. It reuses its memory, and is not safe for concurrent use.
type encoder struct {
	stats        statistics
	block        block.Builder
	guard        string // key of the write guard
	guardSession string // session that the guard belongs to
}

// document appends a sub-document, filled by fill.
func document(dst []byte, key string, fill func([]byte) []byte) []byte {
	at, dst := bsoncore.AppendDocumentElementStart(dst, key)
	return end(fill(dst), at)
}

// end ends the document that begins at offset at. It cannot fail for an offset that
// AppendDocumentElementStart returned.
func end(dst []byte, at int32) []byte {
	dst, _ = bsoncore.AppendDocumentEnd(dst, at)
	return dst
}

func appendID(dst []byte, pending *batch.Pending, number int32) []byte {
	at, dst := bsoncore.AppendDocumentElementStart(dst, "_id")
	return end(appendKey(dst, pending, number), at)
}

func appendKey(dst []byte, pending *batch.Pending, number int32) []byte {
	dst = bsoncore.AppendStringElement(dst, "s", pending.Sensor)
	dst = bsoncore.AppendDateTimeElement(dst, "b", pending.Start)
	dst = bsoncore.AppendInt32Element(dst, "g", int32(pending.Granularity.Seconds()))
	return bsoncore.AppendInt32Element(dst, "p", number)
}

// guardKey returns the path of the write guard: the largest sequence of the session that was
// applied to a part.
func (e *encoder) guardKey(session string) string {
	if session != e.guardSession || e.guard == "" {
		e.guardSession, e.guard = session, "w."+session
	}
	return e.guard
}

// filter matches the part unless it already holds the first row, is closed, has no room, or has
// other tags than the operation expects. Because the guard compares the first row's sequence, an
// update can be repeated even if the rows are divided differently the second time.
//
// A block must not follow measurements: readings are read in the order of their arrival,
// those of blocks first, and a reader may be between two pages.
func (e *encoder) filter(dst []byte, op *operation) []byte {
	at, dst := bsoncore.AppendDocumentStart(dst)
	dst = appendID(dst, op.pending, op.number)
	dst = document(dst, e.guardKey(op.pending.Session), func(dst []byte) []byte {
		return document(dst, "$not", func(dst []byte) []byte {
			return bsoncore.AppendInt64Element(dst, "$gte", int64(op.rows[0].Seq()))
		})
	})
	dst = document(dst, "full", func(dst []byte) []byte { return bsoncore.AppendBooleanElement(dst, "$ne", true) })
	dst = document(dst, "count", func(dst []byte) []byte {
		return bsoncore.AppendInt64Element(dst, "$lte", op.maxReadings-int64(len(op.rows)))
	})
	dst = document(dst, "bytes", func(dst []byte) []byte {
		return bsoncore.AppendInt64Element(dst, "$lte", op.maxBytes-op.bytes)
	})
	if op.format == store.Columns {
		dst = document(dst, "measurements", func(dst []byte) []byte { return bsoncore.AppendBooleanElement(dst, "$exists", false) })
	}
	return end(appendTagsFilter(dst, *op.tags), at)
}

// appendTagsFilter matches parts that have exactly these tags. A part that the upsert creates
// takes its tags from the filter's equality match.
func appendTagsFilter(dst []byte, tags []telemetry.Tag) []byte {
	if len(tags) > 0 {
		return store.AppendTags(dst, tags)
	}
	return document(dst, "tags", func(dst []byte) []byte { return bsoncore.AppendBooleanElement(dst, "$exists", false) })
}

// update pushes the readings and updates the document's other fields. Blocks are written without
// statistics, because the statistics of a document with blocks are not used.
func (e *encoder) update(dst []byte, op *operation) (_ []byte, err error) {
	at, dst := bsoncore.AppendDocumentStart(dst)
	e.stats.reset()
	dst = document(dst, "$push", func(dst []byte) []byte {
		if op.format == store.Columns {
			dst, err = e.appendBlock(dst, op)
			return dst
		}
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
	if op.clearsCounted {
		dst = document(dst, "$unset", func(dst []byte) []byte { return bsoncore.AppendStringElement(dst, countedKey, "") })
	}
	dst = document(dst, "$set", func(dst []byte) []byte {
		dst = bsoncore.AppendInt64Element(dst, e.guardKey(op.pending.Session), int64(op.rows[len(op.rows)-1].Seq()))
		if op.fills {
			dst = bsoncore.AppendBooleanElement(dst, "full", true)
		}
		return dst
	})
	dst = document(dst, "$setOnInsert", func(dst []byte) []byte {
		dst = bsoncore.AppendStringElement(dst, "sensorId", op.pending.Sensor)
		return bsoncore.AppendDateTimeElement(dst, "bucketStart", op.pending.Start)
	})
	op.newest = e.stats.last
	return end(dst, at), err
}

// appendBlock appends the readings as a block, and records the first and the last time.
func (e *encoder) appendBlock(dst []byte, op *operation) ([]byte, error) {
	e.block.Reset()
	for _, r := range op.rows {
		e.block.Add(r)
		if tags := op.ownTags(r); tags != nil {
			e.block.Own(*tags)
		}
		if op.ordered {
			e.block.Key(block.Key{Arrival: r.Arrival(), Session: op.pending.Session, Sequence: r.Seq()})
		}
		e.stats.addTime(r.Row().Time)
	}
	dst = bsoncore.AppendHeader(dst, bsoncore.TypeBinary, blocksKey)
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0, bson.TypeBinaryGeneric) // the length comes later
	dst, err := e.block.Append(dst, block.Options{})
	binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-5))
	return dst, err
}

// appendEach appends the readings as an array, and computes their statistics.
func (e *encoder) appendEach(dst []byte, op *operation) []byte {
	at, dst := bsoncore.AppendArrayElementStart(dst, "$each")
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

// statistics has the statistics of an operation's rows for each field, in the order in which the
// fields first appear.
type statistics struct {
	fields      []fieldStats
	first, last int64 // time of the rows

	forms *store.Shapes[form]
	round uint64 // counts operations
}

// fieldStats has the statistics of one field over the rows of an operation.
type fieldStats struct {
	*elements
	n          int64
	sum        float64
	min, max   uint64 // as words, of kind minK and maxK
	minK, maxK telemetry.Kind
	kind       telemetry.Kind // of all values so far; 0: of none, or of several
}

// form is the precomputed encoding of rows of one shape.
type form struct {
	*store.Template
	columns []column
	round   uint64 // the operation for which the columns know their statistics
}

// column is a numeric field of a form.
type column struct {
	elements *elements
	field    int // index of its values in a row
	kind     telemetry.Kind
	stats    int // index of its statistics in the operation
}

// elements has the BSON elements of a field's statistics, without values.
type elements struct {
	name      string
	sumN      []byte // sum, followed by n
	low, high []byte // min, max
	sumAt     int    // of sum's value in sumN
	nAt       int    // of n's value in sumN
}

func newForm(fields []batch.FieldType) *form {
	f := &form{Template: store.NewTemplate(fields)}
	for i, field := range fields {
		if field.Kind.Numeric() {
			f.columns = append(f.columns, column{elements: newElements(field.Name), field: i, kind: field.Kind})
		}
	}
	return f
}

func newElements(name string) *elements {
	path := "stats." + name
	sum := bsoncore.AppendDoubleElement(nil, path+".sum", 0)
	sumAt := len(sum) - 8
	sum = bsoncore.AppendInt64Element(sum, path+".n", 0)
	return &elements{
		name: name,
		sumN: sum, sumAt: sumAt, nAt: len(sum) - 8,
		low:  bsoncore.AppendInt64Element(nil, path+".min", 0),
		high: bsoncore.AppendInt64Element(nil, path+".max", 0),
	}
}

// reset begins another operation.
func (s *statistics) reset() {
	if s.forms == nil {
		s.forms = store.NewShapes(newForm)
	}
	s.fields = s.fields[:0]
	s.first, s.last = math.MaxInt64, math.MinInt64
	s.round++
}

// of returns the form of a shape, ready for rows of this operation.
func (s *statistics) of(shape *batch.Shape) *form {
	f := s.forms.Of(shape)
	if f.round != s.round {
		f.round = s.round
		for i := range f.columns {
			f.columns[i].stats = s.find(f.columns[i].elements, i)
		}
	}
	return f
}

// find returns the index of a field's statistics. Most shapes have the same fields, so it first
// tries the field's index in its shape.
func (s *statistics) find(e *elements, guess int) int {
	if guess < len(s.fields) && s.fields[guess].name == e.name {
		return guess
	}
	for i := range s.fields {
		if s.fields[i].name == e.name {
			return i
		}
	}
	s.fields = append(s.fields, fieldStats{elements: e})
	return len(s.fields) - 1
}

// add adds a row of the form.
func (s *statistics) add(f *form, time int64, values []uint64) {
	s.addTime(time)
	for i := range f.columns {
		c := &f.columns[i]
		stats, word := &s.fields[c.stats], values[c.field]
		switch {
		case stats.kind != c.kind:
			stats.add(c.kind, word)
		case c.kind == telemetry.Int:
			stats.addInt(int64(word))
		default:
			stats.addFloat(math.Float64frombits(word))
		}
	}
}

func (s *statistics) addTime(time int64) { s.first, s.last = min(s.first, time), max(s.last, time) }

// addInt is add for the case that all values so far are integers.
func (f *fieldStats) addInt(v int64) {
	f.n++
	f.sum += float64(v)
	if v < int64(f.min) {
		f.min = uint64(v)
	}
	if v > int64(f.max) {
		f.max = uint64(v)
	}
}

// addFloat is add for the case that all values so far are doubles.
func (f *fieldStats) addFloat(v float64) {
	f.n++
	f.sum += v
	if v < math.Float64frombits(f.min) {
		f.min = math.Float64bits(v)
	}
	if v > math.Float64frombits(f.max) {
		f.max = math.Float64bits(v)
	}
}

func (f *fieldStats) add(kind telemetry.Kind, word uint64) {
	v := number(kind, word)
	f.sum += v
	if f.n++; f.n == 1 {
		f.min, f.minK, f.max, f.maxK, f.kind = word, kind, word, kind, kind
		return
	}
	f.kind = 0
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

// less compares integers as integers, so that no precision is lost.
func less(aK telemetry.Kind, a uint64, bK telemetry.Kind, b uint64) bool {
	if aK == telemetry.Int && bK == telemetry.Int {
		return int64(a) < int64(b)
	}
	return number(aK, a) < number(bK, b)
}

func (s *statistics) appendSums(dst []byte) []byte {
	for i := range s.fields {
		f, at := &s.fields[i], len(dst)
		dst = append(dst, f.sumN...)
		binary.LittleEndian.PutUint64(dst[at+f.sumAt:], math.Float64bits(f.sum))
		binary.LittleEndian.PutUint64(dst[at+f.nAt:], uint64(f.n))
	}
	return dst
}

func (s *statistics) appendMins(dst []byte) []byte {
	for i := range s.fields {
		f := &s.fields[i]
		dst = appendNumber(dst, f.low, f.minK, f.min)
	}
	return dst
}

func (s *statistics) appendMaxs(dst []byte) []byte {
	for i := range s.fields {
		f := &s.fields[i]
		dst = appendNumber(dst, f.high, f.maxK, f.max)
	}
	return dst
}

// appendNumber appends element with its type (the first byte) and its value (the last eight bytes)
// replaced.
func appendNumber(dst, element []byte, kind telemetry.Kind, word uint64) []byte {
	at := len(dst)
	dst = append(dst, element...)
	if kind != telemetry.Int {
		dst[at] = byte(bsoncore.TypeDouble)
	}
	binary.LittleEndian.PutUint64(dst[len(dst)-8:], word)
	return dst
}
