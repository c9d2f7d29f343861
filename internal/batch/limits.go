package batch

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A FieldList names the fields that readings of a stream may have, and says what
// becomes of others. It never changes.
type FieldList struct {
	names map[string]struct{}
	text  string // the names, as messages bear them
	drop  bool
}

// NewFieldList returns a list of names, of which there must be some. If drop is
// set, other fields are left out of their readings; otherwise readings with one
// are refused.
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

// A choice is what a list makes of a shape.
type choice struct {
	list     *FieldList
	from, to *Shape
	kept     []int // fields of from that are those of to
	refusal  *telemetry.Refusal
}

// limit applies the rules that only some senders and streams are bound by, and
// returns the shape of what is left of the reading. What a series and a shape
// were told is not asked again while readings have the same ones.
func (b *Builder) limit(shape *Shape, series *Series) *Shape {
	if b.AllowSensor != nil && series != b.allowed {
		if b.refusal = b.AllowSensor(series.Sensor); b.refusal != nil {
			return nil
		}
		b.allowed = series
	}
	if b.Fields == nil {
		return shape
	}
	c := &b.choice
	if c.list != b.Fields || c.from != shape {
		*c = choice{list: b.Fields, from: shape, kept: c.kept[:0]}
		b.choose(c)
	}
	if b.refusal = c.refusal; b.refusal != nil {
		return nil
	}
	if c.to != c.from {
		b.keepValues(c)
	}
	return c.to
}

// choose fills in what the list makes of a shape.
func (b *Builder) choose(c *choice) {
	for i := range c.from.Fields {
		name := c.from.Fields[i].Name
		if _, ok := c.list.names[name]; ok {
			c.kept = append(c.kept, i)
		} else if !c.list.drop {
			c.refusal = telemetry.Refuse(telemetry.FieldNotAllowed, "field %s is not allowed in stream %s; allowed: %s",
				telemetry.Quote([]byte(name)), b.stream, c.list.text)
			return
		}
	}
	switch len(c.kept) {
	case len(c.from.Fields):
		c.to = c.from
	case 0:
		c.refusal = telemetry.Refuse(telemetry.FieldsMissing, "the reading has no field that stream %s takes; allowed: %s", b.stream, c.list.text)
	default:
		c.to, c.refusal = b.partOf(c.from, c.kept)
	}
}

// partOf returns the shape of some fields of another one.
func (b *Builder) partOf(s *Shape, fields []int) (*Shape, *telemetry.Refusal) {
	key := b.keyBuf[:0]
	for _, i := range fields {
		f := &s.Fields[i]
		key = binary.LittleEndian.AppendUint16(append(key, byte(f.Kind)), uint16(len(f.Name)))
		key = append(key, f.Name...)
	}
	b.keyBuf = key
	if known := b.interner.shapeOf(key); known != nil {
		return known, nil
	}
	made, refusal := b.newShape(string(key))
	if refusal != nil {
		return nil, refusal
	}
	b.interner.setShape(made)
	b.own += made.memory()
	return made, nil
}

// keepValues takes the values of other fields out of the reading.
func (b *Builder) keepValues(c *choice) {
	values := b.values[b.row.offset:]
	texts := b.keptTexts[:0]
	size, lost := 0, false // bytes of all strings that are kept; whether others are not
	next := 0
	for i := range c.from.Fields {
		kept := next < len(c.kept) && c.kept[next] == i
		if c.from.Fields[i].Kind == telemetry.Text {
			if kept {
				text := b.batch.Text(values[i])
				texts, size = append(texts, text), size+len(text)
			}
			lost = lost || !kept
		}
		if kept {
			values[next] = values[i]
			next++
		}
	}
	b.Dropped += len(c.from.Fields) - next
	b.values = b.values[:int(b.row.offset)+next]
	if lost {
		b.keepTexts(c.to, texts, size)
	}
	clear(texts)
	b.keptTexts = texts[:0]
}

// keepTexts makes these the only strings of the reading. They move towards the
// front of where they lie, so that none is written over before it has moved.
func (b *Builder) keepTexts(s *Shape, texts [][]byte, size int) {
	b.batch.text.cut(b.textMark)
	b.row.Size = uint32(size)
	values, next := b.values[b.row.offset:], 0
	for i := range s.Fields {
		if s.Fields[i].Kind == telemetry.Text {
			at := b.batch.text.add(texts[next])
			values[i] = uint64(at)<<32 | uint64(len(texts[next]))
			next++
		}
	}
}
