package ingest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestTimestampsThatAreRead(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"2026-11-21T10:00:00Z":               "2026-11-21T10:00:00.000Z",
		"2026-11-21t10:00:00z":               "2026-11-21T10:00:00.000Z",
		"2026-11-21T10:00:00.1Z":             "2026-11-21T10:00:00.100Z",
		"2026-11-21T10:00:00.1239999999999Z": "2026-11-21T10:00:00.123Z",
		"1969-12-31T23:59:59.9999Z":          "1969-12-31T23:59:59.999Z",
		"2026-11-21T10:00:00+05:45":          "2026-11-21T04:15:00.000Z",
		"2026-11-21T10:00:00.5-23:59":        "2026-11-22T09:59:00.500Z",
		"2026-11-21T10:00:00-00:00":          "2026-11-21T10:00:00.000Z",
		"2024-02-29T00:00:00Z":               "2024-02-29T00:00:00.000Z",
		"2000-02-29T00:00:00Z":               "2000-02-29T00:00:00.000Z",
		"0000-01-01T00:00:00Z":               "0000-01-01T00:00:00.000Z",
		"9999-12-31T23:59:59.999Z":           "9999-12-31T23:59:59.999Z",
		"2016-12-31T23:59:60Z":               "2017-01-01T00:00:00.000Z", // a leap second
		"2016-12-31T23:59:60.750Z":           "2017-01-01T00:00:00.750Z",
		"2016-12-31T15:59:60-08:00":          "2017-01-01T00:00:00.000Z",
		"1970-01-01T00:00:00.0000000000000Z": "1970-01-01T00:00:00.000Z",
	} {
		ms, ok := parseTime([]byte(given))
		assert.True(t, ok, given)
		assert.Equal(t, want, telemetry.FormatMillis(ms), given)
	}
}

func TestTimestampsThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, given := range []string{
		"", "Z", "2026-11-21", "2026-11-21T10:00Z", "2026-11-21T10:00:00", "2026-11-21 10:00:00Z",
		"2026-11-21T10:00:00.Z", "2026-11-21T10:00:00,5Z", "2026-11-21T10:00:00+0100", "2026-11-21T10:00:00+01",
		"2026-11-21T10:00:00+24:00", "2026-11-21T10:00:00+01:60", "2026-11-21T10:00:00*01:00", "2026-11-21T10:00:00ZZ",
		"2026-13-21T10:00:00Z", "2026-00-21T10:00:00Z", "2026-11-31T10:00:00Z", "2026-11-00T10:00:00Z",
		"2026-11-21T24:00:00Z", "2026-11-21T10:60:00Z", "2026-11-21T10:00:61Z", "2026-11-21T10:00:60Z",
		"2023-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "+2026-11-21T10:00:00Z", "2O26-11-21T10:00:00Z",
		"2026/11/21T10:00:00Z", "2026-11-21T10.00.00Z", "2026-11-21T1-:00:00Z", "２026-11-21T10:00:00Z",
	} {
		_, ok := parseTime([]byte(given))
		assert.False(t, ok, given)
	}
}

func TestTimestampsAgreeWithTheStandardLibrary(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		offset := rapid.IntRange(-1439, 1439).Draw(t, "minutes east")
		at := time.Unix(rapid.Int64Range(-62_000_000_000, 253_000_000_000).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).
			In(time.FixedZone("", offset*60))
		text := at.Format(time.RFC3339Nano)
		ms, ok := parseTime([]byte(text))
		if !ok || ms != at.UnixMilli() {
			t.Fatalf("%s: got %d, %v, want %d", text, ms, ok, at.UnixMilli())
		}
	})
}

func TestSecondsAreNotTakenForMilliseconds(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	w := post(t, d, "/v1/readings", typeJSON, `{"sensorId":"s","ts":1795255200,"fields":{"t":1}}`)
	assert.Equal(t, 400, w.Code)
	assert.Contains(t, w.Body.String(), `"code":"ts_out_of_range","message":"ts 1970-01-21T18:40:55.200Z is before 2000-01-01T00:00:00.000Z (--min-time); it looks like seconds, and must be milliseconds"`)
	for query, hint := range map[string]string{"": "precision=s", "?precision=us": "precision=s", "?precision=ms": "precision=s"} {
		w = post(t, d, "/write"+query, "", "cpu t=1 1795255200")
		assert.Equal(t, 400, w.Code)
		assert.Contains(t, w.Body.String(), "it looks like seconds, which need "+hint, query)
	}
	assert.Empty(t, j.readings())

	early, j := newTestServer(t, anyTime)
	assert.Equal(t, 200, post(t, early, "/v1/readings", typeJSON, `{"sensorId":"s","ts":1795255200,"fields":{"t":1}}`).Code)
	assert.Len(t, j.readings(), 1)
}
