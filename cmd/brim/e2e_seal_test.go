package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/seal"
	"github.com/brim-telemetry/brim/internal/store"
)

// TestColumnsAreStoredReadAndSealed, through a daemon.
func TestColumnsAreStoredReadAndSealed(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	path := writeConfig(t, "bucket-format: columns\nstreams:\n  series: {storage: timeseries}\n")
	b := startBrim(t, append(onShared(t, db), "--config", path)...).awaitStorage()
	b.eventually("blocks may be written, as no other daemon is there", func() bool {
		// Until it knows that, it writes documents.
		code, answer := b.post("/v1/readings?ack=stored", `{"sensorId":"probe","ts":"2026-01-01T00:00:00Z","fields":{"t":1}}`)
		require.Equal(t, http.StatusOK, code, answer)
		n, err := db.Collection("readings").CountDocuments(t.Context(), bson.D{{Key: "blocks", Value: bson.D{{Key: "$exists", Value: true}}}})
		require.NoError(t, err)
		return n > 0
	})
	code, answer := b.post("/v1/readings?ack=stored", `[{"sensorId":"a","ts":"2026-01-01T00:00:02Z","fields":{"t":2.5,"state":"on"},"tags":{"site":"north"}},`+
		`{"sensorId":"a","ts":"2026-01-01T00:00:01Z","fields":{"t":1}}]`)
	require.Equal(t, http.StatusOK, code, answer)
	query := func() string {
		got := runBrim(t, nil, "query", "--url", "http://"+b.HTTP, "--from", "2026-01-01", "--to", "2026-01-02", "--output", "ndjson", "a")
		require.NoError(t, got.err)
		return got.stdout
	}
	const want = `{"sensorId":"a","ts":"2026-01-01T00:00:01.000Z","fields":{"t":1}}` + "\n" + `{"sensorId":"a","ts":"2026-01-01T00:00:02.000Z","fields":{"t":2.5,"state":"on"},"tags":{"site":"north"}}` + "\n"
	assert.Equal(t, strings.Split(want, "\n"), strings.Split(query(), "\n"))

	got := runBrim(t, nil, "seal", "readings", "--wait", "--admin", b.Admin, "--output", "json")
	require.NoError(t, got.err, got.stderr)
	var p seal.Progress
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &p))
	assert.Equal(t, []int64{2, 2, 0}, []int64{p.Sensors, p.Parts, p.Failed})
	assert.Equal(t, strings.Split(want, "\n"), strings.Split(query(), "\n"))
	n, err := db.Collection("readings").CountDocuments(t.Context(), bson.D{{Key: "sealed.n", Value: bson.D{{Key: "$gt", Value: 0}}}})
	require.NoError(t, err)
	assert.EqualValues(t, 2, n)
	n, err = db.Collection(store.ViewName("readings")).CountDocuments(t.Context(), bson.D{{Key: "sensorId", Value: "a"}})
	require.NoError(t, err)
	assert.EqualValues(t, 2, n)

	code, answer, err = b.ask("/prometheus/none/api/v1/query?query=t")
	require.NoError(t, err)
	assert.Equal(t, http.StatusNotFound, code, answer)
	for stream, want := range map[string]string{"series": "only buckets can be packed", "none": "there is no such stream"} {
		got := runBrim(t, nil, "seal", stream, "--admin", b.Admin)
		assert.ErrorContains(t, got.err, want)
	}
	got = runBrim(t, nil, "seal", "readings", "--wait", "--url", "http://"+b.HTTP, "--output", "json")
	require.NoError(t, got.err, got.stderr)
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &p))
	assert.Equal(t, []int64{2, 0}, []int64{p.Sensors, p.Parts}, "all are sealed already")
	for stream, want := range map[string]string{"series": "only buckets can be packed (no_buckets, HTTP 400)", "none": "(stream_unknown, HTTP 404)"} {
		got := runBrim(t, nil, "seal", stream, "--url", "http://"+b.HTTP)
		assert.ErrorContains(t, got.err, want)
	}
	got = runBrim(t, nil, "seal", "readings", "--url", "http://"+b.HTTP, "--admin", b.Admin)
	assert.ErrorContains(t, got.err, "give one of them")
	got = runBrim(t, nil, "seal", "series")
	assert.NotContains(t, fmt.Sprint(got.err), "no Host in request URL", "the daemon of this machine is the default")
	got = runBrim(t, nil, "seal", "--admin", b.Admin)
	var usage config.UsageError
	assert.ErrorAs(t, got.err, &usage)
}

// TestSealThatWasNotCompletedFails, in every output form.
func TestSealThatWasNotCompletedFails(t *testing.T) {
	t.Parallel()
	for _, output := range []string{"text", "json"} {
		var out strings.Builder
		err := (&sealOptions{output: &output}).print(&process{stdout: &out}, &seal.Progress{Error: "MongoDB is away"}) //nolint:forbidigo // it writes to out
		assert.ErrorContains(t, err, "MongoDB is away")
		assert.NotEmpty(t, out.String())
	}
}
