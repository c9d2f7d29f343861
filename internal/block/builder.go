package block

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Builder gathers readings of one sensor and encodes them as a block:
//
//	b.Reset()
//	b.Add(ref); b.Own(tags); b.Key(key)   // for each reading; Own and Key only where needed
//	data, err := b.Append(nil, block.Options{Statistics: true})
//
// Its memory is used again after Reset. It belongs to one goroutine at a time.
type Builder struct {
	times   []int64
	shapeOf []uint32 // of each reading, its number in shapes
	own     []uint32 // of each reading, 0 or its number in sets plus 1; may be shorter
	keys    []Key    // of each reading; empty if no reading has one

	shapes  [][]uint32        // the columns of a reading, in the order of its fields
	later   map[string]uint32 // shapes after the first few, by their columns as varints
	sets    [][]telemetry.Tag
	columns []column
	text    []byte

	named map[string]uint32 // columns
	plans map[*batch.Shape]*plans
	last  *batch.Shape
	plan  *plans // of last
	round uint32 // number of resets
	shape []uint32
	key   []byte

	encoder encoder
}

// A Key orders readings of the same time, see Compare.
type Key struct {
	Arrival  int64 // milliseconds since the epoch
	Session  string
	Sequence uint64
}

// Compare orders by arrival, session and sequence.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Arrival, other.Arrival), cmp.Compare(k.Session, other.Session), cmp.Compare(k.Sequence, other.Sequence))
}

// A column has the values of one field. Words are as in a batch; those of texts refer to
// the builder's text.
type column struct {
	name  string
	kind  telemetry.Kind // of all values; 0: of several
	words []uint64
	kinds []telemetry.Kind // of each value; only if of several
}

// plans says where the values of a batch's shape go.
type plans struct {
	columns []uint32
	kinds   []telemetry.Kind
	shape   uint32 // valid in that round
	round   uint32
}

// What a builder keeps at most for the next block.
const (
	maxPlans   = 1 << 10 // JSON may mix integers and doubles, so that a sensor has many shapes
	maxColumns = 1 << 10
)

// Reset makes the builder begin a block.
func (b *Builder) Reset() {
	b.times, b.shapeOf, b.own, b.keys = b.times[:0], b.shapeOf[:0], b.own[:0], b.keys[:0]
	clear(b.sets)
	clear(b.later)
	b.shapes, b.sets, b.text = b.shapes[:0], b.sets[:0], b.text[:0]
	if b.round++; b.named == nil || b.round == 0 || len(b.columns) > maxColumns || len(b.plans) > maxPlans {
		b.columns, b.later, b.last, b.plan, b.round = nil, nil, nil, nil, 1
		b.named, b.plans = make(map[string]uint32), make(map[*batch.Shape]*plans)
	}
	for i := range b.columns {
		c := &b.columns[i]
		c.kind, c.words, c.kinds = 0, c.words[:0], c.kinds[:0]
	}
}

// Len returns the number of readings.
func (b *Builder) Len() int { return len(b.times) }

// Add adds a reading; its tags are those of the document.
func (b *Builder) Add(r batch.Ref) {
	row := r.Row()
	shape := r.Batch.Shape(row)
	if shape != b.last || b.plan.round != b.round {
		b.usePlan(shape)
	}
	p := b.plan
	b.begin(row.Time, p.shape)
	words := r.Batch.Values(row)
	for i, at := range p.columns {
		c, kind := &b.columns[at], p.kinds[i]
		if kind == c.kind && kind != telemetry.Text {
			c.words = append(c.words, words[i])
			continue
		}
		word := words[i]
		if kind == telemetry.Text {
			word = b.addText(r.Batch.Text(word))
		}
		c.add(kind, word)
	}
}

func (b *Builder) usePlan(shape *batch.Shape) {
	if b.named == nil {
		b.Reset()
	}
	p := b.plans[shape]
	if p == nil {
		p = &plans{}
		for _, f := range shape.Fields {
			p.columns, p.kinds = append(p.columns, b.column(f.Name)), append(p.kinds, f.Kind)
		}
		b.plans[shape] = p
	}
	if p.round != b.round {
		p.shape, p.round = b.shapeNumber(p.columns), b.round
	}
	b.last, b.plan = shape, p
}

// AddReading adds a reading in its plain form; its tags are those of the document.
func (b *Builder) AddReading(r telemetry.Reading) {
	if b.named == nil {
		b.Reset()
	}
	b.shape = b.shape[:0]
	for _, f := range r.Fields {
		at := b.column(f.Name)
		b.shape = append(b.shape, at)
		word := uint64(f.Value.Int()) // the bits of a value of any kind
		if f.Value.Kind() == telemetry.Text {
			word = b.addText([]byte(f.Value.Text()))
		}
		b.columns[at].add(f.Value.Kind(), word)
	}
	b.begin(r.Time.UnixMilli(), b.shapeNumber(b.shape))
}

func (b *Builder) begin(time int64, shape uint32) {
	b.times, b.shapeOf = append(b.times, time), append(b.shapeOf, shape)
	if len(b.keys) > 0 {
		b.keys = append(b.keys, Key{})
	}
}

// Own gives the last reading tags of its own, which may be none.
func (b *Builder) Own(tags []telemetry.Tag) {
	const looked = 8 // a set may be listed twice
	at := -1
	for i := len(b.sets) - 1; i >= max(0, len(b.sets)-looked) && at < 0; i-- {
		if slices.Equal(b.sets[i], tags) {
			at = i
		}
	}
	if at < 0 {
		at = len(b.sets)
		b.sets = append(b.sets, tags)
	}
	b.own = append(b.own, make([]uint32, len(b.times)-len(b.own))...)
	b.own[len(b.times)-1] = uint32(at) + 1
}

// Key gives the last reading its order. Readings without one have the zero key if others
// have one.
func (b *Builder) Key(k Key) {
	b.keys = append(b.keys, make([]Key, len(b.times)-len(b.keys))...)
	b.keys[len(b.times)-1] = k
}

// column returns the number of the field's column.
func (b *Builder) column(name string) uint32 {
	at, ok := b.named[name]
	if !ok {
		at = uint32(len(b.columns))
		b.columns = append(b.columns, column{name: name})
		b.named[name] = at
	}
	return at
}

// firstShapes is how many shapes are found by comparison; most blocks have no more.
const firstShapes = 16

// shapeNumber returns the number of a shape.
func (b *Builder) shapeNumber(shape []uint32) uint32 {
	for i, have := range b.shapes[:min(len(b.shapes), firstShapes)] {
		if slices.Equal(have, shape) {
			return uint32(i)
		}
	}
	n := len(b.shapes)
	if n >= firstShapes {
		b.key = b.key[:0]
		for _, column := range shape {
			b.key = binary.AppendUvarint(b.key, uint64(column))
		}
		if number, ok := b.later[string(b.key)]; ok {
			return number
		}
		if b.later == nil {
			b.later = make(map[string]uint32)
		}
		b.later[string(b.key)] = uint32(n)
	}
	if n < cap(b.shapes) {
		b.shapes = b.shapes[:n+1]
		b.shapes[n] = append(b.shapes[n][:0], shape...)
	} else {
		b.shapes = append(b.shapes, slices.Clone(shape))
	}
	return uint32(n)
}

func (b *Builder) addText(s []byte) uint64 {
	at := len(b.text)
	b.text = append(b.text, s...)
	return uint64(at)<<32 | uint64(len(s))
}

func (c *column) add(kind telemetry.Kind, word uint64) {
	switch {
	case kind == c.kind:
	case len(c.words) == 0:
		c.kind = kind
	case c.kind != 0: // from now on, the kind of each value is noted
		c.kinds = append(c.kinds, slices.Repeat([]telemetry.Kind{c.kind}, len(c.words))...)
		c.kind = 0
	}
	if c.kind == 0 {
		c.kinds = append(c.kinds, kind)
	}
	c.words = append(c.words, word)
}
