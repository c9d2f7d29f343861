package batch

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"time"

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
	packed  string // as in an encoded batch; empty if it is not to be encoded
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

// parseShape returns the shape with this key, or nil if the key is invalid. It uses
// fields if there is room. Names are substrings of the key, so that a shape costs two
// allocations however many fields it has.
func parseShape(key string, fields []FieldType) *Shape {
	shape := &Shape{key: key, Fields: fields}
	for c := (cutter[string]{rest: key}); c.rest != ""; {
		f := FieldType{Kind: telemetry.Kind(c.rest[0])}
		c.rest = c.rest[1:]
		f.Name = c.text()
		if c.short || f.Kind < telemetry.Float || f.Kind > telemetry.Text {
			return nil
		}
		shape.Fields = append(shape.Fields, f)
		shape.size += elementSize(f.Kind, len(f.Name))
	}
	return shape
}

// newSeries returns the series of an encoded one, whose tags are sorted.
// Anything else is an error.
func newSeries(encoded string) (*Series, error) {
	s, err := parseSeries(encoded)
	if err == nil {
		s.packed = s.pack()
	}
	return s, err
}

// parseSeries returns the series without its packed form.
func parseSeries(encoded string) (*Series, error) {
	c := cutter[string]{rest: encoded}
	s := &Series{Stream: c.text(), Sensor: c.text(), Tags: cutTags(&c), encoded: encoded}
	if c.short || c.rest != "" {
		return nil, errSeries
	}
	for i := 1; i < len(s.Tags); i++ {
		if s.Tags[i].Name <= s.Tags[i-1].Name {
			return nil, errSeries
		}
	}
	s.Hash = SeriesHash(s.Stream, s.Sensor)
	return s, nil
}

// cutTags reads the number of tags and the tags; nil if there are none.
func cutTags(c *cutter[string]) []telemetry.Tag {
	n := c.number()
	if c.short = c.short || n > len(c.rest)/(2*sizePrefix); c.short || n == 0 {
		return nil
	}
	tags := make([]telemetry.Tag, n)
	for i := range tags {
		tags[i] = telemetry.Tag{Name: c.text(), Value: c.text()}
	}
	return tags
}

// derived stands in place of the length of a sensor id that is a series key of line
// protocol, and repeats only the tags: what follows is the key's measurement. This
// saves almost half of such a series.
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
	c := cutter[string]{rest: packed}
	stream := c.text()
	if !strings.HasPrefix(c.rest, "\xff\xff") {
		return newSeries(packed)
	}
	c.rest = c.rest[sizePrefix:]
	measurement := c.text()
	behind := c.rest // number of tags, tags
	tags := cutTags(&c)
	if c.short {
		return nil, errSeries
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

// Sensor returns what readings of a series with the fields of a shape, and times from
// first to last, say about their sensor.
func Sensor(series *Series, shape *Shape, first, last int64) telemetry.Sensor {
	s := telemetry.Sensor{ID: strings.Clone(series.Sensor), Sets: []telemetry.TagSet{{Tags: series.Tags, From: first, To: last + 1}}}
	for _, f := range shape.Fields {
		to := &s.Fields
		if f.Kind == telemetry.Text {
			to = &s.Texts
		}
		*to = append(*to, f.Name)
	}
	slices.Sort(s.Fields)
	slices.Sort(s.Texts)
	return s
}

// Identity returns a hash of the series with its tags, which Hash leaves out.
func (s *Series) Identity() uint64 { return xxhash.Sum64String(s.encoded) }

// Identity returns a hash of the fields' names and kinds.
func (s *Shape) Identity() uint64 { return xxhash.Sum64String(s.key) }

// sortTags returns the encoded series with its tags in the order of their
// names, and the tags, which are parts of pairs.
func sortTags(stream string, sensor, pairs []byte) (encoded []byte, sorted []tagPair) {
	var few [16]tagPair // on the stack
	sorted = few[:0]
	for c := (cutter[[]byte]{rest: pairs}); len(c.rest) > 0; {
		sorted = append(sorted, tagPair{name: c.text(), value: c.text()})
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

// An Interner remembers series and shapes from request to request, so that a known
// sensor costs a lookup instead of decoding, and all batches share one copy. What was
// not used for long is forgotten: there are two generations, and when the younger has
// half of the bytes, the older is dropped. Any number of goroutines may use it.
type Interner struct {
	most   int64 // bytes of a shard's generation
	shards [internShards]shard

	builders sync.Pool // of *Builder
}

const (
	internShards = 16
	// defaultInterned holds some 40,000 sensors of line protocol with ten tags, or
	// 150,000 with a short name and no tags.
	defaultInterned = 64 << 20
	// knownBytes is what an entry takes besides its key and value.
	knownBytes = 96
)

type shard struct {
	mu         sync.RWMutex
	young, old map[uint64]*known
	bytes      int64 // of young
}

// known is what a key stands for.
type known struct {
	key    string
	kind   keyKind
	series *Series
	shape  *Shape
	bytes  int64
}

// keyKind tells keys apart that may have the same bytes.
type keyKind uint8

const (
	keySeries keyKind = iota // encoded series, tags as they came
	keyShape                 // Shape.key
	keyAlias
	keyPacked // Series.packed
)

// NewInterner returns an interner that holds at most so many bytes; 0: 64 MiB.
func NewInterner(bytes int64) *Interner {
	if bytes == 0 {
		bytes = defaultInterned
	}
	return &Interner{most: max(1, bytes/2/internShards)}
}

// Builder returns a builder for the readings of a request that arrived at
// received. It goes back when it has made its batch.
func (n *Interner) Builder(received time.Time) *Builder {
	b, ok := n.builders.Get().(*Builder)
	if !ok {
		b = &Builder{interner: n, shapeAt: make(map[*Shape]uint32), seen: make(map[string]struct{})}
	}
	b.reset(received)
	return b
}

// Alias returns the series that SetAlias was called with for the same key; nil if it
// is not known any more.
func (n *Interner) Alias(key []byte) *Series {
	s, _ := n.find(keyAlias, key)
	return s
}

// SetAlias remembers a series under another key, so that a decoder need not decode it
// again. The key has all input that the series depends on, behind a byte that tells
// its decoder from others.
func (n *Interner) SetAlias(key []byte, s *Series) { n.add(keyAlias, string(key), s, nil) }

// unpacked returns the series that was packed so, and the bytes that were made for it.
func (n *Interner) unpacked(packed []byte) (s *Series, made int, err error) {
	if s, _ = n.find(keyPacked, packed); s != nil {
		return s, 0, nil
	}
	if s, err = unpackSeries(string(packed)); err != nil {
		return nil, 0, err
	}
	if before, _ := n.find(keySeries, []byte(s.encoded)); before != nil {
		s = before
	} else {
		n.add(keySeries, s.encoded, s, nil)
		made = s.memory()
	}
	n.add(keyPacked, s.packed, s, nil)
	return s, made, nil
}

// find returns what a key stands for; nil if it is not known.
func (n *Interner) find(kind keyKind, key []byte) (*Series, *Shape) {
	hash := xxhash.Sum64(key) + uint64(kind)
	s := &n.shards[hash>>60]
	s.mu.RLock()
	e, young := s.young[hash]
	if !young {
		e = s.old[hash]
	}
	s.mu.RUnlock()
	if e == nil || e.kind != kind || e.key != string(key) {
		return nil, nil
	}
	if !young {
		n.put(s, hash, e)
	}
	return e.series, e.shape
}

// add remembers what a key stands for. Of two keys with the same hash the later one is
// known. The entry counts all bytes of its series or shape, which other entries may
// share: any of them may be the last to keep it.
func (n *Interner) add(kind keyKind, key string, series *Series, shape *Shape) {
	e := &known{key: key, kind: kind, series: series, shape: shape, bytes: knownBytes + int64(len(key))}
	if series != nil {
		e.bytes += int64(series.memory())
	} else {
		e.bytes += int64(shape.memory())
	}
	hash := xxhash.Sum64String(key) + uint64(kind)
	n.put(&n.shards[hash>>60], hash, e)
}

func (n *Interner) put(s *shard, hash uint64, e *known) {
	if e.bytes > n.most/16 {
		return // one sensor with hundreds of long tags is not worth many others
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bytes+e.bytes > n.most {
		s.old, s.young, s.bytes = s.young, nil, 0
	}
	if s.young == nil {
		s.young = make(map[uint64]*known)
	}
	if before := s.young[hash]; before != nil {
		s.bytes -= before.bytes
	}
	s.young[hash] = e
	s.bytes += e.bytes
}
