package batch

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Packed holds the waiting readings of one sensor and session in a few bytes each. A
// reading is encoded as:
//
//	sequence  difference from the previous reading. Unless series and shape are those of the
//	          first reading, 0 and their numbers come before the difference
//	time      difference from the previous reading
//	arrival   delay from time to arrival, as the difference from the previous reading's
//	values    differences from the first reading if both have the same shape
//
// A sensor's values are close to each other and mostly decimals of a few digits, so that a
// value takes two or three bytes instead of eight.
type Packed struct {
	data   []byte
	series string // encoded, of the first reading
	shape  *Shape // of the first reading
	others *kinds // of further readings; nil: all have those of the first
	time   int64  // of the last reading
	delay  int64  // of the last reading, from its time to its arrival
	seq    uint64 // of the last reading
	n      int
}

// kinds are series and shapes with the numbers 1, 2, …; a value may be listed twice.
type kinds struct {
	series []string
	shapes []*Shape
}

// Len returns the number of readings.
func (p *Packed) Len() int { return p.n }

// BeginsWith reports whether the first reading has this series and shape.
func (p *Packed) BeginsWith(series *Series, shape *Shape) bool {
	return p.n > 0 && p.shape == shape && p.series == series.encoded
}

// AppendTags appends the sets of tags of the readings; one may be listed twice.
func (p *Packed) AppendTags(to [][]telemetry.Tag) [][]telemetry.Tag {
	add := func(encoded string) {
		if s, err := parseSeries(encoded); err == nil { // it was a series
			to = append(to, s.Tags)
		}
	}
	if p.n > 0 {
		add(p.series)
	}
	if p.others != nil {
		for _, series := range p.others.series {
			add(series)
		}
	}
	return to
}

// MemorySize estimates the bytes of heap that the readings take, without p itself.
func (p *Packed) MemorySize() int64 {
	n := cap(p.data) + len(p.series)
	if p.others != nil {
		n += 64 + 8*cap(p.others.shapes)
		for _, s := range p.others.series {
			n += 16 + len(s)
		}
	}
	return int64(n)
}

// Append adds a reading. It does nothing and returns false if the reading's sequence is not
// above that of the last one, or is 2^32 or more above that of the first one.
func (p *Packed) Append(r Ref) bool {
	b, row, seq := r.Batch, r.Row(), r.Seq()
	series, shape := b.series[row.series].encoded, b.shapes[row.shape]
	if p.n == 0 {
		*p = Packed{series: series, shape: shape}
	} else if first, _ := binary.Uvarint(p.data); seq <= p.seq || seq-first > math.MaxUint32 {
		return false
	}
	var scratch [128]byte
	to := scratch[:0]
	if s, k := p.seriesNumber(series), p.shapeNumber(shape); s+k > 0 {
		to = binary.AppendUvarint(binary.AppendUvarint(append(to, 0), s), k)
	}
	to = binary.AppendUvarint(to, seq-p.seq)
	to = binary.AppendVarint(to, row.Time-p.time)
	delay := r.Arrival() - row.Time
	to = binary.AppendVarint(to, delay-p.delay)
	var few [16]uint64
	first := p.first(few[:0], shape)
	for i, word := range b.Values(row) {
		switch shape.Fields[i].Kind {
		case telemetry.Float:
			to = appendFloat(to, word, first[i])
		case telemetry.Text:
			to = p.appendText(to, b.Text(word), first[i])
		default:
			to = binary.AppendVarint(to, int64(word-first[i]))
		}
	}
	if need := len(p.data) + len(to); need > cap(p.data) {
		larger := append([]byte(nil), make([]byte, need+len(p.data)/8)...)
		p.data = append(larger[:0], p.data...)
	}
	p.data = append(p.data, to...)
	p.time, p.delay, p.seq, p.n = row.Time, delay, seq, p.n+1
	return true
}

func (p *Packed) seriesNumber(encoded string) uint64 {
	if encoded == p.series {
		return 0
	}
	k := p.other()
	i := findLast(k.series, func(s string) bool { return s == encoded })
	if i == len(k.series) {
		k.series = append(k.series, encoded)
	}
	return uint64(i) + 1
}

func (p *Packed) shapeNumber(shape *Shape) uint64 {
	if p.isFirst(shape) {
		return 0
	}
	k := p.other()
	i := findLast(k.shapes, func(s *Shape) bool { return s == shape || s.key == shape.key })
	if i == len(k.shapes) {
		k.shapes = append(k.shapes, shape)
	}
	return uint64(i) + 1
}

func (p *Packed) isFirst(shape *Shape) bool { return shape == p.shape || shape.key == p.shape.key }

func (p *Packed) other() *kinds {
	if p.others == nil {
		p.others = &kinds{}
	}
	return p.others
}

// findLast returns the index of a value if it is among the last few, else the list's length.
func findLast[T any](list []T, found func(T) bool) int {
	const looked = 4
	for i := len(list) - 1; i >= max(0, len(list)-looked); i-- {
		if found(list[i]) {
			return i
		}
	}
	return len(list)
}

// first appends the values that those of a reading with the given shape are relative to:
// those of the first reading, where a text's word refers to p.data, or zeros.
func (p *Packed) first(to []uint64, shape *Shape) []uint64 {
	if p.n == 0 || !p.isFirst(shape) {
		for range shape.Fields {
			to = append(to, 0)
		}
		return to
	}
	d := unpacker{data: p.data}
	d.uvarint()
	d.varint()
	d.varint()
	for _, f := range p.shape.Fields {
		to = append(to, d.value(f.Kind, 0))
	}
	return to
}

// appendText appends 0 if the text is that of the first reading, otherwise its length plus 1
// and its bytes.
func (p *Packed) appendText(to, text []byte, first uint64) []byte {
	if n := uint32(first); n > 0 && bytes.Equal(text, p.data[first>>32:][:n]) {
		return append(to, 0)
	}
	return append(binary.AppendUvarint(to, uint64(len(text))+1), text...)
}

// A decimal with up to len(powers)-1 fractional digits is encoded as an integer.
var powers = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6}

const (
	exact = 1 << 53 // bounds the integers that a double represents exactly
	near  = 1e-3    // how far a scaled decimal may be from an integer
)

// appendFloat appends a double: a byte with its form and the number of bytes that follow.
// These are, little endian, the distance from the first reading's value: the difference of
// decimals, or the bits that differ.
func appendFloat(to []byte, word, first uint64) []byte {
	form, rest := len(powers), word^first
	v := math.Float64frombits(word)
	for e, power := range powers {
		x := v * power
		m := math.RoundToEven(x)
		if math.Abs(x-m) > near || math.Abs(m) >= exact { // saves most divisions
			continue
		}
		if math.Float64bits(float64(int64(m))/power) == word { // false for -0
			d := int64(m) - scaled(first, power)
			form, rest = e, uint64(d)<<1^uint64(d>>63)
			break
		}
	}
	to = append(to, byte(form<<4|(bits.Len64(rest)+7)/8))
	for ; rest > 0; rest >>= 8 {
		to = append(to, byte(rest))
	}
	return to
}

// scaled returns a double as a decimal, or 0 if that is not possible.
func scaled(word uint64, power float64) int64 {
	if m := math.RoundToEven(math.Float64frombits(word) * power); math.Abs(m) < exact {
		return int64(m)
	}
	return 0
}

// Unpack returns the readings as a batch, which is not changed by Append. Its Session,
// Recovered, Tracker and granularity are left to the caller. A Row's Index is not kept.
func (p *Packed) Unpack() Batch {
	if p.n == 0 {
		return Batch{}
	}
	b := Batch{
		rows: make([]Row, 0, p.n), places: make([]uint32, 0, p.n), arrivals: make([]int64, 0, p.n), values: make([]uint64, 0, p.n*len(p.shape.Fields)),
		series: []seriesRef{refOf(p.series)}, shapes: []*Shape{p.shape},
	}
	if p.others != nil {
		for _, encoded := range p.others.series {
			b.series = append(b.series, refOf(encoded))
		}
		b.shapes = append(b.shapes, p.others.shapes...)
	}
	d := unpacker{data: p.data}
	var seq uint64
	var delay int64
	var row Row
	first := make([]uint64, len(p.shape.Fields)) // values, as far as they are known
	for i := range p.n {
		step := d.uvarint()
		row.series, row.shape = 0, 0
		if step == 0 && i > 0 {
			row.series, row.shape = uint32(d.uvarint()), uint32(d.uvarint())
			step = d.uvarint()
		}
		if seq += step; i == 0 {
			b.FirstSeq = seq
		}
		row.Time += d.varint()
		delay += d.varint()
		row.offset = uint32(len(b.values))
		shape := b.shapes[row.shape]
		row.Size = shape.size
		for f := range shape.Fields {
			kind, from := shape.Fields[f].Kind, uint64(0)
			if row.shape == 0 {
				from = first[f]
			}
			word := d.value(kind, from)
			if i == 0 {
				first[f] = word
			}
			if kind == telemetry.Text {
				n := uint32(word)
				row.Size += n
				word = uint64(b.text.add(p.data[word>>32:][:n]))<<32 | uint64(n)
			}
			b.values = append(b.values, word)
		}
		b.rows, b.places = append(b.rows, row), append(b.places, uint32(seq-b.FirstSeq))
		b.arrivals = append(b.arrivals, row.Time+delay)
	}
	b.memory = b.countMemory(0)
	return b
}

func refOf(encoded string) seriesRef {
	s, _ := parseSeries(encoded) // it was a series
	return seriesRef{s, s.Hash}
}

// An unpacker reads packed data, which is always valid.
type unpacker struct {
	data []byte
	at   int
}

func (d *unpacker) uvarint() uint64 {
	v, n := binary.Uvarint(d.data[d.at:])
	d.at += n
	return v
}

func (d *unpacker) varint() int64 {
	v, n := binary.Varint(d.data[d.at:])
	d.at += n
	return v
}

// value returns a word. A text's word has the text's offset in the data in the upper 32 bits,
// and its length in the lower ones. first is the value of the first reading.
func (d *unpacker) value(kind telemetry.Kind, first uint64) uint64 {
	switch kind {
	case telemetry.Float:
		return d.float(first)
	case telemetry.Text:
		n := d.uvarint()
		if n == 0 {
			return first
		}
		at := d.at
		d.at += int(n - 1)
		return uint64(at)<<32 | (n - 1)
	default:
		return first + uint64(d.varint())
	}
}

func (d *unpacker) float(first uint64) uint64 {
	head := d.data[d.at]
	d.at++
	var rest uint64
	for i := range int(head & 0xf) {
		rest |= uint64(d.data[d.at]) << (8 * i)
		d.at++
	}
	if form := int(head >> 4); form < len(powers) {
		m := int64(rest>>1) ^ -int64(rest&1)
		return math.Float64bits(float64(m+scaled(first, powers[form])) / powers[form])
	}
	return first ^ rest
}
