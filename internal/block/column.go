package block

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Column has the values of one field. Its memory is used again by the next call of
// Block.Column with it.
type Column struct {
	Kind  telemetry.Kind   // of all values; 0: of several, see Kinds
	Kinds []telemetry.Kind // of each value, if Kind is 0
	// Words has one word for each value: the bits of a double, an integer, 0 or 1, or a
	// reference for Text.
	Words []uint64
	// Rows has the number of each value's reading; empty beside values: all readings have
	// the field.
	Rows []uint32

	text   []byte // where references point to
	memory []byte // of a compressed column
	list   []uint64
}

// KindOf returns the kind of value i.
func (c *Column) KindOf(i int) telemetry.Kind {
	if c.Kind != 0 {
		return c.Kind
	}
	return c.Kinds[i]
}

// Text returns value i, a string. The bytes are those of the block, or of the column.
func (c *Column) Text(i int) []byte {
	word := c.Words[i]
	return c.text[word>>32:][:uint32(word)]
}

// Value returns value i.
func (c *Column) Value(i int) telemetry.Value {
	switch word := c.Words[i]; c.KindOf(i) {
	case telemetry.Int:
		return telemetry.IntValue(int64(word))
	case telemetry.Bool:
		return telemetry.BoolValue(word != 0)
	case telemetry.Text:
		return telemetry.TextValue(string(c.Text(i)))
	default:
		return telemetry.FloatValue(math.Float64frombits(word))
	}
}

// Column reads column i.
func (b *Block) Column(i int, to *Column) error {
	err := b.rowsOf(i, to)
	if err == nil {
		n := b.n
		if b.rows[0].kind != 0 {
			n = len(to.Rows)
			if n == b.n {
				to.Rows = to.Rows[:0]
			}
		}
		err = b.values(i, n, to)
	}
	if err != nil {
		return fmt.Errorf("read field %s of a block: %w", telemetry.Quote(b.name(i)), err)
	}
	return nil
}

// rowsOf finds the readings that have column i; if all readings have the same fields,
// there is nothing to find.
func (b *Block) rowsOf(i int, to *Column) error {
	to.Rows = to.Rows[:0]
	if b.rows[0].kind == 0 {
		return nil
	}
	shapes := b.shapes()
	has := make([]bool, len(shapes.all))
	for n, shape := range shapes.all {
		has[n] = slices.Contains(shape, uint16(i))
	}
	for row, n := range shapes.numbers {
		if has[n] {
			to.Rows = append(to.Rows, uint32(row))
		}
	}
	return shapes.err
}

// values reads the n values of column i.
func (b *Block) values(i, n int, to *Column) error {
	s := &b.columns[i]
	r := b.section(s, &to.memory)
	to.Kind, to.Kinds, to.Words, to.text = 0, to.Kinds[:0], to.Words[:0], r.rest
	switch kind := s.kind &^ compressed; kind {
	case kindNumber:
		to.Words, to.Kinds = r.numbers(to.Words, to.Kinds, n)
	case kindMixed:
		r.mixed(n, to)
	default:
		to.Kind = telemetry.Kind(kind)
		to.Words = r.kind(to.Kind, to.Words, n, to)
	}
	return r.end()
}

// kind reads n values of one kind.
func (r *reader) kind(kind telemetry.Kind, dst []uint64, n int, of *Column) []uint64 {
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

func (r *reader) mixed(n int, to *Column) {
	to.list = r.integers(to.list[:0], n)
	var counts [telemetry.Text + 1]int
	for _, k := range to.list {
		if k < uint64(telemetry.Float) || k > uint64(telemetry.Text) {
			r.fail("a value has an unknown kind")
			return
		}
		counts[k]++
		to.Kinds = append(to.Kinds, telemetry.Kind(k))
	}
	to.Words = grown(to.Words, len(to.Kinds))
	var words []uint64
	for k := telemetry.Float; k <= telemetry.Text; k++ {
		if counts[k] == 0 {
			continue
		}
		if words = r.kind(k, words[:0], counts[k], to); r.err != nil {
			return
		}
		next := 0
		for i, of := range to.Kinds {
			if of == k {
				to.Words[i] = words[next]
				next++
			}
		}
	}
}

// texts reads n strings as references to of.text, which r reads from.
func (r *reader) texts(dst []uint64, n int, of *Column) []uint64 {
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
type Decoder struct{ rows }

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

// rows are the columns of a block, to be read side by side.
type rows struct {
	batch.Arena
	shapes

	times   []int64
	words   []uint64 // of the times
	columns []Column
	names   []string // empty: not wanted
	wanted  int      // columns
	counts  []int    // values of each column
	next    []int    // of each column, the next value
	sets    [][]telemetry.Tag
	own     []uint64
}

// readingsTogether is for how many readings memory is allocated at once.
const readingsTogether = 32

func (r *rows) decode(b *Block, wanted []string) (err error) {
	n := len(b.columns)
	r.columns, r.names, r.counts, r.next = grown(r.columns, n), grown(r.names, n), grown(r.counts, n), grown(r.next, n)
	clear(r.next)
	if r.times, err = b.appendTimes(r.times[:0], &r.words); err != nil {
		return err
	}
	r.shapes = *b.shapes()
	if r.err != nil {
		return r.err
	}
	if r.sets, r.own, err = b.ownTags(); err != nil {
		return err
	}
	b.countValues(r.counts)
	r.wanted = 0
	for i := range r.columns {
		name := b.name(i)
		if wanted != nil && !slices.Contains(wanted, string(name)) {
			r.names[i] = ""
			continue
		}
		if len(name) == 0 {
			return errors.New("a block has a field without a name")
		}
		if r.names[i] != string(name) { // otherwise it is that of the last block
			r.names[i] = string(name)
		}
		r.wanted++
		if err := b.values(i, r.counts[i], &r.columns[i]); err != nil {
			return fmt.Errorf("read field %s of a block: %w", telemetry.Quote(name), err)
		}
	}
	return nil
}

// countValues counts the values of each column.
func (b *Block) countValues(counts []int) {
	clear(counts)
	r := b.shapes()
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
}

// read fills in reading i, which must be the one after the last.
func (r *rows) read(i int, to *telemetry.Reading) {
	to.Time = time.UnixMilli(r.times[i]).UTC()
	if len(r.own) > 0 && r.own[i] > 0 {
		if to.Tags = r.sets[r.own[i]-1]; len(to.Tags) == 0 {
			to.Tags = nil
		}
	}
	shape := r.all[0]
	if r.numbers != nil {
		shape = r.all[r.numbers[i]]
	}
	to.Fields = r.Take(min(len(shape), r.wanted), min(readingsTogether, len(r.times)-i))
	for _, at := range shape {
		if r.names[at] == "" {
			continue
		}
		to.Fields = append(to.Fields, telemetry.Field{Name: r.names[at], Value: r.columns[at].Value(r.next[at])})
		r.next[at]++
	}
	to.Fields = r.Keep(to.Fields)
}
