package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Origin is what a batch was taken in under, which its encoded form leaves out.
type Origin struct {
	Session   string
	FirstSeq  uint64
	Recovered bool
	// Granularity returns that of a stream at the time; nil: its present one.
	Granularity func(stream string) time.Duration
	// Interner knows series and shapes; nil: none.
	Interner *Interner
}

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
	d := decoder{rest: rest, batch: b, interner: origin.Interner}
	for _, step := range []func(*head) error{d.series, d.shapes, d.texts, d.rows} {
		if err := step(&h); err != nil {
			return nil, err
		}
	}
	b.memory = b.countMemory(d.own)
	return b, nil
}

type head struct {
	received                                           int64
	rows, series, shapes, fields, tags, values, chunks int
	seriesBytes, shapesBytes                           int
}

// decodeHead checks that the numbers can be true of that many bytes, so that
// they may be believed when memory is reserved.
func decodeHead(src []byte) (h head, rest []byte, err error) {
	if len(src) < headSize {
		return head{}, nil, errShort
	}
	h.received = int64(binary.LittleEndian.Uint64(src))
	for i, n := range [...]*int{
		&h.rows, &h.series, &h.shapes, &h.fields, &h.tags, &h.values, &h.chunks, &h.seriesBytes, &h.shapesBytes,
	} {
		*n = int(binary.LittleEndian.Uint32(src[8+4*i:]))
	}
	rest = src[headSize:]
	// Each thing takes at least this many bytes; a name has one, at least.
	least := h.rows*rowSize + h.values*valueSize + h.chunks*4 + h.seriesBytes + h.shapesBytes
	switch {
	case least > len(rest):
		return head{}, nil, errShort
	case h.series*(3*sizePrefix+1) > h.seriesBytes || h.tags*(2*sizePrefix+1) > h.seriesBytes:
		return head{}, nil, errors.New("the encoded batch has more series or tags than bytes for them")
	case h.shapes*(sizePrefix+4) > h.shapesBytes || h.fields*4 > h.shapesBytes:
		return head{}, nil, errors.New("the encoded batch has more fields than bytes for them")
	}
	return h, rest, nil
}

type decoder struct {
	rest     []byte
	batch    *Batch
	interner *Interner
	own      int // bytes of what the interner did not know
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

// series decodes all series.
func (d *decoder) series(h *head) error {
	section, err := d.take(h.seriesBytes)
	if err != nil {
		return err
	}
	all := make([]seriesRef, h.series)
	tags := 0
	for i := range all {
		_, rest, n, err := cutSeries(section)
		if err != nil {
			return err
		}
		s, err := d.seriesOf(section[:len(section)-len(rest)])
		if err != nil {
			return err
		}
		all[i] = seriesRef{s, s.Hash}
		section, tags = rest, tags+n
	}
	if len(section) > 0 || tags != h.tags {
		return errors.New("the series of the encoded batch do not add up")
	}
	d.batch.series = all
	return nil
}

// seriesOf returns the series that was encoded so.
func (d *decoder) seriesOf(encoded []byte) (*Series, error) {
	if d.interner != nil {
		if s := d.interner.seriesOf(encoded); s != nil {
			return s, nil
		}
	}
	s, err := newSeries(string(encoded))
	if err != nil {
		return nil, err
	}
	d.own += s.memory()
	if d.interner != nil {
		d.interner.setSeries(s.encoded, s)
	}
	return s, nil
}

// shapes decodes all shapes.
func (d *decoder) shapes(h *head) error {
	section, err := d.take(h.shapesBytes)
	if err != nil {
		return err
	}
	all := make([]*Shape, h.shapes)
	fields := 0
	for i := range all {
		var key []byte
		if key, section, err = cutChecked(section); err != nil {
			return err
		}
		if all[i], err = d.shapeOf(key, h.fields-fields); err != nil {
			return err
		}
		fields += len(all[i].Fields)
	}
	if len(section) > 0 || fields != h.fields {
		return errors.New("the fields of the encoded batch do not add up")
	}
	d.batch.shapes = all
	return nil
}

// shapeOf returns the shape with this key, which has so many fields at most.
func (d *decoder) shapeOf(encoded []byte, most int) (*Shape, error) {
	if d.interner != nil {
		if s := d.interner.shapeOf(encoded); s != nil {
			return s, nil
		}
	}
	shape := &Shape{key: string(encoded)}
	for key := (cutter{rest: shape.key}); key.rest != ""; {
		kind := telemetry.Kind(key.rest[0])
		key.rest = key.rest[1:]
		name := key.text()
		if key.short || kind < telemetry.Float || kind > telemetry.Text || len(shape.Fields) == most {
			return nil, errFields
		}
		shape.Fields = append(shape.Fields, FieldType{Name: name, Kind: kind})
		shape.size += elementSize(kind, len(name))
	}
	d.own += shape.memory()
	if d.interner != nil {
		d.interner.setShape(shape)
	}
	return shape, nil
}

func (d *decoder) texts(h *head) error {
	if h.chunks == 0 {
		return nil
	}
	chunks := make([][]byte, h.chunks)
	for i := range chunks {
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
		chunks[i] = append(make([]byte, 0, n), chunk...)
	}
	d.batch.text.chunks = chunks
	return nil
}

// rows decodes rows and values, which must be all that is left.
func (d *decoder) rows(h *head) error {
	rows, err := d.take(h.rows * rowSize)
	if err != nil {
		return err
	}
	if len(d.rest) != h.values*valueSize {
		return errors.New("the values of the encoded batch do not add up")
	}
	b := d.batch
	b.values = make([]uint64, h.values)
	for i := range b.values {
		b.values[i] = binary.LittleEndian.Uint64(d.rest[i*valueSize:])
	}
	b.rows = make([]Row, h.rows)
	offset := 0
	for i := range b.rows {
		r, from := &b.rows[i], rows[i*rowSize:][:rowSize]
		r.Time = int64(binary.LittleEndian.Uint64(from))
		r.Index = binary.LittleEndian.Uint32(from[8:])
		r.Size = binary.LittleEndian.Uint32(from[12:])
		r.series = binary.LittleEndian.Uint32(from[16:])
		r.shape = binary.LittleEndian.Uint32(from[20:])
		r.offset = uint32(offset)
		if int(r.series) >= h.series || int(r.shape) >= h.shapes {
			return fmt.Errorf("row %d of the encoded batch refers to what is not there", i)
		}
		offset += len(b.shapes[r.shape].Fields)
		if offset > h.values {
			return fmt.Errorf("row %d of the encoded batch has no values", i)
		}
	}
	if offset != h.values {
		return errors.New("the encoded batch has values that belong to no row")
	}
	if h.chunks > 0 || d.hasText() {
		return d.checkTexts()
	}
	return nil
}

func (d *decoder) hasText() bool {
	for i := range d.batch.shapes {
		for _, f := range d.batch.shapes[i].Fields {
			if f.Kind == telemetry.Text {
				return true
			}
		}
	}
	return false
}

// checkTexts makes sure that every reference to a string can be followed.
func (d *decoder) checkTexts() error {
	b := d.batch
	for i := range b.rows {
		words := b.Values(&b.rows[i])
		for f, ft := range b.shapes[b.rows[i].shape].Fields {
			if ft.Kind != telemetry.Text {
				continue
			}
			at, n := uint32(words[f]>>32), uint32(words[f])
			chunk := int(at / textChunk)
			if chunk >= len(b.text.chunks) || int64(at%textChunk)+int64(n) > int64(len(b.text.chunks[chunk])) {
				return fmt.Errorf("row %d of the encoded batch refers to a string that is not there", i)
			}
		}
	}
	return nil
}

// A cutter takes strings with their length in front off a longer one.
type cutter struct {
	rest  string
	short bool // something was missing; what was returned since is empty
}

func (c *cutter) number() int {
	if len(c.rest) < sizePrefix {
		c.rest, c.short = "", true
		return 0
	}
	n := int(c.rest[0]) | int(c.rest[1])<<8
	c.rest = c.rest[sizePrefix:]
	return n
}

func (c *cutter) text() string {
	n := c.number()
	if n > len(c.rest) {
		c.rest, c.short = "", true
		return ""
	}
	s := c.rest[:n]
	c.rest = c.rest[n:]
	return s
}

// Summary is what can be said of an encoded batch at little cost.
type Summary struct {
	Received time.Time
	Readings int
}

// Summarize looks into an encoded batch without decoding it, and calls visit
// with each stream and the number of its readings; a stream may come more than
// once.
func Summarize(src []byte, visit func(stream []byte, readings int)) (Summary, error) {
	h, rest, err := decodeHead(src)
	if err != nil {
		return Summary{}, err
	}
	out := Summary{Received: time.Unix(0, h.received), Readings: h.rows}
	if h.series == 0 || visit == nil {
		return out, nil
	}
	names, same, err := streamNames(rest[:h.seriesBytes], h.series)
	if err != nil {
		return Summary{}, err
	}
	if same {
		visit(names[0], h.rows)
		return out, nil
	}
	rows := len(rest) - h.values*valueSize - h.rows*rowSize // they end the batch
	for i := range h.rows {
		n := binary.LittleEndian.Uint32(rest[rows+i*rowSize+16:])
		if int(n) >= len(names) {
			return Summary{}, fmt.Errorf("row %d of the encoded batch refers to what is not there", i)
		}
		visit(names[n], 1)
	}
	return out, nil
}

// streamNames returns the streams of n encoded series, only the first if all
// have the same.
func streamNames(section []byte, n int) (names [][]byte, same bool, err error) {
	same = true
	names = make([][]byte, 0, 1)
	for i := range n {
		var stream []byte
		if stream, section, _, err = cutSeries(section); err != nil {
			return nil, false, err
		}
		if same && i > 0 && !bytes.Equal(stream, names[0]) {
			same = false
			for len(names) < i {
				names = append(names, names[0])
			}
		}
		if !same || i == 0 {
			names = append(names, stream)
		}
	}
	return names, same, nil
}

// cutSeries cuts an encoded series off the front.
func cutSeries(section []byte) (stream, rest []byte, tags int, err error) {
	if stream, rest, err = cutChecked(section); err != nil {
		return nil, nil, 0, err
	}
	if _, rest, err = cutChecked(rest); err != nil {
		return nil, nil, 0, err
	}
	if len(rest) < sizePrefix {
		return nil, nil, 0, errShort
	}
	tags = int(binary.LittleEndian.Uint16(rest))
	rest = rest[sizePrefix:]
	for range 2 * tags {
		if _, rest, err = cutChecked(rest); err != nil {
			return nil, nil, 0, err
		}
	}
	return stream, rest, tags, nil
}

// cutChecked is cutSized for bytes that may be anything.
func cutChecked(b []byte) (s, rest []byte, err error) {
	if len(b) < sizePrefix {
		return nil, nil, errShort
	}
	n := int(binary.LittleEndian.Uint16(b))
	if n > len(b)-sizePrefix {
		return nil, nil, errShort
	}
	return b[sizePrefix : sizePrefix+n], b[sizePrefix+n:], nil
}
