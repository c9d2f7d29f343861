package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// sideBySide are the forms that store the same readings.
func sideBySide() []string { return []string{"minutes", "hours", "parts", "series"} }

// startSideBySide returns a daemon that has stored a sensor's day in each form, a reading every
// five seconds.
func startSideBySide(t testing.TB) *brimProcess {
	t.Helper()
	file := filepath.Join(t.TempDir(), "brim.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`stream: minutes
streams:
  minutes: {granularity: 5m}
  hours: {granularity: 1h}
  parts: {granularity: 1h, bucket-max-readings: 50}
  series: {storage: timeseries}
`), 0o600))
	b := startBrim(t, "--config", file, "--mongo-uri", mongodtest.URI(t), "--database", mongodtest.Database(t).Name(), "--data-dir", t.TempDir())
	b.awaitStorage()
	const perDay, perRequest = 24 * 3600 / 5, 8640
	for _, stream := range sideBySide() {
		for first := 0; first < perDay; first += perRequest {
			var body bytes.Buffer
			for i := first; i < first+perRequest; i++ {
				at := daySide().Add(time.Duration(i) * 5 * time.Second).UnixMilli()
				// Quarters add up exactly. Time series lose the order of fields, so they are sorted.
				fmt.Fprintf(&body, `{"sensorId":"s-1","ts":%d,"fields":{"n":%d,"on":%t,"t":%g},"tags":{"site":"north"}}`+"\n", at, i, i%2 == 0, float64(i%1000)/4+0.25)
			}
			code, answer, err := b.send("/v1/streams/"+stream+"/readings", body.Bytes(), "Content-Type", "application/x-ndjson")
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, code, answer)
		}
	}
	code, answer := b.admin(http.MethodPost, "/flush?timeout=60s")
	require.Equal(t, http.StatusOK, code, answer)
	return b
}

// daySide is the start of the readings.
func daySide() time.Time { return time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC) }

// sideBySideCalls are the queries to each form.
func sideBySideCalls() map[string]string {
	span := fmt.Sprintf("from=%d&to=%d", daySide().UnixMilli(), daySide().Add(24*time.Hour).UnixMilli())
	odd := fmt.Sprintf("from=%d&to=%d", daySide().Add(61*time.Minute+3*time.Second).UnixMilli(), daySide().Add(23*time.Hour+time.Second).UnixMilli())
	return map[string]string{
		"a day of readings":         "/v1/sensors/s-1/readings?limit=100000&" + span,
		"some of the readings":      "/v1/sensors/s-1/readings?limit=1000&" + odd,
		"a summary of the day":      "/v1/sensors/s-1/summary?" + span,
		"a summary of its hours":    "/v1/sensors/s-1/summary?every=1h&" + span,
		"a summary of odd steps":    "/v1/sensors/s-1/summary?every=7m&" + odd,
		"the newest reading":        "/v1/sensors/s-1/latest?",
		"the sensors with a prefix": "/v1/sensors?prefix=s-",
	}
}

// askSide queries one form and returns the answer.
func askSide(t testing.TB, b *brimProcess, call, stream string) string {
	t.Helper()
	code, body, err := brimtest.Ask(http.MethodGet, "http://"+b.HTTP+call+"&stream="+stream, "")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, code, body)
	return body
}

func TestEveryStorageGivesTheSameAnswers(t *testing.T) {
	t.Parallel()
	b := startSideBySide(t)
	for name, call := range sideBySideCalls() {
		want := askSide(t, b, call, sideBySide()[0])
		for _, stream := range sideBySide()[1:] {
			assert.Equal(t, want, askSide(t, b, call, stream), "%s: %s is as from %s", name, stream, sideBySide()[0])
		}
		switch name {
		case "a day of readings":
			assert.Equal(t, 17_280, strings.Count(want, `"sensorId"`))
		case "a summary of its hours":
			assert.Equal(t, 24, strings.Count(want, `"count":720`))
		case "a summary of the day":
			assert.Contains(t, want, `"count":17280,"fields":{"n":{"n":17280,"min":0,"max":17279,"mean":8639.5},"t":{"n":17280,"min":0.25,"max":250,`)
		}
	}
}

// BenchmarkReadingBack compares the cost of the answers over HTTP.
func BenchmarkReadingBack(b *testing.B) {
	d := startSideBySide(b)
	for name, call := range sideBySideCalls() {
		for _, stream := range sideBySide() {
			b.Run(strings.ReplaceAll(name, " ", "_")+"/"+stream, func(b *testing.B) {
				for b.Loop() {
					askSide(b, d, call, stream)
				}
			})
		}
	}
}
