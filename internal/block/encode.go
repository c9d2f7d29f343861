package block

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Options say what a block is made for.
type Options struct {
	// Statistics puts those of each field into the header.
	Statistics bool
	// Compress packs columns with zstd where that makes them smaller. JavaScript cannot
	// read them.
	Compress bool
}

// encoder is memory that is used again from block to block.
type encoder struct {
	integers []uint64
	odd      []uint32 // places of doubles that are no decimals
	words    []uint64
	texts    map[string]uint64
	list     []byte // of texts
	bytewise bool

	all      [1]uint32 // the first shape
	order    []uint32  // columns in the order in which they are written
	places   []uint32  // of columns in order
	data     []byte    // of all sections
	sections []written
	second   []byte // a section before and
	packed   []byte // after compression
	together []byte // all sections, compressed
}

// written is a section in encoder.data.
type written struct {
	kind byte
	size int
}

// Append appends the readings as a block. There must be 1 to MaxReadings.
func (b *Builder) Append(dst []byte, o Options) ([]byte, error) {
	e := &b.encoder
	n := len(b.times)
	switch {
	case n == 0:
		return dst, errors.New("a block needs at least one reading")
	case n > MaxReadings:
		return dst, fmt.Errorf("%d readings do not fit into a block; at most %d do", n, MaxReadings)
	}
	shapes := b.use()
	if len(e.order) > MaxColumns {
		return dst, fmt.Errorf("%d fields do not fit into a block; at most %d do", len(e.order), MaxColumns)
	}
	for _, at := range e.order {
		if name := b.columns[at].name; name == "" || len(name) > maxName {
			return dst, fmt.Errorf("field name %q has %d bytes; names have 1 to %d", name, len(name), maxName)
		}
	}
	flags := b.appendSections(shapes, o)
	start := len(dst)
	if o.Statistics {
		flags |= hasStatistics
	}
	dst = append(dst, version, flags)
	dst = binary.AppendUvarint(dst, uint64(n))
	dst = binary.AppendUvarint(dst, uint64(len(e.order)))
	rows := len(e.sections) - len(e.order)
	for i, s := range e.sections {
		if i >= rows {
			name := b.columns[e.order[i-rows]].name
			dst = append(append(dst, byte(len(name))), name...)
		}
		dst = append(dst, s.kind)
		dst = binary.AppendUvarint(dst, uint64(s.size))
	}
	if o.Statistics {
		e.second = b.appendStatistics(e.second[:0])
		dst = binary.AppendUvarint(dst, uint64(len(e.second)))
		dst = append(dst, e.second...)
	}
	dst = append(dst, e.data...)
	return binary.LittleEndian.AppendUint32(dst, checksum(dst[start:])), nil
}

// maxTogether is how long sections are at most that are compressed together: a reader of
// one must decompress all.
const maxTogether = 64 << 10

// appendSections appends all sections to e.data, and returns the flags of those that are
// there.
func (b *Builder) appendSections(shapes []uint32, o Options) (flags byte) {
	e := &b.encoder
	all := func(o Options) {
		e.data, e.sections = e.data[:0], e.sections[:0]
		flags = b.appendRows(shapes, o)
		for _, at := range e.order {
			c := &b.columns[at]
			e.section(o, func(dst []byte) (byte, []byte) { return b.appendValues(dst, c) })
		}
	}
	e.bytewise = o.Compress
	if o.Compress {
		all(Options{})
		if len(e.data) <= maxTogether {
			e.together = appendCompressed(e.together[:0], e.data)
			inflation := len(e.data) / len(e.together)
			sections := slices.Clone(e.sections)
			e.bytewise = false
			if all(o); len(e.together) < len(e.data) && inflation < maxInflation {
				e.data, e.together = e.together, e.data
				e.sections = sections
				flags |= together
			}
			return flags
		}
		e.bytewise = false
	}
	all(o)
	return flags
}

func checksum(data []byte) uint32 { return crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) }

// use lists the columns that have values, so that most readings have their fields in that
// order, and returns the numbers of the shapes that are in use. A column comes behind the
// one that precedes it in the first shape where it is.
func (b *Builder) use() (shapes []uint32) {
	e := &b.encoder
	if len(b.shapes) == 1 {
		e.order = append(e.order[:0], b.shapes[0]...)
		return e.all[:]
	}
	used, listed := make([]bool, len(b.shapes)), make([]bool, len(b.columns))
	before := uint32(len(b.shapes))
	head := uint32(len(b.columns))
	next := make([]uint32, head+1) // a ring: the column that follows each, and the first one after head
	next[head] = head
	for _, shape := range b.shapeOf {
		if shape == before || used[shape] {
			continue
		}
		before, used[shape] = shape, true
		shapes = append(shapes, shape)
		last := head
		for _, column := range b.shapes[shape] {
			if !listed[column] {
				listed[column], next[column], next[last] = true, next[last], column
			}
			last = column
		}
	}
	e.order = e.order[:0]
	for column := next[head]; column != head; column = next[column] {
		e.order = append(e.order, column)
	}
	return shapes
}

// section appends a section to the data, compressed if that is wanted and pays.
func (e *encoder) section(o Options, appendTo func([]byte) (byte, []byte)) {
	const worth = 64 // bytes from which on zstd is tried
	start := len(e.data)
	var kind byte
	kind, e.data = appendTo(e.data)
	if size := len(e.data) - start; o.Compress && size >= worth {
		e.bytewise = true
		_, e.second = appendTo(e.second[:0])
		e.bytewise = false
		e.packed = appendCompressed(e.packed[:0], e.second)
		if len(e.packed) < size && len(e.second) <= maxInflation*len(e.packed) {
			kind |= compressed
			e.data = append(e.data[:start], e.packed...)
		}
	}
	e.sections = append(e.sections, written{kind: kind, size: len(e.data) - start})
}

// appendRows appends the sections that readings have beside their fields, and returns the
// flags of those that are there.
func (b *Builder) appendRows(shapes []uint32, o Options) (flags byte) {
	e := &b.encoder
	e.section(o, func(dst []byte) (byte, []byte) {
		e.words = grown(e.words, len(b.times))
		for i, t := range b.times {
			e.words[i] = uint64(t)
		}
		return kindInt, appendIntegers(dst, e.words, e.bytewise)
	})
	if len(shapes) > 1 {
		flags |= hasShapes
		e.section(Options{}, func(dst []byte) (byte, []byte) { return kindShapes, b.appendShapes(dst, shapes) })
	}
	if slices.ContainsFunc(b.own, func(set uint32) bool { return set != 0 }) {
		flags |= hasTags
		e.section(Options{}, func(dst []byte) (byte, []byte) { return kindTags, b.appendOwnTags(dst) })
	}
	if len(b.keys) > 0 {
		flags |= hasKeys
		e.section(Options{}, func(dst []byte) (byte, []byte) { return kindKeys, b.appendKeys(dst) })
	}
	return flags
}

func (b *Builder) appendShapes(dst []byte, shapes []uint32) []byte {
	e := &b.encoder
	e.places = grown(e.places, len(b.columns))
	for i, column := range e.order {
		e.places[column] = uint32(i)
	}
	dst = binary.AppendUvarint(dst, uint64(len(shapes)))
	numbers := make([]uint64, len(b.shapes))
	for i, shape := range shapes {
		numbers[shape] = uint64(i)
		dst = e.appendShape(dst, b.shapes[shape])
	}
	e.words = grown(e.words, len(b.shapeOf))
	for i, shape := range b.shapeOf {
		e.words[i] = numbers[shape]
	}
	return appendIntegers(dst, e.words, e.bytewise)
}

func (e *encoder) appendShape(dst []byte, shape []uint32) []byte {
	rising := true
	for i := 1; i < len(shape); i++ {
		rising = rising && e.places[shape[i]] > e.places[shape[i-1]]
	}
	const place = 3 // bytes at most
	bytes := (len(e.order) + 7) / 8
	switch {
	case rising && len(shape) == len(e.order):
		dst = append(dst, shapeAll)
	case !rising || bytes > place*len(shape):
		dst = binary.AppendUvarint(dst, shapeList+uint64(len(shape)))
		for _, column := range shape {
			dst = binary.AppendUvarint(dst, uint64(e.places[column]))
		}
	default:
		dst = append(dst, shapeBits)
		at := len(dst)
		dst = append(dst, make([]byte, bytes)...)
		for _, column := range shape {
			dst[at+int(e.places[column]/8)] |= 1 << (e.places[column] % 8)
		}
	}
	return dst
}

func (b *Builder) appendOwnTags(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b.sets)))
	for _, set := range b.sets {
		dst = binary.AppendUvarint(dst, uint64(len(set)))
		for _, t := range set {
			dst = appendSized(appendSized(dst, t.Name), t.Value)
		}
	}
	e := &b.encoder
	e.words = grown(e.words, len(b.times))
	clear(e.words)
	for i, set := range b.own {
		e.words[i] = uint64(set)
	}
	return appendIntegers(dst, e.words, e.bytewise)
}

func (b *Builder) appendKeys(dst []byte) []byte {
	e := &b.encoder
	arrivals, sequences := make([]uint64, len(b.times)), make([]uint64, len(b.times))
	e.words = grown(e.words, len(b.times))
	clear(e.words)
	var sessions []string
	number := make(map[string]uint64)
	for i := range b.times {
		var k Key
		if i < len(b.keys) {
			k = b.keys[i]
		}
		n, ok := number[k.Session]
		if !ok {
			n = uint64(len(sessions))
			number[k.Session] = n
			sessions = append(sessions, k.Session)
		}
		arrivals[i], e.words[i], sequences[i] = uint64(k.Arrival), n, k.Sequence
	}
	dst = binary.AppendUvarint(dst, uint64(len(sessions)))
	for _, s := range sessions {
		dst = appendSized(dst, s)
	}
	for _, stream := range [][]uint64{arrivals, e.words, sequences} {
		dst = appendIntegers(dst, stream, e.bytewise)
	}
	return dst
}

func appendSized[S string | []byte](dst []byte, s S) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// appendValues appends a column, and returns its kind.
func (b *Builder) appendValues(dst []byte, c *column) (kind byte, _ []byte) {
	e := &b.encoder
	if c.kind != 0 {
		return byte(c.kind), b.appendKind(dst, c.kind, c.words)
	}
	if data, ok := e.appendNumbers(dst, c); ok {
		return kindNumber, data
	}
	e.words = grown(e.words, len(c.kinds))
	for i, k := range c.kinds {
		e.words[i] = uint64(k)
	}
	dst = appendIntegers(dst, e.words, e.bytewise)
	for k := telemetry.Float; k <= telemetry.Text; k++ {
		e.words = e.words[:0]
		for i, of := range c.kinds {
			if of == k {
				e.words = append(e.words, c.words[i])
			}
		}
		if len(e.words) > 0 {
			dst = b.appendKind(dst, k, e.words)
		}
	}
	return kindMixed, dst
}

func (b *Builder) appendKind(dst []byte, kind telemetry.Kind, words []uint64) []byte {
	switch kind {
	case telemetry.Float:
		return b.encoder.appendDoubles(dst, words)
	case telemetry.Text:
		return b.appendTexts(dst, words)
	default:
		e := &b.encoder
		e.integers = append(e.integers[:0], words...)
		return appendIntegers(dst, e.integers, e.bytewise)
	}
}

// appendNumbers appends integers and doubles as decimals, of which the whole ones are
// integers. It returns false if there are others, or the result would be large.
func (e *encoder) appendNumbers(dst []byte, c *column) (_ []byte, ok bool) {
	e.words = e.words[:0]
	for i, k := range c.kinds {
		switch k {
		case telemetry.Float:
			e.words = append(e.words, c.words[i])
		case telemetry.Int:
		default:
			return dst, false
		}
	}
	const most = 15
	exponent, share := chooseExponent(e.words, 1)
	if share < 0.5 || exponent > most || !e.mixedToDecimals(c.words, c.kinds, exponent) || len(e.odd) > len(c.words)/8 {
		return dst, false
	}
	return e.appendDecimals(dst, c.words, exponent), true
}

// appendTexts appends the different strings, and a stream of their numbers.
func (b *Builder) appendTexts(dst []byte, words []uint64) []byte {
	e := &b.encoder
	if e.texts == nil {
		e.texts = make(map[string]uint64)
	}
	clear(e.texts)
	e.integers, e.list = grown(e.integers, len(words)), e.list[:0]
	for i, word := range words {
		s := b.text[word>>32:][:uint32(word)]
		number, ok := e.texts[string(s)]
		if !ok {
			number = uint64(len(e.texts))
			e.texts[string(s)] = number
			e.list = appendSized(e.list, s)
		}
		e.integers[i] = number
	}
	dst = binary.AppendUvarint(dst, uint64(len(e.texts)))
	return appendIntegers(append(dst, e.list...), e.integers, e.bytewise)
}
