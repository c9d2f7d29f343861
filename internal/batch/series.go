package batch

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Series is a sensor of a stream, with the tags that it was sent with. It
// never changes, and batches share it.
type Series struct {
	Stream string
	Sensor string
	Tags   []telemetry.Tag // sorted by name
	Hash   uint64          // of stream and sensor

	encoded string // what the interner knows it by; the strings above are parts of it
	packed  string // as in an encoded batch
}

// A Shape is a list of field names and kinds that rows share. It never changes,
// and batches share it.
type Shape struct {
	Fields []FieldType
	key    string // kind, length and name of each field; the names are parts of it
	size   uint32 // bytes of the fields as BSON elements, without the bytes of strings
}

// A FieldType is the name and kind of one field of a shape.
type FieldType struct {
	Name string
	Kind telemetry.Kind
}

// newSeries returns the series of an encoded one, whose tags are sorted.
// Anything else is an error.
func newSeries(encoded string) (*Series, error) {
	c := cutter{rest: encoded}
	s := &Series{Stream: c.text(), Sensor: c.text(), encoded: encoded}
	n := c.number()
	if n > len(c.rest)/(2*sizePrefix) {
		return nil, errSeries
	}
	if n > 0 {
		s.Tags = make([]telemetry.Tag, n)
	}
	for i := range s.Tags {
		s.Tags[i] = telemetry.Tag{Name: c.text(), Value: c.text()}
		if i > 0 && s.Tags[i].Name <= s.Tags[i-1].Name {
			return nil, errSeries
		}
	}
	if c.short || c.rest != "" {
		return nil, errSeries
	}
	s.Hash = SeriesHash(s.Stream, s.Sensor)
	s.packed = s.pack()
	return s, nil
}

// derived stands for the length of a sensor id that is a series key of line
// protocol, and says nothing that the tags do not: what follows is the key's
// measurement. That is almost half of such a series.
const derived = 0xffff

// pack returns the series as an encoded batch has it.
func (s *Series) pack() string {
	comma := strings.IndexByte(s.Sensor, ',')
	if comma < 0 || string(appendSeriesKey(nil, s.Sensor[:comma], s.Tags)) != s.Sensor {
		return s.encoded
	}
	packed := appendSizedText(make([]byte, 0, len(s.encoded)), s.Stream)
	packed = appendSizedText(binary.LittleEndian.AppendUint16(packed, derived), s.Sensor[:comma])
	return string(append(packed, s.encoded[2*sizePrefix+len(s.Stream)+len(s.Sensor):]...))
}

// unpackSeries returns the series that pack has packed.
func unpackSeries(packed string) (*Series, error) {
	c := cutter{rest: packed}
	stream := c.text()
	if !strings.HasPrefix(c.rest, "\xff\xff") {
		return newSeries(packed)
	}
	c.rest = c.rest[sizePrefix:]
	measurement := c.text()
	behind := c.rest // number of tags, tags
	var tags []telemetry.Tag
	for range c.number() {
		if c.short {
			return nil, errSeries
		}
		tags = append(tags, telemetry.Tag{Name: c.text(), Value: c.text()})
	}
	encoded := appendSized(appendSizedText(nil, stream), appendSeriesKey(nil, measurement, tags))
	s, err := newSeries(string(append(encoded, behind...)))
	if err != nil || s.packed != packed {
		return nil, errSeries
	}
	return s, nil
}

// appendSeriesKey appends the series key of a measurement, which is escaped
// already, and tags.
func appendSeriesKey(dst []byte, measurement string, tags []telemetry.Tag) []byte {
	dst = append(dst, measurement...)
	for _, t := range tags {
		dst = telemetry.AppendSeriesWord(append(dst, ','), t.Name, true)
		dst = telemetry.AppendSeriesWord(append(dst, '='), t.Value, true)
	}
	return dst
}

// SeriesHash returns the Hash of a sensor's series.
func SeriesHash(stream, sensor string) uint64 {
	var scratch [512]byte
	return xxhash.Sum64(append(append(append(scratch[:0], stream...), 0), sensor...))
}

// memory estimates the bytes of heap that the series takes.
func (s *Series) memory() int { return 128 + len(s.encoded) + len(s.packed) + 32*len(s.Tags) }

func (s *Shape) memory() int { return 64 + len(s.key) + 24*len(s.Fields) }

// sortTags returns the encoded series with its tags in the order of their
// names, and the tags, which are parts of pairs.
func sortTags(stream string, sensor, pairs []byte) (encoded []byte, sorted []tagPair) {
	var few [16]tagPair // on the stack
	sorted = few[:0]
	for rest := pairs; len(rest) > 0; {
		var t tagPair
		t.name, rest = cutSized(rest)
		t.value, rest = cutSized(rest)
		sorted = append(sorted, t)
	}
	slices.SortStableFunc(sorted, func(x, y tagPair) int { return bytes.Compare(x.name, y.name) })
	encoded = make([]byte, 0, 3*sizePrefix+len(stream)+len(sensor)+len(pairs))
	encoded = appendSized(appendSizedText(encoded, stream), sensor)
	encoded = binary.LittleEndian.AppendUint16(encoded, uint16(len(sorted)))
	for _, t := range sorted {
		encoded = appendSized(appendSized(encoded, t.name), t.value)
	}
	return encoded, sorted
}

type tagPair struct{ name, value []byte }
