package journal

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// The journal of this test is stored up to 100 and known to be durable up to
// 300; 100 to 140, 150 to 200 and 200 to 220 were given up.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	c := &scan{applied: 100, durable: 300, lost: []span{{From: 100, To: 140}, {From: 150, To: 200}, {From: 200, To: 220}}}
	for _, row := range []struct {
		name     string
		from, to uint64
		end      bool
		want     verdict
	}{
		{"stored", 20, 90, false, stored},
		{"stored to its last byte", 20, 100, false, stored},
		{"stored, at the end", 20, 100, true, stored},
		{"stored, and the rest given up", 50, 140, false, skipped},
		{"partly stored", 20, 141, false, damaged},
		{"needed and durable", 140, 150, false, damaged},
		{"given up", 150, 220, false, skipped},
		{"given up, at the end", 160, 180, true, skipped},
		{"partly given up", 149, 220, false, damaged},
		{"given up but for its end", 150, 221, false, damaged},
		{"durable, at the end", 250, 400, true, damaged},
		{"the last durable byte", 299, 400, true, damaged},
		{"behind all that is durable", 300, 400, true, torn},
		{"behind all that is durable, and not at the end", 300, 400, false, damaged},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, row.want, c.classify(&badRange{Problem: Problem{Position: row.from}, to: row.to, end: row.end}))
		})
	}
}
