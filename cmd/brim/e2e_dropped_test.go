package main

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestAnOrdinaryCollectionInPlaceOfATimeSeries: it gets no readings, every status report names
// it, and readings wait until it is gone.
func TestAnOrdinaryCollectionInPlaceOfATimeSeries(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	b := startBrim(t, append(onShared(t, db), "--storage", "timeseries", "--ack", "journaled")...).awaitStorage()
	post := func() {
		code, answer := b.post("/v1/readings", `{"sensorId":"s","fields":{"t":1}}`)
		require.Equal(t, http.StatusOK, code, answer)
	}
	post()
	code, answer := b.admin(http.MethodPost, "/flush")
	require.Equal(t, http.StatusOK, code, answer)

	coll := db.Collection("readings")
	b.eventually("ordinary collection of the name", func() bool { // the daemon may win the race
		assert.NoError(t, coll.Drop(t.Context()))
		return db.CreateCollection(t.Context(), "readings") == nil
	})
	const noticed = `exists with type collection`
	if mongodtest.Shared(t).Version() >= "7" { // accepts no UUID with the insert, and so would store it
		b.awaitReadiness(http.StatusOK, noticed)
	}
	post()
	b.awaitReadiness(http.StatusOK, noticed)
	assert.Contains(t, b.awaitLog("the stream's collection cannot take its readings; they wait")["err"], "rename or drop it")
	one := b.status().Streams[0]
	assert.False(t, one.Ready)
	assert.Contains(t, one.Reason, noticed)
	n, err := coll.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	assert.Zero(t, n)

	require.NoError(t, coll.Drop(t.Context()))
	code, answer = b.admin(http.MethodPost, "/flush")
	require.Equal(t, http.StatusOK, code, answer)
	n, err = coll.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	assert.EqualValues(t, 1, n)
	assert.True(t, b.status().Streams[0].Ready)
	_, metrics := b.admin(http.MethodGet, "/metrics")
	assert.Regexp(t, `brim_store_prepared_again_total\{collection="created",stream="readings"\} [1-9]`, metrics)
	assert.Contains(t, metrics, `brim_store_prepared_again_total{collection="found",stream="readings"} 0`)
}
