package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongostest"
)

// onCluster runs `brim shard` against a cluster that answers as MongoDB's
// documentation says, see package mongostest.
func onCluster(t *testing.T, c *mongostest.Cluster, args ...string) outcome {
	t.Helper()
	args = append([]string{"shard"}, args...)
	return runBrim(t, nil, append(args, "--mongo-uri", c.URI(), "--admin", "127.0.0.1:1")...)
}

// twoStreams writes a configuration of a bucket stream, a time series and one
// that is kept in memory.
func twoStreams(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "brim.yaml")
	require.NoError(t, os.WriteFile(path, []byte("streams:\n  readings: {}\n  series: {storage: timeseries, retention: 48h}\n  scratch: {storage: memory}\n"), 0o600))
	return path
}

// initResult is what `brim shard init --output json` prints.
type initResult struct {
	Cluster string `json:"cluster"`
	DryRun  bool   `json:"dry_run"`
	Streams []struct {
		Stream string   `json:"stream"`
		Key    string   `json:"key"`
		Notes  []string `json:"notes"`
		Steps  []struct {
			Database string          `json:"database"`
			Command  json.RawMessage `json:"command"`
		} `json:"steps"`
	} `json:"streams"`
}

func TestShardInitDoesWhatItsDryRunSays(t *testing.T) {
	t.Parallel()
	c := mongostest.StartCluster(t, "6.0.5", "a", "b")
	args := []string{"init", "--config", twoStreams(t), "--chunks", "8", "--output", "json"}
	dry := onCluster(t, c, append(args, "--dry-run")...)
	require.NoError(t, dry.err)
	assert.Empty(t, c.Writes(), "a dry run changes nothing")
	done := onCluster(t, c, args...)
	require.NoError(t, done.err)

	var planned, result initResult
	require.NoError(t, json.Unmarshal([]byte(dry.stdout), &planned))
	require.NoError(t, json.Unmarshal([]byte(done.stdout), &result))
	assert.True(t, planned.DryRun)
	assert.False(t, result.DryRun)
	assert.Equal(t, planned.Streams, result.Streams)
	require.Len(t, result.Streams, 2, "what is in memory is left out")
	assert.Equal(t, "MongoDB 6.0.5, shards a, b", result.Cluster)
	var commands []string
	for _, s := range planned.Streams {
		for _, step := range s.Steps {
			var command bson.D
			require.NoError(t, bson.UnmarshalExtJSON(step.Command, false, &command))
			text, err := bson.MarshalExtJSON(command, false, false)
			require.NoError(t, err)
			commands = append(commands, step.Database+" "+string(text))
		}
	}
	var sent []string
	for _, command := range c.Writes() {
		text, err := bson.MarshalExtJSON(command.Body, false, false)
		require.NoError(t, err)
		sent = append(sent, command.Database+" "+string(text))
	}
	assert.Equal(t, commands, sent, "in this order, and no others")
	assert.Equal(t, []string{
		`admin {"enableSharding":"brim"}`,
		`brim {"create":"readings","storageEngine":{"wiredTiger":{"configString":"block_compressor=snappy"}},"writeConcern":{"w":"majority"}}`,
		`admin {"shardCollection":"brim.readings","key":{"_id.s":"hashed"},"numInitialChunks":8}`,
		`brim {"create":"series","timeseries":{"timeField":"ts","metaField":"sensor","granularity":"seconds"},"expireAfterSeconds":172800,"storageEngine":{"wiredTiger":{"configString":"block_compressor=snappy"}},"writeConcern":{"w":"majority"}}`,
		`admin {"shardCollection":"brim.series","key":{"sensor.id":"hashed"},"numInitialChunks":8}`,
	}, sent)
	assert.Equal(t, 5, strings.Count(done.stderr, "\n"), "each step is told: %s", done.stderr)

	c.Forget()
	again := onCluster(t, c, args[:3]...)
	require.NoError(t, again.err)
	assert.Empty(t, c.Writes())
	assert.Equal(t, "// stream readings: spread by {\"_id.s\": \"hashed\"}; there is nothing to do\n"+
		"// stream series: spread by {\"meta.id\": \"hashed\"}; there is nothing to do\n", again.stdout)
}

func TestShardInitCutsByIDsFromAFile(t *testing.T) {
	t.Parallel()
	c := mongostest.StartCluster(t, "7.0.1", "a", "b")
	path := filepath.Join(t.TempDir(), "ids")
	require.NoError(t, os.WriteFile(path, []byte("d\nc\nb\na\n"), 0o600))
	out := onCluster(t, c, "init", "--sensors", path, "--chunks", "2", "--dry-run")
	require.NoError(t, out.err)
	assert.Equal(t, `// stream readings: by {"_id.s": 1}, 6 steps
db.getSiblingDB("admin").runCommand({"enableSharding": "brim"})
db.getSiblingDB("brim").runCommand({"create": "readings", "storageEngine": {"wiredTiger": {"configString": "block_compressor=snappy"}}, "writeConcern": {"w": "majority"}})
db.getSiblingDB("admin").runCommand({"shardCollection": "brim.readings", "key": {"_id.s": 1}})
db.getSiblingDB("admin").runCommand({"split": "brim.readings", "middle": {"_id.s": "c"}})
db.getSiblingDB("admin").runCommand({"moveChunk": "brim.readings", "bounds": [{"_id.s": MinKey()}, {"_id.s": "c"}], "to": "a"})
db.getSiblingDB("admin").runCommand({"moveChunk": "brim.readings", "bounds": [{"_id.s": "c"}, {"_id.s": MaxKey()}], "to": "b"})
`, out.stdout)
}

func TestShardInitRefusesWhatDoesNotGoTogether(t *testing.T) {
	t.Parallel()
	c := mongostest.StartCluster(t, "6.0.5", "a")
	for flags, want := range map[string]string{
		"--sensors x --sensors-prefix s- --chunks 4":      "exclude each other",
		"--sensors-prefix s-":                             "at least 2",
		"--sensors-prefix s- --by hash --chunks 4":        "does not heed",
		"--zone north":                                    "NAME=SHARD,SHARD:PREFIX",
		"--by size":                                       "allowed are hash, range",
		"--chunks 9000":                                   "from 0 to 8192",
		"--stream scratch --config " + twoStreams(t):      "stored in memory",
		"--sensors /nonexistent --chunks 4":               "--sensors:",
		"--sensors-prefix s- --chunks 4 --digits letters": "allowed are decimal, hex",
	} {
		out := onCluster(t, c, append([]string{"init"}, strings.Fields(flags)...)...)
		require.ErrorContains(t, out.err, want, flags)
		assert.Equal(t, exitUsage, out.code, flags)
	}
	assert.Empty(t, c.Writes())
}

func TestShardStatusOfAWrongKeyFails(t *testing.T) {
	t.Parallel()
	c := mongostest.StartCluster(t, "6.0.5", "a", "b")
	c.Documents["brim.readings"] = nil
	c.Shard("brim.readings", bson.D{{Key: "sensorId", Value: "hashed"}}, []bson.D{{{Key: "sensorId", Value: int64(0)}}}, "a", "b")
	c.Change(func() { c.Sizes["a"], c.Sizes["b"] = 3<<20, 1<<20 })
	out := onCluster(t, c, "status")
	assert.Equal(t, exitFailed, out.code)
	assert.Equal(t, `MongoDB 6.0.5, 2 shards; the balancer is idle

stream readings (bucket): wrong, by {"sensorId": "hashed"}
  two shards may each hold a document of the same _id, so a reading that is sent again may be stored twice; daemons refuse the stream. Reshard it (MongoDB 5.0 and later), in mongosh: sh.reshardCollection("brim.readings", {"_id.s": "hashed"})
  shard  chunks  documents  data     on disk  share
  a      1       3145       3.0 MiB  768 KiB  75.0 %
  b      1       1048       1.0 MiB  256 KiB  25.0 %
  the fullest shard has 1.50 times the mean
`, out.stdout)
	out = onCluster(t, c, "init")
	require.ErrorContains(t, out.err, "shard key")
	assert.Equal(t, exitFailed, out.code)
}

func TestShardStatusAsJSON(t *testing.T) {
	t.Parallel()
	c := mongostest.StartCluster(t, "6.0.5", "a", "b")
	require.NoError(t, onCluster(t, c, "init", "--zone", "north=a:n-").err)
	c.Change(func() { c.Mode = "off" })
	out := onCluster(t, c, "status", "--output", "json")
	require.NoError(t, out.err)
	var report struct {
		Balancer map[string]any `json:"balancer"`
		Streams  []struct {
			Verdict string           `json:"verdict"`
			Key     string           `json:"key"`
			Zones   []map[string]any `json:"zones"`
		} `json:"streams"`
	}
	require.NoError(t, json.Unmarshal([]byte(out.stdout), &report))
	assert.Equal(t, "off", report.Balancer["mode"])
	require.Len(t, report.Streams, 1)
	assert.Equal(t, "right", report.Streams[0].Verdict)
	assert.Equal(t, `{"_id.s": 1}`, report.Streams[0].Key)
	assert.Equal(t, "n-", report.Streams[0].Zones[0]["from"])
	text := onCluster(t, c, "status")
	assert.Contains(t, text.stdout, "sh.startBalancer()")
	assert.Contains(t, text.stdout, "zone north: sensors from n- up to n., on a")
}

func TestShardOnAReplicaSetSaysThatItIsNone(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"init", "status"} {
		out := runBrim(t, nil, "shard", command, "--mongo-uri", mongodtest.URI(t), "--admin", "127.0.0.1:1")
		require.ErrorContains(t, out.err, "this MongoDB is not a sharded cluster")
		assert.Equal(t, exitFailed, out.code)
		assert.Empty(t, out.stdout)
	}
}

// TestADaemonRefusesAWrongKeyAtStart runs the daemon against a cluster that
// answers as documented.
func TestADaemonRefusesAWrongKeyAtStart(t *testing.T) {
	t.Parallel()
	c := mongostest.StartCluster(t, "6.0.5", "a", "b")
	c.Documents["brim.readings"] = nil
	c.Shard("brim.readings", bson.D{{Key: "sensorId", Value: 1}}, nil, "a")
	out := runBrim(t, nil, "serve", "--mongo-uri", c.URI(), "--data-dir", t.TempDir(),
		"--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0")
	require.ErrorContains(t, out.err, `collection "readings" exists with shard key {"sensorId": 1}`)
	assert.Equal(t, exitFailed, out.code)
}

// TestADaemonWritesThroughARouter sees that a daemon starts on a cluster, which has
// no storage engine to look at, and what it sends for a reading.
func TestADaemonWritesThroughARouter(t *testing.T) {
	t.Parallel()
	c := mongostest.StartCluster(t, "6.0.5", "a", "b")
	require.NoError(t, onCluster(t, c, "init").err)
	b := startBrim(t, "--mongo-uri", c.URI(), "--data-dir", t.TempDir())
	said := b.awaitLog("the stream's collection is sharded")
	assert.JSONEq(t, `{"_id.s": "hashed"}`, fmt.Sprint(said["key"]))
	b.awaitStorage()
	status, answer := b.post("/v1/readings?ack=stored", `{"sensorId":"s-17","fields":{"t":1.5}}`)
	assert.Equal(t, http.StatusOK, status, answer)
	var filters []bson.Raw
	for _, command := range c.Commands() {
		if command.Name != "update" || command.Body[0].Value != "readings" {
			continue
		}
		for _, op := range command.Operations {
			filters = append(filters, op.Lookup("q").Document())
		}
	}
	require.Len(t, filters, 1, "one update, with no other commands before it that write")
	assert.Equal(t, "s-17", filters[0].Lookup("_id", "s").StringValue(), "a router takes the shard key from it")
}
