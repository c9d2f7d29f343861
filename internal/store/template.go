package store

import (
	"encoding/binary"
	"slices"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Template is the BSON document {ts, fields…} of one shape with its values
// left open. All of a reading's bytes but the values are those of its shape,
// so a reading is a copy of the template with the values written over it:
//
//	length │ 09 "ts" 0 ········ │ 12 "t" 0 ········ │ 01 "h" 0 ········ │ 0
//	                   └ time              └ word              └ word
//
// Shapes with strings have no fixed length; their readings are appended field
// by field.
type Template struct {
	document []byte
	words    []hole // values of eight bytes
	bools    []hole // values of one byte
	texts    bool   // there are strings, the rest is not in use
}

// A hole is where a value goes.
type hole struct {
	at    uint32 // in the document
	value uint32 // which of the reading's words
}

const (
	timeAt   = 4 + 1 + len(TimeKey) + 1 // length, type, key
	fieldsAt = timeAt + 8
)

// NewTemplate makes the template of a shape's fields.
func NewTemplate(fields []batch.FieldType) *Template {
	t := &Template{}
	at, doc := bsoncore.AppendDocumentStart(nil)
	doc = bsoncore.AppendDateTimeElement(doc, TimeKey, 0)
	for i, f := range fields {
		h := hole{at: uint32(len(doc) + 1 + len(f.Name) + 1), value: uint32(i)}
		switch f.Kind {
		case telemetry.Text:
			return &Template{texts: true}
		case telemetry.Bool:
			doc = bsoncore.AppendBooleanElement(doc, f.Name, false)
			t.bools = append(t.bools, h)
		case telemetry.Int:
			doc = bsoncore.AppendInt64Element(doc, f.Name, 0)
			t.words = append(t.words, h)
		default:
			doc = bsoncore.AppendDoubleElement(doc, f.Name, 0)
			t.words = append(t.words, h)
		}
	}
	t.document, _ = bsoncore.AppendDocumentEnd(doc, at) // fails only for an offset beyond doc
	return t
}

// AppendDocument appends the reading as a document of its time and its fields.
// The row must have the shape that the template was made of.
func (t *Template) AppendDocument(dst []byte, b *batch.Batch, row *batch.Row) []byte {
	if t.texts {
		at, dst := bsoncore.AppendDocumentStart(dst)
		dst = bsoncore.AppendDateTimeElement(dst, TimeKey, row.Time)
		dst, _ = bsoncore.AppendDocumentEnd(AppendFields(dst, b, row), at)
		return dst
	}
	from := len(dst)
	dst = append(dst, t.document...)
	doc := dst[from:]
	binary.LittleEndian.PutUint64(doc[timeAt:], uint64(row.Time))
	t.fill(doc, 0, b.Values(row))
	return dst
}

// AppendFields appends only the fields, as elements: what AppendFields of this
// package does.
func (t *Template) AppendFields(dst []byte, b *batch.Batch, row *batch.Row) []byte {
	if t.texts {
		return AppendFields(dst, b, row)
	}
	from := len(dst)
	dst = append(dst, t.document[fieldsAt:len(t.document)-1]...)
	t.fill(dst[from:], fieldsAt, b.Values(row))
	return dst
}

// fill writes the values into doc, which begins skipped bytes into the
// template. Words of doubles are already in BSON's form.
func (t *Template) fill(doc []byte, skipped int, values []uint64) {
	for _, h := range t.words {
		binary.LittleEndian.PutUint64(doc[int(h.at)-skipped:], values[h.value])
	}
	for _, h := range t.bools {
		at := int(h.at) - skipped
		if doc[at] = 0; values[h.value] != 0 {
			doc[at] = 1
		}
	}
}

// Shapes keeps what was made of the shapes that were met last. Equal shapes
// are mostly the same pointer, in all batches, and are found by it; where they
// are not, something is made again. It is for one goroutine at a time.
type Shapes[T any] struct {
	build func([]batch.FieldType) *T

	last   *batch.Shape
	made   *T                  // of last
	known  map[*batch.Shape]*T // holds the shapes, so that no pointer comes to mean another
	fields int                 // of the shapes in known
}

// NewShapes returns an empty one, with what is to be made of a shape's fields.
func NewShapes[T any](build func([]batch.FieldType) *T) *Shapes[T] {
	return &Shapes[T]{build: build}
}

// knownFields is how many fields the known shapes have at most: some 400 shapes
// of ten fields, half a megabyte.
const knownFields = 4096

// Of returns what was made of the shape.
func (c *Shapes[T]) Of(shape *batch.Shape) *T {
	if shape != c.last {
		c.made = c.find(shape)
		c.last = shape
	}
	return c.made
}

func (c *Shapes[T]) find(shape *batch.Shape) *T {
	if made, ok := c.known[shape]; ok {
		return made
	}
	made := c.made
	if c.last == nil || !slices.Equal(c.last.Fields, shape.Fields) {
		made = c.build(shape.Fields)
	}
	if c.fields += len(shape.Fields); c.known == nil || c.fields > knownFields {
		c.known, c.fields = make(map[*batch.Shape]*T), len(shape.Fields)
	}
	c.known[shape] = made
	return made
}
