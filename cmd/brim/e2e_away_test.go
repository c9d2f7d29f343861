package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

func TestMongoDBStartsAfterTheDaemon(t *testing.T) {
	t.Parallel()
	port := mongodtest.FreePort(t)
	mongodtest.URI(t)
	b := startBrim(t, "--mongo-uri", fmt.Sprintf("mongodb://127.0.0.1:%d/?replicaSet=brim", port), "--data-dir", t.TempDir(), "--journal", "off")
	b.awaitReadiness(http.StatusServiceUnavailable, "MongoDB is away")
	code, answer := b.post("/v1/readings", `{"sensorId":"s","fields":{"t":1}}`)
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, answer, "MongoDB")
	assertRetryAfter(t, b, `{"sensorId":"s","fields":{"t":1}}`)
	b.awaitLog("stream waits for MongoDB")

	server := mongodtest.Start(t, mongod.Config{Port: port})
	b.awaitReady()
	code, answer = b.post("/v1/readings", `{"sensorId":"s","fields":{"t":2}}`)
	assert.Equal(t, http.StatusOK, code, answer)
	inDatabase(t, server.URI(), func(db *mongo.Database) {
		assert.Equal(t, map[string]int{"s": 1}, sensors(t, db.Collection("readings")))
	})
}

func TestDaemonRestartsItsMongod(t *testing.T) {
	t.Parallel()
	b := startBrim(t, embedded(t)...).awaitStorage()
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

func TestMongoDBRestarts(t *testing.T) {
	t.Parallel()
	port, dir := mongodtest.FreePort(t), t.TempDir()
	first := mongodtest.Start(t, mongod.Config{Port: port, DataDir: dir})
	b := startBrim(t, "--mongo-uri", first.URI(), "--data-dir", t.TempDir(), "--journal", "off", "--stop-timeout", "10m").awaitStorage()
	code, answer := b.post("/v1/readings", `{"sensorId":"s","fields":{"t":1}}`)
	require.Equal(t, http.StatusOK, code, answer)

	require.NoError(t, first.Close(t.Context()))
	b.awaitReadiness(http.StatusServiceUnavailable, "MongoDB is away")
	b.awaitLog("MongoDB is away")
	assertRetryAfter(t, b, `{"sensorId":"s","fields":{"t":1}}`)
	got := runBrim(t, nil, "query", "s", "--url", "http://"+b.HTTP)
	assert.ErrorContains(t, got.err, "mongodb_away")

	second := mongodtest.Start(t, mongod.Config{Port: port, DataDir: dir})
	b.awaitReady()
	code, answer = b.post("/v1/readings", `{"sensorId":"s","fields":{"t":2}}`)
	assert.Equal(t, http.StatusOK, code, answer)
	inDatabase(t, second.URI(), func(db *mongo.Database) {
		assert.Equal(t, map[string]int{"s": 2}, sensors(t, db.Collection("readings")))
	})
	// With nothing to store, a stop does not wait for MongoDB to return, which could take the
	// six minutes of a flush.
	require.NoError(t, second.Close(t.Context()))
	b.awaitReadiness(http.StatusServiceUnavailable, "MongoDB is away")
	assert.Equal(t, exitDone, b.stop())
}

func TestKilledDaemonFindsItsMongodAndDataAgain(t *testing.T) {
	t.Parallel()
	flags := embedded(t)
	b := startBrim(t, flags...).awaitStorage()
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

	again := startBrim(t, flags...).awaitStorage()
	assert.NotEqual(t, left, again.status().Mongod.Pid)
	assert.False(t, processRuns(left), "two mongods on the same files")
	got := runBrim(t, nil, "query", "s", "--url", "http://"+again.HTTP, "--output", "ndjson")
	require.NoError(t, got.err)
	assert.Equal(t, 1, strings.Count(got.stdout, "\n"))

	// Meanwhile someone else takes the files.
	other := exec.Command(brimBinary(t), append([]string{"serve", "--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0"}, flags...)...)
	other.Env = foreignEnv()
	out, err := other.CombinedOutput()
	assert.Error(t, err)
	assert.Contains(t, string(out), strconv.Itoa(again.Cmd.Process.Pid))
}

// assertRetryAfter asserts that a refused client is told when to come back.
func assertRetryAfter(t *testing.T, b *brimProcess, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+b.HTTP+"/v1/readings", strings.NewReader(body))
	require.NoError(t, err)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.NotEmpty(t, resp.Header.Get("Retry-After"))
	assert.True(t, json.Valid(answer))
}

// commandLine returns a process's command line, if available.
func commandLine(pid int) string {
	out, err := exec.Command("ps", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return string(out)
}
