package main

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/queue"
)

// A guarded is a password-protected MongoDB with a user for a daemon.
type guarded struct {
	t      *testing.T
	server *mongod.Server
	owner  string // the admin's URI
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{t: t, server: mongodtest.Start(t, mongod.Config{Auth: true, Database: "brim"})}
	text, err := os.ReadFile(g.server.URIFile())
	require.NoError(t, err)
	g.owner = strings.TrimSpace(string(text))
	g.admin(bson.D{{Key: "createUser", Value: "sensors"}, {Key: "pwd", Value: "right"}, {Key: "roles", Value: bson.A{"brimServe"}}})
	return g
}

func (g *guarded) admin(commands ...bson.D) {
	g.t.Helper()
	inDatabase(g.t, g.owner, func(db *mongo.Database) {
		for _, command := range commands {
			require.NoError(g.t, db.Client().Database("admin").RunCommand(g.t.Context(), command).Err())
		}
	})
}

// password changes the user's password.
func (g *guarded) password(password string) {
	g.t.Helper()
	g.admin(bson.D{{Key: "updateUser", Value: "sensors"}, {Key: "pwd", Value: password}})
}

// uri returns the user's URI.
func (g *guarded) uri(password string) string {
	u, err := url.Parse(g.owner)
	require.NoError(g.t, err)
	u.User = url.UserPassword("sensors", password)
	return u.String()
}

const refusedLine = "MongoDB refuses the user: authentication failed"

func TestWrongPasswordAtStart(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	b := startBrim(t, "--mongo-uri-file", writeURI(t, g.uri("wrong")), "--data-dir", t.TempDir())
	b.awaitReady() // the journal accepts readings
	code, answer := b.post("/v1/readings", `{"sensorId":"s","fields":{"t":1}}`)
	require.Equal(t, http.StatusOK, code, answer)
	b.eventually("the word that the user is refused", func() bool {
		s := b.status()
		return s.MongoDB != nil && !s.MongoDB.Available && strings.Contains(s.MongoDB.Reason, "check the user, the password and authSource")
	})
	_, ready := b.admin(http.MethodGet, "/readyz")
	assert.Contains(t, ready, "authentication failed")
	g.password("wrong") // becomes the right one
	b.awaitStorage()
	b.awaitLog("MongoDB accepts the user")
	code, answer = b.admin(http.MethodPost, "/flush?timeout=30s")
	require.Equal(t, http.StatusOK, code, answer)
	inDatabase(t, g.owner, func(db *mongo.Database) {
		assert.Equal(t, map[string]int{"s": 1}, sensors(t, db.Client().Database("brim").Collection("readings")))
	})
	assert.Equal(t, 1, strings.Count(b.Logged(), refusedLine), "once, however often it was tried")
	assert.NotContains(t, b.Logged(), ":wrong@")
}

func TestChangedPasswordLosesNothing(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	dir := t.TempDir()
	b := startBrim(t, "--mongo-uri-file", writeURI(t, g.uri("right")), "--data-dir", dir, "--server-status-interval", "1s").awaitStorage()
	code, answer := b.post("/v1/readings?ack=stored", `{"sensorId":"s","fields":{"t":1}}`)
	require.Equal(t, http.StatusOK, code, answer)

	g.password("changed")
	require.NoError(t, g.server.Kill()) // existing connections would survive; it restarts
	b.awaitLog(refusedLine + "; check the user, the password and authSource of the MongoDB URI; accepted readings wait meanwhile")
	code, answer = b.post("/v1/readings", `{"sensorId":"s","fields":{"t":2}}`)
	require.Equal(t, http.StatusOK, code, answer)
	assert.False(t, b.status().MongoDB.Available)

	g.password("right")
	code, answer = b.admin(http.MethodPost, "/flush?timeout=60s")
	require.Equal(t, http.StatusOK, code, answer)
	b.awaitLog("MongoDB accepts the user")
	inDatabase(t, g.owner, func(db *mongo.Database) {
		assert.Equal(t, map[string]int{"s": 2}, sensors(t, db.Client().Database("brim").Collection("readings")))
	})
	_, err := os.Stat(filepath.Join(dir, queue.DeadLettersName))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, metrics := b.admin(http.MethodGet, "/metrics")
	assert.Contains(t, metrics, "\nbrim_queue_dead_letters_total 0\n")
}
