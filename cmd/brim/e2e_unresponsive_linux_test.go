package main

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/brimtest"
)

// TestStoppedMongoDBIsReported: a stopped process keeps its sockets open, so only a deadline
// reveals it. Readings are journaled meanwhile, so the daemon stays ready.
func TestStoppedMongoDBIsReported(t *testing.T) {
	t.Parallel()
	b := startBrim(t, append(embedded(t), "--mongod-auth", "off")...).awaitStorage()
	pid := b.status().Mongod.Pid
	uri := b.status().Mongod.URI
	code, answer := b.post("/v1/readings?ack=stored", `{"sensorId":"s","fields":{"t":1}}`)
	require.Equal(t, http.StatusOK, code, answer)

	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	stopped := time.Now()
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // so that it can be stopped
	var ready string
	b.eventually("the name of what is wrong", func() bool {
		code, body, err := brimtest.Ask(http.MethodGet, "http://"+b.Admin+"/readyz", "")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, code, "readings are journaled")
		ready = body
		return strings.Contains(body, "MongoDB is away: it does not answer")
	})
	// The driver itself takes half a minute. The 3 s are these 2 s and the ping interval; a
	// stalling host may take much longer.
	assert.Less(t, time.Since(stopped), 28*time.Second, ready)
	assert.Contains(t, ready, "no reply to any ping within 2s")
	_, metrics := b.admin(http.MethodGet, "/metrics")
	assert.Contains(t, metrics, "\nbrim_mongodb_up 0\n")
	asked := time.Now()
	got := runBrim(t, nil, "doctor", "--admin", b.Admin)
	assert.Equal(t, exitFailed, got.code)
	require.ErrorIs(t, got.err, errAway)
	assert.Less(t, time.Since(asked), 28*time.Second, "brim doctor: %v", got.err)
	code, answer = b.post("/v1/readings?ack=journaled", `{"sensorId":"s","fields":{"t":2}}`)
	assert.Equal(t, http.StatusOK, code, answer)

	require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
	b.eventually("MongoDB that is back", func() bool { return b.status().MongoDB.Available })
	_, flushed := b.admin(http.MethodPost, "/flush")
	inDatabase(t, uri, func(db *mongo.Database) {
		assert.Equal(t, map[string]int{"s": 2}, sensors(t, db.Collection("readings")), flushed)
	})
}
