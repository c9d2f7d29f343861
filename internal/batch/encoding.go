package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// The encoded form of a batch, all numbers little endian:
//
//	head    received (ns) · rows · series · shapes · fields · values ·
//	        chunks · bytes of the series · bytes of the shapes
//	series  bytes of what follows the hash · hash · stream, sensor, number of tags,
//	        then name and value of each; a string has its length in front, see pack
//	shapes  length of the key, then the key: kind, length and name of each field
//	texts   length of the chunk, then the chunk
//	rows    time · index · size · series · shape
//	values  one word each, row after row
//
// Session and first sequence are in the record that the batch is written in, and the
// granularity is in the settings of its segment.
const (
	headSize   = 8 + 8*4
	rowSize    = 8 + 4*4
	valueSize  = 8
	seriesHead = 4 + 8
	sizePrefix = 2 // of strings and keys, all far below 64 KiB
)

// AppendBinary adds the encoded form of b to dst.
func AppendBinary(dst []byte, b *Batch) []byte {
	seriesBytes, shapesBytes, fields := 0, 0, 0
	for i := range b.series {
		seriesBytes += seriesHead + len(b.series[i].packed)
	}
	for i := range b.shapes {
		shapesBytes += sizePrefix + len(b.shapes[i].key)
		fields += len(b.shapes[i].Fields)
	}
	dst = binary.LittleEndian.AppendUint64(dst, uint64(b.Received.UnixNano()))
	for _, n := range [...]int{
		len(b.rows), len(b.series), len(b.shapes), fields, len(b.values), len(b.text.chunks),
		seriesBytes, shapesBytes,
	} {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
	}
	for i := range b.series {
		s := &b.series[i]
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(s.packed)))
		dst = binary.LittleEndian.AppendUint64(dst, s.hash)
		dst = append(dst, s.packed...)
	}
	for i := range b.shapes {
		dst = appendSizedText(dst, b.shapes[i].key)
	}
	for _, c := range b.text.chunks {
		dst = append(binary.LittleEndian.AppendUint32(dst, uint32(len(c))), c...)
	}
	dst = appendRows(dst, b.rows)
	return appendValues(dst, b.values)
}

func appendRows(dst []byte, rows []Row) []byte {
	at := len(dst)
	dst = slices.Grow(dst, len(rows)*rowSize)[:at+len(rows)*rowSize]
	for i := range rows {
		r, to := &rows[i], dst[at+i*rowSize:][:rowSize]
		binary.LittleEndian.PutUint64(to, uint64(r.Time))
		binary.LittleEndian.PutUint32(to[8:], r.Index)
		binary.LittleEndian.PutUint32(to[12:], r.Size)
		binary.LittleEndian.PutUint32(to[16:], r.series)
		binary.LittleEndian.PutUint32(to[20:], r.shape)
	}
	return dst
}

func appendValues(dst []byte, values []uint64) []byte {
	at := len(dst)
	dst = slices.Grow(dst, len(values)*valueSize)[:at+len(values)*valueSize]
	to := dst[at:]
	for i, v := range values {
		binary.LittleEndian.PutUint64(to[i*valueSize:], v)
	}
	return dst
}

func appendSizedText(dst []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint16(dst, uint16(len(s))), s...)
}

// Origin is what a batch was journaled under and its encoded form leaves out.
type Origin struct {
	Session   string
	FirstSeq  uint64
	Recovered bool
	// Granularity returns that of a stream at the time; nil: its present one.
	Granularity func(stream string) time.Duration
	// Interner knows series and shapes; nil: a new one.
	Interner *Interner
	// Part says whose rows are wanted; what is of others is left out.
	Part Part
}

// A Part is one of several that a stream's sensors are divided into by the hash
// of their series. The zero Part is all of them.
type Part struct {
	Stream     string // empty: any
	Number, Of uint64
}

// isOf reports whether a packed series is one of the part's stream. A broken one is,
// so that decoding it fails.
func (p Part) isOf(packed []byte) bool {
	if p.Stream == "" {
		return true
	}
	c := cutter[[]byte]{rest: packed}
	return string(c.text()) == p.Stream || c.short
}

// Has reports whether series with this hash belong to the part.
func (p Part) Has(hash uint64) bool { return p.Of == 0 || hash%p.Of == p.Number }

var (
	errShort  = errors.New("the encoded batch ends too early")
	errSeries = errors.New("a series of the encoded batch is broken")
	errFields = errors.New("a list of fields in the encoded batch is broken")
)

// Decode returns the batch that AppendBinary encoded. It keeps no reference to
// src. Any bytes may be given: what is not a batch is an error, and never costs
// more memory than a small multiple of its length.
func Decode(src []byte, origin Origin) (*Batch, error) {
	h, rest, err := decodeHead(src)
	if err != nil {
		return nil, err
	}
	b := &Batch{
		Received: time.Unix(0, h.received),
		Session:  origin.Session, FirstSeq: origin.FirstSeq, Recovered: origin.Recovered, granularity: origin.Granularity,
	}
	if origin.Interner == nil {
		origin.Interner = NewInterner(0)
	}
	d := decoder{rest: rest, batch: b, interner: origin.Interner, part: origin.Part}
	for _, step := range []func(*head) error{d.series, d.shapes, d.texts, d.rows} {
		if err := step(&h); err != nil {
			return nil, err
		}
	}
	b.memory = b.countMemory(d.own)
	return b, nil
}

type head struct {
	received                                     int64
	rows, series, shapes, fields, values, chunks int
	seriesBytes, shapesBytes                     int
}

// decodeHead checks that the numbers fit the length of src, so that memory can be
// reserved by them.
func decodeHead(src []byte) (h head, rest []byte, err error) {
	if len(src) < headSize {
		return head{}, nil, errShort
	}
	h.received = int64(binary.LittleEndian.Uint64(src))
	for i, n := range [...]*int{
		&h.rows, &h.series, &h.shapes, &h.fields, &h.values, &h.chunks, &h.seriesBytes, &h.shapesBytes,
	} {
		*n = int(binary.LittleEndian.Uint32(src[8+4*i:]))
	}
	rest = src[headSize:]
	// These are the least bytes of each item; a name has at least one.
	least := h.rows*rowSize + h.values*valueSize + h.chunks*4 + h.seriesBytes + h.shapesBytes
	switch {
	case least > len(rest):
		return head{}, nil, errShort
	case h.series*(seriesHead+3*sizePrefix+1) > h.seriesBytes:
		return head{}, nil, errors.New("the encoded batch has more series than bytes for them")
	case h.shapes*(sizePrefix+4) > h.shapesBytes || h.fields*4 > h.shapesBytes:
		return head{}, nil, errors.New("the encoded batch has more fields than bytes for them")
	}
	return h, rest, nil
}

type decoder struct {
	rest     []byte
	batch    *Batch
	interner *Interner
	part     Part
	own      int      // bytes of what the interner did not know
	numbers  []uint32 // of the encoded series in the batch, from 1; 0: not wanted
	chunks   [][]byte // of the encoded strings
	unread   int      // bytes of them: each string is there for one value
}

// take cuts n bytes off the front.
func (d *decoder) take(n int) ([]byte, error) {
	if n > len(d.rest) {
		return nil, errShort
	}
	cut := d.rest[:n]
	d.rest = d.rest[n:]
	return cut, nil
}

// series decodes the series that are wanted.
func (d *decoder) series(h *head) error {
	section, err := d.take(h.seriesBytes)
	if err != nil {
		return err
	}
	d.numbers = make([]uint32, h.series)
	d.batch.series = make([]seriesRef, 0, d.guess(h.series))
	for i := range d.numbers {
		hash, encoded, rest, err := cutEntry(section)
		if err != nil {
			return err
		}
		section = rest
		if !d.part.Has(hash) || !d.part.isOf(encoded) {
			continue
		}
		s, made, err := d.interner.unpacked(encoded)
		if err != nil {
			return err
		}
		d.own += made
		if s.Hash != hash {
			return errSeries
		}
		d.batch.series = append(d.batch.series, seriesRef{s, hash})
		d.numbers[i] = uint32(len(d.batch.series))
	}
	if len(section) > 0 {
		return errors.New("the series of the encoded batch do not add up")
	}
	return nil
}

// guess estimates how many of n items are wanted.
func (d *decoder) guess(n int) int {
	if d.part.Of <= 1 {
		return n
	}
	return n/int(d.part.Of) + 8
}

// shapes decodes all shapes.
func (d *decoder) shapes(h *head) error {
	section, err := d.take(h.shapesBytes)
	if err != nil {
		return err
	}
	all := make([]*Shape, h.shapes)
	fields := 0
	c := cutter[[]byte]{rest: section}
	for i := range all {
		if all[i] = d.shapeOf(c.text()); all[i] == nil {
			return errFields
		}
		fields += len(all[i].Fields)
	}
	if c.short || len(c.rest) > 0 || fields != h.fields {
		return errors.New("the fields of the encoded batch do not add up")
	}
	d.batch.shapes = all
	return nil
}

// shapeOf returns the shape with this key, or nil if the key is invalid.
func (d *decoder) shapeOf(key []byte) *Shape {
	_, shape := d.interner.find(keyShape, key)
	if shape != nil {
		return shape
	}
	if shape = parseShape(string(key), nil); shape != nil {
		d.own += shape.memory()
		d.interner.add(keyShape, shape.key, nil, shape)
	}
	return shape
}

// texts finds the strings, which are copied with the rows that have them.
func (d *decoder) texts(h *head) error {
	for range h.chunks {
		size, err := d.take(4)
		if err != nil {
			return err
		}
		n := binary.LittleEndian.Uint32(size)
		if n > textChunk {
			return fmt.Errorf("a text of the encoded batch has %d bytes", n)
		}
		chunk, err := d.take(int(n))
		if err != nil {
			return err
		}
		d.chunks = append(d.chunks, chunk)
		d.unread += len(chunk)
	}
	if d.part.Of <= 1 {
		d.batch.text.first = min(d.unread, textChunk)
	}
	return nil
}

// rows decodes the rows that are wanted with their values; all of them must be
// all that is left.
func (d *decoder) rows(h *head) error {
	rows, err := d.take(h.rows * rowSize)
	if err != nil {
		return err
	}
	if len(d.rest) != h.values*valueSize {
		return errors.New("the values of the encoded batch do not add up")
	}
	b := d.batch
	b.rows = make([]Row, 0, d.guess(h.rows))
	b.values = make([]uint64, 0, d.guess(h.values))
	if d.part.Of > 1 {
		b.places = make([]uint32, 0, d.guess(h.rows))
	}
	offset := 0
	for i := range h.rows {
		from := rows[i*rowSize:][:rowSize]
		series, shape := binary.LittleEndian.Uint32(from[16:]), binary.LittleEndian.Uint32(from[20:])
		if int(series) >= h.series || int(shape) >= h.shapes {
			return fmt.Errorf("row %d of the encoded batch refers to a series or shape that does not exist", i)
		}
		words := offset
		if offset += len(b.shapes[shape].Fields); offset > h.values {
			return fmt.Errorf("row %d of the encoded batch has no values", i)
		}
		if d.numbers[series] == 0 {
			continue
		}
		r := Row{
			Time:  int64(binary.LittleEndian.Uint64(from)),
			Index: binary.LittleEndian.Uint32(from[8:]), Size: binary.LittleEndian.Uint32(from[12:]),
			series: d.numbers[series] - 1, shape: shape, offset: uint32(len(b.values)),
		}
		if err := d.values(&r, d.rest[words*valueSize:offset*valueSize]); err != nil {
			return fmt.Errorf("row %d of the encoded batch: %w", i, err)
		}
		b.rows = append(b.rows, r)
		if b.places != nil {
			b.places = append(b.places, uint32(i))
		}
	}
	if offset != h.values {
		return errors.New("the encoded batch has values that belong to no row")
	}
	return nil
}

// values decodes the values of a row, and copies its strings.
func (d *decoder) values(r *Row, words []byte) error {
	b := d.batch
	for i := range b.shapes[r.shape].Fields {
		word := binary.LittleEndian.Uint64(words[i*valueSize:])
		if b.shapes[r.shape].Fields[i].Kind == telemetry.Text {
			at, n := uint32(word>>32), uint32(word)
			chunk := int(at / textChunk)
			if d.unread -= int(n); chunk >= len(d.chunks) || d.unread < 0 || int64(at%textChunk)+int64(n) > int64(len(d.chunks[chunk])) {
				return errors.New("it refers to a string that does not exist")
			}
			word = uint64(b.text.add(d.chunks[chunk][at%textChunk:][:n]))<<32 | uint64(n)
		}
		b.values = append(b.values, word)
	}
	return nil
}

// A cutter reads numbers and length-prefixed strings from the front of a longer
// string.
type cutter[T string | []byte] struct {
	rest  T
	short bool // something was missing; what was returned since is empty
}

func (c *cutter[T]) number() int {
	if len(c.rest) < sizePrefix {
		c.rest, c.short = c.rest[:0], true
		return 0
	}
	n := int(c.rest[0]) | int(c.rest[1])<<8
	c.rest = c.rest[sizePrefix:]
	return n
}

func (c *cutter[T]) text() T {
	n := c.number()
	if n > len(c.rest) {
		n, c.rest, c.short = 0, c.rest[:0], true
	}
	s := c.rest[:n]
	c.rest = c.rest[n:]
	return s
}

// cutEntry cuts an encoded series off the front.
func cutEntry(section []byte) (hash uint64, encoded, rest []byte, err error) {
	if len(section) < seriesHead {
		return 0, nil, nil, errShort
	}
	n := uint64(binary.LittleEndian.Uint32(section))
	hash = binary.LittleEndian.Uint64(section[4:])
	if section = section[seriesHead:]; n > uint64(len(section)) {
		return 0, nil, nil, errShort
	}
	return hash, section[:n], section[n:], nil
}

// A StreamCount is the number of readings that a batch has for a stream.
type StreamCount struct {
	Stream   string
	Readings uint64
}

// Summarize returns when an encoded batch arrived, and how many readings it has for
// each stream, without decoding it. A stream may occur more than once.
func Summarize(src []byte) (received time.Time, streams []StreamCount, err error) {
	h, section, err := decodeHead(src)
	if err != nil {
		return time.Time{}, nil, err
	}
	counts := make([]uint64, h.series)
	rows := section[len(section)-h.values*valueSize-h.rows*rowSize:] // they end the batch
	for i := range h.rows {
		n := binary.LittleEndian.Uint32(rows[i*rowSize+16:])
		if int(n) >= len(counts) {
			return time.Time{}, nil, fmt.Errorf("row %d of the encoded batch refers to a series that does not exist", i)
		}
		counts[n]++
	}
	section = section[:h.seriesBytes]
	for _, n := range counts {
		var encoded []byte
		if _, encoded, section, err = cutEntry(section); err != nil {
			return time.Time{}, nil, err
		}
		c := cutter[[]byte]{rest: encoded}
		stream := c.text()
		if c.short {
			return time.Time{}, nil, errShort
		}
		if k := len(streams) - 1; k < 0 || string(stream) != streams[k].Stream {
			streams = append(streams, StreamCount{Stream: string(stream)})
		}
		streams[len(streams)-1].Readings += n
	}
	return time.Unix(0, h.received), streams, nil
}
