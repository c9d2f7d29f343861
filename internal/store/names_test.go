package store

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestSpanOfPrefix(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		prefix, after string
		want          NameSpan
	}{
		{"", "", NameSpan{}},
		{"", "a", NameSpan{From: "a", Behind: true}},
		{"a", "", NameSpan{From: "a", To: "b"}},
		{"a", "a1", NameSpan{From: "a1", Behind: true, To: "b"}},
		{"a", "Z", NameSpan{From: "a", To: "b"}},
		{"a\ud7ff", "", NameSpan{From: "a\ud7ff", To: "a\ue000"}},
		{"a\U0010ffff", "", NameSpan{From: "a\U0010ffff", To: "b"}},
		{"\U0010ffff", "", NameSpan{From: "\U0010ffff"}},
		{"a\xc3", "", NameSpan{From: "a", To: "b"}},
	} {
		assert.Equal(t, tt.want, SpanOf(telemetry.SensorQuery{Prefix: tt.prefix, After: tt.after}), "%q %q", tt.prefix, tt.after)
	}
}

func TestSpanHoldsWhatHasThePrefix(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		texts := rapid.StringOfN(rapid.RuneFrom([]rune{'a', 'b', 'é', 0xd7ff, 0xe000, 0x10ffff}), 0, 4, -1)
		q := telemetry.SensorQuery{Prefix: texts.Draw(rt, "prefix"), After: texts.Draw(rt, "after")}
		id := texts.Draw(rt, "id")
		span := SpanOf(q)
		inside := (id > span.From || id == span.From && !span.Behind) && (span.To == "" || id < span.To)
		require.Equal(rt, strings.HasPrefix(id, q.Prefix) && (id > q.After || q.After == ""), inside)
	})
}
