// Package telemetry is the vocabulary that Brim and its clients share: what a
// reading is, which readings are acceptable, what an acknowledgement promises,
// and the few kinds of error that a request can end with. It depends on the
// standard library only.
package telemetry

import (
	"math"
	"time"
)

// A Reading is what one sensor measured at one instant.
type Reading struct {
	Sensor string    // 1 byte to 1 KiB of printable UTF-8
	Time   time.Time // UTC, whole milliseconds
	Fields []Field   // 1 to 256, names unique
	Tags   []Tag     // 0 to 256, names unique; facts about the sensor, not measurements
}

// A Field is one measured value with its name.
type Field struct {
	Name  string
	Value Value
}

// A Tag is a fact about the sensor that rarely changes: a site, a firmware.
type Tag struct {
	Name, Value string
}

// Kind is the type of a Value.
type Kind uint8

// The kinds of value. Numbers (Float, Int) have statistics in bucket
// documents, the others are stored as they are.
const (
	Float Kind = iota + 1 // finite IEEE 754 double
	Int                   // signed 64-bit integer
	Bool
	Text // UTF-8, at most 1 KiB
)

// String returns the kind's name in error messages.
func (k Kind) String() string {
	switch k {
	case Float:
		return "float"
	case Int:
		return "integer"
	case Bool:
		return "boolean"
	case Text:
		return "string"
	}
	return "unknown"
}

// Numeric reports whether values of this kind have statistics.
func (k Kind) Numeric() bool { return k == Float || k == Int }

// A Value is a number, a boolean or a short string. Values compare with ==.
type Value struct {
	kind Kind
	bits uint64
	text string
}

// FloatValue returns v as a Value.
func FloatValue(v float64) Value { return Value{kind: Float, bits: math.Float64bits(v)} }

// IntValue returns v as a Value.
func IntValue(v int64) Value { return Value{kind: Int, bits: uint64(v)} }

// TextValue returns v as a Value.
func TextValue(v string) Value { return Value{kind: Text, text: v} }

// BoolValue returns v as a Value.
func BoolValue(v bool) Value {
	if v {
		return Value{kind: Bool, bits: 1}
	}
	return Value{kind: Bool}
}

// Kind says which of the following accessors is meaningful.
func (v Value) Kind() Kind { return v.kind }

// Float returns the double of a Float value.
func (v Value) Float() float64 { return math.Float64frombits(v.bits) }

// Int returns the integer of an Int value.
func (v Value) Int() int64 { return int64(v.bits) }

// Bool returns the boolean of a Bool value.
func (v Value) Bool() bool { return v.bits != 0 }

// Text returns the string of a Text value.
func (v Value) Text() string { return v.text }

// Any returns a float64, an int64, a bool or a string.
func (v Value) Any() any {
	switch v.kind {
	case Int:
		return v.Int()
	case Bool:
		return v.Bool()
	case Text:
		return v.Text()
	default:
		return v.Float()
	}
}

// TimeFormat is the format of all timestamps that Brim writes: UTC, always three decimals.
const TimeFormat = "2006-01-02T15:04:05.000Z"

// AppendTime appends a time in TimeFormat. It takes a third of the time of AppendFormat,
// which is only fast for RFC 3339.
func AppendTime(dst []byte, t time.Time) []byte {
	t = t.UTC()
	dst = t.AppendFormat(dst, time.RFC3339)
	ms := t.Nanosecond() / int(time.Millisecond)
	return append(dst[:len(dst)-1], '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}
