package telemetry

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNamesAreEscaped(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"up": "up", "http.requests": "http%2Erequests", "$x": "%24x", "x$": "x$", "a%": "a%25", "%2E": "%252E", "a\x00b": "a%00b",
		"ts": "%74s", "sensor": "%73ensor", "_id": "%5Fid", "_ids": "_ids", "sensors": "sensors", "größe": "größe",
	} {
		assert.Equal(t, want, EscapeName(name))
		assert.Equal(t, name, UnescapeName(want))
		assert.Nil(t, CheckFieldName([]byte(want)))
	}
	for _, other := range []string{"5%", "a%20b", "%2e", "%zz", "%7", "%73ensors", "x%24"} {
		assert.Equal(t, other, UnescapeName(other), "it was not escaped")
	}
}

func FuzzEscapedNames(f *testing.F) {
	for _, name := range []string{"a.b", "%", "$", "ts", "a%2Eb", "\xff"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		escaped := EscapeName(name)
		require.Equal(t, name, UnescapeName(escaped))
		if r := CheckFieldName([]byte(escaped)); r != nil {
			require.True(t, name == "" || len(escaped) > MaxNameBytes || strings.ToValidUTF8(name, "") != name, "%q: %s", name, r)
		}
		if again := UnescapeName(name); again != name {
			require.Equal(t, name, EscapeName(again))
		}
	})
}
