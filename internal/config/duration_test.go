package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFormatDurationOmitsZeroUnits(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		time.Minute: "1m", 5 * time.Minute: "5m", 20 * time.Minute: "20m", 90 * time.Second: "1m30s", 10 * time.Second: "10s",
		time.Hour: "1h", 90 * time.Minute: "1h30m", 10 * time.Hour: "10h", 36*time.Hour + time.Second: "36h0m1s",
	} {
		assert.Equal(t, want, FormatDuration(d))
	}
}

func TestParseDurationForms(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"300ms": 300 * time.Millisecond, "90s": 90 * time.Second, "5m": 5 * time.Minute, "1h": time.Hour, "30d": 720 * time.Hour, "1h30m": 90 * time.Minute, "0": 0, "-5s": -5 * time.Second} {
		d, err := ParseDuration(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, d, text)
	}
	for _, text := range []string{"", "5", "5min", "soon", "d", "-1d", "1.5d", "1h2d"} {
		_, err := ParseDuration(text)
		require.EqualError(t, err, `"`+text+`" is not a duration; write a number with a unit: 300ms, 90s, 5m, 1h or 30d`)
	}
	for _, text := range []string{"65536d", "99999999999999999999d"} {
		_, err := ParseDuration(text)
		require.EqualError(t, err, `"`+text+`" is too long a duration; at most 65535d are allowed`)
	}
}
