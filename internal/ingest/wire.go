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
func (m *wireMessage) next() bool {
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
