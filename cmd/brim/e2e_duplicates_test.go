package main

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestLastWinsBeforeAndAfterSealing, for any part stored, on every query path.
func TestLastWinsBeforeAndAfterSealing(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	b := startBrim(t, append(onShared(t, db), "--bucket-format", "columns", "--duplicates", "last-wins", "--flush-interval", "1h")...).awaitStorage().awaitCatalog()
	send := func(body, ack string) {
		t.Helper()
		code, answer := b.post("/v1/readings"+ack, body)
		require.Equal(t, http.StatusOK, code, answer)
	}
	same := func(when string) {
		t.Helper()
		for path, want := range map[string]string{
			"/v1/sensors/a/readings?from=2026-01-01&to=2026-01-02":                            `"fields":{"h":60,"t":3}`,
			"/v1/sensors/a/latest":                                                            `"fields":{"h":60,"t":3}`,
			"/v1/sensors/a/summary?from=2026-01-01&to=2026-01-02":                             `"count":1`,
			"/prometheus/api/v1/query?query=count_over_time(t[1h])&time=2026-01-01T00:10:00Z": `"1"]`,
		} {
			code, answer, err := b.ask(path)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, code, answer)
			assert.Contains(t, answer, want, "%s: %s", when, path)
		}
	}
	send(`{"sensorId":"a","ts":"2026-01-01T00:00:01Z","fields":{"t":1}}`, "")
	send(`{"sensorId":"a","ts":"2026-01-01T00:00:01Z","fields":{"t":2,"h":60}}`, "?ack=stored")
	send(`{"sensorId":"a","ts":"2026-01-01T00:00:01Z","fields":{"t":3}}`, "")
	same("one waits")
	code, answer := b.admin(http.MethodPost, "/flush")
	require.Equal(t, http.StatusOK, code, answer)
	same("all are stored")
	got := runBrim(t, nil, "seal", "readings", "--wait", "--admin", b.Admin)
	require.NoError(t, got.err, got.stderr)
	same("sealed")
	got = runBrim(t, nil, "serve", "--duplicates", "last-wins")
	assert.ErrorContains(t, got.err, "last-wins needs --storage bucket with --bucket-format columns")
}
