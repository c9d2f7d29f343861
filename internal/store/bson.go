package store

import (
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TimeKey is the key of a reading's timestamp in every kind of document.
const TimeKey = "ts"

// AppendFields appends the fields of a reading as BSON elements, in the order
// in which they came: exactly row.Size bytes.
func AppendFields(dst []byte, b *batch.Batch, row *batch.Row) []byte {
	words := b.Values(row)
	for i := range b.Shape(row).Fields {
		f := &b.Shape(row).Fields[i]
		switch word := words[i]; f.Kind {
		case telemetry.Int:
			dst = bsoncore.AppendInt64Element(dst, f.Name, int64(word))
		case telemetry.Bool:
			dst = bsoncore.AppendBooleanElement(dst, f.Name, word != 0)
		case telemetry.Text:
			dst = appendText(dst, f.Name, b.Text(word))
		default:
			// The words of doubles are already in BSON's form.
			dst = bsoncore.AppendHeader(dst, bsoncore.TypeDouble, f.Name)
			dst = appendWord(dst, word)
		}
	}
	return dst
}

func appendText(dst []byte, name string, text []byte) []byte {
	dst = bsoncore.AppendHeader(dst, bsoncore.TypeString, name)
	n := uint32(len(text) + 1)
	dst = append(dst, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	return append(append(dst, text...), 0)
}

func appendWord(dst []byte, w uint64) []byte {
	return append(dst, byte(w), byte(w>>8), byte(w>>16), byte(w>>24), byte(w>>32), byte(w>>40), byte(w>>48), byte(w>>56))
}

// AppendTags appends tags as one sub-document named tags, or nothing where
// there are none.
func AppendTags(dst []byte, tags []telemetry.Tag) []byte {
	if len(tags) == 0 {
		return dst
	}
	at, dst := bsoncore.AppendDocumentElementStart(dst, "tags")
	for _, t := range tags {
		dst = bsoncore.AppendStringElement(dst, t.Name, t.Value)
	}
	dst, _ = bsoncore.AppendDocumentEnd(dst, at) // fails only for an offset beyond dst
	return dst
}

// ReadingOf turns a stored document back into a reading of the sensor. Keys in
// skip are not fields.
func ReadingOf(doc bson.Raw, sensor string, skip ...string) (telemetry.Reading, error) {
	r := telemetry.Reading{Sensor: sensor}
	elements, err := doc.Elements()
	if err != nil {
		return r, fmt.Errorf("read stored reading: %w", err)
	}
next:
	for _, e := range elements {
		key, v := e.Key(), e.Value()
		for _, s := range skip {
			if key == s {
				continue next
			}
		}
		if key == TimeKey {
			r.Time = time.UnixMilli(v.DateTime()).UTC()
			continue
		}
		value, err := valueOf(v)
		if err != nil {
			return r, fmt.Errorf("read stored field %q of sensor %q: %w", key, sensor, err)
		}
		r.Fields = append(r.Fields, telemetry.Field{Name: key, Value: value})
	}
	return r, nil
}

func valueOf(v bson.RawValue) (telemetry.Value, error) {
	switch v.Type {
	case bson.TypeDouble:
		return telemetry.FloatValue(v.Double()), nil
	case bson.TypeInt64:
		return telemetry.IntValue(v.Int64()), nil
	case bson.TypeInt32:
		return telemetry.IntValue(int64(v.Int32())), nil
	case bson.TypeBoolean:
		return telemetry.BoolValue(v.Boolean()), nil
	case bson.TypeString:
		return telemetry.TextValue(v.StringValue()), nil
	default:
		return telemetry.Value{}, fmt.Errorf("BSON type %v is none of a reading's", v.Type)
	}
}

// TagsOf turns a stored tags document back; nil for none.
func TagsOf(v bson.RawValue) []telemetry.Tag {
	doc, ok := v.DocumentOK()
	if !ok {
		return nil
	}
	elements, err := doc.Elements()
	if err != nil {
		return nil
	}
	tags := make([]telemetry.Tag, 0, len(elements))
	for _, e := range elements {
		if s, ok := e.Value().StringValueOK(); ok {
			tags = append(tags, telemetry.Tag{Name: e.Key(), Value: s})
		}
	}
	return tags
}
