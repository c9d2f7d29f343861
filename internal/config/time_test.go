package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseTimeForms(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2026-11-21T10:00:00.5+01:00": time.Date(2026, 11, 21, 9, 0, 0, 5e8, time.UTC),
		"0":                           time.Unix(0, 0),
		"1795255200001":               now.Add(time.Millisecond),
		"now":                         now,
		"2026-11-21":                  now.Add(-10 * time.Hour),
		"2026-11-21T10:00:00 01:00":   now.Add(-time.Hour), // in a URL, the plus sign was not escaped
		"-1h":                         now.Add(-time.Hour),
		"-2d":                         now.Add(-48 * time.Hour),
		"+10m":                        now.Add(10 * time.Minute),
		"-40000d":                     time.Unix(0, 0), // readings begin in 1970
	} {
		at, err := ParseTime(text, now)
		require.NoError(t, err, text)
		assert.Equal(t, want.UnixMilli(), at.UnixMilli(), text)
	}
	for _, text := range []string{"", "-", "-5", "1795255200", "31536000000", "10:00", "--1h", "-+1h"} {
		_, err := ParseTime(text, now)
		assert.Error(t, err, text)
	}
}

func TestTimeRefusesOtherForms(t *testing.T) {
	t.Parallel()
	var at time.Time
	for text, want := range map[string]int64{"2000-01-01": 946684800, "946684800000": 946684800, "1970-01-01": 0, "2026-11-21T11:00:00+01:00": 1795255200} {
		require.NoError(t, Time(&at)(text), text)
		assert.Equal(t, want, at.Unix(), text)
	}
	for _, text := range []string{"", "1969-12-31", "2000-13-01", "yesterday"} {
		require.ErrorContains(t, Time(&at)(text), "is not a time from 1970 on", text)
	}
}
