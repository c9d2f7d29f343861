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
	assert.Len(t, kept, 2, "the common case is short")
	back, err := decodeAnswer(kept, 100)
	require.NoError(t, err)
	assert.Equal(t, all, back)

	some := someRejected()
	back, err = decodeAnswer(some.encode(2), 5)
	require.NoError(t, err)
	some.reasons = nil // they were counted
	assert.Equal(t, some, back)
}

func TestABrokenKeptAnswerIsAnError(t *testing.T) {
	t.Parallel()
	some := someRejected()
	kept := some.encode(2)
	whole := 0
	for n := range kept {
		if a, err := decodeAnswer(kept[:n], 5); err == nil {
			whole++
			require.Equal(t, some.Errors[:1], a.Errors, "cut at %d of %d bytes, between two errors", n, len(kept))
		}
	}
	require.Equal(t, 1, whole)
	_, err := decodeAnswer(append(slices.Clone(kept), 0), 5)
	require.Error(t, err, "something behind it")
	_, err = decodeAnswer(kept, 6)
	require.Error(t, err, "of another request")
	for name, change := range map[string]func(*answer){
		"an index beyond the request": func(a *answer) { a.Errors[1].Index = 5 },
		"no first error":              func(a *answer) { a.Errors = nil },
		"more errors than rejected":   func(a *answer) { a.Rejected = 1 },
	} {
		a := someRejected()
		change(&a)
		_, err := decodeAnswer(a.encode(2), 2+a.Rejected)
		assert.Error(t, err, name)
	}
}

func FuzzKeptAnswer(f *testing.F) {
	some := someRejected()
	all := answer{}
	f.Add(some.encode(2))
	f.Add(all.encode(1))
	f.Fuzz(func(t *testing.T, kept []byte) {
		const readings = 5
		a, err := decodeAnswer(kept, readings)
		if err != nil {
			return
		}
		require.Equal(t, readings, a.Accepted+a.Rejected)
		require.LessOrEqual(t, len(a.Errors), a.Rejected)
		for _, e := range a.Errors {
			require.Less(t, e.Index, readings)
		}
		again, err := decodeAnswer(a.encode(a.Accepted), readings)
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
