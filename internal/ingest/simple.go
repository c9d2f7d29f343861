package ingest

import (
	"bytes"
	"math"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// aliasJSON begins the keys of aliases that are parts of JSON: the sensor id, a
// quote, which no plain string holds, and the object of tags as it stands there.
const aliasJSON = 'j'

// A simpleDecoder decodes readings in the JSON that nearly all senders write: no
// member unknown, twice, null or of the wrong type, no escape in a string. It
// does so several times faster than a decoder of tokens. Any other reading is
// left to readingDecoder, as if nothing of it had been seen: that one alone
// refuses, and says why.
type simpleDecoder struct {
	in     *intake
	off    bool // nothing is simple
	sensor []byte
	tags   []byte // the object, with its braces; nil if there is none
	alias  []byte // key of the series at hand

	// names holds those of the fields, each in quotes and with a colon behind.
	// Those of the last reading are what the next one is expected to bring.
	names [][]byte
	kinds []telemetry.Kind
	words []uint64 // as the batch holds them
	texts [][]byte // that the words of strings are indices of

	// shape is that of readings whose fields have the first of names; nil if it
	// is not known.
	shape *batch.Shape
	same  bool // the reading at hand has that shape
}

// reading decodes and ends the reading that was begun, with which src begins,
// and returns where it ends. If that is 0, the reading was begun again.
func (d *simpleDecoder) reading(src []byte) int { return d.finish(d.object(src)) }

// line does the same for a line that must hold nothing else.
func (d *simpleDecoder) line(line []byte) bool {
	if d.off {
		return false
	}
	end := d.object(line)
	if end > 0 && skipSpace(line, end) < len(line) {
		end = 0
	}
	return d.finish(end) > 0
}

// finish ends a reading whose members are decoded up to end.
func (d *simpleDecoder) finish(end int) int {
	var known *batch.Series
	if end > 0 {
		known, end = d.series(end)
	}
	if end == 0 || d.in.builder.Refused() {
		d.in.again()
		return 0
	}
	if !d.in.end() {
		return end
	}
	if known == nil {
		d.in.door.known.SetAlias(d.alias, d.in.builder.LastSeries())
	}
	if !d.same && len(d.texts) == 0 {
		d.shape = d.in.builder.LastShape()
	}
	return end
}

// series gives the builder the sensor and the tags of a reading that ends at
// end. It returns 0 if they are not simple, and the series if it was known.
func (d *simpleDecoder) series(end int) (*batch.Series, int) {
	d.alias = append(append(append(d.alias[:0], aliasJSON), d.in.stream.Name...), 0)
	d.alias = append(append(append(d.alias, d.sensor...), '"'), d.tags...)
	if known := d.in.door.known.Alias(d.alias); known != nil {
		d.in.builder.SameSeries(known)
		return known, end
	}
	d.in.builder.Sensor(d.sensor)
	if d.tags != nil && d.tagsObject() != len(d.tags) {
		return nil, 0
	}
	return nil, end
}

// object walks over the members of a reading and returns where it ends; 0 if it
// is not simple.
func (d *simpleDecoder) object(src []byte) int {
	d.sensor, d.tags, d.same = nil, nil, false
	d.kinds, d.words, d.texts = d.kinds[:0], d.words[:0], d.texts[:0]
	i := skipSpace(src, 0)
	if i == len(src) || src[i] != '{' {
		return 0
	}
	var seen uint8
	for {
		i = skipSpace(src, i+1)
		member, length := memberOf(src[i:])
		if member == 0 || seen&member != 0 {
			return 0
		}
		seen |= member
		if i = skipColon(src, i+length); i == 0 {
			return 0
		}
		if i = d.member(member, src, i); i == 0 {
			return 0
		}
		i = skipSpace(src, i)
		switch {
		case i == len(src):
			return 0
		case src[i] == '}':
			if d.sensor == nil {
				return 0
			}
			return i + 1
		case src[i] != ',':
			return 0
		}
	}
}

// memberOf returns which member of a reading src begins with, and the length of
// its name with the quotes; 0 if it is none.
func memberOf(src []byte) (member uint8, length int) {
	switch {
	case bytes.HasPrefix(src, []byte(`"fields"`)):
		return memberFields, len(`"fields"`)
	case bytes.HasPrefix(src, []byte(`"ts"`)):
		return memberTime, len(`"ts"`)
	case bytes.HasPrefix(src, []byte(`"tags"`)):
		return memberTags, len(`"tags"`)
	case bytes.HasPrefix(src, []byte(`"sensorId"`)):
		return memberSensor, len(`"sensorId"`)
	}
	return 0, 0
}

// member decodes the value of a member at src[i:] and returns where it ends; 0
// if it is not simple. Sensor and tags are only cut out.
func (d *simpleDecoder) member(member uint8, src []byte, i int) int {
	switch member {
	case memberFields:
		return d.fields(src, i)
	case memberTime:
		return d.time(src, i)
	case memberSensor:
		var end int
		d.sensor, end = simpleString(src, i)
		return end
	}
	// A brace may stand in a string, too. Then this is not how the object ends,
	// and series, which decodes what is not known, finds it broken.
	length := bytes.IndexByte(src[i:], '}') + 1
	if length == 0 || length > maxAlias || src[i] != '{' {
		return 0
	}
	d.tags = src[i : i+length]
	return i + length
}

// time decodes a timestamp.
func (d *simpleDecoder) time(src []byte, i int) int {
	if src[i] != '"' {
		n := simpleNumber(src, i)
		if n.end == 0 || n.float {
			return 0
		}
		d.in.builder.Time(n.integer)
		return n.end
	}
	text, end := simpleString(src, i)
	ms, ok := parseTime(text)
	if !ok {
		return 0
	}
	d.in.builder.Time(ms)
	return end
}

// fields decodes the object of fields.
func (d *simpleDecoder) fields(src []byte, i int) int {
	if src[i] != '{' {
		return 0
	}
	for n := 0; ; n++ {
		i = skipSpace(src, i+1)
		if n < len(d.names) && bytes.HasPrefix(src[i:], d.names[n]) {
			i = skipSpace(src, i+len(d.names[n]))
		} else if i = d.name(n, src, i); i == 0 {
			return 0
		}
		if i = d.value(src, i); i == 0 {
			return 0
		}
		i = skipSpace(src, i)
		switch {
		case i == len(src):
			return 0
		case src[i] == '}':
			d.giveFields()
			return i + 1
		case src[i] != ',':
			return 0
		}
	}
}

// name decodes the name of the n-th field, which is not the expected one, and
// returns where its value begins.
func (d *simpleDecoder) name(n int, src []byte, i int) int {
	name, end := simpleString(src, i)
	if end == 0 || n >= telemetry.MaxFields || len(name) > telemetry.MaxNameBytes {
		return 0
	}
	d.shape = nil
	if n == len(d.names) {
		d.names = append(d.names, nil)
	}
	d.names[n] = append(append(append(d.names[n][:0], '"'), name...), '"', ':')
	return skipColon(src, end)
}

// value decodes the value of a field.
func (d *simpleDecoder) value(src []byte, i int) int {
	if i == len(src) {
		return 0
	}
	var n simpleNum
	switch c := src[i]; {
	case c == '"':
		text, end := simpleString(src, i)
		d.add(telemetry.Text, uint64(len(d.texts)))
		d.texts = append(d.texts, text)
		return end
	case c == 't' && bytes.HasPrefix(src[i:], []byte("true")):
		d.add(telemetry.Bool, 1)
		return i + len("true")
	case c == 'f' && bytes.HasPrefix(src[i:], []byte("false")):
		d.add(telemetry.Bool, 0)
		return i + len("false")
	default:
		n = simpleNumber(src, i)
	}
	if n.float {
		d.add(telemetry.Float, math.Float64bits(n.double))
	} else {
		d.add(telemetry.Int, uint64(n.integer))
	}
	return n.end
}

func (d *simpleDecoder) add(kind telemetry.Kind, word uint64) {
	d.kinds, d.words = append(d.kinds, kind), append(d.words, word)
}

// giveFields gives the builder the fields: at once if they are like those of the
// last reading.
func (d *simpleDecoder) giveFields() {
	b := d.in.builder
	if d.same = d.shape != nil && d.hasKinds(d.shape.Fields); d.same {
		b.Columns(d.shape, d.words, 1, 0)
		return
	}
	for i, word := range d.words {
		name := d.names[i][1 : len(d.names[i])-2]
		switch d.kinds[i] {
		case telemetry.Float:
			b.Float(name, math.Float64frombits(word))
		case telemetry.Int:
			b.Int(name, int64(word))
		case telemetry.Bool:
			b.Bool(name, word != 0)
		case telemetry.Text:
			b.Text(name, d.texts[word])
		}
	}
}

// hasKinds reports whether the kinds are those of the fields.
func (d *simpleDecoder) hasKinds(fields []batch.FieldType) bool {
	if len(d.kinds) != len(fields) {
		return false
	}
	for i, kind := range d.kinds {
		if kind != fields[i].Kind {
			return false
		}
	}
	return true
}

// tagsObject decodes the object of tags and returns where it ends, counted from
// its beginning; 0 if it is not simple.
func (d *simpleDecoder) tagsObject() int {
	src, i := d.tags, skipSpace(d.tags, 1)
	if i < len(src) && src[i] == '}' {
		return i + 1
	}
	for {
		name, end := simpleString(src, i)
		if end == 0 {
			return 0
		}
		if end = skipColon(src, end); end == 0 {
			return 0
		}
		value, end := simpleString(src, end)
		if end == 0 {
			return 0
		}
		d.in.builder.Tag(name, value)
		i = skipSpace(src, end)
		switch {
		case i == len(src):
			return 0
		case src[i] == '}':
			return i + 1
		case src[i] != ',':
			return 0
		}
		i = skipSpace(src, i+1)
	}
}

// again begins the reading at hand once more, and forgets what was given of it.
func (in *intake) again() {
	in.takeBack()
	_ = in.begin() // there was room for it before
}
