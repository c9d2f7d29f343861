package shard

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/mongod/mongostest"
)

func statusOf(t *testing.T, c *mongostest.Cluster, s Stream) *Status {
	t.Helper()
	cluster, err := Look(t.Context(), database(t, c.URI()))
	require.NoError(t, err)
	status, err := cluster.Status(t.Context(), s)
	require.NoError(t, err)
	assert.Empty(t, c.Writes(), "a look changes nothing")
	return status
}

func TestStatusTellsChunksDataAndZonesOfEachShard(t *testing.T) {
	t.Parallel()
	c := mongostest.StartCluster(t, "6.0.5", "b", "a")
	carryOut(t, c, readings(), Options{Points: []string{"n-5"}, Zones: []Zone{{Name: "north", Shards: []string{"a"}, Prefix: "n-"}}})
	c.Change(func() { c.Sizes["a"], c.Sizes["b"] = 3<<30, 1<<30 })
	s := statusOf(t, c, readings())
	assert.Equal(t, Right, s.Verdict)
	assert.Equal(t, `{"_id.s": 1}`, s.KeyText)
	assert.True(t, s.Balanced)
	assert.Equal(t, 4, s.Chunks)
	require.Len(t, s.Shards, 2)
	assert.Equal(t, Part{Shard: "a", Chunks: 3, Documents: 3 << 30 / 1000, Bytes: 3 << 30, Storage: 3 << 28}, s.Shards[0])
	assert.Equal(t, 1, s.Shards[1].Chunks)
	assert.InDelta(t, 1.5, s.Imbalance, 1e-9)
	assert.Equal(t, []StatusZone{{Zone: "north", From: "n-", To: "n.", Shards: []string{"a"}}}, s.Zones)
	assert.Empty(t, s.Notes, "zones are meant to be uneven")
}

func TestStatusJudgesKeys(t *testing.T) {
	t.Parallel()
	hashed := func(path string) bson.D { return bson.D{{Key: path, Value: "hashed"}} }
	ordered := func(paths ...string) (key bson.D) {
		for _, p := range paths {
			key = append(key, bson.E{Key: p, Value: 1})
		}
		return key
	}
	for name, test := range map[string]struct {
		stream Stream
		key    bson.D
		want   string
	}{
		"hash of the sensor":          {readings(), hashed("_id.s"), Right},
		"sensors in order":            {readings(), ordered("_id.s"), Right},
		"sensors cut by time":         {readings(), append(hashed("_id.s"), ordered("_id.b")...), Right},
		"_id in order":                {readings(), ordered("_id"), Right},
		"hash of _id":                 {readings(), hashed("_id"), Scattered},
		"windows":                     {readings(), ordered("_id.b"), Scattered},
		"a field of the document":     {readings(), ordered("sensorId"), Wrong},
		"a second field of it":        {readings(), ordered("_id.s", "bucketStart"), Wrong},
		"a field that _id has not":    {readings(), hashed("_id.x"), Wrong},
		"hash of a series' sensor":    {series(), hashed("meta.id"), Right},
		"the whole metaField":         {series(), ordered("meta"), Right},
		"time alone, of a series":     {series(), ordered("control.min.ts"), Scattered},
		"sensor and time of a series": {series(), ordered("meta.id", "control.min.ts"), Right},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := mongostest.StartCluster(t, "6.0.5", "a")
			ns := "brim." + test.stream.Name
			c.Documents[ns] = nil
			if test.stream.Name == series().Name {
				c.Options[ns] = bson.D{{Key: "timeseries", Value: bson.D{{Key: "timeField", Value: "ts"}}}}
				ns = "brim.system.buckets." + test.stream.Name
			}
			c.Shard(ns, test.key, nil, "a")
			s := statusOf(t, c, test.stream)
			assert.Equal(t, test.want, s.Verdict, s.Why)
		})
	}
}

func TestStatusOfWhatIsNotSpread(t *testing.T) {
	t.Parallel()
	c := mongostest.StartCluster(t, "6.0.5", "a", "b")
	assert.Equal(t, Missing, statusOf(t, c, readings()).Verdict)
	c.Change(func() { c.Documents["brim.readings"], c.Sizes["b"] = nil, 5000 })
	s := statusOf(t, c, readings())
	assert.Equal(t, Unsharded, s.Verdict)
	require.Len(t, s.Shards, 1, "the shards that have nothing are left out")
	assert.Equal(t, "b", s.Shards[0].Shard)
	assert.Zero(t, s.Imbalance)
}

func TestStatusTellsWhatIsUnevenOrCannotBeMoved(t *testing.T) {
	t.Parallel()
	c := mongostest.StartCluster(t, "6.0.5", "a", "b")
	c.Documents["brim.readings"] = nil
	c.Shard("brim.readings", bson.D{{Key: "_id.s", Value: "hashed"}}, []bson.D{{{Key: "_id.s", Value: int64(0)}}}, "a", "b")
	c.Jumbo("brim.readings")
	c.Change(func() { c.Sizes["a"], c.Sizes["b"] = 1<<30, 1<<20 })
	s := statusOf(t, c, readings())
	assert.Equal(t, 1, s.Jumbo)
	require.Len(t, s.Notes, 2)
	assert.Contains(t, s.Notes[0], "a has more than three chunks of data more than b")
	assert.Contains(t, s.Notes[1], "refineCollectionShardKey")
}
