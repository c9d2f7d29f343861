package ingest

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestLinesAreThoseOfTheBody(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.StringOfN(rapid.RuneFrom([]rune("a\n\r\nb")), 0, 200, -1).Draw(t, "body")
		body += strings.Repeat(rapid.SampledFrom([]string{"", "xy", "\n"}).Draw(t, "unit"), rapid.SampledFrom([]int{0, bufferBytes / 2, bufferBytes, 2 * bufferBytes}).Draw(t, "times"))
		peeks := rapid.Bool().Draw(t, "peek first")
		reader := io.Reader(strings.NewReader(body))
		if len(body) < 1000 && rapid.Bool().Draw(t, "one byte a read") {
			reader = iotest.OneByteReader(reader)
		}
		var pool linePool
		l := pool.get(reader)
		want := strings.SplitAfter(body, "\n")
		if want[len(want)-1] == "" {
			want = want[:len(want)-1]
		}
		number := 0
		if peeks {
			if _, _, err := l.peek(); err != nil {
				t.Fatal(err)
			}
			kept := strings.TrimLeft(body, " \t\r\n")
			number = strings.Count(body[:len(body)-len(kept)], "\n")
			want = strings.SplitAfter(kept, "\n")
			if want[len(want)-1] == "" {
				want = want[:len(want)-1]
			}
		}
		for _, w := range want {
			number++
			line, long, err := l.next()
			w = strings.TrimSuffix(strings.TrimSuffix(w, "\n"), "\r")
			if err != nil || long || string(line) != w || l.number != number {
				t.Fatalf("line %d: got %q (number %d, long %v, error %v), want %q", number, line, l.number, long, err, w)
			}
		}
		if _, _, err := l.next(); !errors.Is(err, io.EOF) {
			t.Fatalf("behind the last line: %v", err)
		}
		pool.put(l)
	})
}

func TestErrorsOfReadingReachTheOneWhoReadsLines(t *testing.T) {
	t.Parallel()
	var pool linePool
	for _, content := range []string{"", "a", "a\nb", strings.Repeat("a", maxReadingBytes+bufferBytes)} {
		l := pool.get(io.MultiReader(strings.NewReader(content), iotest.ErrReader(iotest.ErrTimeout)))
		var err error
		for err == nil {
			_, _, err = l.next()
		}
		assert.ErrorIs(t, err, iotest.ErrTimeout)
	}
}

func TestLargeBuffersAreNotKept(t *testing.T) {
	t.Parallel()
	var pool linePool
	l := pool.get(bytes.NewReader(make([]byte, 4*bufferBytes)))
	_, _, err := l.next()
	require.NoError(t, err)
	require.Greater(t, cap(l.buf), bufferBytes)
	pool.put(l)
	assert.NotSame(t, l, pool.get(strings.NewReader("")))
}

func TestSpacesAreSkippedAndNothingElse(t *testing.T) {
	t.Parallel()
	for n := range 300 {
		spaces := strings.Repeat(" ", n)
		for _, end := range []string{"", "\r", "a", "\t ", "a" + spaces} {
			got := string(skipManySpaces([]byte(spaces + end)))
			assert.True(t, strings.HasSuffix(spaces+end, got))
			assert.Equal(t, strings.TrimLeft(spaces+end, " "), strings.TrimLeft(got, " "))
		}
		assert.Less(t, len(skipManySpaces([]byte(spaces))), 64)
	}
}
