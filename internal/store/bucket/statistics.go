package bucket

import (
	"encoding/binary"
	"math"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// statistics are those of an operation's rows, field by field in the order in
// which the fields were met.
type statistics struct {
	fields      []fieldStats
	first, last int64 // time of the rows

	forms *store.Shapes[form]
	round uint64 // counts operations
}

// fieldStats are the statistics of one field over the rows of an operation.
type fieldStats struct {
	*elements
	n          int64
	sum        float64
	min, max   uint64 // words, of the kinds beside them
	minK, maxK telemetry.Kind
	kind       telemetry.Kind // of all values so far; 0: of none, or of several
}

// form is what the rows of one shape have in common.
type form struct {
	*store.Template
	columns []column
	round   uint64 // the operation for which the columns know their statistics
}

// column is a numeric field of a form.
type column struct {
	elements *elements
	field    int // place of its values in a row
	kind     telemetry.Kind
	stats    int // place of its statistics in the operation
}

// elements are the BSON elements of a field's statistics with their values
// left open.
type elements struct {
	name      string
	sumN      []byte // sum, and n behind it
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

// find returns the place of a field's statistics; shapes mostly agree in their
// fields, so it first looks where the field stands in its shape.
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

// add takes in a row of the form.
func (s *statistics) add(f *form, time int64, values []uint64) {
	s.first, s.last = min(s.first, time), max(s.last, time)
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

// addInt is add where all values so far are integers.
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

// addFloat is add where all values so far are doubles.
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

// less compares integers as integers, so that none loses its last bits.
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

// appendNumber appends an element with its type and its value, the first byte
// and the last eight.
func appendNumber(dst, element []byte, kind telemetry.Kind, word uint64) []byte {
	at := len(dst)
	dst = append(dst, element...)
	if kind != telemetry.Int {
		dst[at] = byte(bsoncore.TypeDouble)
	}
	binary.LittleEndian.PutUint64(dst[len(dst)-8:], word)
	return dst
}
