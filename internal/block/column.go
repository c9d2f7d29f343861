package block

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// values are the values of one field. Their memory is used again for the next block.
type values struct {
	kind  telemetry.Kind   // of all values; 0: of several, see kinds
	kinds []telemetry.Kind // of each value, if kind is 0
	// words has one word for each value: the bits of a double, an integer, 0 or 1, or a
	// reference to a string.
	words []uint64

	text   []byte // where references point to
	memory []byte // of a compressed column
	list   []uint64
}

// value returns value i.
func (c *values) value(i int) telemetry.Value {
	kind := c.kind
	if kind == 0 {
		kind = c.kinds[i]
	}
	switch word := c.words[i]; kind {
	case telemetry.Int:
		return telemetry.IntValue(int64(word))
	case telemetry.Bool:
		return telemetry.BoolValue(word != 0)
	case telemetry.Text:
		return telemetry.TextValue(string(c.text[word>>32:][:uint32(word)]))
	default:
		return telemetry.FloatValue(math.Float64frombits(word))
	}
}

// values reads the n values of column i.
func (b *Block) values(i, n int, to *values) error {
	s := &b.columns[i]
	r := b.section(s, &to.memory)
	to.kind, to.kinds, to.words, to.text = 0, to.kinds[:0], to.words[:0], r.rest
	switch kind := s.kind &^ compressed; kind {
	case kindNumber:
		to.words, to.kinds = r.numbers(to.words, to.kinds, n)
	case kindMixed:
		r.mixed(n, to)
	default:
		to.kind = telemetry.Kind(kind)
		to.words = r.kind(to.kind, to.words, n, to)
	}
	return r.end()
}

// kind reads n values of one kind.
func (r *reader) kind(kind telemetry.Kind, dst []uint64, n int, of *values) []uint64 {
	at := len(dst)
	switch kind {
	case telemetry.Float:
		return r.doubles(dst, n)
	case telemetry.Text:
		return r.texts(dst, n, of)
	}
	dst = r.integers(dst, n)
	if kind == telemetry.Bool {
		r.below(dst[at:], 2)
	}
	return dst
}

func (r *reader) mixed(n int, to *values) {
	to.list = r.integers(to.list[:0], n)
	var counts [telemetry.Text + 1]int
	for _, k := range to.list {
		if k < uint64(telemetry.Float) || k > uint64(telemetry.Text) {
			r.fail("a value has an unknown kind")
			return
		}
		counts[k]++
		to.kinds = append(to.kinds, telemetry.Kind(k))
	}
	to.words = grown(to.words, len(to.kinds))
	var words []uint64
	for k := telemetry.Float; k <= telemetry.Text; k++ {
		if counts[k] == 0 {
			continue
		}
		if words = r.kind(k, words[:0], counts[k], to); r.err != nil {
			return
		}
		next := 0
		for i, of := range to.kinds {
			if of == k {
				to.words[i] = words[next]
				next++
			}
		}
	}
}

// texts reads n strings as references to of.text, which r reads from.
func (r *reader) texts(dst []uint64, n int, of *values) []uint64 {
	count := r.size()
	if count > n || count > len(r.rest) {
		r.fail("it has more strings than values")
		return dst
	}
	list := of.list[:0]
	for range count {
		s := r.sized()
		at := len(of.text) - len(r.rest) - len(s)
		list = append(list, uint64(at)<<32|uint64(len(s)))
	}
	at := len(dst)
	dst = r.integers(dst, n)
	r.below(dst[at:], len(list))
	of.list = list
	if r.err != nil {
		return dst
	}
	for i, number := range dst[at:] {
		dst[at+i] = list[number]
	}
	return dst
}

// ownTags returns the sets of tags that readings of the block have in place of those of
// their document, and for each reading 0 or the number of its set, which counts from 1.
func (b *Block) ownTags() (sets [][]telemetry.Tag, numbers []uint64, err error) {
	if b.rows[1].kind == 0 {
		return nil, nil, nil
	}
	r := b.section(&b.rows[1], nil)
	sets = make([][]telemetry.Tag, r.count())
	for i := range sets {
		n := r.size()
		if n > len(r.rest)/2 {
			r.fail("it is too short")
			break
		}
		sets[i] = make([]telemetry.Tag, n)
		for t := range sets[i] {
			sets[i][t] = telemetry.Tag{Name: string(r.sized()), Value: string(r.sized())}
		}
	}
	numbers = r.integers(nil, b.n)
	r.below(numbers, len(sets)+1)
	if err := r.end(); err != nil {
		return nil, nil, fmt.Errorf("read the tags of a block: %w", err)
	}
	return sets, numbers, nil
}

// Keys returns the key of each reading; nil if they have none.
func (b *Block) Keys() ([]Key, error) {
	if b.rows[2].kind == 0 {
		return nil, nil
	}
	r := b.section(&b.rows[2], nil)
	sessions := make([]string, r.count())
	for i := range sessions {
		sessions[i] = string(r.sized())
	}
	arrivals := r.integers(nil, b.n)
	numbers := r.integers(nil, b.n)
	sequences := r.integers(nil, b.n)
	r.below(numbers, len(sessions))
	if err := r.end(); err != nil {
		return nil, fmt.Errorf("read the keys of a block: %w", err)
	}
	keys := make([]Key, b.n)
	for i := range keys {
		keys[i] = Key{Arrival: int64(arrivals[i]), Session: sessions[numbers[i]], Sequence: sequences[i]}
	}
	return keys, nil
}

// Readings yields the readings in their order, with tags unless they have their own, and
// with the wanted fields alone; nil: all. It ends with an error if one occurs.
func (b *Block) Readings(sensor string, tags []telemetry.Tag, wanted []string) iter.Seq2[telemetry.Reading, error] {
	return new(Decoder).Readings(b, sensor, tags, wanted)
}

// A Decoder reads one block after another in the same memory, except for the fields of readings,
// see Reuse. The zero value is ready to use. It is not safe for concurrent use.
type Decoder struct {
	batch.Arena
	shapes

	times   []uint64
	columns []values
	names   []string // empty: not wanted
	wanted  int      // columns
	counts  []int    // values of each column
	next    []int    // of each column, the next value
	sets    [][]telemetry.Tag
	own     []uint64
}

// Readings is like Block.Readings.
func (d *Decoder) Readings(b *Block, sensor string, tags []telemetry.Tag, wanted []string) iter.Seq2[telemetry.Reading, error] {
	return func(yield func(telemetry.Reading, error) bool) {
		if err := d.decode(b, wanted); err != nil {
			yield(telemetry.Reading{}, err)
			return
		}
		for i := range d.times {
			r := telemetry.Reading{Sensor: sensor, Tags: tags}
			d.read(i, &r)
			if !yield(r, nil) {
				return
			}
		}
	}
}

// readingsTogether is for how many readings memory is allocated at once.
const readingsTogether = 32

func (d *Decoder) decode(b *Block, wanted []string) (err error) {
	n := len(b.columns)
	d.columns, d.names, d.counts, d.next = grown(d.columns, n), grown(d.names, n), grown(d.counts, n), grown(d.next, n)
	clear(d.next)
	if d.times, err = b.times(d.times[:0]); err != nil {
		return err
	}
	if err := b.countValues(d.counts); err != nil {
		return err
	}
	d.shapes = *b.shaped
	if d.sets, d.own, err = b.ownTags(); err != nil {
		return err
	}
	d.wanted = 0
	for i := range d.columns {
		name := b.name(i)
		if wanted != nil && !slices.Contains(wanted, string(name)) {
			d.names[i] = ""
			continue
		}
		if d.names[i] != string(name) { // otherwise it is that of the last block
			d.names[i] = string(name)
		}
		d.wanted++
		if err := b.values(i, d.counts[i], &d.columns[i]); err != nil {
			return fmt.Errorf("read field %s of a block: %w", telemetry.Quote(name), err)
		}
	}
	return nil
}

// countValues counts the values of each column.
func (b *Block) countValues(counts []int) error {
	clear(counts)
	r, err := b.shapes()
	if err != nil {
		return err
	}
	used := make([]int, len(r.all))
	if r.numbers == nil {
		used[0] = b.n
	}
	for _, shape := range r.numbers {
		used[shape]++
	}
	for number, shape := range r.all {
		for _, at := range shape {
			counts[at] += used[number]
		}
	}
	return nil
}

// read fills in reading i, which must be the one after the last.
func (d *Decoder) read(i int, to *telemetry.Reading) {
	to.Time = time.UnixMilli(int64(d.times[i])).UTC()
	if len(d.own) > 0 && d.own[i] > 0 {
		if to.Tags = d.sets[d.own[i]-1]; len(to.Tags) == 0 {
			to.Tags = nil
		}
	}
	shape := d.all[0]
	if d.numbers != nil {
		shape = d.all[d.numbers[i]]
	}
	to.Fields = d.Take(min(len(shape), d.wanted), min(readingsTogether, len(d.times)-i))
	for _, at := range shape {
		if d.names[at] == "" {
			continue
		}
		to.Fields = append(to.Fields, telemetry.Field{Name: d.names[at], Value: d.columns[at].value(d.next[at])})
		d.next[at]++
	}
	to.Fields = d.Keep(to.Fields)
}
