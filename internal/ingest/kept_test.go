package ingest

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// someRejected is an answer that names two of three refused readings of five.
func someRejected() answer {
	return answer{
		Accepted: 2, Rejected: 3, Errors: []refusedReading{
			{Index: 0, Code: telemetry.Malformed, Message: "no"}, {Index: 4, Code: telemetry.FieldName, Message: "ü"},
		},
		reasons: map[telemetry.Code]int{telemetry.Malformed: 2, telemetry.FieldName: 1},
	}
}

func TestKeptAnswersComeBack(t *testing.T) {
	t.Parallel()
	all := answer{Accepted: 100, Errors: []refusedReading{}}
	kept := all.encode(100)
	assert.Equal(t, []byte{1, 100, 0}, kept, "the common case is short")
	back, err := decodeAnswer(kept)
	require.NoError(t, err)
	assert.Equal(t, all, back)

	some := someRejected()
	back, err = decodeAnswer(some.encode(2))
	require.NoError(t, err)
	assert.Equal(t, some, back)
}

func TestABrokenKeptAnswerIsAnError(t *testing.T) {
	t.Parallel()
	some := someRejected()
	kept := some.encode(2)
	for n := range kept {
		_, err := decodeAnswer(kept[:n])
		require.Error(t, err, "cut at %d of %d bytes", n, len(kept))
	}
	_, err := decodeAnswer(append(slices.Clone(kept), 0))
	require.Error(t, err, "something behind it")
	kept[0] = 3
	_, err = decodeAnswer(kept)
	require.Error(t, err, "a version that is not known")
	for name, change := range map[string]func(*answer){
		"a count that is not the sum": func(a *answer) { a.reasons[telemetry.FieldName] = 2 },
		"an index beyond the request": func(a *answer) { a.Errors[1].Index = 5 },
		"an index twice":              func(a *answer) { a.Errors[1].Index = 0 },
		"no first error":              func(a *answer) { a.Errors = nil },
		"more errors than rejected":   func(a *answer) { a.Rejected, a.reasons = 1, map[telemetry.Code]int{telemetry.Malformed: 1} },
	} {
		a := someRejected()
		change(&a)
		_, err := decodeAnswer(a.encode(2))
		assert.Error(t, err, name)
	}
}

func FuzzKeptAnswer(f *testing.F) {
	some := someRejected()
	all := answer{}
	f.Add(some.encode(2))
	f.Add(all.encode(1))
	f.Add([]byte{1, 0, 1, 1, 0, 1, 1, 0, 0, 0})
	f.Add([]byte{1, 7, 0})
	f.Add([]byte("\x02" + `{"accepted":1,"rejected":2,"reasons":{"a":1,"b":1},"errors":[{"index":1,"code":"b","message":"<\u0000"}]}`))
	f.Fuzz(func(t *testing.T, kept []byte) {
		a, err := decodeAnswer(kept)
		if err != nil {
			return
		}
		require.LessOrEqual(t, max(a.Accepted, a.Rejected), MostReadings)
		require.GreaterOrEqual(t, min(a.Accepted, a.Rejected), 0)
		if kept[0] == keptCounts {
			require.Empty(t, a.Errors)
			return
		}
		total := 0
		for _, n := range a.reasons {
			total += n
		}
		require.Equal(t, a.Rejected, total)
		require.LessOrEqual(t, len(a.Errors), min(maxListed, a.Rejected))
		for _, e := range a.Errors {
			require.Less(t, e.Index, a.Accepted+a.Rejected)
			require.Contains(t, a.reasons, e.Code)
		}
		again, err := decodeAnswer(a.encode(a.Accepted))
		require.NoError(t, err)
		require.Equal(t, a, again)
	})
}

func TestKeys(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		values []string
		key    string
		wrong  string
	}{
		{"none", nil, "", ""},
		{"a short one", []string{"k"}, "k", ""},
		{"with spaces and accents", []string{"a b-ü"}, "a b-ü", ""},
		{"as long as allowed", []string{strings.Repeat("k", 128)}, strings.Repeat("k", 128), ""},
		{"one byte longer", []string{strings.Repeat("k", 129)}, "", "a key is 1 to 128 bytes of printable UTF-8"},
		{"an empty one", []string{""}, "", `the idempotency key "" cannot be used`},
		{"two", []string{"a", "b"}, "", "2 idempotency keys are given; one is allowed"},
		{"a control character", []string{"a\x00b"}, "", "printable UTF-8"},
		{"a line separator", []string{"a\u2028b"}, "", "printable UTF-8"},
		{"no UTF-8", []string{"a\xff"}, "", "printable UTF-8"},
	} {
		key, err := idempotencyKey(c.values)
		assert.Equal(t, c.key, key, c.name)
		if c.wrong == "" {
			assert.NoError(t, err, c.name)
		} else {
			assert.ErrorContains(t, err, c.wrong, c.name)
		}
	}
}
