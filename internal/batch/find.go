package batch

import (
	"bytes"
	"encoding/binary"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// This file finds the series and the shape of the reading under construction, and
// their places in its batch.

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
	if s := b.interner.shapeOf(b.fieldKey); s != nil {
		return s
	}
	shape, refusal := b.newShape(string(b.fieldKey))
	if b.refusal = refusal; refusal != nil {
		return nil
	}
	b.interner.setShape(shape)
	b.own += shape.memory()
	return shape
}

// newShape returns the shape that key describes. Its names are parts of the
// key, so that a shape costs two allocations however many fields it has.
func (b *Builder) newShape(key string) (*Shape, *telemetry.Refusal) {
	shape := &Shape{key: key, Fields: make([]FieldType, 0, len(b.values)-int(b.row.offset))}
	clear(b.seen)
	for rest := key; rest != ""; {
		kind, n := telemetry.Kind(rest[0]), int(rest[1])|int(rest[2])<<8 // as appendSized wrote it
		name := rest[3 : 3+n]
		rest = rest[3+n:]
		b.nameBuf = append(b.nameBuf[:0], name...)
		if r := telemetry.CheckFieldName(b.nameBuf); r != nil {
			return nil, r
		}
		if _, twice := b.seen[name]; twice {
			return nil, telemetry.Refuse(telemetry.FieldDuplicate, "field %s is given twice", telemetry.Quote(b.nameBuf))
		}
		b.seen[name] = struct{}{}
		shape.Fields = append(shape.Fields, FieldType{Name: name, Kind: kind})
		shape.size += elementSize(kind, len(name))
	}
	return shape, nil
}

// findSeries returns the reading's series; if its tags are wrong, it is refused.
func (b *Builder) findSeries() *Series {
	b.keyBuf = appendSized(appendSizedText(b.keyBuf[:0], b.stream), b.sensor)
	b.keyBuf = binary.LittleEndian.AppendUint16(b.keyBuf, uint16(b.tagCount))
	b.keyBuf = append(b.keyBuf, b.tags...)
	if s := b.interner.seriesOf(b.keyBuf); s != nil {
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
	s := b.interner.seriesOf(encoded)
	if s == nil {
		s = b.makeSeries(encoded)
	}
	if s != nil {
		b.interner.setSeries(string(b.keyBuf), s)
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
	b.interner.setSeries(s.encoded, s)
	b.own += s.memory()
	return s
}
