package ingest

import (
	"math"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A likeness is what a line decoder knows of the shape of the last reading.
type likeness struct {
	shape *batch.Shape
	plain bool // its names can stand in a line as they are, and all fields are numbers
	words []uint64
}

// likeLast decodes fields that are those of the last reading, in the same
// order: their names are compared rather than looked for, and the builder gets
// their values at once. It returns how many bytes those are, with the end of the
// line or a space behind them; 0, with nothing given to the builder, if
// something is different.
func (d *lineDecoder) likeLast(s []byte) int {
	l := &d.like
	if shape := d.in.builder.LastShape(); shape != l.shape {
		l.shape, l.plain = shape, isPlain(shape)
	}
	if !l.plain {
		return 0
	}
	l.words = l.words[:0]
	at := 0
	for i := range l.shape.Fields {
		f := &l.shape.Fields[i]
		if i > 0 {
			if at == len(s) || s[at] != ',' {
				return 0
			}
			at++
		}
		value := at + len(f.Name) + 1
		if value >= len(s) || s[value-1] != '=' || string(s[at:value-1]) != f.Name {
			return 0
		}
		word, length := simpleWordOf(f.Kind, s[value:])
		if length == 0 {
			return 0
		}
		l.words = append(l.words, word)
		at = value + length
	}
	if at < len(s) && s[at] != ' ' {
		return 0
	}
	d.in.builder.Columns(l.shape, l.words, 1, 0)
	return at
}

func isPlain(shape *batch.Shape) bool {
	if shape == nil {
		return false
	}
	for _, f := range shape.Fields {
		if f.Kind != telemetry.Int && f.Kind != telemetry.Float || simpleWord([]byte(f.Name)) < len(f.Name) {
			return false
		}
	}
	return true
}

// simpleWordOf decodes a value of a kind that s begins with, to the word that a
// batch keeps, and returns its length; 0 if it is not simple, or of another kind.
func simpleWordOf(kind telemetry.Kind, s []byte) (word uint64, length int) {
	switch kind {
	case telemetry.Int:
		sign := 0
		if s[0] == '-' {
			sign = 1
		}
		n, digits := readDigits(0, s[sign:])
		length = sign + digits
		if digits == 0 || digits >= maxDigits || length == len(s) || s[length] != 'i' {
			return 0, 0
		}
		if sign > 0 {
			n = -n
		}
		return n, length + 1
	case telemetry.Float:
		v, length := shortDecimal(s)
		return math.Float64bits(v), length
	default:
		return 0, 0
	}
}
