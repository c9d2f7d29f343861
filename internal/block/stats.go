package block

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Statistics are those of a block's readings.
type Statistics struct {
	First, Last int64 // times of the earliest and of the latest reading
	// Fields are those of the fields' numbers, first and last in the order of the readings. Fields
	// without any have N = 0 and nothing else.
	Fields []telemetry.FieldSummary
}

// The first byte of a number in the header.
const (
	numberInt  = 0x1e // in place of an exponent
	numberBits = 0x1f
	numberNear = 0x20 // added to an exponent: a sum of decimals, which is rounded
)

func (b *Builder) appendStatistics(dst []byte) []byte {
	first, last := b.times[0], b.times[0]
	for _, t := range b.times {
		first, last = min(first, t), max(last, t)
	}
	dst = binary.AppendUvarint(dst, zigzag(uint64(first)))
	dst = binary.AppendUvarint(dst, uint64(last)-uint64(first))
	for _, at := range b.encoder.order {
		f := b.columns[at].statistics()
		if dst = binary.AppendUvarint(dst, uint64(f.N)); f.N == 0 {
			continue
		}
		for _, v := range [...]telemetry.Value{f.Min, f.Max, telemetry.FloatValue(f.Sum), f.First, f.Last} {
			dst = appendNumber(dst, v)
		}
	}
	return dst
}

func (c *column) statistics() (f telemetry.FieldSummary) {
	for i, word := range c.words {
		kind := c.kind
		if kind == 0 {
			kind = c.kinds[i]
		}
		var v telemetry.Value
		switch kind {
		case telemetry.Int:
			v = telemetry.IntValue(int64(word))
			f.Sum += float64(int64(word))
		case telemetry.Float:
			v = telemetry.FloatValue(math.Float64frombits(word))
			f.Sum += v.Float()
		default:
			continue
		}
		if f.N++; f.N == 1 {
			f.Min, f.Max, f.First = v, v, v
		}
		if telemetry.CompareNumbers(v, f.Min) < 0 {
			f.Min = v
		}
		if telemetry.CompareNumbers(v, f.Max) > 0 {
			f.Max = v
		}
		f.Last = v
	}
	return f
}

// appendNumber appends an integer, a double as a decimal of few digits, or its bits.
func appendNumber(dst []byte, v telemetry.Value) []byte {
	if v.Kind() == telemetry.Int {
		return binary.AppendUvarint(append(dst, numberInt), zigzag(uint64(v.Int())))
	}
	word := math.Float64bits(v.Float())
	const most = 6
	for e := range most {
		if m, ok := decimal(word, powers[e]); ok {
			return binary.AppendUvarint(append(dst, byte(e)), zigzag(uint64(m)))
		}
	}
	const small = 1 << 40
	if scaled := v.Float() * powers[most]; math.Abs(scaled) < small {
		m := int64(math.RoundToEven(scaled))
		near := math.Float64bits(float64(m) / powers[most])
		if apart := zigzag(word - near); apart < small>>20 {
			e := most
			for ; e > 0 && m%10 == 0 && math.Float64bits(float64(m/10)/powers[e-1]) == near; e-- {
				m /= 10
			}
			dst = binary.AppendUvarint(append(dst, byte(e)|numberNear), zigzag(uint64(m)))
			return binary.AppendUvarint(dst, apart)
		}
	}
	return binary.LittleEndian.AppendUint64(append(dst, numberBits), word)
}

func (r *reader) number() telemetry.Value {
	switch head := r.byte(); {
	case head == numberInt:
		return telemetry.IntValue(int64(unzigzag(r.uvarint())))
	case head == numberBits:
		if c := r.take(8); c != nil {
			return telemetry.FloatValue(math.Float64frombits(binary.LittleEndian.Uint64(c)))
		}
	case int(head&^numberNear) < len(powers):
		word := math.Float64bits(float64(int64(unzigzag(r.uvarint()))) / powers[head&^numberNear])
		if head&numberNear != 0 {
			word += unzigzag(r.uvarint())
		}
		return telemetry.FloatValue(math.Float64frombits(word))
	default:
		r.fail("a number has an unknown form")
	}
	return telemetry.Value{}
}

// Statistics returns the statistics in the header, false if the block has none. Fields are
// in the order of the columns.
func (b *Block) Statistics() (s Statistics, ok bool, err error) {
	if b.statistics == nil {
		return s, false, nil
	}
	r := &reader{rest: b.statistics}
	first := unzigzag(r.uvarint())
	s.First, s.Last = int64(first), int64(first+r.uvarint())
	if len(r.rest) < len(b.columns) {
		r.fail("the statistics of a block are too short")
		return Statistics{}, false, r.err
	}
	s.Fields = make([]telemetry.FieldSummary, len(b.columns))
	for i := range s.Fields {
		f := &s.Fields[i]
		n := r.uvarint()
		if n > uint64(b.n) {
			r.fail("the statistics of a block have too many values")
		}
		if f.Name = b.Name(i); n == 0 {
			continue
		}
		f.N = int64(n)
		f.Min, f.Max = r.number(), r.number()
		sum := r.number()
		f.Sum, f.First, f.Last = sum.Float(), r.number(), r.number()
		if sum.Kind() != telemetry.Float {
			r.fail("a sum is not a double")
		}
	}
	if err := r.end(); err != nil {
		return Statistics{}, false, errors.New("read the statistics of a block: " + err.Error())
	}
	return s, true, nil
}
