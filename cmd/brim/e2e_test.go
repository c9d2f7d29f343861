package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// embedded returns the flags of a daemon with a small mongod of its own.
func embedded(t testing.TB) []string {
	t.Helper()
	mongodtest.URI(t) // skips, or installs, where there is none
	return []string{"--data-dir", t.TempDir(), "--mongod-cache-size", "256MiB", "--ack", "stored"}
}

// onShared returns the flags of a daemon that stores in db.
func onShared(t testing.TB, db *mongo.Database) []string {
	t.Helper()
	return []string{"--mongo-uri", mongodtest.URI(t), "--database", db.Name(), "--data-dir", t.TempDir(), "--ack", "stored"}
}

// inDatabase examines what a daemon stored in its default database, without leaving a
// connection open.
func inDatabase(t testing.TB, uri string, look func(*mongo.Database)) {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	require.NoError(t, err)
	look(client.Database("brim"))
	require.NoError(t, client.Disconnect(context.Background()))
}

// sensors counts stored readings by sensor, from the bucket documents.
func sensors(t testing.TB, coll *mongo.Collection) map[string]int {
	t.Helper()
	ctx := context.Background()
	cursor, err := coll.Find(ctx, bson.D{})
	require.NoError(t, err)
	var documents []struct {
		SensorID     string     `bson:"sensorId"`
		Count        int        `bson:"count"`
		Measurements []bson.Raw `bson:"measurements"`
	}
	require.NoError(t, cursor.All(ctx, &documents))
	counts := make(map[string]int)
	for _, d := range documents {
		assert.Len(t, d.Measurements, d.Count)
		counts[d.SensorID] += d.Count
	}
	return counts
}

func TestFirstMinutesOfANewcomer(t *testing.T) {
	t.Parallel()
	b := startBrim(t, embedded(t)...).awaitStorage()
	code, answer := b.post("/v1/readings", `{"sensorId":"s-1","ts":"2026-11-20T10:00:00.123Z","fields":{"t":23.5,"h":65},"tags":{"site":"north"}}`)
	require.Equal(t, http.StatusOK, code, answer)
	assert.JSONEq(t, `{"accepted":1,"rejected":0,"ack":"stored","errors":[]}`, answer)

	got := runBrim(t, nil, "query", "s-1", "--url", "http://"+b.HTTP)
	require.NoError(t, got.err)
	assert.Equal(t, "ts                        h   t\n2026-11-20T10:00:00.123Z  65  23.5\n", got.stdout)

	// MongoDB itself agrees.
	s := b.status()
	require.NotNil(t, s.Mongod)
	assert.True(t, s.Mongod.Running)
	var document struct {
		ID struct {
			S string `bson:"s"`
			G int    `bson:"g"`
		} `bson:"_id"`
		Count        int      `bson:"count"`
		Tags         bson.M   `bson:"tags"`
		Measurements []bson.M `bson:"measurements"`
	}
	inDatabase(t, b.mongoURI(), func(db *mongo.Database) {
		require.NoError(t, db.Collection("readings").FindOne(t.Context(), bson.D{{Key: "sensorId", Value: "s-1"}}).Decode(&document))
	})
	assert.Equal(t, "s-1", document.ID.S)
	assert.Equal(t, 300, document.ID.G)
	assert.Equal(t, 1, document.Count)
	assert.Equal(t, bson.M{"site": "north"}, document.Tags)
	assert.EqualValues(t, 65, document.Measurements[0]["h"])

	assert.Equal(t, exitDone, b.stop())
	assert.False(t, processRuns(s.Mongod.Pid), "mongod is left behind")
}

func TestEveryProtocolReachesMongoDB(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	b := startBrim(t, onShared(t, db)...).awaitStorage()
	code, answer := b.post("/v1/readings", "{\"sensorId\":\"ndjson\",\"fields\":{\"t\":1}}\n{\"sensorId\":\"ndjson\",\"fields\":{\"t\":2}}\n")
	assert.Equal(t, http.StatusOK, code, answer)
	code, answer = b.post("/write?precision=s", fmt.Sprintf("cpu,host=a v=1i %d\n", time.Now().Unix()))
	assert.Equal(t, http.StatusNoContent, code, answer)

	conn, err := grpc.NewClient(b.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	response, err := telemetrypb.NewIngestServiceClient(conn).Write(t.Context(), &telemetrypb.WriteRequest{
		Readings: []*telemetrypb.Reading{{SensorId: "grpc", Fields: []*telemetrypb.Field{{Name: "t", Value: &telemetrypb.Field_DoubleValue{DoubleValue: 3}}}}},
	})
	require.NoError(t, err)
	assert.EqualValues(t, 1, response.GetAccepted())
	health, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	assert.Equal(t, healthpb.HealthCheckResponse_SERVING, health.GetStatus())

	assert.Equal(t, map[string]int{"ndjson": 2, "cpu,host=a": 1, "grpc": 1}, sensors(t, db.Collection("readings")))
	_, metrics := b.admin(http.MethodGet, "/metrics")
	assert.Contains(t, metrics, "\nbrim_queue_readings 0\n")
	assert.Contains(t, metrics, `brim_ingest_readings_total{protocol="grpc"} 1`)
}

func TestConfiguredStreamsHaveTheirOwnCollections(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	path := writeConfig(t, "streams:\n  machines: {storage: timeseries, retention: 30d}\n  fast: {granularity: 1m}\n")
	b := startBrim(t, append(onShared(t, db), "--config", path)...).awaitStorage()
	for _, stream := range []string{"machines", "fast", "readings"} {
		code, answer := b.post("/v1/streams/"+stream+"/readings", `{"sensorId":"s","fields":{"t":1}}`)
		assert.Equal(t, http.StatusOK, code, answer)
		got := runBrim(t, nil, "query", "s", "--stream", stream, "--url", "http://"+b.HTTP, "--output", "ndjson")
		require.NoError(t, got.err)
		assert.Equal(t, 1, strings.Count(got.stdout, "\n"))
	}
	collections, err := db.ListCollectionSpecifications(t.Context(), bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: bson.A{"machines", "fast", "readings"}}}}})
	require.NoError(t, err)
	types := make(map[string]string)
	for _, c := range collections {
		types[c.Name] = c.Type
	}
	assert.Equal(t, map[string]string{"machines": "timeseries", "fast": "collection", "readings": "collection"}, types)
}

func TestCollectionOfAnotherKindFailsTheStart(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	require.NoError(t, db.CreateView(t.Context(), "readings", "others", bson.A{}))
	b := startBrim(t, onShared(t, db)...)
	assert.Equal(t, exitFailed, b.wait())
	assert.Contains(t, b.Logged(), `collection "readings" exists with type view`)
}

func TestFlushAnswersWhenAllIsStored(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	b := startBrim(t, onShared(t, db)...).awaitStorage()
	for i := range 5 {
		code, _ := b.post("/v1/readings", fmt.Sprintf(`{"sensorId":"s-%d","fields":{"t":1}}`, i))
		require.Equal(t, http.StatusOK, code)
	}
	code, answer := b.admin(http.MethodPost, "/flush?timeout=30s")
	assert.Equal(t, http.StatusOK, code, answer)
	assert.Len(t, sensors(t, db.Collection("readings")), 5)
	code, _ = b.admin(http.MethodPost, "/flush?timeout=never")
	assert.Equal(t, http.StatusBadRequest, code)
}
