package mongod_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestFurtherStartsFindTheDataAndTheURI, at another port if theirs is taken.
func TestFurtherStartsFindTheDataAndTheURI(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := startServer(t, mongod.Config{DataDir: dir})
	put(t, connect(t, first.URI()), "a")
	require.True(t, first.Running())
	require.Regexp(t, `^\d+\.\d+\.\d+`, first.Version())
	closeServer(t, first)
	require.NoError(t, first.Close(t.Context()), "as the first time")

	second := startServer(t, mongod.Config{DataDir: dir})
	require.Equal(t, first.URI(), second.URI())
	requireKept(t, connect(t, second.URI()), "a")
	closeServer(t, second)

	occupy(t, portOf(t, second))
	third := startServer(t, mongod.Config{DataDir: dir})
	require.NotEqual(t, portOf(t, second), portOf(t, third))
	client := connect(t, third.URI())
	put(t, client, "b")
	requireKept(t, client, "a", "b")
}

// TestSettingsReachMongod, and its log is rotated.
func TestSettingsReachMongod(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), mongodtest.FreePort(t)
	server := startServer(t, mongod.Config{
		DataDir: dir, Port: port, Compressor: "zstd", CacheSizeGB: 0.5, OplogSizeMB: 32,
		Parameters: map[string]string{"ttlMonitorEnabled": "false"},
	})
	require.Equal(t, port, portOf(t, server))
	client := connect(t, server.URI())

	options := adminCommand(t, client, bson.D{{Key: "getCmdLineOpts", Value: 1}})
	assert.Contains(t, fmt.Sprint(options["parsed"]), server.DBPath())

	parameters := adminCommand(t, client, bson.D{
		{Key: "getParameter", Value: 1}, {Key: "minSnapshotHistoryWindowInSeconds", Value: 1},
		{Key: "ttlMonitorEnabled", Value: 1}, {Key: "enableTestCommands", Value: 1},
		{Key: "diagnosticDataCollectionEnabled", Value: 1},
	})
	assert.EqualValues(t, 0, parameters["minSnapshotHistoryWindowInSeconds"])
	assert.Equal(t, false, parameters["ttlMonitorEnabled"])
	assert.Equal(t, false, parameters["diagnosticDataCollectionEnabled"])

	put(t, client, "a")
	stats := collectionStats(t, client.Database("test"), "kept")
	assert.Contains(t, stats.WiredTiger.CreationString, "block_compressor=zstd")
	oplog := collectionStats(t, client.Database("local"), "oplog.rs")
	assert.EqualValues(t, 32<<20, oplog.MaxSize)

	var status struct {
		WiredTiger struct {
			Cache struct {
				Max int64 `bson:"maximum bytes configured"`
			} `bson:"cache"`
		} `bson:"wiredTiger"`
	}
	require.NoError(t, client.Database("admin").RunCommand(t.Context(), bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status))
	assert.EqualValues(t, 512<<20, status.WiredTiger.Cache.Max)

	hello := adminCommand(t, client, bson.D{{Key: "hello", Value: 1}})
	assert.Equal(t, "brim", hello["setName"])

	// A log that has grown to its limit, without filling the disk.
	path := filepath.Join(dir, "mongod", "mongod.log")
	require.NoError(t, os.Truncate(path, 16<<20+1))
	eventually(t, func() bool {
		info, err := os.Stat(path)
		return err == nil && info.Size() > 0 && info.Size() < 16<<20
	}, "mongod did not open a new log")
	old, err := os.Stat(path + ".1")
	require.NoError(t, err)
	require.Greater(t, old.Size(), int64(16<<20))
	require.True(t, server.Running())
}

type storageStats struct {
	MaxSize    int64 `bson:"maxSize"`
	WiredTiger struct {
		CreationString string `bson:"creationString"`
	} `bson:"wiredTiger"`
}

func collectionStats(t *testing.T, db *mongo.Database, collection string) storageStats {
	t.Helper()
	var stats storageStats
	require.NoError(t, db.RunCommand(t.Context(), bson.D{{Key: "collStats", Value: collection}}).Decode(&stats))
	return stats
}

// portOf a server's URI.
func portOf(t *testing.T, server *mongod.Server) int {
	t.Helper()
	uri, err := url.Parse(server.URI())
	require.NoError(t, err)
	port, err := strconv.Atoi(uri.Port())
	require.NoError(t, err)
	return port
}

// occupy takes a port until the test's end, with a server that does not speak
// mongod's protocol and hangs up.
func occupy(t *testing.T, port int) {
	t.Helper()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
}

func TestTakenConfiguredPortIsAnErrorThatNamesIt(t *testing.T) {
	t.Parallel()
	port := portOf(t, mongodtest.Shared(t))
	_, err := mongod.Start(t.Context(), mongodtest.Defaults(mongod.Config{DataDir: t.TempDir(), Port: port}))
	require.ErrorContains(t, err, fmt.Sprintf("port %d", port))
	require.ErrorContains(t, err, "--mongod-port")
}

// Between the look at a port and mongod's own, another program can take it.
func TestAnotherPortIsDrawnWhenMongodFindsItTaken(t *testing.T) {
	t.Parallel()
	bin := filepath.Join(t.TempDir(), "mongod")
	mark := filepath.Join(t.TempDir(), "mark")
	listener := `{"s":"E","msg":"Error setting up listener","attr":{"error":{"errmsg":"Address already in use"}}}`
	script(t, bin,
		`case "$*" in *--version*) ;; *) [ -e `+mark+` ] || { touch `+mark+`; echo '`+listener+`'; exit 48; };; esac`,
		`exec "`+binary(t).Path+`" "$@"`)
	log := &logged{}
	server := startServer(t, mongod.Config{Bin: bin, Logger: log.logger()})
	require.FileExists(t, mark)
	require.NotContains(t, server.URI(), takenPort(t, log.String()))
	put(t, connect(t, server.URI()), "a")
}

// takenPort is the one of which the log says that it is taken, as in a URI.
func takenPort(t *testing.T, log string) string {
	t.Helper()
	match := regexp.MustCompile(`drawing another" port=(\d+)`).FindStringSubmatch(log)
	require.NotNil(t, match, log)
	return ":" + match[1] + "/"
}

func startAndClose(t *testing.T, dir string) *mongod.Server {
	t.Helper()
	server := startServer(t, mongod.Config{DataDir: dir})
	closeServer(t, server)
	return server
}

func TestRefusedSettingIsNamed(t *testing.T) {
	t.Parallel()
	_, err := mongod.Start(t.Context(), mongodtest.Defaults(mongod.Config{
		DataDir: t.TempDir(), Parameters: map[string]string{"noSuchParameter": "1"},
	}))
	require.ErrorContains(t, err, "noSuchParameter")
}

func TestDamagedDataIsSaidInMongodsWords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	startAndClose(t, dir)
	turtle := filepath.Join(dir, "mongod", "db", "WiredTiger.turtle")
	require.NoError(t, os.WriteFile(turtle, []byte("not a turtle"), 0o600))

	_, err := mongod.Start(t.Context(), mongodtest.Defaults(mongod.Config{DataDir: dir}))
	require.ErrorContains(t, err, "WiredTiger.turtle: fatal turtle file read error")
	require.ErrorContains(t, err, filepath.Join(dir, "mongod", "mongod.log"))
}

func TestInterruptedStartLeavesNoProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	works := binary(t).Path
	bin := filepath.Join(t.TempDir(), "mongod")
	reached := filepath.Join(t.TempDir(), "reached")
	// The version is asked first; a start then hangs.
	script(t, bin, `case "$*" in *--version*) exec "`+works+`" --version;; esac`, `echo $$ > "`+reached+`"`, `exec sleep 1000`)

	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := mongod.Start(ctx, mongodtest.Defaults(mongod.Config{DataDir: dir, Bin: bin}))
		result <- err
	}()
	var hanging int
	eventually(t, func() bool {
		text, err := os.ReadFile(reached)
		if err != nil {
			return false
		}
		_, err = fmt.Sscanf(string(text), "%d\n", &hanging)
		return err == nil
	}, "mongod was never started")
	cancel()
	require.ErrorIs(t, <-result, context.Canceled)
	require.NoDirExists(t, fmt.Sprintf("/proc/%d", hanging))

	server := startServer(t, mongod.Config{DataDir: dir})
	require.True(t, server.Running())
}

func TestCloseOutOfTimeKillsAndLosesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := mongod.Start(t.Context(), mongodtest.Defaults(mongod.Config{DataDir: dir}))
	require.NoError(t, err)
	put(t, connect(t, first.URI()), "a")
	pid := first.Pid()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, first.Close(ctx), context.Canceled)
	require.False(t, isMongodOn(pid, dir))

	second := startServer(t, mongod.Config{DataDir: dir})
	requireKept(t, connect(t, second.URI()), "a")
}
