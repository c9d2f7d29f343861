package batch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Builder makes a Batch, reading by reading, and is the one place that applies the
// rules of package telemetry, whatever protocol a reading arrived by:
//
//	b.Begin(stream, index, times)
//	b.Sensor(id); b.Tag(name, value); b.Float(name, v); …   // in any order
//	b.Time(ms)                                              // optional; default: Received
//	err := b.End()
//
// Instead of sensor and tags, SameSeries repeats those of an earlier reading.
//
// A reading that breaks a rule leaves nothing in the batch; End names the first rule
// that it broke. The builder copies the bytes that it is given.
type Builder struct {
	// MapDots replaces dots in names of fields and tags; 0 refuses such names.
	MapDots byte
	// AllowSensor says why readings of a sensor are refused, nil if they are not;
	// nil: all sensors are allowed.
	AllowSensor func(sensor string) *telemetry.Refusal
	// Fields are those that the following readings may have; nil: any.
	Fields *FieldList
	// Dropped counts the fields that were left out.
	Dropped int
	// DefaultTime is the time of readings without one, in milliseconds; 0: Received.
	DefaultTime int64

	interner *Interner
	batch    *Batch
	rows     []Row    // scratch; the batch gets a copy of the right size
	values   []uint64 // likewise
	own      int      // bytes of series and shapes that were made for this batch

	// listed says which of the batch's series a series is, in a slot by its hash.
	// One that lost its slot to another is listed again. The batch's first series
	// needs no slot.
	listed  []listing
	request uint32 // that the slots belong to, see unlist
	shapeAt map[*Shape]uint32
	last    *Shape     // of the last reading, maybe of another request
	lastOf  *FieldList // that the last reading was checked against
	partial bool       // fields were left out of that reading

	allowed *Series // the last one that AllowSensor let pass

	// The reading under construction.
	stream    string
	times     telemetry.TimeRange
	row       Row
	timed     bool
	refusal   *telemetry.Refusal
	textMark  textMark
	sensor    []byte
	hasSensor bool
	tags      []byte // name and value pairs, each with its length in front
	tagCount  int
	same      *Series // given by SameSeries
	leftOut   int     // fields that are not in Fields

	// While fields arrive as they did in the last reading, they are only
	// compared with its shape. The first that differs moves them to fieldKey.
	guess    *Shape
	matched  int
	fieldKey []byte // kind, length and name of each field; in use if guess is nil
	nameBuf  []byte
	seen     map[string]struct{} // names of the shape at hand
	keyBuf   []byte
}

// A listing is a series and its number in the batch of a request.
type listing struct {
	series  *Series
	number  uint32
	request uint32
}

const (
	listedSlots = 1 << 12
	listedWays  = 4 // slots where a series may be
	// maxScratch is how many rows, and tenfold values, a builder keeps room for.
	maxScratch = 16 << 10
	// maxShapes is how many shapes of a request leave no trace in a builder.
	maxShapes = 64
)

// NewBuilder returns a builder that remembers nothing of other requests, for the
// readings of one that arrived at received.
func NewBuilder(received time.Time) *Builder {
	return NewInterner(0).Builder(received)
}

// reset makes the builder begin a batch.
func (b *Builder) reset(received time.Time) {
	b.batch = &Batch{Received: received}
	b.MapDots, b.own, b.DefaultTime, b.Dropped = 0, 0, 0, 0
	b.rows, b.values = b.rows[:0], b.values[:0]
	clear(b.shapeAt)
	b.unlist()
}

// Batch returns what was built. The builder must not be used afterwards.
func (b *Builder) Batch() *Batch {
	made := b.batch
	made.rows = append(make([]Row, 0, len(b.rows)), b.rows...)
	made.values = append(make([]uint64, 0, len(b.values)), b.values...)
	made.memory = made.countMemory(b.own)
	b.Release()
	return made
}

// Release gives back a builder whose batch is not wanted. Like every other
// method, it must not be called after Batch.
func (b *Builder) Release() {
	b.batch, b.same, b.guess, b.refusal, b.allowed, b.AllowSensor, b.Fields = nil, nil, nil, nil, nil, nil, nil
	if cap(b.rows) > maxScratch || cap(b.values) > 10*maxScratch {
		b.rows, b.values = nil, nil
	}
	if len(b.shapeAt) > maxShapes {
		b.shapeAt = make(map[*Shape]uint32) // clearing a large one takes long ever after
	}
	b.interner.builders.Put(b)
}

// Len returns the number of readings taken so far.
func (b *Builder) Len() int { return len(b.rows) }

// Size is roughly how many bytes the readings so far take.
func (b *Builder) Size() int64 {
	return int64(len(b.rows)*rowBytes + len(b.values)*valueSize + b.batch.text.size())
}

// Begin starts a reading of the stream: the index-th of its request, whose
// timestamp must lie in times.
func (b *Builder) Begin(stream string, index int, times telemetry.TimeRange) {
	b.stream, b.times = stream, times
	b.row = Row{Index: uint32(index), offset: uint32(len(b.values))}
	b.timed, b.refusal, b.textMark = false, nil, b.batch.text.mark()
	b.sensor, b.hasSensor, b.tags, b.tagCount, b.same, b.leftOut = b.sensor[:0], false, b.tags[:0], 0, nil, 0
	b.matched, b.fieldKey, b.guess = 0, b.fieldKey[:0], b.last
	if b.lastOf != b.Fields {
		b.guess = nil // it may have fields that this stream does not allow
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

// LastSeries returns the series of the last reading in the batch, for
// SameSeries. There must be one.
func (b *Builder) LastSeries() *Series { return b.batch.Series(&b.rows[len(b.rows)-1]) }

// SameSeries gives the sensor and the tags at once, and the stream, which must
// be the one that the reading was begun with.
func (b *Builder) SameSeries(s *Series) { b.same = s }

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
	mark := b.batch.text.mark()
	at := b.batch.text.add(v)
	if b.field(name, telemetry.Text, uint64(at)<<32|uint64(len(v))) {
		b.row.Size += uint32(len(v))
	} else {
		b.batch.text.cut(mark)
	}
}

// Add adds a field in its plain form, for the paths where speed does not matter.
func (b *Builder) Add(f telemetry.Field) {
	switch name := []byte(f.Name); f.Value.Kind() {
	case telemetry.Int:
		b.Int(name, f.Value.Int())
	case telemetry.Bool:
		b.Bool(name, f.Value.Bool())
	case telemetry.Text:
		b.Text(name, []byte(f.Value.Text()))
	default:
		b.Float(name, f.Value.Float())
	}
}

// field adds a field, and reports whether it is in the reading.
func (b *Builder) field(name []byte, kind telemetry.Kind, word uint64) bool {
	if b.refusal != nil {
		return false
	}
	if len(b.values)-int(b.row.offset)+b.leftOut >= telemetry.MaxFields {
		b.Refuse(telemetry.Refuse(telemetry.FieldsTooMany, "the reading has more than %d fields", telemetry.MaxFields))
		return false
	}
	name = b.undot(name)
	if b.guess != nil && b.matched < len(b.guess.Fields) {
		if f := &b.guess.Fields[b.matched]; f.Kind == kind && f.Name == string(name) {
			b.matched++
			b.values = append(b.values, word)
			return true
		}
	}
	if b.Fields != nil && !b.isListed(name) {
		return false
	}
	if b.guess != nil {
		b.dropGuess()
	}
	// Long names are refused here, since a key holds two bytes of length.
	if len(name) > telemetry.MaxNameBytes {
		b.Refuse(telemetry.CheckFieldName(name))
		return false
	}
	b.fieldKey = appendSized(append(b.fieldKey, byte(kind)), name)
	b.values = append(b.values, word)
	return true
}

// isListed reports whether a name is in Fields. If not, the field is left out, or the
// reading is refused.
func (b *Builder) isListed(name []byte) bool {
	if _, ok := b.Fields.names[string(name)]; ok {
		return true
	}
	if r := telemetry.CheckFieldName(name); r != nil {
		b.Refuse(r)
	} else if !b.Fields.drop {
		b.Refuse(telemetry.Refuse(telemetry.FieldNotAllowed, "field %s is not allowed in stream %s; allowed: %s", telemetry.Quote(name), b.stream, b.Fields.text))
	}
	b.leftOut++
	return false
}

// dropGuess writes down the fields that matched the last reading's shape.
func (b *Builder) dropGuess() {
	for _, f := range b.guess.Fields[:b.matched] {
		b.fieldKey = appendSizedText(append(b.fieldKey, byte(f.Kind)), f.Name)
	}
	b.guess = nil
}

// End finishes the reading: it is in the batch, or the refusal says why not.
func (b *Builder) End() *telemetry.Refusal {
	b.finish()
	if b.refusal != nil {
		b.Undo()
		return b.refusal
	}
	b.rows = append(b.rows, b.row)
	return nil
}

// Undo forgets the reading under construction: it leaves no trace, and there is
// no End for it.
func (b *Builder) Undo() {
	b.values = b.values[:b.row.offset]
	b.batch.text.cut(b.textMark)
}

// Truncate drops all readings but the first n, and series that only the others have.
func (b *Builder) Truncate(n int) {
	if n >= len(b.rows) {
		return
	}
	b.values = b.values[:b.rows[n].offset]
	b.rows = b.rows[:n]
	b.last = nil // it was the shape of a reading that is gone
	kept := 0
	for i := range b.rows {
		kept = max(kept, int(b.rows[i].series)+1)
	}
	b.batch.series = b.batch.series[:kept]
	b.unlist()
}

// unlist empties all slots. Series that are in the batch may be listed again.
func (b *Builder) unlist() {
	if b.request++; b.request == 0 {
		clear(b.listed)
		b.request = 1
	}
}

func (b *Builder) finish() {
	if b.refusal != nil {
		return
	}
	if !b.hasSensor && b.same == nil {
		b.refusal = telemetry.CheckSensor(nil)
		return
	}
	if !b.timed {
		if b.row.Time = b.DefaultTime; b.DefaultTime == 0 {
			b.row.Time = b.batch.Received.UnixMilli()
		}
	}
	if b.refusal = b.times.CheckTime(b.row.Time); b.refusal != nil {
		return
	}
	if len(b.values) == int(b.row.offset) {
		b.refusal = telemetry.Refuse(telemetry.FieldsMissing, "the reading has no fields; at least one is needed")
		if b.leftOut > 0 {
			b.refusal = telemetry.Refuse(telemetry.FieldsMissing, "the reading has no field that stream %s takes; allowed: %s", b.stream, b.Fields.text)
		}
		return
	}
	shape, series := b.findShape(), b.same
	if b.refusal == nil && series == nil {
		series = b.findSeries()
	}
	if b.refusal == nil && b.AllowSensor != nil && series != b.allowed {
		if b.refusal = b.AllowSensor(series.Sensor); b.refusal == nil {
			b.allowed = series
		}
	}
	if b.refusal != nil {
		return
	}
	b.row.Size += shape.size
	b.row.shape, b.row.series = b.listShape(shape), b.listSeries(series)
	b.partial = b.leftOut > 0
	b.Dropped += b.leftOut
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

// listSeries returns the number that the batch has for the series.
func (b *Builder) listSeries(s *Series) uint32 {
	if len(b.batch.series) == 0 {
		b.batch.series = append(b.batch.series, seriesRef{s, s.Hash})
	}
	if b.batch.series[0].Series == s {
		return 0
	}
	if b.listed == nil {
		b.listed = make([]listing, listedSlots)
	}
	// Where the series may be.
	set := b.listed[s.Hash%listedSlots&^(listedWays-1):][:listedWays]
	to := &set[s.Hash>>32%listedWays]
	for i := range set {
		if l := &set[i]; l.request != b.request {
			to = l
		} else if l.series == s {
			return l.number
		}
	}
	*to = listing{series: s, number: uint32(len(b.batch.series)), request: b.request}
	b.batch.series = append(b.batch.series, seriesRef{s, s.Hash})
	return to.number
}

// listShape returns the number that the batch has for the shape.
func (b *Builder) listShape(s *Shape) uint32 {
	b.lastOf = b.Fields
	if n := len(b.rows); n > 0 && b.last == s {
		return b.rows[n-1].shape
	}
	b.last = s
	at, ok := b.shapeAt[s]
	if !ok {
		at = uint32(len(b.batch.shapes))
		b.batch.shapes = append(b.batch.shapes, s)
		b.shapeAt[s] = at
	}
	return at
}

// findShape returns the reading's shape; if it has none, it is refused.
func (b *Builder) findShape() *Shape {
	if b.guess != nil {
		if b.matched == len(b.guess.Fields) {
			return b.guess
		}
		b.dropGuess()
	}
	if _, s := b.interner.find(keyShape, b.fieldKey); s != nil {
		return s
	}
	shape := parseShape(string(b.fieldKey), make([]FieldType, 0, len(b.values)-int(b.row.offset)))
	clear(b.seen)
	for _, f := range shape.Fields {
		b.nameBuf = append(b.nameBuf[:0], f.Name...)
		if b.refusal = telemetry.CheckFieldName(b.nameBuf); b.refusal != nil {
			return nil
		}
		if _, twice := b.seen[f.Name]; twice {
			b.refusal = telemetry.Refuse(telemetry.FieldDuplicate, "field %s is given twice", telemetry.Quote(b.nameBuf))
			return nil
		}
		b.seen[f.Name] = struct{}{}
	}
	b.interner.add(keyShape, shape.key, nil, shape)
	b.own += shape.memory()
	return shape
}

// findSeries returns the reading's series; if its tags are wrong, it is refused.
func (b *Builder) findSeries() *Series {
	b.keyBuf = appendSized(appendSizedText(b.keyBuf[:0], b.stream), b.sensor)
	b.keyBuf = binary.LittleEndian.AppendUint16(b.keyBuf, uint16(b.tagCount))
	b.keyBuf = append(b.keyBuf, b.tags...)
	if s, _ := b.interner.find(keySeries, b.keyBuf); s != nil {
		return s
	}
	encoded, tags := sortTags(b.stream, b.sensor, b.tags)
	for i := 1; i < len(tags); i++ {
		if bytes.Equal(tags[i].name, tags[i-1].name) {
			b.refusal = telemetry.Refuse(telemetry.TagDuplicate, "tag %s is given twice", telemetry.Quote(tags[i].name))
			return nil
		}
	}
	if bytes.Equal(encoded, b.keyBuf) {
		return b.makeSeries(encoded)
	}
	s, _ := b.interner.find(keySeries, encoded)
	if s == nil {
		s = b.makeSeries(encoded)
	}
	if s != nil {
		b.interner.add(keySeries, string(b.keyBuf), s, nil)
	}
	return s
}

// makeSeries makes the series that was just encoded, and remembers it.
func (b *Builder) makeSeries(encoded []byte) *Series {
	s, err := newSeries(string(encoded))
	if err != nil {
		b.refusal = telemetry.Refuse(telemetry.Malformed, "the sensor cannot be kept: %v", err)
		return nil
	}
	b.interner.add(keySeries, s.encoded, s, nil)
	b.own += s.memory()
	return s
}

// A FieldList names the fields that readings of a stream may have. It never changes.
type FieldList struct {
	names map[string]struct{}
	text  string // the names, for messages
	drop  bool
}

// NewFieldList returns a list of at least one name. If drop is set, other fields are
// left out of their readings; otherwise readings with other fields are refused.
func NewFieldList(names []string, drop bool) *FieldList {
	const most = 20 // in a message
	l := &FieldList{names: make(map[string]struct{}, len(names)), drop: drop}
	for _, name := range names {
		l.names[name] = struct{}{}
	}
	l.text = strings.Join(names[:min(len(names), most)], ", ")
	if len(names) > most {
		l.text += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return l
}

// LastShape returns the shape of the last reading in the batch, for Columns; nil if
// fields were left out of it. There must be one.
func (b *Builder) LastShape() *Shape {
	if b.partial {
		return nil
	}
	return b.last
}

// Expected returns the shape that the current reading will have if it is like the last
// one, or nil if that is unknown. It may be called only before the first field.
func (b *Builder) Expected() *Shape { return b.guess }

// Columns gives all fields of a reading at once, none of them a Text. Their words,
// which Values returns, are in the columns of a table: that of field i is
// words[i*rows+row]. No other call may give fields of that reading.
func (b *Builder) Columns(s *Shape, words []uint64, rows, row int) {
	if b.refusal != nil {
		return
	}
	for i := range s.Fields {
		word := words[i*rows+row]
		if s.Fields[i].Kind == telemetry.Float && word>>52&0x7ff == 0x7ff { // infinite or NaN
			b.Refuse(telemetry.CheckFloat([]byte(s.Fields[i].Name), math.Float64frombits(word)))
			return
		}
		b.values = append(b.values, word)
	}
	b.guess, b.matched = s, len(s.Fields)
}
