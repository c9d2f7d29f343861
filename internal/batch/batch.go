// Package batch is the compact form in which the readings of one request
// travel from the door to the store. Readings are rows; what repeats (the
// sensor with its tags, the list of field names) is kept once and referred to
// by number, so that a row costs 32 bytes and eight for each value.
//
// A Batch is built by one goroutine with a Builder and is read-only from then
// on; any number of goroutines may read it.
package batch

import (
	"math"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Batch holds the accepted readings of one request, in their order.
type Batch struct {
	Received time.Time // arrival of the request

	// Session, FirstSeq and Tracker are given once, when the batch is taken in;
	// row i has the sequence FirstSeq + i.
	Session   string
	FirstSeq  uint64
	Tracker   Tracker // nil where nobody waits for the rows to be stored
	Recovered bool    // taken in by an earlier process, which may have sent the rows

	rows   []Row
	series []Series
	shapes []Shape
	values []uint64
	text   texts
	memory int64
}

// A Tracker follows the rows of its batch until they are at rest. Calls come
// from several goroutines.
type Tracker interface {
	// Released says that n more rows have come to rest: stored, or put aside.
	Released(n int)
	// Refused says why a row will not be stored; its release follows.
	Refused(row *Row, why *telemetry.Refusal)
}

// View returns the same readings with another tracker.
func (b *Batch) View(t Tracker) Batch {
	view := *b
	view.Tracker = t
	return view
}

// A Row is one reading.
type Row struct {
	Time   int64  // milliseconds since the epoch
	Index  uint32 // position of the reading in its request, refused ones counted
	Size   uint32 // bytes of the fields as BSON elements
	series uint32
	shape  uint32
	offset uint32 // of the first value
}

// A Series is a sensor of a stream, with the tags that it was sent with.
type Series struct {
	Stream string
	Sensor string
	// Granularity is that of the stream when the reading was taken in, set by
	// whoever took it; 0: the stream's present one.
	Granularity time.Duration
	Tags        []telemetry.Tag // sorted by name
	Hash        uint64          // of stream and sensor
	TagsHash    uint64          // equal tags have equal hashes
}

// A Shape is a list of field names and kinds that rows share.
type Shape struct {
	Fields []FieldType
	key    string // what the builder looks shapes up by, and holds the names
	size   uint32 // bytes of the fields as BSON elements, without the bytes of strings
}

// A FieldType is the name and kind of one field of a shape.
type FieldType struct {
	Name string
	Kind telemetry.Kind
}

// Len returns the number of readings.
func (b *Batch) Len() int { return len(b.rows) }

// Row returns reading i.
func (b *Batch) Row(i uint32) *Row { return &b.rows[i] }

// Series returns the sensor of row r.
func (b *Batch) Series(r *Row) *Series { return &b.series[r.series] }

// SeriesNumber returns which of the batch's sensors row r belongs to; numbers
// count from 0 to SeriesLen()-1.
func (b *Batch) SeriesNumber(r *Row) uint32 { return r.series }

// SeriesLen returns the number of distinct sensors with their tags. The same
// tags in another order of arrival count again.
func (b *Batch) SeriesLen() int { return len(b.series) }

// SeriesAt returns the series with number i.
func (b *Batch) SeriesAt(i int) *Series { return &b.series[i] }

// Shape returns the fields of row r. Rows of equal shape in one batch return
// the same pointer.
func (b *Batch) Shape(r *Row) *Shape { return &b.shapes[r.shape] }

// Values returns one word for each field of row r's shape: the bits of a
// double, an integer, 0 or 1, or a reference for Text.
func (b *Batch) Values(r *Row) []uint64 {
	return b.values[r.offset:][:len(b.shapes[r.shape].Fields)]
}

// Text returns the string that the word of a Text field refers to. The bytes
// belong to the batch.
func (b *Batch) Text(word uint64) []byte { return b.text.at(uint32(word>>32), uint32(word)) }

// MemorySize estimates the bytes of heap that the batch holds.
func (b *Batch) MemorySize() int64 { return b.memory }

// countMemory is for whoever has just made the batch.
func (b *Batch) countMemory() int64 {
	n := 256 + cap(b.rows)*32 + cap(b.values)*8 + b.text.size()
	for i := range b.series {
		n += 88 + len(b.series[i].Stream) + len(b.series[i].Sensor)
		for _, t := range b.series[i].Tags {
			n += 32 + len(t.Name) + len(t.Value)
		}
	}
	for i := range b.shapes {
		n += 48 + 24*len(b.shapes[i].Fields) + len(b.shapes[i].key)
	}
	return int64(n)
}

// Reading returns row i in its plain form, for the paths where speed does not
// matter.
func (b *Batch) Reading(i uint32) telemetry.Reading {
	r := b.Row(i)
	s := b.Series(r)
	out := telemetry.Reading{Sensor: s.Sensor, Time: time.UnixMilli(r.Time).UTC(), Tags: s.Tags}
	words := b.Values(r)
	for f, ft := range b.Shape(r).Fields {
		out.Fields = append(out.Fields, telemetry.Field{Name: ft.Name, Value: b.value(ft.Kind, words[f])})
	}
	return out
}

func (b *Batch) value(kind telemetry.Kind, word uint64) telemetry.Value {
	switch kind {
	case telemetry.Int:
		return telemetry.IntValue(int64(word))
	case telemetry.Bool:
		return telemetry.BoolValue(word != 0)
	case telemetry.Text:
		return telemetry.TextValue(string(b.Text(word)))
	default:
		return telemetry.FloatValue(math.Float64frombits(word))
	}
}
