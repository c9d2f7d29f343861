package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TimeKey is the key of a reading's timestamp in every kind of document.
const TimeKey = "ts"

// SensorKey is the key under which a reading's document describes its sensor; no field can have
// that name, see telemetry.CheckFieldName. In a time series the value is {id, tags}. In a bucket,
// where the part has the tags of most readings, only readings whose tags differ from the part's
// have it: {tags}, or {} if the reading has no tags.
const SensorKey = "sensor"

// The key of tags, in a part and under SensorKey.
const tagsKey = "tags"

// AppendFields appends the fields of a reading as BSON elements, in their original
// order: exactly row.Size bytes.
func AppendFields(dst []byte, b *batch.Batch, row *batch.Row) []byte {
	words := b.Values(row)
	for i := range b.Shape(row).Fields {
		f := &b.Shape(row).Fields[i]
		var text []byte
		if f.Kind == telemetry.Text {
			text = b.Text(words[i])
		}
		dst = appendField(dst, f, words[i], text)
	}
	return dst
}

// AppendReadingFields appends fields as BSON elements.
func AppendReadingFields(dst []byte, fields []telemetry.Field) []byte {
	for i := range fields {
		v := fields[i].Value // of any kind, Int returns the bits
		dst = appendField(dst, &batch.FieldType{Name: fields[i].Name, Kind: v.Kind()}, uint64(v.Int()), []byte(v.Text()))
	}
	return dst
}

func appendField(dst []byte, f *batch.FieldType, word uint64, text []byte) []byte {
	switch f.Kind {
	case telemetry.Int:
		return bsoncore.AppendInt64Element(dst, f.Name, int64(word))
	case telemetry.Bool:
		return bsoncore.AppendBooleanElement(dst, f.Name, word != 0)
	case telemetry.Text:
		dst = bsoncore.AppendHeader(dst, bsoncore.TypeString, f.Name)
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(text)+1))
		return append(append(dst, text...), 0)
	default: // the words of doubles are already encoded as in BSON
		return binary.LittleEndian.AppendUint64(bsoncore.AppendHeader(dst, bsoncore.TypeDouble, f.Name), word)
	}
}

// AppendTags appends tags as one sub-document named tags, or nothing if there are
// none.
func AppendTags(dst []byte, tags []telemetry.Tag) []byte {
	if len(tags) == 0 {
		return dst
	}
	at, dst := bsoncore.AppendDocumentElementStart(dst, tagsKey)
	for _, t := range tags {
		dst = bsoncore.AppendStringElement(dst, t.Name, t.Value)
	}
	dst, _ = bsoncore.AppendDocumentEnd(dst, at) // fails only for an offset beyond dst
	return dst
}

// AppendOwnTags adds tags to a reading in a bucket, the document at the end of
// dst that begins at from: exactly OwnTagsSize bytes.
func AppendOwnTags(dst []byte, from int, tags []telemetry.Tag) []byte {
	at, dst := bsoncore.AppendDocumentElementStart(dst[:len(dst)-1], SensorKey)
	dst, _ = bsoncore.AppendDocumentEnd(AppendTags(dst, tags), at) // as above
	dst, _ = bsoncore.AppendDocumentEnd(dst, int32(from))
	return dst
}

// OwnTagsSize returns how many bytes a reading's own tags add.
func OwnTagsSize(tags []telemetry.Tag) int64 {
	const document = 4 + 1 // length, terminator
	n := 1 + len(SensorKey) + 1 + document
	if len(tags) > 0 {
		n += 1 + len(tagsKey) + 1 + document
	}
	for _, t := range tags {
		n += 1 + len(t.Name) + 1 + 4 + len(t.Value) + 1
	}
	return int64(n)
}

// SameTags reports whether tags, sorted by name, are the same.
func SameTags(a, b []telemetry.Tag) bool {
	// Series are shared, so usually both are the same slice.
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// A Decoder turns stored documents of one sensor back into readings. Most documents have the same
// keys and tags, so their readings share the strings. A Decoder is not safe for concurrent use.
type Decoder struct {
	Sensor string
	Fields []string // that are wanted; nil: all
	Skip   []string // keys that are not fields

	batch.Arena // for the fields of readings, see Reuse

	keys  []decoderKey    // by their index in the last document
	tags  []telemetry.Tag // of document
	under []byte          // the last tags document
}

type decoderKey struct {
	name   string
	wanted bool
}

// readingsPerAlloc is the number of readings that fields are allocated for at once.
const readingsPerAlloc = 32

// Reading returns the reading of a document, with the given tags unless it has its own.
func (d *Decoder) Reading(doc bson.Raw, tags []telemetry.Tag) (telemetry.Reading, error) {
	r := telemetry.Reading{Sensor: d.Sensor, Tags: tags}
	most := len(d.keys)
	if d.Fields != nil {
		most = min(most, len(d.Fields))
	}
	r.Fields = d.Take(most, readingsPerAlloc)
	err := EachElement(doc, func(i int, e bsoncore.Element) error {
		key := e.KeyBytes()
		if string(key) == TimeKey {
			if at, ok := e.Value().DateTimeOK(); ok {
				r.Time = time.UnixMilli(at).UTC()
				return nil
			}
		}
		if string(key) == SensorKey {
			if of, ok := e.Value().DocumentOK(); ok {
				r.Tags = d.Tags(bson.Raw(of).Lookup(tagsKey))
				return nil
			}
		}
		k := d.key(i, key)
		if !k.wanted {
			return nil
		}
		value, err := valueOf(e.Value())
		if err != nil {
			return fmt.Errorf("read stored field %q of sensor %q: %w", k.name, d.Sensor, err)
		}
		r.Fields = append(r.Fields, telemetry.Field{Name: k.name, Value: value})
		return nil
	})
	if r.Fields = d.Keep(r.Fields); len(r.Fields) == 0 {
		r.Fields = nil
	}
	return r, err
}

// key returns the decoderKey for the key at an index.
func (d *Decoder) key(place int, key []byte) decoderKey {
	if place < len(d.keys) && d.keys[place].name == string(key) {
		return d.keys[place]
	}
	k := decoderKey{name: string(key)}
	k.wanted = !slices.Contains(d.Skip, k.name) && (d.Fields == nil || slices.Contains(d.Fields, k.name))
	if place >= len(d.keys) {
		d.keys = append(d.keys, make([]decoderKey, place+1-len(d.keys))...)
	}
	d.keys[place] = k
	return k
}

// Tags decodes a stored tags document; nil if there is none.
func (d *Decoder) Tags(v bson.RawValue) []telemetry.Tag {
	if doc, ok := v.DocumentOK(); !ok || !bytes.Equal(doc, d.under) {
		d.tags, d.under = TagsOf(v), append(d.under[:0], doc...)
	}
	return d.tags
}

func valueOf(v bsoncore.Value) (telemetry.Value, error) {
	if n, ok := NumberOf(v); ok {
		return n, nil
	}
	if b, ok := v.BooleanOK(); ok {
		return telemetry.BoolValue(b), nil
	}
	if s, ok := v.StringValueOK(); ok {
		return telemetry.TextValue(s), nil
	}
	return telemetry.Value{}, fmt.Errorf("a reading has no BSON type %v", v.Type)
}

// TagsOf decodes a stored tags document; nil if there is none.
func TagsOf(v bson.RawValue) (tags []telemetry.Tag) {
	doc, ok := v.DocumentOK()
	if !ok {
		return nil
	}
	err := EachElement(doc, func(_ int, e bsoncore.Element) error {
		if s, ok := e.Value().StringValueOK(); ok {
			tags = append(tags, telemetry.Tag{Name: e.Key(), Value: s})
		}
		return nil
	})
	if err != nil {
		return nil
	}
	return tags
}

// A Template is the BSON document {ts, fields…} of one shape, without values. Except for the
// values, all readings of a shape have the same bytes, so a reading is encoded by copying the
// template and writing the values into it:
//
//	length │ 09 "ts" 0 ········ │ 12 "t" 0 ········ │ 01 "h" 0 ········ │ 0
//	                   └ time              └ word              └ word
//
// Shapes with strings have no fixed length; their readings are appended field
// by field.
type Template struct {
	document []byte
	words    []slot // values of eight bytes
	bools    []slot // values of one byte
	texts    bool   // there are strings; the other fields are unused
}

// A slot is the position of a value.
type slot struct {
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
		h := slot{at: uint32(len(doc) + 1 + len(f.Name) + 1), value: uint32(i)}
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

// AppendFields appends only the fields, as elements, like the function AppendFields.
func (t *Template) AppendFields(dst []byte, b *batch.Batch, row *batch.Row) []byte {
	if t.texts {
		return AppendFields(dst, b, row)
	}
	from := len(dst)
	dst = append(dst, t.document[fieldsAt:len(t.document)-1]...)
	t.fill(dst[from:], fieldsAt, b.Values(row))
	return dst
}

// fill writes the values into doc, which begins skipped bytes into the template. Words of doubles
// are already encoded as in BSON.
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

// Shapes caches values built from recent shapes, keyed by pointer. Equal shapes usually are the
// same pointer, in all batches; otherwise the value is built again. Shapes is not safe for
// concurrent use.
type Shapes[T any] struct {
	build func([]batch.FieldType) *T

	last   *batch.Shape
	made   *T                  // of last
	known  map[*batch.Shape]*T // keeps the shapes alive, so that no pointer is reused
	fields int                 // of the shapes in known
}

// NewShapes returns an empty cache; build makes a value from a shape's fields.
func NewShapes[T any](build func([]batch.FieldType) *T) *Shapes[T] {
	return &Shapes[T]{build: build}
}

// maxCachedFields is the maximum number of fields of all cached shapes: some 400 shapes of ten fields,
// half a megabyte.
const maxCachedFields = 4096

// Of returns the value for the shape.
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
	if c.fields += len(shape.Fields); c.known == nil || c.fields > maxCachedFields {
		c.known, c.fields = make(map[*batch.Shape]*T), len(shape.Fields)
	}
	c.known[shape] = made
	return made
}
