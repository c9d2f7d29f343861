package batch

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Builder makes a Batch, reading by reading, and is the one place where the
// rules of package telemetry are applied, whatever protocol a reading came by:
//
//	b.Begin(stream, index, times)
//	b.Sensor(id); b.Tag(name, value); b.Float(name, v); …   // in any order
//	b.Time(ms)                                              // or not: then Received
//	err := b.End()
//
// Instead of sensor and tags, SameSeries repeats those of an earlier reading.
//
// A reading that breaks a rule leaves no trace in the batch; End names the
// first rule that it broke. The builder copies whatever bytes it is given.
type Builder struct {
	// MapDots replaces dots in names of fields and tags; 0 refuses such names.
	MapDots byte

	batch     *Batch
	seriesKey map[string]uint32
	shapeKey  map[string]uint32

	// The reading under construction.
	stream    string
	times     telemetry.TimeRange
	row       Row
	timed     bool
	refusal   *telemetry.Refusal
	textMark  textMark
	sensor    []byte // nil until given
	hasSensor bool
	tags      []byte // name and value pairs, each with its length in front
	tagCount  int
	same      bool // row.series was given by SameSeries

	// While fields arrive as they did in the last reading, they are only
	// compared with its shape. The first that differs moves them to fieldKey.
	guess    *Shape
	guessAt  uint32
	matched  int
	fieldKey []byte // kind, length and name of each field; in use if guess is nil
	nameBuf  []byte
	seen     map[string]struct{} // names of the shape at hand
	keyBuf   []byte
}

// NewBuilder returns a builder for the readings of a request that arrived at
// received.
func NewBuilder(received time.Time) *Builder {
	return &Builder{
		batch:     &Batch{Received: received},
		seriesKey: make(map[string]uint32),
		shapeKey:  make(map[string]uint32),
		seen:      make(map[string]struct{}),
	}
}

// Batch returns what was built. The builder must not be used afterwards.
func (b *Builder) Batch() *Batch {
	b.batch.memory = b.batch.countMemory()
	return b.batch
}

// Len returns the number of readings taken so far.
func (b *Builder) Len() int { return len(b.batch.rows) }

// Begin starts a reading of the stream: the index-th of its request, whose
// timestamp must lie in times.
func (b *Builder) Begin(stream string, index int, times telemetry.TimeRange) {
	b.stream, b.times = stream, times
	b.row = Row{Index: uint32(index), offset: uint32(len(b.batch.values))}
	b.timed, b.refusal, b.textMark = false, nil, b.batch.text.mark()
	b.sensor, b.hasSensor, b.tags, b.tagCount, b.same = b.sensor[:0], false, b.tags[:0], 0, false
	b.matched, b.fieldKey, b.guess = 0, b.fieldKey[:0], nil
	if n := len(b.batch.rows); n > 0 {
		b.guessAt = b.batch.rows[n-1].shape
		b.guess = &b.batch.shapes[b.guessAt]
	}
}

// Refuse notes that the reading broke a rule that only its decoder could see.
func (b *Builder) Refuse(r *telemetry.Refusal) {
	if b.refusal == nil {
		b.refusal = r
	}
}

// Refused reports whether the reading broke a rule already.
func (b *Builder) Refused() bool { return b.refusal != nil }

// Sensor gives the sensor id.
func (b *Builder) Sensor(id []byte) {
	if r := telemetry.CheckSensor(id); r != nil {
		b.Refuse(r)
		return
	}
	b.sensor, b.hasSensor = append(b.sensor[:0], id...), true
}

// LastSeries returns the number of the series that the last reading in the
// batch belongs to, for SameSeries. There must be one.
func (b *Builder) LastSeries() uint32 { return b.batch.rows[len(b.batch.rows)-1].series }

// SameSeries gives the sensor and the tags at once, as the number of a series
// of this batch. Its stream must be the one that the reading was begun with.
func (b *Builder) SameSeries(number uint32) { b.row.series, b.same = number, true }

// Time gives the timestamp in milliseconds since the epoch.
func (b *Builder) Time(ms int64) { b.row.Time, b.timed = ms, true }

// Tag adds a tag.
func (b *Builder) Tag(name, value []byte) {
	name = b.undot(name)
	if r := telemetry.CheckTagName(name); r != nil {
		b.Refuse(r)
		return
	}
	if r := telemetry.CheckTagText(name, value); r != nil {
		b.Refuse(r)
		return
	}
	if b.tagCount++; b.tagCount > telemetry.MaxTags {
		b.Refuse(telemetry.Refuse(telemetry.TagsTooMany, "the reading has more than %d tags", telemetry.MaxTags))
		return
	}
	b.tags = appendSized(appendSized(b.tags, name), value)
}

// Float adds a field with a double, which must be finite.
func (b *Builder) Float(name []byte, v float64) {
	if r := telemetry.CheckFloat(name, v); r != nil {
		b.Refuse(r)
		return
	}
	b.field(name, telemetry.Float, math.Float64bits(v))
}

// Int adds a field with an integer.
func (b *Builder) Int(name []byte, v int64) { b.field(name, telemetry.Int, uint64(v)) }

// Bool adds a field with a boolean.
func (b *Builder) Bool(name []byte, v bool) {
	var word uint64
	if v {
		word = 1
	}
	b.field(name, telemetry.Bool, word)
}

// Text adds a field with a string.
func (b *Builder) Text(name, v []byte) {
	if r := telemetry.CheckFieldText(name, v); r != nil {
		b.Refuse(r)
		return
	}
	at := b.batch.text.add(v)
	b.row.Size += uint32(len(v))
	b.field(name, telemetry.Text, uint64(at)<<32|uint64(len(v)))
}

func (b *Builder) field(name []byte, kind telemetry.Kind, word uint64) {
	if b.refusal != nil {
		return
	}
	if len(b.batch.values)-int(b.row.offset) >= telemetry.MaxFields {
		b.Refuse(telemetry.Refuse(telemetry.FieldsTooMany, "the reading has more than %d fields", telemetry.MaxFields))
		return
	}
	name = b.undot(name)
	if b.guess != nil {
		if b.matched < len(b.guess.Fields) {
			if f := &b.guess.Fields[b.matched]; f.Kind == kind && f.Name == string(name) {
				b.matched++
				b.batch.values = append(b.batch.values, word)
				return
			}
		}
		b.dropGuess()
	}
	// Long names are refused here, since a key holds two bytes of length.
	if len(name) > telemetry.MaxNameBytes {
		b.Refuse(telemetry.CheckFieldName(name))
		return
	}
	b.fieldKey = appendSized(append(b.fieldKey, byte(kind)), name)
	b.batch.values = append(b.batch.values, word)
}

// dropGuess writes down the fields that matched the last reading's shape.
func (b *Builder) dropGuess() {
	for _, f := range b.guess.Fields[:b.matched] {
		b.fieldKey = append(b.fieldKey, byte(f.Kind))
		b.fieldKey = binary.LittleEndian.AppendUint16(b.fieldKey, uint16(len(f.Name)))
		b.fieldKey = append(b.fieldKey, f.Name...)
	}
	b.guess = nil
}

// End finishes the reading: it is in the batch, or the refusal says why not.
func (b *Builder) End() *telemetry.Refusal {
	b.finish()
	if b.refusal != nil {
		b.batch.values = b.batch.values[:b.row.offset]
		b.batch.text.cut(b.textMark)
		return b.refusal
	}
	b.batch.rows = append(b.batch.rows, b.row)
	return nil
}

func (b *Builder) finish() {
	if b.refusal != nil {
		return
	}
	if !b.hasSensor && !b.same {
		b.refusal = telemetry.CheckSensor(nil)
		return
	}
	if !b.timed {
		b.row.Time = b.batch.Received.UnixMilli()
	}
	if b.refusal = b.times.CheckTime(b.row.Time); b.refusal != nil {
		return
	}
	if len(b.batch.values) == int(b.row.offset) {
		b.refusal = telemetry.Refuse(telemetry.FieldsMissing, "the reading has no fields; at least one is needed")
		return
	}
	if b.row.shape, b.refusal = b.findShape(); b.refusal != nil {
		return
	}
	b.row.Size += b.batch.shapes[b.row.shape].size
	if !b.same {
		b.row.series, b.refusal = b.findSeries()
	}
}

func (b *Builder) findShape() (uint32, *telemetry.Refusal) {
	if b.guess != nil {
		if b.matched == len(b.guess.Fields) {
			return b.guessAt, nil
		}
		b.dropGuess()
	}
	if at, ok := b.shapeKey[string(b.fieldKey)]; ok {
		return at, nil
	}
	shape, refusal := b.newShape(string(b.fieldKey))
	if refusal != nil {
		return 0, refusal
	}
	at := uint32(len(b.batch.shapes))
	b.batch.shapes = append(b.batch.shapes, shape)
	b.shapeKey[shape.key] = at
	return at, nil
}

// newShape returns the shape that key describes. Its names are parts of the
// key, so that a shape costs two allocations however many fields it has.
func (b *Builder) newShape(key string) (Shape, *telemetry.Refusal) {
	shape := Shape{key: key, Fields: make([]FieldType, 0, len(b.batch.values)-int(b.row.offset))}
	clear(b.seen)
	for rest := key; rest != ""; {
		kind, n := telemetry.Kind(rest[0]), int(rest[1])|int(rest[2])<<8 // as appendSized wrote it
		name := rest[3 : 3+n]
		rest = rest[3+n:]
		b.nameBuf = append(b.nameBuf[:0], name...)
		if r := telemetry.CheckFieldName(b.nameBuf); r != nil {
			return Shape{}, r
		}
		if _, twice := b.seen[name]; twice {
			return Shape{}, telemetry.Refuse(telemetry.FieldDuplicate, "field %s is given twice", telemetry.Quote(b.nameBuf))
		}
		b.seen[name] = struct{}{}
		shape.Fields = append(shape.Fields, FieldType{Name: name, Kind: kind})
		shape.size += elementSize(kind, len(name))
	}
	return shape, nil
}

// elementSize is the length of a BSON element with a name of n bytes, without
// the bytes of a string.
func elementSize(kind telemetry.Kind, n int) uint32 {
	size := 1 + n + 1
	switch kind {
	case telemetry.Bool:
		size++
	case telemetry.Text:
		size += 4 + 1
	default:
		size += 8
	}
	return uint32(size)
}

func (b *Builder) findSeries() (uint32, *telemetry.Refusal) {
	b.keyBuf = appendSized(append(append(b.keyBuf[:0], b.stream...), 0), b.sensor)
	b.keyBuf = append(b.keyBuf, b.tags...)
	if at, ok := b.seriesKey[string(b.keyBuf)]; ok {
		return at, nil
	}
	s := Series{Stream: b.stream, Sensor: string(b.sensor)}
	for rest := b.tags; len(rest) > 0; {
		var name, value []byte
		name, rest = cutSized(rest)
		value, rest = cutSized(rest)
		s.Tags = append(s.Tags, telemetry.Tag{Name: string(name), Value: string(value)})
	}
	slices.SortFunc(s.Tags, func(x, y telemetry.Tag) int { return strings.Compare(x.Name, y.Name) })
	for i := 1; i < len(s.Tags); i++ {
		if s.Tags[i].Name == s.Tags[i-1].Name {
			return 0, telemetry.Refuse(telemetry.TagDuplicate, "tag %s is given twice", telemetry.Quote([]byte(s.Tags[i].Name)))
		}
	}
	at := uint32(len(b.batch.series))
	b.seriesKey[string(b.keyBuf)] = at
	s.hash(b.keyBuf[:0])
	b.batch.series = append(b.batch.series, s)
	return at, nil
}

// hash fills in the hashes; scratch saves it an allocation.
func (s *Series) hash(scratch []byte) {
	scratch = append(append(append(scratch, s.Stream...), 0), s.Sensor...)
	s.Hash = xxhash.Sum64(scratch)
	scratch = scratch[:0]
	for _, t := range s.Tags {
		scratch = append(append(scratch, t.Name...), 0)
		scratch = append(append(scratch, t.Value...), 0)
	}
	s.TagsHash = xxhash.Sum64(scratch)
}

// undot applies MapDots.
func (b *Builder) undot(name []byte) []byte {
	if b.MapDots == 0 || bytes.IndexByte(name, '.') < 0 {
		return name
	}
	b.nameBuf = append(b.nameBuf[:0], name...)
	for i, c := range b.nameBuf {
		if c == '.' {
			b.nameBuf[i] = b.MapDots
		}
	}
	return b.nameBuf
}

// appendSized appends s with its length in front; s has under 64 KiB.
func appendSized(dst, s []byte) []byte {
	return append(binary.LittleEndian.AppendUint16(dst, uint16(len(s))), s...)
}

func cutSized(b []byte) (s, rest []byte) {
	n := int(binary.LittleEndian.Uint16(b))
	return b[2 : 2+n], b[2+n:]
}
