package store

import (
	"strings"
	"unicode/utf8"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// NameSpan is where the ids of a query lie in the order of their bytes: from
// From on, without From itself where Behind is set, and below To unless that is
// empty.
type NameSpan struct {
	From, To string
	Behind   bool
}

// SpanOf returns the span of a query's ids. It holds every id that is asked
// for; where the prefix is not whole UTF-8, others too, which HasPrefix tells.
func SpanOf(q telemetry.SensorQuery) NameSpan {
	prefix := strings.ToValidUTF8(q.Prefix, "\xff")
	prefix, _, _ = strings.Cut(prefix, "\xff")
	span := NameSpan{From: prefix, To: behindPrefix(prefix)}
	if q.After >= span.From && q.After != "" {
		span.From, span.Behind = q.After, true
	}
	return span
}

// behindPrefix returns the least text above all that begin with the prefix, ""
// where there is none. In UTF-8, the order of bytes is that of code points.
func behindPrefix(prefix string) string {
	const surrogates, behindSurrogates = 0xD800, 0xE000
	for prefix != "" {
		r, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		if r == utf8.MaxRune {
			continue
		}
		if r++; r == surrogates {
			r = behindSurrogates
		}
		return prefix + string(r)
	}
	return ""
}
