package ingest

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A denseSeries is a Series in the form that encoders give it where nothing is
// missing: fields in the order of their numbers, lists packed, and a value for
// every row in every column. It is decoded in one pass, its sensor and tags only
// if they are not known by their bytes, and names of columns only if they are
// not those of the series before. Whatever has another form, or is broken, is
// left to anySeries, which also says what is wrong with it.
type denseSeries struct {
	head  []byte // sensor and tags, encoded
	tags  []wireTag
	times []uint64

	columns []denseColumn // those in front of the last one may be of an earlier series
	count   int           // of columns
	words   []uint64      // of the first column's rows, then of the second's, and so on
	texts   [][]byte      // that words of a column of strings are indices of

	// shape is that of readings whose columns begin like the first ones of
	// columns; nil if it is not known.
	shape        *batch.Shape
	shapeColumns int
}

// A denseColumn is the beginning of a column: its name, and the tag of its
// values.
type denseColumn struct {
	encoded []byte
	name    []byte // a part of encoded
}

// Tags of the fields of a Series and of a Column.
const (
	tagSensor  = 1<<3 | byte(protowire.BytesType)
	tagTag     = 2<<3 | byte(protowire.BytesType)
	tagTimes   = 3<<3 | byte(protowire.BytesType)
	tagColumn  = 4<<3 | byte(protowire.BytesType)
	tagName    = 1<<3 | byte(protowire.BytesType)
	tagDoubles = 2<<3 | byte(protowire.BytesType)
	tagInts    = 3<<3 | byte(protowire.BytesType)
	tagBools   = 4<<3 | byte(protowire.BytesType)
	tagStrings = 5<<3 | byte(protowire.BytesType)
)

// cutField returns the contents of the field of bytes that src begins with, tag
// included, and what is behind; false if there is none.
func cutField(src []byte) (contents, rest []byte, ok bool) {
	if len(src) < 2 {
		return nil, nil, false
	}
	length, n := uint64(src[1]), 1
	if length >= 0x80 {
		if length, n = protowire.ConsumeVarint(src[1:]); n < 0 {
			return nil, nil, false
		}
	}
	if src = src[1+n:]; length > uint64(len(src)) {
		return nil, nil, false
	}
	return src[:length], src[length:], true
}

// parse decodes all but the sensor and the tags of a series with at most these
// many rows; false if it is not dense, or if afford, which says whether there is
// memory for this many bytes, returns an error.
func (s *denseSeries) parse(message []byte, most int, afford func(int64) error) bool {
	rest := message
	for len(rest) > 0 && (rest[0] == tagSensor || rest[0] == tagTag) {
		var ok bool
		if _, rest, ok = cutField(rest); !ok {
			return false
		}
	}
	s.head = message[:len(message)-len(rest)]
	if len(s.head) > maxAlias || len(rest) == 0 || rest[0] != tagTimes {
		return false
	}
	packed, rest, ok := cutField(rest)
	if !ok {
		return false
	}
	if s.times, ok = appendVarints(s.times[:0], packed, most); !ok || len(s.times) == 0 {
		return false
	}
	s.count, s.words, s.texts = 0, s.words[:0], s.texts[:0]
	for len(rest) > 0 {
		if rest[0] != tagColumn || s.count == telemetry.MaxFields {
			return false
		}
		var column []byte
		if column, rest, ok = cutField(rest); !ok || !s.column(column) || afford(8*int64(len(s.words))+24*int64(len(s.texts))) != nil {
			return false
		}
	}
	if s.count != s.shapeColumns {
		s.shape = nil
	}
	return true
}

// column decodes a column: its name, then its values, then nothing.
func (s *denseSeries) column(message []byte) bool {
	if s.count == len(s.columns) {
		s.columns = append(s.columns, denseColumn{})
	}
	c := &s.columns[s.count]
	if len(c.encoded) == 0 || !bytes.HasPrefix(message, c.encoded) {
		if s.shape = nil; !c.learn(message) {
			return false
		}
	}
	s.count++
	begin := len(c.encoded) - 1 // of the values
	tag := c.encoded[begin]
	if tag == tagStrings {
		return s.strings(message[begin:])
	}
	packed, rest, ok := cutField(message[begin:])
	if !ok || len(rest) > 0 {
		return false
	}
	rows, before := len(s.times), len(s.words)
	if tag == tagDoubles {
		for ; len(packed) >= 8 && len(s.words)-before < rows; packed = packed[8:] {
			s.words = append(s.words, binary.LittleEndian.Uint64(packed))
		}
		return len(packed) == 0 && len(s.words)-before == rows
	}
	if s.words, ok = appendVarints(s.words, packed, rows); !ok || len(s.words)-before < rows {
		return false
	}
	values := s.words[before:]
	for i, v := range values {
		if tag == tagInts {
			values[i] = uint64(protowire.DecodeZigZag(v))
		} else {
			values[i] = min(v, 1)
		}
	}
	return true
}

// learn notes how a column begins; false if it does not begin as it should.
func (c *denseColumn) learn(message []byte) bool {
	c.encoded = c.encoded[:0]
	if len(message) == 0 || message[0] != tagName {
		return false
	}
	name, rest, ok := cutField(message)
	if !ok || len(rest) == 0 || len(name) > telemetry.MaxNameBytes {
		return false
	}
	switch rest[0] {
	case tagDoubles, tagInts, tagBools, tagStrings:
	default:
		return false
	}
	c.encoded = append(c.encoded, message[:len(message)-len(rest)+1]...)
	c.name = c.encoded[len(c.encoded)-1-len(name) : len(c.encoded)-1]
	return true
}

// strings decodes the values of a column of strings.
func (s *denseSeries) strings(src []byte) bool {
	for range s.times {
		if len(src) == 0 || src[0] != tagStrings {
			return false
		}
		text, rest, ok := cutField(src)
		if !ok {
			return false
		}
		s.words, s.texts = append(s.words, uint64(len(s.texts))), append(s.texts, text)
		src = rest
	}
	return len(src) == 0
}

// denseRows gives the builder the rows of the dense series. As the series and
// the shape of one row are those of all, they are looked for once.
func (d *wireDecoder) denseRows(message []byte) error {
	s, b := &d.dense, d.in.builder
	d.beginAlias(aliasSeries)
	d.alias = append(d.alias, s.head...)
	known := d.in.door.known.Alias(d.alias)
	var sensor []byte
	if known == nil {
		var ok bool
		if sensor, ok = s.decodeHead(); !ok {
			return d.anySeries(message)
		}
	}
	for row, ms := range s.times {
		if err := d.in.begin(); err != nil {
			return err
		}
		if known != nil {
			b.SameSeries(known)
		} else {
			b.Sensor(sensor)
			for _, t := range s.tags {
				b.Tag(t.name, t.value)
			}
		}
		b.Time(int64(ms))
		if s.shape != nil {
			b.Columns(s.shape, s.words, len(s.times), row)
		} else {
			s.giveRow(b, row)
		}
		if !d.in.end() {
			continue
		}
		if known == nil {
			known = b.LastSeries()
			d.in.door.known.SetAlias(d.alias, known)
		}
		// Values are refused by the names that were sent, which are not those of
		// the shape where dots were replaced.
		if s.shape == nil && len(s.texts) == 0 && (b.MapDots == 0 || !s.hasDots()) {
			s.shape, s.shapeColumns = b.LastShape(), s.count
		}
	}
	return nil
}

// hasDots reports whether a column's name holds a dot.
func (s *denseSeries) hasDots() bool {
	return slices.ContainsFunc(s.columns[:s.count], func(c denseColumn) bool { return bytes.IndexByte(c.name, '.') >= 0 })
}

// decodeHead decodes the sensor and the tags; false if a tag is broken.
func (s *denseSeries) decodeHead() (sensor []byte, ok bool) {
	s.tags = s.tags[:0]
	for m := (wireMessage{rest: s.head}); m.next(); {
		if m.num == 1 {
			sensor = m.bytes
			continue
		}
		tag, err := decodeTag(m.bytes)
		if err != nil {
			return nil, false
		}
		s.tags = append(s.tags, tag)
	}
	return sensor, true
}

// giveRow gives the builder the values of one row.
func (s *denseSeries) giveRow(b *batch.Builder, row int) {
	for i := range s.count {
		c, word := &s.columns[i], s.words[i*len(s.times)+row]
		switch c.encoded[len(c.encoded)-1] {
		case tagDoubles:
			b.Float(c.name, math.Float64frombits(word))
		case tagInts:
			b.Int(c.name, int64(word))
		case tagBools:
			b.Bool(c.name, word != 0)
		default:
			b.Text(c.name, s.texts[word])
		}
	}
}
