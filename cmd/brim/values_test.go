package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brief"
)

func TestSizesAreReadInBinaryAndDecimalUnits(t *testing.T) {
	t.Parallel()
	var n int64
	set := size(&n, 1<<10, 8<<20, true)
	for text, want := range map[string]int64{"0": 0, "1024": 1024, "256KiB": 256 << 10, "256kib": 256 << 10, "1MB": 1e6, "8MiB": 8 << 20, "1.5 MiB": 3 << 19} {
		require.NoError(t, set(text), text)
		assert.Equal(t, want, n, text)
	}
	for _, text := range []string{"", "1023", "9MiB", "-1", "much", "20EiB", "1e400"} {
		require.ErrorContains(t, set(text), "0, or 1KiB to 8MiB", text)
	}
	assert.ErrorContains(t, size(&n, 1<<10, 8<<20, false)("0"), "a size of 1KiB to 8MiB")
}

func TestDurationsAreReadWithDays(t *testing.T) {
	t.Parallel()
	var d time.Duration
	set := duration(&d, time.Second, 60*day, true)
	for text, want := range map[string]time.Duration{"0": 0, "0s": 0, "1s": time.Second, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "30d": 30 * day} {
		require.NoError(t, set(text), text)
		assert.Equal(t, want, d, text)
	}
	for _, text := range []string{"", "5", "999ms", "61d", "-1h", "1.5d", "d", "soon", "99999d"} {
		require.ErrorContains(t, set(text), "0, or 1s to 60d", text)
	}
}

// TestAnInvalidDurationNamesTheForms asks where durations are given: in flags,
// in a configuration, and for steps of a query.
func TestAnInvalidDurationNamesTheForms(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "brim.yaml")
	require.NoError(t, os.WriteFile(file, []byte("granularity: 5min\n"), 0o600))
	for _, args := range [][]string{
		{"config", "print", "--granularity", "5min"},
		{"config", "print", "--flush-interval", "5min"},
		{"config", "print", "--config", file},
		{"query", "s", "--every", "5min"},
		{"query", "--silent-for", "5min"},
		{"migrate", "--granularity", "5min"},
		{"load", "--interval", "5min"},
	} {
		got := runBrim(t, nil, args...)
		assert.Equal(t, exitUsage, got.code, "%v", args)
		assert.ErrorContains(t, got.err, `"5min" is not a duration`, "%v", args)
		assert.ErrorContains(t, got.err, "a number with a unit: 300ms, 90s, 5m, 1h or 30d", "%v", args)
	}
}

func TestWhatIsFormattedReadsBack(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 1: "1", 1000: "1000", 1 << 10: "1KiB", 256 << 10: "256KiB", 1<<20 + 1: "1048577", 4 << 30: "4GiB", 1 << 40: "1TiB"} {
		assert.Equal(t, want, formatSize(n))
	}
	for d, want := range map[time.Duration]string{0: "0s", time.Second: "1s", 5 * time.Minute: "5m", time.Hour: "1h", 90 * time.Minute: "1h30m", 90 * time.Second: "1m30s", 25 * time.Hour: "25h", 48 * time.Hour: "2d"} {
		assert.Equal(t, want, formatDuration(d))
		back, err := brief.ParseDuration(want)
		require.NoError(t, err)
		assert.Equal(t, d, back)
	}
}

func TestAddressesNeedAPort(t *testing.T) {
	t.Parallel()
	var a string
	for _, text := range []string{"127.0.0.1:8430", ":8430", "[::1]:0", "example.net:80"} {
		require.NoError(t, address(&a)(text))
		assert.Equal(t, text, a)
	}
	for _, text := range []string{"", "8430", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000", "http://127.0.0.1:80", "::1:80"} {
		assert.Error(t, address(&a)(text), text)
	}
}

func TestNamesThatCannotBeCollectionsAreRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"readings", "a", "plant-2_hall", strings.Repeat("x", 64)} {
		assert.NoError(t, checkStreamName(name))
	}
	for _, name := range []string{"", "Readings", "system.users", "system", "a.b", "a b", "a$", "ä", "a/b", strings.Repeat("x", 65)} {
		assert.Error(t, checkStreamName(name), name)
	}
	assert.NoError(t, checkDatabase("brim_2-x"))
	for _, name := range []string{"", "admin", "local", "config", "a.b", "a b", "a$b", `a"`, strings.Repeat("x", 64)} {
		assert.Error(t, checkDatabase(name), name)
	}
	for text, ok := range map[string]bool{"": true, "_": true, "-": true, ".": false, "$": false, "__": false, " ": false, "ä": false, "\x00": false} {
		assert.Equal(t, ok, checkMapDots(text) == nil, "%q", text)
	}
}

func TestSecretsOfURIsAreMasked(t *testing.T) {
	t.Parallel()
	for uri, want := range map[string]string{
		"":                              "",
		"mongodb://127.0.0.1:27017/":    "mongodb://127.0.0.1:27017/",
		"mongodb://user@h/":             "mongodb://user@h/",
		"mongodb://user:secret@h:1,i/d": "mongodb://user:***@h:1,i/d",
		"mongodb://u:a@b:c/d@h/":        "mongodb://u:***@h/", // not escaped, and still hidden
		"mongodb+srv://u:secret@h/?tls=true&tlsCertificateKeyFilePassword=secret": "mongodb+srv://u:***@h/?tls=true&tlsCertificateKeyFilePassword=***",
		"mongodb://h/?authMechanismProperties=AWS_SESSION_TOKEN:secret&w=1":       "mongodb://h/?authMechanismProperties=***&w=1",
		"mongodb://h/?proxyPassword=secret":                                       "mongodb://h/?proxyPassword=***",
	} {
		assert.Equal(t, want, maskURI(uri))
		assert.NotContains(t, maskURI(uri), "secret")
	}
}
