package main

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestStopStoresWhatIsPending stops a daemon while its first update hangs in MongoDB and a
// second reading waits behind it.
func TestStopStoresWhatIsPending(t *testing.T) {
	t.Parallel()
	server := mongodtest.Start(t, mongod.Config{})
	b := startBrim(t, "--mongo-uri", server.URI(), "--data-dir", t.TempDir(), "--lanes", "1", "--ack", "stored", "--stored-timeout", "10m", "--stop-timeout", "10m").awaitStorage()
	resume := hangUpdates(t, server)
	type reply struct {
		code   int
		answer string
		err    error
	}
	replies := make(chan reply, 2)
	for i := range 2 {
		go func() {
			code, answer, err := brimtest.Ask(http.MethodPost, "http://"+b.HTTP+"/v1/readings", `{"sensorId":"late","fields":{"t":1}}`)
			replies <- reply{code, answer, err}
		}()
		b.eventually("reading taken", func() bool { return b.status().Queue.Readings == i+1 })
	}
	b.signal(syscall.SIGTERM)
	b.awaitReadiness(http.StatusServiceUnavailable, "the daemon is stopping")
	assertRetryAfter(t, b, `{"sensorId":"s","fields":{"t":1}}`)
	resume()
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

// hangUpdates makes all updates of readings hang in MongoDB until resume is called.
func hangUpdates(t *testing.T, server *mongod.Server) (resume func()) {
	t.Helper()
	set := func(mode string) {
		inDatabase(t, server.URI(), func(db *mongo.Database) {
			require.NoError(t, db.Client().Database("admin").RunCommand(t.Context(), bson.D{
				{Key: "configureFailPoint", Value: "hangDuringBatchUpdate"}, {Key: "mode", Value: mode},
				{Key: "data", Value: bson.D{{Key: "nss", Value: db.Name() + ".readings"}}},
			}).Err())
		})
	}
	set("alwaysOn")
	return func() { set("off") }
}

func TestSecondSignalEndsAtOnceAndLeavesNoMongod(t *testing.T) {
	t.Parallel()
	b := startBrim(t, append(embedded(t), "--stop-timeout", "10m", "--stored-timeout", "10m", "--journal", "off")...).awaitStorage()
	pid := b.status().Mongod.Pid
	// A stopped mongod keeps the first signal's flush waiting.
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	requestEnded := make(chan struct{})
	go func() {
		defer close(requestEnded)
		_, _, _ = brimtest.Ask(http.MethodPost, "http://"+b.HTTP+"/v1/readings", `{"sensorId":"s","fields":{"t":1}}`)
	}()
	b.eventually("reading taken", func() bool { return b.status().Queue.Readings == 1 })
	b.signal(syscall.SIGTERM)
	b.awaitReadiness(http.StatusServiceUnavailable, "the daemon is stopping")
	b.signal(syscall.SIGINT)
	begin := time.Now()
	assert.Equal(t, exitFailed, b.wait())
	assert.Less(t, time.Since(begin), patience, "--stop-timeout is 10m")
	assert.Contains(t, b.Logged(), daemon.ErrTwice.Error())
	assert.Contains(t, b.Logged(), "1 readings not known to be stored")
	assert.False(t, processRuns(pid), "mongod is left behind")
	<-requestEnded
}

func TestStopWhileMongoDBHangs(t *testing.T) {
	t.Parallel()
	// Without the flag it has 15 s, and waits for mongod to the end. A host may stall that
	// long, but not every time.
	const least = 15 * time.Second
	took := least
	for i := 0; i < 3 && took >= least; i++ {
		took = stopWhileMongoDBHangs(t, "--stop-timeout", "1s")
	}
	assert.Less(t, took, least, "--stop-timeout is 1s")
}

func stopWhileMongoDBHangs(t *testing.T, flags ...string) (took time.Duration) {
	t.Helper()
	b := startBrim(t, append(append(embedded(t), "--stored-timeout", "10m", "--journal", "off"), flags...)...).awaitStorage()
	pid := b.status().Mongod.Pid
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	answered := make(chan string, 1)
	go func() {
		_, answer, err := brimtest.Ask(http.MethodPost, "http://"+b.HTTP+"/v1/readings", `{"sensorId":"s","fields":{"t":1}}`)
		answered <- fmt.Sprint(answer, err)
	}()
	b.eventually("reading taken", func() bool { return b.status().Queue.Readings == 1 })
	begin := time.Now()
	assert.Equal(t, exitFailed, b.stop())
	took = time.Since(begin)
	assert.Contains(t, b.Logged(), "1 readings not known to be stored")
	assert.Contains(t, <-answered, "outcome_unknown")
	assert.False(t, processRuns(pid), "mongod is left behind")
	return took
}
