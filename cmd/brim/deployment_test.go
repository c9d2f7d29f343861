package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/store"
)

// statusAt is an admin listener that answers with a status.
func statusAt(t *testing.T, s *daemon.Status) (address string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/status", r.URL.Path)
		assert.NoError(t, json.NewEncoder(w).Encode(s))
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// deploymentOf returns the deployment that the flags select.
func deploymentOf(t *testing.T, args ...string) (*deployment, error) {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	find := deploymentFlags(flags)
	require.NoError(t, flags.Parse(args))
	return find(t.Context(), &process{stdout: io.Discard, stderr: io.Discard})
}

// runningStatus is that of a daemon with two streams and a MongoDB of its own.
func runningStatus() *daemon.Status {
	return &daemon.Status{
		Addresses: daemon.Addresses{HTTP: "127.0.0.1:1"}, MongoURI: "mongodb://127.0.0.1:27/?replicaSet=brim", Database: "brim", Mongod: &daemon.EmbeddedStatus{Running: true},
		Streams: []daemon.StreamStatus{
			{Name: "ecg", Storage: "bucket", GranularitySeconds: 60, BucketMaxReadings: 3600, BucketMaxBytes: 1 << 18, Compressor: "zstd", RetentionSeconds: 3600},
			{Name: "weather", Default: true, Storage: "timeseries", GranularitySeconds: 3600, Compressor: "snappy"},
		},
	}
}

func TestDaemonNamesItsMongoDB(t *testing.T) {
	t.Parallel()
	admin := statusAt(t, runningStatus())
	s, err := deploymentOf(t, "--admin", admin)
	require.NoError(t, err)
	assert.Equal(t, "mongodb://127.0.0.1:27/?replicaSet=brim", s.uri)
	assert.Equal(t, "brim", s.database)
	require.NotNil(t, s.daemon)
	chosen, err := s.stream("--stream")
	require.NoError(t, err)
	assert.Equal(t, "weather", chosen.Name, "the daemon's default stream")

	s, err = deploymentOf(t, "--admin", admin, "--stream", "ecg")
	require.NoError(t, err)
	chosen, err = s.stream("--stream")
	require.NoError(t, err)
	assert.Equal(t, daemon.Stream{
		Name: "ecg", Storage: store.Bucket, Granularity: time.Minute, BucketMaxReadings: 3600, BucketMaxBytes: 1 << 18,
		Compressor: store.Zstd, Retention: time.Hour,
	}, chosen)

	s, err = deploymentOf(t, "--admin", admin, "--stream", "egc")
	require.NoError(t, err)
	_, err = s.stream("--stream")
	require.ErrorContains(t, err, `--stream: there is no stream "egc"`)
	assert.ErrorContains(t, err, "allowed: ecg, weather")
	assert.Equal(t, exitUsage, exitCode(err))
}

func TestAnotherDatabaseThanTheDaemonsNeedsItsURI(t *testing.T) {
	t.Parallel()
	admin := statusAt(t, runningStatus())
	_, err := deploymentOf(t, "--admin", admin, "--database", "brim")
	require.NoError(t, err)
	_, err = deploymentOf(t, "--admin", admin, "--database", "other")
	require.ErrorContains(t, err, `the database is set to "other", but the daemon at `+admin+` writes to "brim"; omit --database (BRIM_DATABASE), or add --mongo-uri`)
	assert.Equal(t, exitUsage, exitCode(err))
}

func TestDaemonOfAnotherMongoDBIsIgnored(t *testing.T) {
	t.Parallel()
	s, err := deploymentOf(t, "--admin", statusAt(t, runningStatus()), "--mongo-uri", "mongodb://db.example:27017")
	require.NoError(t, err)
	assert.Nil(t, s.daemon)
	assert.Equal(t, "mongodb://db.example:27017", s.uri)
	chosen, err := s.stream("--stream")
	require.NoError(t, err)
	assert.Equal(t, "readings", chosen.Name)
	assert.Equal(t, 5*time.Minute, chosen.Granularity, "as the configuration has it")
}

func TestDaemonIsMatchedByItsMaskedURI(t *testing.T) {
	t.Parallel()
	about := runningStatus()
	about.MongoURI, about.Mongod = "mongodb://sensors:***@db.example:27017/", nil
	admin := statusAt(t, about)
	_, err := deploymentOf(t, "--admin", admin)
	require.ErrorContains(t, err, "does not tell the password")
	assert.ErrorContains(t, err, "BRIM_MONGO_URI")

	s, err := deploymentOf(t, "--admin", admin, "--mongo-uri", "mongodb://sensors:secret@db.example:27017/")
	require.NoError(t, err)
	require.NotNil(t, s.daemon)
	assert.Equal(t, "mongodb://sensors:secret@db.example:27017/", s.uri)
	assert.Len(t, s.streams, 2)
}

func TestNoMongoDBAndNoDaemon(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	admin := strings.TrimPrefix(gone.URL, "http://")
	gone.Close()
	_, err := deploymentOf(t, "--admin", admin)
	require.ErrorContains(t, err, "no --mongo-uri given, and no daemon to get it from")

	about := runningStatus()
	about.MongoURI = ""
	_, err = deploymentOf(t, "--admin", statusAt(t, about))
	assert.ErrorContains(t, err, "stores nothing in MongoDB yet")

	about = runningStatus()
	about.Streams[0].GranularitySeconds = 0
	_, err = deploymentOf(t, "--admin", statusAt(t, about))
	assert.ErrorContains(t, err, "another version")
}

func TestInvalidAdminAddressNamesItsFlag(t *testing.T) {
	t.Parallel()
	got := runBrim(t, nil, "doctor", "--admin", "foo")
	assert.Equal(t, exitUsage, got.code)
	require.ErrorContains(t, got.err, "127.0.0.1:8432")
	assert.ErrorContains(t, got.err, "--admin")
	assert.NotContains(t, got.err.Error(), "admin-addr")
}

// runningWithPassword is the status of a daemon whose own MongoDB asks for a
// password, which is in the file.
func runningWithPassword(file string) *daemon.Status {
	about := runningStatus()
	about.MongoURI = "mongodb://brim:***@127.0.0.1:27/?replicaSet=brim&authSource=admin"
	about.Mongod = &daemon.EmbeddedStatus{Running: true, Auth: true, URI: about.MongoURI, URIFile: file}
	return about
}

func TestThePasswordOfAnEmbeddedMongoDBIsReadFromItsFile(t *testing.T) {
	t.Parallel()
	const uri = "mongodb://owner:canary@127.0.0.1:27/?replicaSet=brim&authSource=admin"
	path := writeURI(t, uri+"\n")
	admin := statusAt(t, runningWithPassword(path))
	s, err := deploymentOf(t, "--admin", admin)
	require.NoError(t, err)
	assert.Equal(t, uri, s.uri)
	assert.NotNil(t, s.daemon)

	s, err = deploymentOf(t, "--admin", admin, "--mongo-uri", uri)
	require.NoError(t, err)
	assert.NotNil(t, s.daemon, "it is that daemon's, by another user")

	s, err = deploymentOf(t, "--admin", admin, "--mongo-uri-file", path)
	require.NoError(t, err)
	assert.Equal(t, uri, s.uri)
	assert.NotNil(t, s.daemon)
}

func TestUnreadablePasswordFile(t *testing.T) {
	t.Parallel()
	_, err := deploymentOf(t, "--admin", statusAt(t, runningWithPassword("/nonexistent/mongod/uri")))
	require.ErrorContains(t, err, "requires a password: it is in /nonexistent/mongod/uri of the daemon's machine")
	require.ErrorContains(t, err, "BRIM_MONGO_URI")

	other := writeURI(t, "mongodb://owner:canary@127.0.0.1:28/?replicaSet=brim")
	_, err = deploymentOf(t, "--admin", statusAt(t, runningWithPassword(other)))
	require.ErrorContains(t, err, "is not the URI of mongodb://brim:***@127.0.0.1:27/")
	assert.NotContains(t, err.Error(), "canary")

	closed := writeURI(t, "mongodb://owner:canary@127.0.0.1:27/?replicaSet=brim")
	require.NoError(t, os.Chmod(closed, 0))
	if os.Getuid() != 0 { // who may read everything
		_, err = deploymentOf(t, "--admin", statusAt(t, runningWithPassword(closed)))
		assert.ErrorContains(t, err, "only the user that runs the daemon may read")
	}
}
