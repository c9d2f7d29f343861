package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestSensorsAreListedOnceTheirReadingsAreAcknowledged has a daemon that stores nothing for an
// hour unless asked.
func TestSensorsAreListedOnceTheirReadingsAreAcknowledged(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "brim.yaml")
	require.NoError(t, os.WriteFile(config, []byte("streams:\n  series: {storage: timeseries}\n  heap: {storage: memory}\n"), 0o600))
	b := startBrim(t, "--mongo-uri", mongodtest.URI(t), "--database", mongodtest.Database(t).Name(), "--data-dir", t.TempDir(), "--config", config, "--flush-interval", "1h").awaitStorage()
	list := func(stream string, more ...string) outcome {
		t.Helper()
		got := runBrim(t, nil, append([]string{"query", "--sensors", "--url", "http://" + b.HTTP, "--stream", stream, "--output", "csv"}, more...)...)
		require.NoError(t, got.err)
		got.stdout = regexp.MustCompile(`(?m)^([^,\n]*,[^,\n]*)[^\n]*`).ReplaceAllString(got.stdout, "$1") // without fields
		return got
	}
	send := func(stream, body string) {
		t.Helper()
		code, answer := b.post("/v1/streams/"+stream+"/readings", body)
		require.Equal(t, http.StatusOK, code, answer)
	}
	const first = "sensorId,newest\nb,2026-01-01T00:00:01.000Z\nc,2026-01-01T00:00:01.000Z\n"
	streams := []string{"readings", "series", "heap"}
	for _, stream := range streams {
		send(stream, `[{"sensorId":"b","ts":"2026-01-01T00:00:01Z","fields":{"t":1}},{"sensorId":"c","ts":"2026-01-01T00:00:01Z","fields":{"t":1}}]`)
		assert.Equal(t, first, list(stream).stdout, stream)
		if stream != "heap" { // memory is written immediately
			none := list(stream, "--unstored", "off")
			assert.Equal(t, "sensorId,newest\n", none.stdout, stream)
			assert.Equal(t, fmt.Sprintf("stream %q has no sensors\n", stream), none.stderr, stream)
		}
	}
	code, answer := b.admin(http.MethodPost, "/flush")
	require.Equal(t, http.StatusOK, code, answer)
	for _, stream := range streams {
		assert.Equal(t, first, list(stream, "--unstored", "off").stdout, stream)
		send(stream, `[{"sensorId":"a","ts":"2026-01-01T00:00:03Z","fields":{"t":1}},{"sensorId":"b","ts":"2026-01-01T00:00:02Z","fields":{"t":1}}]`)
		assert.Equal(t, "sensorId,newest\na,2026-01-01T00:00:03.000Z\nb,2026-01-01T00:00:02.000Z\nc,2026-01-01T00:00:01.000Z\n", list(stream).stdout, stream)
		assert.Equal(t, "sensorId,newest\nb,2026-01-01T00:00:02.000Z\n", list(stream, "--prefix", "b").stdout, stream)
		page := list(stream, "--limit", "1")
		assert.Equal(t, "sensorId,newest\na,2026-01-01T00:00:03.000Z\n", page.stdout, stream)
		assert.Equal(t, "there are more sensors than this one; --limit 0 prints all\n", page.stderr, stream)
	}
}
