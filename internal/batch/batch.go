// Package batch is the compact form of one request's readings, from the server that
// decodes them to the store that writes them. Readings are rows; what repeats (the
// sensor with its tags, the list of field names) is kept once and referred to by
// number, so that a row costs 32 bytes, and each value eight.
//
// An Interner remembers sensors with their tags, and lists of names, from request to
// request; batches share them. A Batch is built by one goroutine with a Builder and
// is read-only from then on; any number of goroutines may read it.
//
//	batch.go     Batch
//	builder.go   Builder: the rules for readings
//	series.go    sensors, lists of fields, Interner
//	session.go   names of sessions, _ids of readings
//	encoding.go  the form in the journal
//	packed.go    a sensor's readings while they wait
//	pending.go   what a lane hands to a store
//	arena.go     memory for the fields of readings that are read back
//	journal.go   what requests, the journal and its followers exchange
package batch

import (
	"math"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Batch holds the accepted readings of one request, in their order.
type Batch struct {
	Received time.Time // arrival of the request

	// The journal sets these once. Row i has the sequence FirstSeq + i, if the batch is
	// not a part of a larger one.
	Session   string
	FirstSeq  uint64
	Tracker   Tracker // nil if nothing waits for the rows to be stored
	Recovered bool    // journaled by an earlier process, which may have sent the rows

	rows   []Row
	series []seriesRef
	shapes []*Shape
	values []uint64
	text   texts
	memory int64

	// granularity is that of a stream when the readings were journaled.
	granularity func(stream string) time.Duration

	// places are the numbers of the rows in the batch that this is a part of; nil: it
	// is the whole.
	places []uint32

	// arrivals are the arrival times of the rows, in milliseconds since the epoch, if they are
	// from several requests; nil: all arrived at Received.
	arrivals []int64
}

// A seriesRef is a series of a batch, with its hash beside it: a lane finds its rows
// without a cache miss for each series.
type seriesRef struct {
	*Series
	hash uint64
}

// A Tracker follows the rows of its batch until all are stored. It is called by
// several goroutines.
type Tracker interface {
	// Released says that n more rows are stored, or refused and kept as dead letters.
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

// Len returns the number of readings.
func (b *Batch) Len() int { return len(b.rows) }

// Row returns reading i.
func (b *Batch) Row(i uint32) *Row { return &b.rows[i] }

// Series returns the sensor of row r.
func (b *Batch) Series(r *Row) *Series { return b.series[r.series].Series }

// SeriesNumber returns which of the batch's series row r belongs to; numbers
// count from 0 to SeriesLen()-1.
func (b *Batch) SeriesNumber(r *Row) uint32 { return r.series }

// SeriesLen returns the number of series that the batch lists. One may be listed
// more than once.
func (b *Batch) SeriesLen() int { return len(b.series) }

// SeriesAt returns the series with number i.
func (b *Batch) SeriesAt(i int) *Series { return b.series[i].Series }

// HashAt returns the Hash of the series with number i.
func (b *Batch) HashAt(i int) uint64 { return b.series[i].hash }

// Granularity returns that of a stream when the readings were journaled; 0: the
// stream's present one.
func (b *Batch) Granularity(stream string) time.Duration {
	if b.granularity == nil {
		return 0
	}
	return b.granularity(stream)
}

// SetGranularity sets what Granularity returns. It is called before other goroutines
// have the batch.
func (b *Batch) SetGranularity(of func(stream string) time.Duration) { b.granularity = of }

// Shape returns the fields of row r. Rows of equal shape have the same pointer, in one
// batch always and in several mostly.
func (b *Batch) Shape(r *Row) *Shape { return b.shapes[r.shape] }

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

// countMemory estimates what MemorySize returns; own are the bytes of series and
// shapes that were made for this batch.
func (b *Batch) countMemory(own int) int64 {
	return int64(batchBytes + cap(b.rows)*rowBytes + cap(b.values)*valueSize + b.text.size() +
		len(b.series)*16 + len(b.shapes)*8 + own)
}

// What a batch takes in memory, and a row without its values.
const (
	batchBytes = 256
	rowBytes   = 32
)

// Reading returns row i in its plain form, where speed does not matter.
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

// textChunk is the length of a chunk of strings. Strings are far shorter, and none
// crosses the end of its chunk.
const textChunk = 1 << 20

// texts holds the strings of a batch. It grows by whole chunks, since moving
// tens of megabytes to a larger array would need both at once.
type texts struct {
	chunks [][]byte
	first  int // capacity of the first chunk; 0: unknown
}

// add copies s and returns its position: the number of its chunk times
// textChunk, plus its place in there.
func (t *texts) add(s []byte) uint32 {
	last := len(t.chunks) - 1
	// Not even an empty string may begin at the end of a chunk: that is the position
	// of the next one.
	if last < 0 || len(t.chunks[last])+max(len(s), 1) > textChunk {
		size := textChunk
		if last < 0 {
			size = t.first // most batches have little text
		}
		t.chunks = append(t.chunks, make([]byte, 0, size))
		last++
	}
	at := len(t.chunks[last])
	t.chunks[last] = append(t.chunks[last], s...)
	return uint32(last*textChunk + at)
}

// at returns the n bytes at a position.
func (t *texts) at(position, n uint32) []byte {
	from := position % textChunk
	return t.chunks[position/textChunk][from : from+n : from+n]
}

// A textMark is a length of a texts.
type textMark struct{ chunks, last int }

func (t *texts) mark() textMark {
	n := len(t.chunks)
	if n == 0 {
		return textMark{}
	}
	return textMark{chunks: n, last: len(t.chunks[n-1])}
}

// cut removes what was added after the mark.
func (t *texts) cut(m textMark) {
	clear(t.chunks[m.chunks:])
	t.chunks = t.chunks[:m.chunks]
	if m.chunks > 0 {
		t.chunks[m.chunks-1] = t.chunks[m.chunks-1][:m.last]
	}
}

// size returns the bytes that are allocated.
func (t *texts) size() int {
	n := 0
	for _, c := range t.chunks {
		n += cap(c)
	}
	return n
}
