package ingest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

func TestLinesAreThoseOfTheBody(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.StringOfN(rapid.RuneFrom([]rune("a\n\r\nb")), 0, 200, -1).Draw(t, "body")
		l := lines{body: []byte(body)}
		number := 0
		for want := range strings.Lines(body) {
			number++
			line, long, ok := l.next()
			want = strings.TrimSuffix(strings.TrimSuffix(want, "\n"), "\r")
			if !ok || long || string(line) != want || l.number != number {
				t.Fatalf("line %d: got %q (number %d, long %v, there %v), want %q", number, line, l.number, long, ok, want)
			}
		}
		if _, _, ok := l.next(); ok {
			t.Fatal("there is a line after the last one")
		}
	})
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
