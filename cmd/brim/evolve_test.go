package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestStreamSettingsChangeByRestarts takes a stream through changes that a start applies or
// refuses; after each, all readings are read back from the stream and its view.
func TestStreamSettingsChangeByRestarts(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	path := filepath.Join(t.TempDir(), "brim.yaml")
	common := append(onShared(t, db), "--config", path)
	configure := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	sent := 0
	serve := func(text string) *brimProcess {
		t.Helper()
		configure(text)
		b := startBrim(t, common...).awaitStorage()
		var body strings.Builder
		for range 30 {
			fmt.Fprintf(&body, `{"sensorId":"s-1","ts":%d,"fields":{"n":%d}}`+"\n", 1_700_000_000_000+int64(sent)*10_000, sent)
			sent++
		}
		code, answer := b.post("/v1/readings", body.String())
		require.Equal(t, http.StatusOK, code, answer)
		got := runBrim(t, nil, "query", "s-1", "--limit", "0", "--output", "ndjson", "--url", "http://"+b.HTTP)
		require.Equal(t, exitDone, got.code, got.err)
		assert.Len(t, strings.Split(strings.TrimSpace(got.stdout), "\n"), sent, text)
		n, err := db.Collection("readings.flat").CountDocuments(t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: bson.D{{Key: "s", Value: "s-1"}}}}}})
		require.NoError(t, err)
		assert.EqualValues(t, sent, n, text)
		return b
	}
	refused := func(text, want string) {
		t.Helper()
		configure(text)
		got := runBrim(t, nil, append([]string{"serve", "--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"}, common...)...)
		assert.Equal(t, exitFailed, got.code)
		require.ErrorContains(t, got.err, want)
	}

	for _, text := range []string{
		"granularity: 5m\n", "granularity: 1h\n", "granularity: 1m\nflush-interval: 50ms\nlanes: 2\n", "granularity: 5m\nbucket-max-readings: 3\n", "granularity: 5m\nretention: 10000d\n",
	} {
		assert.Equal(t, exitDone, serve(text).stop(), text)
	}
	refused("write-concern: 3\n", "allowed: majority and 1 to 1")

	work := db.Collection("brim_maintenance")
	_, err := work.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "readings"}, {Key: "kind", Value: "migrate"}, {Key: "phase", Value: "copy"}})
	require.NoError(t, err)
	refused("granularity: 5m\n", "unfinished `brim migrate` in phase copy")
	_, err = work.UpdateByID(t.Context(), "readings", bson.D{{Key: "$set", Value: bson.D{{Key: "phase", Value: "done"}}}})
	require.NoError(t, err)
	assert.Equal(t, exitDone, serve("granularity: 5m\n").stop())

	configure("stream: other\n")
	startBrim(t, common...).awaitStorage()
	n, err := db.Collection("readings.flat").CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	assert.EqualValues(t, sent, n)
	assert.Zero(t, expiryOf(t, db, "other"))
}
