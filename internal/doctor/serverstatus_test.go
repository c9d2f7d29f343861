package doctor

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// recorded reads a file of testdata.
func recorded(t testing.TB, name string) bson.Raw {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	var out bson.Raw
	require.NoError(t, bson.UnmarshalExtJSON(raw, false, &out))
	return out
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestStatusOfEveryVersionIsRead(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]struct {
		version string
		probing bool
		figures map[key]float64
	}{
		"serverstatus-6.0.5.json": {"6.0.5", false, map[key]float64{
			cacheMax: 268435456, cacheUsed: 16723817, cacheDirty: 1898, cacheUpdates: 6048570, appEvictions: 0,
			"cache_evicted_pages_total modified": 37, "cache_application_eviction_seconds_total": 0, "history_store_bytes": 4096,
			checkpoints: 5, checkpointLast: 0.023, "checkpoint_seconds_total": 0.037, "checkpoint_running": 0,
			"block_checkpoint_written_bytes_total": 1736704, "journal_syncs_total": 125, "journal_sync_seconds_total": 0.039723,
			writesAvailable: 128, writesInUse: 0, readsAvailable: 128, writesQueued: 0,
			"operations_total write": 60, "operation_seconds_total write": 0.339282, "connections": 3,
			"resident_bytes": 155 << 20, "cpu_seconds_total user": 0.749296, "cpu_seconds_total system": 0.144609,
		}},
		"serverstatus-7.0.json": {"7.0.14", true, map[key]float64{
			checkpoints: 5, checkpointLast: 0.023, "cache_application_eviction_seconds_total": 1.5,
			writesAvailable: 5, writesInUse: 2, readsAvailable: 5,
		}},
		"serverstatus-8.0.json": {"8.0.4", true, map[key]float64{
			cacheDirty: 53687091.2, cacheUpdates: 6048570, "cache_application_eviction_seconds_total": 2.5,
			checkpoints: 7, checkpointLast: 6.2, "checkpoint_seconds_total": 9.1, "checkpoint_running": 0,
			writesAvailable: 127, writesInUse: 1, readsAvailable: 127,
		}},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			s, why := parseStatus(recorded(t, file), noon)
			require.Empty(t, why)
			assert.Equal(t, []string{want.version, "replica_set", "wiredTiger"}, []string{s.version, s.topology, s.engine})
			assert.Equal(t, want.probing, s.probing())
			assert.Equal(t, "db1:27017", s.host)
			assert.Positive(t, s.pid)
			assert.Equal(t, noon.Add(-1095*time.Millisecond), s.started)
			for k, v := range want.figures {
				assert.InDelta(t, v, s.value(k), 1e-9, k)
			}
			for k, v := range s.figures {
				assert.False(t, math.IsNaN(v), "every version tells %s", k)
			}
		})
	}
}

func TestNumbersOfEveryTypeAreRead(t *testing.T) {
	t.Parallel()
	raw, err := bson.Marshal(bson.D{{Key: "a", Value: bson.D{
		{Key: "int32", Value: int32(7)}, {Key: "int64", Value: int64(7)}, {Key: "double", Value: 7.0}, {Key: "text", Value: "7"}, {Key: "null", Value: nil},
	}}})
	require.NoError(t, err)
	for _, name := range []string{"int32", "int64", "double"} {
		assert.Equal(t, 7.0, number(raw, "a", name), name)
	}
	for _, name := range []string{"text", "null", "absent"} {
		assert.True(t, math.IsNaN(number(raw, "a", name)), name)
	}
	assert.True(t, math.IsNaN(number(raw, "a", "int32", "deeper")))
}

func TestStatusThatLacksTheEngineSaysWhy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status   bson.D
		why      string
		topology string
	}{
		"mongos":         {bson.D{{Key: "process", Value: "mongos"}, {Key: "version", Value: "7.0.1"}}, whyMongos, "sharded"},
		"another engine": {bson.D{{Key: "process", Value: "mongod"}, {Key: "storageEngine", Value: bson.D{{Key: "name", Value: "inMemory"}}}}, whyOtherEngine, "standalone"},
		"nothing":        {bson.D{}, whyOtherEngine, "standalone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw, err := bson.Marshal(c.status)
			require.NoError(t, err)
			s, why := parseStatus(raw, noon)
			assert.Equal(t, c.why, why)
			assert.Equal(t, c.topology, s.topology)
			for _, signal := range signals(sample{at: noon, server: s, serverWhy: why, answered: true, disk: unseenDisk(whyElsewhere)}, ratesBetween(sample{}, sample{}), nil) {
				assert.Equal(t, Unknown, signal.Class, signal.Name)
				assert.NotEmpty(t, signal.Why, signal.Name)
			}
		})
	}
}

// TestNoCheckpointYet: the server reports 0 ms for the last checkpoint if there
// was none, which is not the same.
func TestNoCheckpointYet(t *testing.T) {
	t.Parallel()
	raw, err := bson.Marshal(bson.D{{Key: "storageEngine", Value: bson.D{{Key: "name", Value: "wiredTiger"}}}, {Key: "wiredTiger", Value: bson.D{{Key: "checkpoint", Value: bson.D{
		{Key: "most recent time (msecs)", Value: 0}, {Key: "total succeed number of checkpoints", Value: 0}, {Key: "progress state", Value: 4},
	}}}}})
	require.NoError(t, err)
	s, why := parseStatus(raw, noon)
	require.Empty(t, why)
	assert.True(t, math.IsNaN(s.value(checkpointLast)))
	assert.Equal(t, 0.0, s.value(checkpoints))
	assert.Equal(t, 1.0, s.value("checkpoint_running"), "any state but 0 is a checkpoint under way")
}

func TestCollectionsAreRead(t *testing.T) {
	t.Parallel()
	plain := parseCollection([]bson.Raw{recorded(t, "collstats-6.0.5.json")}, false)
	assert.Equal(t, collection{data: 1196700, storage: 458752, free: 16384, index: 311296, documents: 30000, indexes: map[string]float64{"_id_": 311296}}, plain)
	shard := recorded(t, "collstats-timeseries-6.0.5.json")
	one := parseCollection([]bson.Raw{shard}, true)
	assert.Equal(t, 126.0, one.buckets)
	assert.Equal(t, 126.0, one.documents)
	assert.Equal(t, 213.0, one.commits)
	assert.Equal(t, 30000.0, one.measurements)
	assert.Equal(t, [len(closeReasons)]float64{3: 123}, one.closes, "time_forward; a reason that this version does not have is 0")
	two := parseCollection([]bson.Raw{shard, shard}, true)
	assert.Equal(t, 2*one.storage, two.storage, "shards are added up")
	assert.Equal(t, 246.0, two.closes[3])
}

// FuzzStatus: whatever a server answers, figures are values or NaN.
func FuzzStatus(f *testing.F) {
	// Small seeds: the recorded answers are slow to shrink and rarely mutate
	// where it matters.
	for _, seed := range []bson.D{
		{},
		{{Key: "uptimeMillis", Value: 1.5}, {Key: "version", Value: "7"}, {Key: "wiredTiger", Value: bson.D{{Key: "cache", Value: bson.D{
			{Key: "maximum bytes configured", Value: int64(9)}, {Key: "bytes currently in the cache", Value: int32(8)},
		}}}}},
		{{Key: "storageStats", Value: bson.D{{Key: "size", Value: 7}, {Key: "timeseries", Value: bson.D{{Key: "bucketCount", Value: 1}}}}}},
		{{Key: "storageStats", Value: bson.A{bson.D{{Key: "size", Value: "7"}}}}, {Key: "pid", Value: int64(-1)}},
	} {
		raw, err := bson.Marshal(seed)
		require.NoError(f, err)
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, why := parseStatus(raw, noon)
		now := sample{at: noon, server: s, serverWhy: why, disk: unseenDisk(whyElsewhere),
			collections: map[string]collection{"readings": parseCollection([]bson.Raw{raw}, true)}}
		require.Len(t, signals(now, ratesBetween(now, now), nil), len(signalRules))
	})
}

// TestSecondaryIsRecognized, since slow writes do not show there.
func TestSecondaryIsRecognized(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		repl bson.D
		want bool
	}{
		"the primary":         {bson.D{{Key: "setName", Value: "rs0"}, {Key: "isWritablePrimary", Value: true}}, false},
		"a secondary":         {bson.D{{Key: "setName", Value: "rs0"}, {Key: "isWritablePrimary", Value: false}, {Key: "secondary", Value: true}}, true},
		"it does not tell":    {bson.D{{Key: "setName", Value: "rs0"}}, false},
		"a server by itself":  {bson.D{}, false},
		"what makes no sense": {bson.D{{Key: "setName", Value: "rs0"}, {Key: "isWritablePrimary", Value: "no"}}, true},
	} {
		raw, err := bson.Marshal(bson.D{{Key: "storageEngine", Value: bson.D{{Key: "name", Value: "wiredTiger"}}}, {Key: "repl", Value: c.repl}})
		require.NoError(t, err)
		s, why := parseStatus(raw, noon)
		require.Empty(t, why)
		assert.Equal(t, c.want, s.secondary, name)
		assert.Equal(t, c.want, newView(sample{server: s}, view{}, nil).Server.Secondary, name)
	}
}
