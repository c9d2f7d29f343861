package batch

import (
	"math"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// LastShape returns the shape of the last reading that was taken, for Columns;
// nil if fields were left out of that. There must be one.
func (b *Builder) LastShape() *Shape {
	if b.partial {
		return nil
	}
	return b.last
}

// Columns gives all fields of a reading at once, none of them a Text. Their
// words, which are those that Values returns, lie in the columns of a table: that
// of field i is words[i*rows+row]. It is to be the only call that gives fields.
func (b *Builder) Columns(s *Shape, words []uint64, rows, row int) {
	if b.refusal != nil {
		return
	}
	for i := range s.Fields {
		word := words[i*rows+row]
		if s.Fields[i].Kind == telemetry.Float && word>>52&0x7ff == 0x7ff { // infinite, or no number
			b.Refuse(telemetry.CheckFloat([]byte(s.Fields[i].Name), math.Float64frombits(word)))
			return
		}
		b.values = append(b.values, word)
	}
	b.guess, b.matched = s, len(s.Fields)
}
