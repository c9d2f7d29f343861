package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSizeUnits(t *testing.T) {
	t.Parallel()
	var n int64
	set := Size(&n, 1<<10, 8<<20, true)
	for text, want := range map[string]int64{"0": 0, "1024": 1024, "256KiB": 256 << 10, "256kib": 256 << 10, "1MB": 1e6, "8MiB": 8 << 20, "1.5 MiB": 3 << 19} {
		require.NoError(t, set(text), text)
		assert.Equal(t, want, n, text)
	}
	for _, text := range []string{"", "1023", "9MiB", "-1", "much", "20EiB", "1e400"} {
		require.ErrorContains(t, set(text), "neither 0 nor a size from 1KiB to 8MiB", text)
	}
	assert.ErrorContains(t, Size(&n, 1<<10, 8<<20, false)("0"), "a size from 1KiB to 8MiB")
}

func TestDurationInDays(t *testing.T) {
	t.Parallel()
	var d time.Duration
	set := Duration(&d, time.Second, 60*Day, true)
	for text, want := range map[string]time.Duration{"0": 0, "0s": 0, "1s": time.Second, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "30d": 30 * Day} {
		require.NoError(t, set(text), text)
		assert.Equal(t, want, d, text)
	}
	for _, text := range []string{"", "5", "999ms", "61d", "-1h", "1.5d", "d", "soon", "99999d"} {
		require.ErrorContains(t, set(text), "neither 0 nor a duration from 1s to 60d", text)
	}
}

func TestFormattedValuesParseBack(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 1: "1", 1000: "1000", 1 << 10: "1KiB", 256 << 10: "256KiB", 1<<20 + 1: "1048577", 4 << 30: "4GiB", 1 << 40: "1TiB"} {
		assert.Equal(t, want, FormatSize(n))
	}
	for d, want := range map[time.Duration]string{0: "0s", time.Second: "1s", 5 * time.Minute: "5m", time.Hour: "1h", 90 * time.Minute: "1h30m", 90 * time.Second: "1m30s", 25 * time.Hour: "25h", 48 * time.Hour: "2d"} {
		assert.Equal(t, want, FormatDuration(d))
		back, err := ParseDuration(want)
		require.NoError(t, err)
		assert.Equal(t, d, back)
	}
}

func TestAddressNeedsPort(t *testing.T) {
	t.Parallel()
	var a string
	for _, text := range []string{"127.0.0.1:8430", ":8430", "[::1]:0", "example.net:80"} {
		require.NoError(t, Address(&a)(text))
		assert.Equal(t, text, a)
	}
	for _, text := range []string{"", "8430", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000", "http://127.0.0.1:80", "::1:80"} {
		assert.Error(t, Address(&a)(text), text)
	}
}

func TestMaskURI(t *testing.T) {
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
		assert.Equal(t, want, MaskURI(uri))
		assert.NotContains(t, MaskURI(uri), "secret")
	}
}

func TestPercent(t *testing.T) {
	t.Parallel()
	var share float64
	set := Percent(&share, 10_000)
	for text, want := range map[string]float64{"2%": 0.02, "0": 0, "150": 1.5, "0.5%": 0.005} {
		require.NoError(t, set(text), text)
		assert.InDelta(t, want, share, 1e-12, text)
	}
	for _, text := range []string{"", "%", "-1%", "NaN", "10001%", "2 percent"} {
		assert.ErrorContains(t, set(text), "is not a percentage from 0% to 10000%", text)
	}
}
