package main

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestQueriesWhileMongoDBFails: clients are asked to retry, after errors that only
// interrupt an operation and after those that mean there is no primary.
func TestQueriesWhileMongoDBFails(t *testing.T) {
	t.Parallel()
	server := mongodtest.Start(t, mongod.Config{})
	// The driver retries a read until the timeout.
	b := startBrim(t, "--mongo-uri", server.URI(), "--data-dir", t.TempDir(), "--ack", "stored", "--query-timeout", "1s").awaitStorage()
	code, answer := b.post("/v1/readings", `{"sensorId":"s","fields":{"t":1}}`)
	require.Equal(t, http.StatusOK, code, answer)
	failing := func(mode any, code int) {
		inDatabase(t, server.URI(), func(db *mongo.Database) {
			assert.NoError(t, db.Client().Database("admin").RunCommand(t.Context(), bson.D{
				{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode},
				{Key: "data", Value: bson.D{{Key: "failCommands", Value: bson.A{"find", "aggregate"}}, {Key: "appName", Value: "brim"}, {Key: "errorCode", Value: code}}},
			}).Err())
		})
	}
	readings := "http://" + b.HTTP + "/v1/sensors/s/readings"
	for _, code := range []int{43, 175, 189, 11600} {
		failing("alwaysOn", code)
		var clients sync.WaitGroup
		for _, url := range []string{readings, "http://" + b.HTTP + "/v1/sensors/s/summary?from=0&to=9000000000000", "http://" + b.HTTP + "/v1/sensors"} {
			clients.Go(func() {
				resp, err := http.Get(url)
				if assert.NoError(t, err) {
					assert.NoError(t, resp.Body.Close())
					assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, "%d of %s", code, url)
					assert.NotEmpty(t, resp.Header.Get("Retry-After"), "%d of %s", code, url)
				}
			})
		}
		clients.Wait()
	}
	failing("off", 43)
	b.eventually("answer after the failures", func() bool {
		code, _, err := brimtest.Ask(http.MethodGet, readings, "")
		return err == nil && code == http.StatusOK
	})
}

// TestQueriesDuringAFailover: more queries than are answered at once, without a primary.
func TestQueriesDuringAFailover(t *testing.T) {
	t.Parallel()
	server := mongodtest.Start(t, mongod.Config{})
	b := startBrim(t, "--mongo-uri", server.URI(), "--data-dir", t.TempDir(), "--ack", "stored", "--max-queries", "2").awaitStorage()
	code, answer := b.post("/v1/readings", `{"sensorId":"s","fields":{"t":1}}`)
	require.Equal(t, http.StatusOK, code, answer)
	stepped := make(chan struct{})
	over := make(chan struct{})
	var clients sync.WaitGroup
	var mu sync.Mutex
	answers := make(map[string]int)
	for range 16 {
		clients.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				code, body, err := brimtest.Ask(http.MethodGet, "http://"+b.HTTP+"/v1/sensors/s/readings", "")
				kind := "other: " + body
				switch {
				case err != nil:
					kind = err.Error()
				case code == http.StatusOK:
					kind = "answered"
				case code == http.StatusServiceUnavailable && strings.Contains(body, "mongodb_away"):
					kind = "mongodb_away"
				case code == http.StatusServiceUnavailable && strings.Contains(body, "queries_too_many"):
					kind = "queries_too_many"
				}
				select {
				case <-stepped:
					mu.Lock()
					answers[kind]++
					mu.Unlock()
				default:
				}
			}
		})
	}
	admin := func(command bson.D) {
		inDatabase(t, server.URI(), func(db *mongo.Database) {
			require.NoError(t, db.Client().Database("admin").RunCommand(t.Context(), command, options.RunCmd().SetReadPreference(readpref.Nearest())).Err())
		})
	}
	many := func(kind string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return answers[kind] > 100
		}
	}
	admin(bson.D{{Key: "replSetStepDown", Value: 600}, {Key: "force", Value: true}})
	close(stepped)
	b.eventually("answers while there is no primary", many("mongodb_away"))
	admin(bson.D{{Key: "replSetFreeze", Value: 0}}) // the only member is elected again
	b.eventually("answers after it", many("answered"))
	close(over)
	clients.Wait()
	// Queries waiting for a primary must not block others. Otherwise two would be answered per
	// timeout, and all others refused. On a stalling host, this may happen once or twice.
	assert.Less(t, answers["queries_too_many"], answers["mongodb_away"], "%v", answers)
	delete(answers, "queries_too_many")
	assert.Len(t, answers, 2, "%v", answers)
}
