// Package block packs readings of one sensor into columns, and reads them. docs/storage.md
// describes the format byte by byte.
//
// A Builder makes a block; Open returns one for reading:
//
//	b, err := block.Open(data)   // checks the checksum and the header
//	b.Statistics()               // of all fields, without decoding values
//	b.Readings(sensor, tags, nil)
//
// A block that is damaged, or made to do harm, leads to an error. Open takes at most 16 times
// the block's size in memory. Values take what Len and Columns say: compare Len with the
// number of readings that a document should have before reading them, because a few bytes
// can stand for any number of equal values.
//
//	block.go     Block: header, times, shapes
//	reader.go    numbers and bytes
//	column.go    the values of a field; readings
//	builder.go   Builder: gathers readings
//	encode.go    Builder.Append
//	integers.go  streams of integers
//	floats.go    streams of doubles
//	stats.go     statistics
//	zstd.go      compression
package block

import (
	_ "embed" // decode.js
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// MaxReadings is how many readings a block has at most.
const MaxReadings = 1 << 20

// JavaScript is a function decodeBlocks(blocks, long), which decode.js describes.
//
//go:embed decode.js
var JavaScript string

const (
	version = 1
	maxName = 255 // bytes of a field's name
	crcSize = 4

	MaxColumns = 1 << 16 // numbers of columns have 16 bits
)

// Flags of a block.
const (
	hasStatistics = 1 << iota
	hasShapes
	hasTags
	hasKeys
	together // all sections are compressed as one

	allFlags = hasStatistics | hasShapes | hasTags | hasKeys | together
)

// Kinds of sections. Those of a column with values of one kind are the numbers of
// telemetry.Kind, from 1 to 4.
const (
	kindFloat  = byte(telemetry.Float)
	kindInt    = byte(telemetry.Int)
	kindBool   = byte(telemetry.Bool)
	kindText   = byte(telemetry.Text)
	kindNumber = 5 // integers and doubles
	kindMixed  = 6 // other kinds together
	kindShapes = 7
	kindTags   = 8
	kindKeys   = 9

	compressed = 0x80 // added to the kind
)

// The first number of a shape.
const (
	shapeAll  = iota // all columns
	shapeBits        // a bit for each column
	shapeList        // added to the number of columns; these follow
)

// A Block is a block that was opened. It refers to its data. It is not safe for concurrent use.
type Block struct {
	data        []byte // without the checksum
	content     []byte // where the sections are: data, or what was compressed
	n           int
	timeSection section
	rows        [3]section // shapes, tags, keys; zero if missing
	columns     []section
	statistics  []byte  // nil if missing
	shaped      *shapes // nil: not read yet
}

// shapes are the columns that readings have, in the order of their fields, and the number of
// each reading's shape; nil: all have the first.
type shapes struct {
	all     [][]uint16
	numbers []uint64
}

// A section is where a column is.
type section struct {
	from, to uint32
	name     uint32 // where a field's name begins
	length   uint8  // of the name
	kind     byte
}

// Open reads the header of a block, which must not be changed from then on.
func Open(data []byte) (*Block, error) {
	if len(data) < crcSize+2 {
		return nil, fmt.Errorf("a block has %d bytes; it needs at least %d", len(data), crcSize+2)
	}
	if data[0] != version {
		return nil, fmt.Errorf("a block has version %d; this program reads version %d", data[0], version)
	}
	body := data[:len(data)-crcSize]
	if want, got := binary.LittleEndian.Uint32(data[len(body):]), checksum(body); got != want {
		return nil, fmt.Errorf("a block is damaged: its checksum is %08x instead of %08x", got, want)
	}
	b := &Block{data: body}
	if err := b.open(); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *Block) open() error {
	r := &reader{rest: b.data[2:]}
	flags := b.data[1]
	n, columns := r.uvarint(), r.uvarint()
	switch {
	case flags&^allFlags != 0:
		r.fail(fmt.Sprintf("a block has flags %#02x; known flags are %#02x", flags, allFlags))
	case n == 0 || n > MaxReadings:
		r.fail(fmt.Sprintf("a block has %d readings; 1 to %d are allowed", n, MaxReadings))
	case columns > MaxColumns || columns > uint64(len(r.rest))/4: // kind, size, name
		r.fail(fmt.Sprintf("a block has %d columns; at most %d are allowed, of at least 4 bytes each", columns, MaxColumns))
	}
	if r.err != nil {
		return r.err
	}
	b.n, b.columns = int(n), make([]section, columns)
	b.openSection(r, &b.timeSection)
	for i, flag := range [...]byte{hasShapes, hasTags, hasKeys} {
		if flags&flag != 0 {
			b.openSection(r, &b.rows[i])
		}
	}
	for i := range b.columns {
		c := &b.columns[i]
		c.length = r.byte()
		c.name = uint32(len(b.data) - len(r.rest))
		r.take(int(c.length))
		b.openSection(r, c)
	}
	if flags&hasStatistics != 0 {
		b.statistics = r.take(r.size())
	}
	if r.err != nil {
		return r.err
	}
	if flags&together != 0 {
		content, err := decompress(nil, r.rest)
		if err != nil {
			return err
		}
		b.content = content
		return b.place(0)
	}
	b.content = b.data
	return b.place(len(b.data) - len(r.rest))
}

// openSection reads the kind and the size, which is left in section.to.
func (b *Block) openSection(r *reader, s *section) {
	s.kind = r.byte()
	s.to = uint32(r.size())
}

// place turns sizes into places; the first section begins at from.
func (b *Block) place(from int) error {
	next := func(s *section) {
		s.from = uint32(min(from, len(b.content)))
		from = min(from+int(s.to), len(b.content)+1)
		s.to = uint32(from)
	}
	next(&b.timeSection)
	kinds := b.timeSection.kind&^compressed == kindInt
	for i := range b.rows {
		if s := &b.rows[i]; s.kind != 0 {
			next(s)
			kinds = kinds && s.kind == kindShapes+byte(i)
		}
	}
	for i := range b.columns {
		c := &b.columns[i]
		next(c)
		k := c.kind &^ compressed
		kinds = kinds && k >= kindFloat && k <= kindMixed && c.length > 0
	}
	switch {
	case from != len(b.content):
		return errors.New("the sizes of a block's sections do not add up to its length")
	case !kinds:
		return errors.New("a block has a section of an unknown kind")
	}
	return nil
}

// Len returns the number of readings.
func (b *Block) Len() int { return b.n }

// Columns returns the number of fields; each has a column.
func (b *Block) Columns() int { return len(b.columns) }

// Name returns the field of column i.
func (b *Block) Name(i int) string { return string(b.name(i)) }

func (b *Block) name(i int) []byte {
	c := &b.columns[i]
	return b.data[c.name:][:c.length]
}

// Values returns how many values of the wanted fields the readings have; nil: of all. It
// reads no values.
func (b *Block) Values(wanted []string) (n int, err error) {
	counts := make([]int, len(b.columns))
	if err := b.countValues(counts); err != nil {
		return 0, err
	}
	for i, count := range counts {
		if wanted == nil || slices.Contains(wanted, b.Name(i)) {
			n += count
		}
	}
	return n, nil
}

// section returns a reader of a section. One that may be compressed needs memory.
func (b *Block) section(s *section, memory *[]byte) *reader {
	r := &reader{rest: b.content[s.from:s.to]}
	if s.kind&compressed != 0 {
		*memory, r.err = decompress((*memory)[:0], r.rest)
		r.rest = *memory
	}
	return r
}

// times appends the time of each reading, in milliseconds since the epoch.
func (b *Block) times(dst []uint64) ([]uint64, error) {
	r := b.section(&b.timeSection, new([]byte))
	dst = r.integers(dst, b.n)
	if err := r.end(); err != nil {
		return dst, fmt.Errorf("read the times of a block: %w", err)
	}
	return dst, nil
}

// shapes reads them at the first call.
func (b *Block) shapes() (*shapes, error) {
	switch {
	case b.shaped != nil:
	case b.rows[0].kind == 0:
		b.shaped = &shapes{all: [][]uint16{b.allColumns()}}
	default:
		r := b.section(&b.rows[0], nil)
		read := b.readShapes(r)
		if err := r.end(); err != nil {
			return nil, fmt.Errorf("read the shapes of a block: %w", err)
		}
		b.shaped = &read
	}
	return b.shaped, nil
}

func (b *Block) readShapes(r *reader) (s shapes) {
	s.all = make([][]uint16, 0, r.count())
	var all []uint16
	for range cap(s.all) {
		var shape []uint16
		switch head := r.uvarint(); head {
		case shapeAll:
			if all == nil {
				all = b.allColumns()
			}
			shape = all
		case shapeBits:
			shape = b.shapeOfBits(r)
		default:
			shape = b.shapeOfList(r, head-shapeList)
		}
		if r.err != nil {
			break
		}
		s.all = append(s.all, shape)
	}
	s.numbers = r.integers(nil, b.n)
	r.below(s.numbers, len(s.all))
	return s
}

func (b *Block) allColumns() []uint16 {
	list := make([]uint16, len(b.columns))
	for i := range list {
		list[i] = uint16(i)
	}
	return list
}

func (b *Block) shapeOfBits(r *reader) (shape []uint16) {
	set := r.take((len(b.columns) + 7) / 8)
	n := 0
	for _, of := range set {
		n += bits.OnesCount8(of)
	}
	shape = make([]uint16, 0, n)
	for i, of := range set {
		for ; of != 0; of &= of - 1 {
			at := 8*i + bits.TrailingZeros8(of)
			if at >= len(b.columns) {
				r.fail("a shape has a column that the block does not have")
				return nil
			}
			shape = append(shape, uint16(at))
		}
	}
	return shape
}

func (b *Block) shapeOfList(r *reader, n uint64) (shape []uint16) {
	if n > uint64(len(r.rest)) || n > uint64(len(b.columns)) {
		r.fail("a shape has more columns than the block")
		return nil
	}
	shape = make([]uint16, 0, n)
	for range n {
		at := r.uvarint()
		if at >= uint64(len(b.columns)) {
			r.fail("a shape has a column that the block does not have")
			return nil
		}
		shape = append(shape, uint16(at))
	}
	return shape
}
