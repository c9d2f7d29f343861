package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
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

	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// embedded are the flags of a daemon with a small mongod of its own.
func embedded(t testing.TB) []string {
	t.Helper()
	mongodtest.URI(t) // skips, or installs, where there is none
	return []string{"--data-dir", t.TempDir(), "--mongod-cache-size", "256MiB"}
}

// onShared are the flags of a daemon that stores in db.
func onShared(t testing.TB, db *mongo.Database) []string {
	t.Helper()
	return []string{"--mongo-uri", mongodtest.URI(t), "--database", db.Name(), "--data-dir", t.TempDir()}
}

// inDatabase looks at what a daemon has stored in its default database, and
// leaves no connection behind.
func inDatabase(t testing.TB, uri string, look func(*mongo.Database)) {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	require.NoError(t, err)
	look(client.Database("brim"))
	require.NoError(t, client.Disconnect(context.Background()))
}

// sensors counts what is stored, by sensor, from the bucket documents.
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
	b := startBrim(t, embedded(t)...).awaitReady()
	code, answer := b.post("/v1/readings", `{"sensorId":"s-1","ts":"2026-11-20T10:00:00.123Z","fields":{"t":23.5,"h":65},"tags":{"site":"north"}}`)
	require.Equal(t, http.StatusOK, code, answer)
	assert.JSONEq(t, `{"accepted":1,"rejected":0,"ack":"stored","errors":[]}`, answer)

	got := runBrim(t, nil, "query", "s-1", "--url", "http://"+b.HTTP)
	require.NoError(t, got.err)
	assert.Equal(t, "ts                        h   t\n2026-11-20T10:00:00.123Z  65  23.5\n", got.stdout)

	// MongoDB itself says the same.
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
	inDatabase(t, s.MongoURI, func(db *mongo.Database) {
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

func TestEveryWayInReachesMongoDB(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	b := startBrim(t, onShared(t, db)...).awaitReady()
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

func TestStreamsOfTheFileHaveCollectionsOfTheirOwn(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	path := writeConfig(t, "streams:\n  machines: {storage: timeseries, retention: 30d}\n  fast: {granularity: 1m}\n")
	b := startBrim(t, append(onShared(t, db), "--config", path)...).awaitReady()
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

func TestCollectionOfAnotherKindEndsTheStart(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	require.NoError(t, db.CreateCollection(t.Context(), "readings"))
	b := startBrim(t, append(onShared(t, db), "--storage", "timeseries")...)
	assert.Equal(t, exitFailed, b.wait())
	assert.Contains(t, b.logs.String(), `collection "readings" exists with type collection`)
}

// TestStopStoresWhatIsPending stops a daemon whose first update hangs in
// MongoDB while a second reading waits behind it.
func TestStopStoresWhatIsPending(t *testing.T) {
	t.Parallel()
	server := mongodtest.Start(t, mongod.Config{})
	b := startBrim(t, "--mongo-uri", server.URI(), "--data-dir", t.TempDir(), "--lanes", "1").awaitReady()
	inDatabase(t, server.URI(), func(db *mongo.Database) {
		require.NoError(t, db.Client().Database("admin").RunCommand(t.Context(), bson.D{
			{Key: "configureFailPoint", Value: "failCommand"},
			{Key: "mode", Value: bson.D{{Key: "times", Value: 1}}},
			{Key: "data", Value: bson.D{
				{Key: "failCommands", Value: bson.A{"update"}}, {Key: "appName", Value: "brim"},
				{Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: 4000},
			}},
		}).Err())
	})
	type reply struct {
		code   int
		answer string
		err    error
	}
	replies := make(chan reply, 2)
	for i := range 2 {
		go func() {
			code, answer, err := b.try(http.MethodPost, "http://"+b.HTTP+"/v1/readings", `{"sensorId":"late","fields":{"t":1}}`)
			replies <- reply{code, answer, err}
		}()
		b.eventually("reading taken", func() bool { return b.status().Queue.Readings == i+1 })
	}
	b.signal(syscall.SIGTERM)
	b.awaitReadiness(http.StatusServiceUnavailable, "the daemon is stopping")
	assertRetryAfter(t, b)
	assert.Equal(t, exitDone, b.wait())
	for range 2 {
		r := <-replies
		require.NoError(t, r.err)
		assert.Equal(t, http.StatusOK, r.code, r.answer)
	}
	inDatabase(t, server.URI(), func(db *mongo.Database) {
		assert.Equal(t, map[string]int{"late": 2}, sensors(t, db.Collection("readings")))
	})
}

func TestFlushAnswersWhenAllIsStored(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	b := startBrim(t, onShared(t, db)...).awaitReady()
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

func TestSecondSignalEndsAtOnceAndLeavesNoMongod(t *testing.T) {
	t.Parallel()
	b := startBrim(t, append(embedded(t), "--stop-timeout", "10m", "--stored-timeout", "10m")...).awaitReady()
	pid := b.status().Mongod.Pid
	// A stopped mongod keeps the first signal's flush waiting.
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	requestEnded := make(chan struct{})
	go func() {
		defer close(requestEnded)
		_, _, _ = b.try(http.MethodPost, "http://"+b.HTTP+"/v1/readings", `{"sensorId":"s","fields":{"t":1}}`)
	}()
	b.eventually("reading taken", func() bool { return b.status().Queue.Readings == 1 })
	b.signal(syscall.SIGTERM)
	b.awaitReadiness(http.StatusServiceUnavailable, "the daemon is stopping")
	b.signal(syscall.SIGINT)
	begin := time.Now()
	assert.Equal(t, exitFailed, b.wait())
	assert.Less(t, time.Since(begin), 10*time.Second)
	assert.Contains(t, b.logs.String(), errTwice.Error())
	assert.Contains(t, b.logs.String(), "1 readings not known to be stored")
	assert.False(t, processRuns(pid), "mongod is left behind")
	<-requestEnded
}

func TestMongoDBMayComeLater(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	mongodtest.URI(t)
	b := startBrim(t, "--mongo-uri", fmt.Sprintf("mongodb://127.0.0.1:%d/?replicaSet=brim", port), "--data-dir", t.TempDir())
	b.awaitReadiness(http.StatusServiceUnavailable, "MongoDB is away")
	code, answer := b.post("/v1/readings", `{"sensorId":"s","fields":{"t":1}}`)
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, answer, "MongoDB")
	assertRetryAfter(t, b)
	b.awaitLog("stream waits for MongoDB")

	server := mongodtest.Start(t, mongod.Config{Port: port})
	b.awaitReady()
	code, answer = b.post("/v1/readings", `{"sensorId":"s","fields":{"t":2}}`)
	assert.Equal(t, http.StatusOK, code, answer)
	inDatabase(t, server.URI(), func(db *mongo.Database) {
		assert.Equal(t, map[string]int{"s": 1}, sensors(t, db.Collection("readings")))
	})
}

func TestDaemonOutlivesItsMongoDB(t *testing.T) {
	t.Parallel()
	b := startBrim(t, embedded(t)...).awaitReady()
	before := b.status()
	require.NoError(t, syscall.Kill(before.Mongod.Pid, syscall.SIGKILL))
	b.eventually("mongod that was started again", func() bool {
		s := b.status()
		return s.Mongod.Restarts == 1 && s.Mongod.Running && s.Ready
	})
	code, answer := b.post("/v1/readings", `{"sensorId":"s","fields":{"t":1}}`)
	assert.Equal(t, http.StatusOK, code, answer)
	after := b.status()
	assert.Equal(t, before.Session, after.Session)
	assert.NotEqual(t, before.Mongod.Pid, after.Mongod.Pid)
	b.awaitLog("MongoDB is away")
	_, metrics := b.admin(http.MethodGet, "/metrics")
	assert.Contains(t, metrics, "\nbrim_mongod_restarts_total 1\n")
}

func TestMongoDBAwayLaterIsToldAndOvercome(t *testing.T) {
	t.Parallel()
	port, dir := freePort(t), t.TempDir()
	first := mongodtest.Start(t, mongod.Config{Port: port, DataDir: dir})
	b := startBrim(t, "--mongo-uri", first.URI(), "--data-dir", t.TempDir()).awaitReady()
	code, answer := b.post("/v1/readings", `{"sensorId":"s","fields":{"t":1}}`)
	require.Equal(t, http.StatusOK, code, answer)

	require.NoError(t, first.Close(t.Context()))
	b.awaitReadiness(http.StatusServiceUnavailable, "MongoDB is away")
	b.awaitLog("MongoDB is away")
	assertRetryAfter(t, b)
	got := runBrim(t, nil, "query", "s", "--url", "http://"+b.HTTP)
	assert.ErrorContains(t, got.err, "mongodb_away")

	second := mongodtest.Start(t, mongod.Config{Port: port, DataDir: dir})
	b.awaitReady()
	code, answer = b.post("/v1/readings", `{"sensorId":"s","fields":{"t":2}}`)
	assert.Equal(t, http.StatusOK, code, answer)
	inDatabase(t, second.URI(), func(db *mongo.Database) {
		assert.Equal(t, map[string]int{"s": 2}, sensors(t, db.Collection("readings")))
	})
	// A stop with MongoDB away again is still a stop in time.
	require.NoError(t, second.Close(t.Context()))
	b.awaitReadiness(http.StatusServiceUnavailable, "MongoDB is away")
	begin := time.Now()
	assert.Equal(t, exitDone, b.stop())
	assert.Less(t, time.Since(begin), 15*time.Second)
}

func TestKilledDaemonFindsItsMongodAndDataAgain(t *testing.T) {
	t.Parallel()
	flags := embedded(t)
	b := startBrim(t, flags...).awaitReady()
	code, answer := b.post("/v1/readings", `{"sensorId":"s","fields":{"t":1}}`)
	require.Equal(t, http.StatusOK, code, answer)
	left := b.status().Mongod.Pid
	t.Cleanup(func() {
		if processRuns(left) && strings.Contains(commandLine(left), flags[1]) {
			_ = syscall.Kill(left, syscall.SIGKILL)
		}
	})
	b.signal(syscall.SIGKILL)
	assert.Equal(t, -1, b.wait())
	assert.True(t, processRuns(left), "this tests nothing unless mongod outlives brim")

	again := startBrim(t, flags...).awaitReady()
	assert.NotEqual(t, left, again.status().Mongod.Pid)
	assert.False(t, processRuns(left), "two mongods on the same files")
	got := runBrim(t, nil, "query", "s", "--url", "http://"+again.HTTP, "--output", "ndjson")
	require.NoError(t, got.err)
	assert.Equal(t, 1, strings.Count(got.stdout, "\n"))

	// Meanwhile the files are taken.
	other := exec.Command(brimBinary(t), append([]string{"serve", "--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"}, flags...)...)
	other.Env = foreignEnv()
	out, err := other.CombinedOutput()
	assert.Error(t, err)
	assert.Contains(t, string(out), strconv.Itoa(again.cmd.Process.Pid))
}

// assertRetryAfter asserts that a refused client is told when to come back.
func assertRetryAfter(t *testing.T, b *brimProcess) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+b.HTTP+"/v1/readings", strings.NewReader(`{"sensorId":"s","fields":{"t":1}}`))
	require.NoError(t, err)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.NotEmpty(t, resp.Header.Get("Retry-After"))
	assert.True(t, json.Valid(body))
}

// freePort returns a port that nobody listens on now.
func freePort(t testing.TB) int {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// commandLine returns how a process was called, as far as that can be told.
func commandLine(pid int) string {
	out, err := exec.Command("ps", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return string(out)
}
