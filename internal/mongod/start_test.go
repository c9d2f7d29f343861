package mongod_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestSettingsReachMongod, and the log is rotated.
func TestSettingsReachMongod(t *testing.T) {
	t.Parallel()
	mongodtest.Native(t, "it opens its log again when signalled")
	dir, port := t.TempDir(), mongodtest.FreePort(t)
	server := startServer(t, mongod.Config{
		DataDir: dir, Port: port, Compressor: "zstd", CacheSizeGB: 0.5, OplogSizeMB: 32,
		Parameters: map[string]string{"ttlMonitorEnabled": "false"},
	})
	require.Equal(t, port, portOf(t, server.URI()))
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

	// A log at its size limit, without filling the disk.
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

func portOf(t *testing.T, uri string) int {
	t.Helper()
	port, err := strconv.Atoi(parse(t, uri).Port())
	require.NoError(t, err)
	return port
}

// occupy takes a port until the test ends, with a server that hangs up without
// speaking mongod's protocol.
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

func TestTakenPortIsNamedInTheError(t *testing.T) {
	t.Parallel()
	port := portOf(t, mongodtest.URI(t))
	_, err := mongod.Start(t.Context(), mongodtest.Defaults(mongod.Config{DataDir: t.TempDir(), Port: port}))
	require.ErrorContains(t, err, fmt.Sprintf("port %d", port))
	require.ErrorContains(t, err, "--mongod-port")
}

func TestRefusedSettingIsNamed(t *testing.T) {
	t.Parallel()
	_, err := mongod.Start(t.Context(), mongodtest.Defaults(mongod.Config{
		DataDir: t.TempDir(), Parameters: map[string]string{"noSuchParameter": "1"},
	}))
	require.ErrorContains(t, err, "noSuchParameter")
}

func TestInterruptedStartLeavesNoProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bin := filepath.Join(t.TempDir(), "mongod")
	reached := filepath.Join(t.TempDir(), "reached")
	script(t, bin, answersVersion, `echo $$ > "`+reached+`"`, `exec sleep 1000`)

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

	script(t, bin, answersVersion, `exit 3`)
	_, err := mongod.Start(t.Context(), mongodtest.Defaults(mongod.Config{DataDir: dir, Bin: bin}))
	require.ErrorContains(t, err, "exit status 3", "the data directory is free again")
}
