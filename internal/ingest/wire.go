package ingest

import (
	"errors"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

var errWire = errors.New("the message is not protobuf")

// A wireMessage walks over the fields of an encoded protobuf message, so that
// readings are decoded without a Go value for each part of them. Like every
// protobuf decoder its users skip fields that they do not know, or that have
// another wire type than they expect.
type wireMessage struct {
	rest  []byte
	num   protowire.Number
	kind  protowire.Type
	bytes []byte // of a field of bytes
	word  uint64 // of any other
	err   error
}

// next moves to the next field; it returns false at the end and on an error.
//
// Nearly all fields have a number below 16, and a length or an integer below
// 128, so that one byte each tells them.
func (m *wireMessage) next() bool {
	rest := m.rest
	if len(rest) < 2 || rest[0]-8 >= 0x80-8 || rest[1] >= 0x80 {
		return m.nextLong()
	}
	end := 2
	switch m.kind = protowire.Type(rest[0] & 7); m.kind {
	case protowire.VarintType:
		m.word = uint64(rest[1])
	case protowire.BytesType:
		if end += int(rest[1]); end > len(rest) {
			return m.fail()
		}
		m.bytes = rest[2:end]
	default:
		return m.nextLong()
	}
	m.num, m.rest = protowire.Number(rest[0]>>3), rest[end:]
	return true
}

// nextLong is next for all fields.
func (m *wireMessage) nextLong() bool {
	if len(m.rest) == 0 {
		return false
	}
	var n int
	if m.num, m.kind, n = protowire.ConsumeTag(m.rest); n < 0 {
		return m.fail()
	}
	m.rest = m.rest[n:]
	switch m.kind {
	case protowire.VarintType:
		m.word, n = protowire.ConsumeVarint(m.rest)
	case protowire.Fixed64Type:
		m.word, n = protowire.ConsumeFixed64(m.rest)
	case protowire.BytesType:
		m.bytes, n = protowire.ConsumeBytes(m.rest)
	default:
		n = protowire.ConsumeFieldValue(m.num, m.kind, m.rest)
	}
	if n < 0 {
		return m.fail()
	}
	m.rest = m.rest[n:]
	return true
}

func (m *wireMessage) fail() bool {
	m.rest, m.err = nil, errWire
	return false
}

// is reports whether the field is the one with this number and type.
func (m *wireMessage) is(num protowire.Number, kind protowire.Type) bool {
	return m.num == num && m.kind == kind
}

// eachVarint calls add for every element of a repeated integer, which may be
// packed or not. It returns false if the field is something else.
func (m *wireMessage) eachVarint(add func(uint64) error) error {
	if m.kind == protowire.VarintType {
		return add(m.word)
	}
	for rest := m.bytes; len(rest) > 0; {
		v, n := protowire.ConsumeVarint(rest)
		if n < 0 {
			return errWire
		}
		if err := add(v); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// eachDouble does the same for doubles.
func (m *wireMessage) eachDouble(add func(float64) error) error {
	if m.kind == protowire.Fixed64Type {
		return add(math.Float64frombits(m.word))
	}
	for rest := m.bytes; len(rest) > 0; {
		v, n := protowire.ConsumeFixed64(rest)
		if n < 0 {
			return errWire
		}
		if err := add(math.Float64frombits(v)); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// appendVarints appends the integers of a packed list to dst; false if the list
// is broken or has more than these many.
func appendVarints(dst []uint64, packed []byte, most int) ([]uint64, bool) {
	for most += len(dst); len(packed) > 0; {
		v, n := uint64(packed[0]), 1
		if v >= 0x80 {
			if v, n = protowire.ConsumeVarint(packed); n < 0 {
				return dst, false
			}
		}
		if len(dst) == most {
			return dst, false
		}
		dst, packed = append(dst, v), packed[n:]
	}
	return dst, true
}
