package main

import (
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// heldUntil is what the daemon says of the default stream.
func heldUntil(b *brimProcess) string {
	b.t.Helper()
	for _, s := range b.status().Streams {
		if s.Default {
			return s.HeldUntil
		}
	}
	return "there is no default stream"
}

// TestHeldDaemonStartsWithAnotherStorage drains a daemon, kills it, and starts
// it with another storage, which it refuses where a reading may be unapplied.
func TestHeldDaemonStartsWithAnotherStorage(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	dir := t.TempDir()
	config := filepath.Join(dir, "brim.yaml")
	require.NoError(t, os.WriteFile(config, []byte("streams:\n  other: {granularity: 1m}\n"), 0o600))
	flags := []string{"--mongo-uri", mongodtest.URI(t), "--database", db.Name(), "--data-dir", dir}
	b := startBrim(t, append(flags, "--config", config, "--flush-interval", "1h")...).awaitStorage()
	keyed := func() (int, string) {
		code, answer, err := b.send("/v1/readings", []byte(`{"sensorId":"s","fields":{"t":1}}`), "Idempotency-Key", "k")
		require.NoError(t, err)
		return code, answer
	}
	code, answer := keyed()
	require.Equal(t, http.StatusOK, code, answer)

	code, answer = b.admin(http.MethodPost, "/hold?stream=readings&for=restart")
	require.Equal(t, http.StatusOK, code, answer)
	assert.Equal(t, map[string]int{"s": 1}, sensors(t, db.Collection("readings")))
	code, answer = b.post("/v1/readings", `{"sensorId":"s","fields":{"t":2}}`)
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, answer, `"held"`)
	code, answer = keyed()
	assert.Equal(t, http.StatusOK, code, "it was taken before: %s", answer)
	code, answer = b.post("/v1/streams/other/readings", `{"sensorId":"s","fields":{"t":2}}`)
	assert.Equal(t, http.StatusOK, code, answer)
	assert.Equal(t, "the daemon is restarted", heldUntil(b))
	b.awaitReadiness(http.StatusOK, "hold of stream readings")
	code, _ = b.admin(http.MethodPost, "/hold?stream=none")
	assert.Equal(t, http.StatusNotFound, code)

	b.signal(syscall.SIGKILL)
	b.wait()
	require.NoError(t, db.Collection("readings").Drop(t.Context()))
	require.NoError(t, os.WriteFile(config, []byte("storage: timeseries\nstreams:\n  other: {storage: bucket, granularity: 1m}\n"), 0o600))
	b = startBrim(t, append(flags, "--config", config)...).awaitStorage()
	assert.Empty(t, heldUntil(b), "a hold ends with its process")
	code, answer = b.post("/v1/readings?ack=stored", `{"sensorId":"s","fields":{"t":3}}`)
	assert.Equal(t, http.StatusOK, code, answer)
}

func TestHoldThatTimesOutIsLifted(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	b := startBrim(t, "--mongo-uri", mongodtest.URI(t), "--database", db.Name(), "--data-dir", t.TempDir()).awaitStorage()
	fence := func(validator bson.D) {
		require.NoError(t, db.RunCommand(t.Context(), bson.D{{Key: "collMod", Value: "readings"}, {Key: "validator", Value: validator}}).Err())
	}
	fence(bson.D{{Key: "never", Value: true}})
	code, answer := b.post("/v1/readings", `{"sensorId":"s","fields":{"t":1}}`)
	require.Equal(t, http.StatusOK, code, answer)
	code, answer = b.admin(http.MethodPost, "/hold?stream=readings&timeout=100ms")
	assert.Equal(t, http.StatusGatewayTimeout, code)
	assert.Contains(t, answer, "accepts readings again")
	code, answer = b.post("/v1/readings", `{"sensorId":"s","fields":{"t":2}}`)
	assert.Equal(t, http.StatusOK, code, answer)
	fence(bson.D{})
	code, answer = b.admin(http.MethodPost, "/hold?stream=readings&for=1s")
	require.Equal(t, http.StatusOK, code, answer)
	b.eventually("the end of the lease", func() bool {
		code, _ := b.post("/v1/readings", `{"sensorId":"s","fields":{"t":3}}`)
		return code == http.StatusOK
	})
}
