package shard

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongostest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/internal/store/timeseries"

	"github.com/prometheus/client_golang/prometheus"
)

// carryOut plans, checks that nothing was changed by that, runs, and checks that
// what was sent is what was planned. It returns the steps, as mongosh takes them.
func carryOut(t *testing.T, c *mongostest.Cluster, s Stream, o Options) (steps, notes []string) {
	t.Helper()
	cluster, err := Look(t.Context(), database(t, c.URI()))
	require.NoError(t, err)
	plan, err := cluster.Plan(t.Context(), s, o)
	require.NoError(t, err)
	require.Empty(t, c.Writes(), "a plan changes nothing")
	var told []string
	require.NoError(t, plan.Run(t.Context(), func(done, all int, s Step) {
		assert.Equal(t, len(told), done)
		assert.Equal(t, len(plan.Steps), all)
		told = append(told, s.String())
	}))
	sent := c.Writes()
	require.Len(t, sent, len(plan.Steps))
	for i, s := range plan.Steps {
		steps = append(steps, s.String())
		assert.Equal(t, s.Database, sent[i].Database)
		assert.Equal(t, asSent(t, s.Command), asSent(t, sent[i].Body), "what a dry run shows is what is sent")
	}
	assert.Equal(t, steps, told)
	c.Forget()
	again, err := cluster.Plan(t.Context(), s, Options{By: o.By})
	require.NoError(t, err)
	assert.Empty(t, again.Steps, "a second run has nothing to do")
	return steps, plan.Notes
}

// asSent is a command as text, whatever types its numbers have.
func asSent(t *testing.T, command bson.D) string {
	t.Helper()
	text, err := bson.MarshalExtJSON(command, false, false)
	require.NoError(t, err)
	return string(text)
}

func TestByHashACollectionIsMadeAndSpreadBeforeItsFirstReading(t *testing.T) {
	t.Parallel()
	c := mongostest.StartCluster(t, "6.0.5", "shard02", "shard01")
	steps, notes := carryOut(t, c, readings(), Options{})
	assert.Equal(t, []string{
		`db.getSiblingDB("admin").runCommand({"enableSharding": "brim"})`,
		`db.getSiblingDB("brim").runCommand({"create": "readings", "storageEngine": {"wiredTiger": {"configString": "block_compressor=snappy"}}, "writeConcern": {"w": "majority"}})`,
		`db.getSiblingDB("admin").runCommand({"shardCollection": "brim.readings", "key": {"_id.s": "hashed"}})`,
	}, steps)
	assert.Empty(t, notes)
}

func TestANumberOfChunksIsSentOnlyWhereItIsHeeded(t *testing.T) {
	t.Parallel()
	steps, notes := carryOut(t, mongostest.StartCluster(t, "7.0.1", "a", "b"), readings(), Options{Chunks: 64})
	assert.Equal(t, `db.getSiblingDB("admin").runCommand({"shardCollection": "brim.readings", "key": {"_id.s": "hashed"}, "numInitialChunks": 64})`, steps[len(steps)-1])
	assert.Empty(t, notes)
	steps, notes = carryOut(t, mongostest.StartCluster(t, "8.0.0", "a", "b"), readings(), Options{Chunks: 64})
	assert.NotContains(t, steps[len(steps)-1], "numInitialChunks")
	require.Len(t, notes, 1)
	assert.Contains(t, notes[0], "one chunk for each shard")
}

func TestZonesComeBeforeTheCollectionIsSpread(t *testing.T) {
	t.Parallel()
	c := mongostest.StartCluster(t, "6.0.5", "a", "b", "c")
	steps, _ := carryOut(t, c, readings(), Options{Zones: []Zone{
		{Name: "north", Shards: []string{"a", "b"}, Prefix: "n-"}, {Name: "south", Shards: []string{"c"}, Prefix: "s-"}, {Name: "south", Shards: []string{"c"}, Prefix: "o-"},
	}})
	assert.Equal(t, []string{
		`db.getSiblingDB("admin").runCommand({"addShardToZone": "a", "zone": "north"})`,
		`db.getSiblingDB("admin").runCommand({"addShardToZone": "b", "zone": "north"})`,
		`db.getSiblingDB("admin").runCommand({"addShardToZone": "c", "zone": "south"})`,
		`db.getSiblingDB("admin").runCommand({"updateZoneKeyRange": "brim.readings", "min": {"_id.s": "n-"}, "max": {"_id.s": "n."}, "zone": "north"})`,
		`db.getSiblingDB("admin").runCommand({"updateZoneKeyRange": "brim.readings", "min": {"_id.s": "o-"}, "max": {"_id.s": "o."}, "zone": "south"})`,
		`db.getSiblingDB("admin").runCommand({"updateZoneKeyRange": "brim.readings", "min": {"_id.s": "s-"}, "max": {"_id.s": "s."}, "zone": "south"})`,
		`db.getSiblingDB("admin").runCommand({"shardCollection": "brim.readings", "key": {"_id.s": 1}})`,
	}, steps[2:])
	// What is there is not made again.
	cluster, err := Look(t.Context(), database(t, c.URI()))
	require.NoError(t, err)
	plan, err := cluster.Plan(t.Context(), readings(), Options{Zones: []Zone{{Name: "north", Shards: []string{"b", "a"}, Prefix: "n-"}}})
	require.NoError(t, err)
	assert.Empty(t, plan.Steps)
}

func TestPointsAreSplitAndDealtOutWithinTheirZones(t *testing.T) {
	t.Parallel()
	c := mongostest.StartCluster(t, "6.0.5", "a", "b", "c")
	steps, _ := carryOut(t, c, readings(), Options{
		Points: []string{"n-5", "p", "x"}, Zones: []Zone{{Name: "north", Shards: []string{"b", "c"}, Prefix: "n-"}},
	})
	assert.Equal(t, []string{
		`db.getSiblingDB("admin").runCommand({"split": "brim.readings", "middle": {"_id.s": "n-5"}})`,
		`db.getSiblingDB("admin").runCommand({"split": "brim.readings", "middle": {"_id.s": "p"}})`,
		`db.getSiblingDB("admin").runCommand({"split": "brim.readings", "middle": {"_id.s": "x"}})`,
		`db.getSiblingDB("admin").runCommand({"moveChunk": "brim.readings", "bounds": [{"_id.s": MinKey()}, {"_id.s": "n-"}], "to": "a"})`,
		`db.getSiblingDB("admin").runCommand({"moveChunk": "brim.readings", "bounds": [{"_id.s": "n-"}, {"_id.s": "n-5"}], "to": "b"})`,
		`db.getSiblingDB("admin").runCommand({"moveChunk": "brim.readings", "bounds": [{"_id.s": "n-5"}, {"_id.s": "n."}], "to": "c"})`,
		`db.getSiblingDB("admin").runCommand({"moveChunk": "brim.readings", "bounds": [{"_id.s": "n."}, {"_id.s": "p"}], "to": "b"})`,
		`db.getSiblingDB("admin").runCommand({"moveChunk": "brim.readings", "bounds": [{"_id.s": "p"}, {"_id.s": "x"}], "to": "c"})`,
		`db.getSiblingDB("admin").runCommand({"moveChunk": "brim.readings", "bounds": [{"_id.s": "x"}, {"_id.s": MaxKey()}], "to": "a"})`,
	}, steps[len(steps)-9:])
	cluster, err := Look(t.Context(), database(t, c.URI()))
	require.NoError(t, err)
	plan, err := cluster.Plan(t.Context(), readings(), Options{Points: []string{"n-5", "p", "t", "x"}})
	require.NoError(t, err)
	var more []string
	for _, s := range plan.Steps {
		more = append(more, s.String())
	}
	assert.Equal(t, []string{
		`db.getSiblingDB("admin").runCommand({"split": "brim.readings", "middle": {"_id.s": "t"}})`,
		`db.getSiblingDB("admin").runCommand({"moveChunk": "brim.readings", "bounds": [{"_id.s": "t"}, {"_id.s": "x"}], "to": "a"})`,
		`db.getSiblingDB("admin").runCommand({"moveChunk": "brim.readings", "bounds": [{"_id.s": "x"}, {"_id.s": MaxKey()}], "to": "b"})`,
	}, more, "only what is new is split, and only what lies elsewhere is moved")
}

func TestATimeSeriesIsSpreadByItsSensorsAndKnownByItsBuckets(t *testing.T) {
	t.Parallel()
	c := mongostest.StartCluster(t, "6.0.5", "a", "b")
	steps, notes := carryOut(t, c, series(), Options{Points: []string{"m"}, Zones: []Zone{{Name: "north", Shards: []string{"a"}, Prefix: "n-"}}})
	assert.Equal(t, []string{
		`db.getSiblingDB("brim").runCommand({"create": "machines", "timeseries": {"timeField": "ts", "metaField": "sensor", "granularity": "seconds"}, "expireAfterSeconds": 86400, "storageEngine": {"wiredTiger": {"configString": "block_compressor=zstd"}}, "writeConcern": {"w": "majority"}})`,
		`db.getSiblingDB("admin").runCommand({"addShardToZone": "a", "zone": "north"})`,
		`db.getSiblingDB("admin").runCommand({"updateZoneKeyRange": "brim.system.buckets.machines", "min": {"meta.id": "n-"}, "max": {"meta.id": "n."}, "zone": "north"})`,
		`db.getSiblingDB("admin").runCommand({"shardCollection": "brim.machines", "key": {"sensor.id": 1}})`,
		`db.getSiblingDB("admin").runCommand({"split": "brim.system.buckets.machines", "middle": {"meta.id": "m"}})`,
	}, steps[1:6])
	require.Len(t, notes, 1)
	assert.Contains(t, notes[0], "8.2")
}

func TestWhatIsThereIsRefusedOrKept(t *testing.T) {
	t.Parallel()
	const ns = "brim.readings"
	bucketDoc := func(sensor string) bson.D {
		return bson.D{{Key: "_id", Value: bson.D{{Key: "s", Value: sensor}, {Key: "b", Value: bson.DateTime(0)}, {Key: "g", Value: 300}, {Key: "p", Value: 0}}}}
	}
	for name, test := range map[string]struct {
		prepare func(*mongostest.Cluster)
		stream  Stream
		options Options
		want    string
	}{
		"a key that does not keep _ids unique": {
			prepare: func(c *mongostest.Cluster) {
				c.Documents[ns] = nil
				c.Shard(ns, bson.D{{Key: "sensorId", Value: 1}}, nil, "a")
			},
			want: `exists with shard key {"sensorId": 1}`,
		},
		"another key than is asked for": {
			prepare: func(c *mongostest.Cluster) {
				c.Documents[ns] = nil
				c.Shard(ns, bson.D{{Key: "_id.s", Value: "hashed"}}, nil, "a")
			},
			options: Options{By: ByRange}, want: `sharded by {"_id.s": "hashed"} already, and by range`,
		},
		"zones for a hash": {
			prepare: func(c *mongostest.Cluster) {
				c.Documents[ns] = nil
				c.Shard(ns, bson.D{{Key: "_id.s", Value: "hashed"}}, nil, "a")
			},
			options: Options{Zones: []Zone{{Name: "z", Shards: []string{"a"}, Prefix: "n"}}}, want: "sh.reshardCollection(",
		},
		"chunks by sensors for a key of whole _ids": {
			prepare: func(c *mongostest.Cluster) {
				c.Documents[ns] = []bson.D{bucketDoc("s-1"), bucketDoc("s-2")}
				c.Shard(ns, bson.D{{Key: "_id", Value: 1}}, nil, "a")
			},
			options: Options{Chunks: 2}, want: `sharded by {"_id": 1} already, and by range`,
		},
		"readings": {prepare: func(c *mongostest.Cluster) { c.Documents[ns] = []bson.D{bucketDoc("s-1")} }, want: "--existing-data"},
		"documents of others": {
			prepare: func(c *mongostest.Cluster) { c.Documents[ns] = []bson.D{bucketDoc("s-1"), {{Key: "_id", Value: "x"}}} },
			options: Options{ExistingData: true}, want: "no buckets",
		},
		"another storage":    {prepare: func(c *mongostest.Cluster) { c.Documents["brim.machines"] = nil }, stream: series(), want: "asks for timeseries"},
		"an unknown shard":   {options: Options{Zones: []Zone{{Name: "z", Shards: []string{"c"}, Prefix: "n"}}}, want: "allowed are a, b"},
		"chunks by range":    {options: Options{By: ByRange, Chunks: 8}, want: "need points"},
		"overlapping zones":  {options: Options{Zones: []Zone{{Name: "y", Shards: []string{"a"}, Prefix: "n"}, {Name: "z", Shards: []string{"a"}, Prefix: "n-"}}}, want: "overlap"},
		"a hash with points": {options: Options{By: ByHash, Points: []string{"x"}}, want: "spread by range"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := mongostest.StartCluster(t, "6.0.5", "a", "b")
			if test.prepare != nil {
				test.prepare(c)
			}
			if test.stream.Name == "" {
				test.stream = readings()
			}
			cluster, err := Look(t.Context(), database(t, c.URI()))
			require.NoError(t, err)
			_, err = cluster.Plan(t.Context(), test.stream, test.options)
			require.ErrorContains(t, err, test.want)
			assert.Empty(t, c.Writes())
		})
	}
}

func TestReadingsThatAreThereAreSpreadWithAnIndexAndLeftToTheBalancer(t *testing.T) {
	t.Parallel()
	c := mongostest.StartCluster(t, "6.0.5", "a", "b")
	c.Change(func() {
		for i := range 100 {
			c.Documents["brim.readings"] = append(c.Documents["brim.readings"], bson.D{{Key: "_id", Value: bson.D{{Key: "s", Value: fmt.Sprintf("s-%02d", i)}}}})
		}
	})
	steps, notes := carryOut(t, c, readings(), Options{By: ByRange, Chunks: 4, ExistingData: true})
	assert.Equal(t, []string{
		`db.getSiblingDB("admin").runCommand({"enableSharding": "brim"})`,
		`db.getSiblingDB("brim").runCommand({"createIndexes": "readings", "indexes": [{"key": {"_id.s": 1}, "name": "brim_shard_key"}], "writeConcern": {"w": "majority"}})`,
		`db.getSiblingDB("admin").runCommand({"shardCollection": "brim.readings", "key": {"_id.s": 1}})`,
		`db.getSiblingDB("admin").runCommand({"split": "brim.readings", "middle": {"_id.s": "s-25"}})`,
		`db.getSiblingDB("admin").runCommand({"split": "brim.readings", "middle": {"_id.s": "s-50"}})`,
		`db.getSiblingDB("admin").runCommand({"split": "brim.readings", "middle": {"_id.s": "s-75"}})`,
	}, steps)
	require.Len(t, notes, 2)
	assert.Contains(t, notes[0], "restart")
	assert.Contains(t, notes[1], "balancer")
}

func TestANumberOfChunksComesTooLateForAHash(t *testing.T) {
	t.Parallel()
	c := mongostest.StartCluster(t, "6.0.5", "a", "b")
	c.Documents["brim.readings"] = nil
	c.Shard("brim.readings", bson.D{{Key: "_id.s", Value: "hashed"}}, nil, "a")
	steps, notes := carryOut(t, c, readings(), Options{Chunks: 64})
	assert.Empty(t, steps)
	require.Len(t, notes, 1)
	assert.Contains(t, notes[0], "--chunks changes nothing")
}

// refuseToShard makes the cluster refuse one of a plan's commands.
func refuseToShard(c *mongostest.Cluster) {
	c.Change(func() {
		c.Refuse = func(command mongostest.Command) bson.D {
			if command.Name == "shardCollection" {
				return mongostest.Failure(13, "Unauthorized", "not authorized on admin to execute command")
			}
			return nil
		}
	})
}

func TestZonesOfARunThatFailedAreBounds(t *testing.T) {
	t.Parallel()
	c := mongostest.StartCluster(t, "6.0.5", "a", "b")
	refuseToShard(c)
	cluster, err := Look(t.Context(), database(t, c.URI()))
	require.NoError(t, err)
	plan, err := cluster.Plan(t.Context(), readings(), Options{Zones: []Zone{{Name: "north", Shards: []string{"b"}, Prefix: "n-"}}})
	require.NoError(t, err)
	require.ErrorContains(t, plan.Run(t.Context(), func(int, int, Step) {}), "shardCollection: (Unauthorized)")
	c.Change(func() { c.Refuse = nil })
	c.Forget()
	steps, notes := carryOut(t, c, readings(), Options{Points: []string{"x"}})
	assert.Equal(t, []string{
		`db.getSiblingDB("admin").runCommand({"shardCollection": "brim.readings", "key": {"_id.s": 1}})`,
		`db.getSiblingDB("admin").runCommand({"split": "brim.readings", "middle": {"_id.s": "x"}})`,
		`db.getSiblingDB("admin").runCommand({"moveChunk": "brim.readings", "bounds": [{"_id.s": MinKey()}, {"_id.s": "n-"}], "to": "a"})`,
		`db.getSiblingDB("admin").runCommand({"moveChunk": "brim.readings", "bounds": [{"_id.s": "n-"}, {"_id.s": "n."}], "to": "b"})`,
		`db.getSiblingDB("admin").runCommand({"moveChunk": "brim.readings", "bounds": [{"_id.s": "n."}, {"_id.s": "x"}], "to": "b"})`,
		`db.getSiblingDB("admin").runCommand({"moveChunk": "brim.readings", "bounds": [{"_id.s": "x"}, {"_id.s": MaxKey()}], "to": "a"})`,
	}, steps)
	require.Len(t, notes, 1, "the collection was made by the first run")
	assert.Contains(t, notes[0], "restart")
}

func TestAStepThatFailsIsNamedAndTheRestIsDoneNextTime(t *testing.T) {
	t.Parallel()
	c := mongostest.StartCluster(t, "6.0.5", "a", "b")
	refuseToShard(c)
	cluster, err := Look(t.Context(), database(t, c.URI()))
	require.NoError(t, err)
	plan, err := cluster.Plan(t.Context(), readings(), Options{})
	require.NoError(t, err)
	err = plan.Run(t.Context(), func(int, int, Step) {})
	require.ErrorContains(t, err, "step 3 of 3, shardCollection: (Unauthorized)")
	c.Change(func() { c.Refuse = nil })
	c.Forget()
	steps, _ := carryOut(t, c, readings(), Options{})
	assert.Len(t, steps, 1)
}

func TestACollectionIsMadeAsADaemonMakesIt(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	registry := prometheus.NewRegistry()
	b, err := bucket.New(bucket.Config{Database: db, Stream: "readings", Granularity: readings().Granularity, MaxReadings: 10, MaxBytes: 1 << 20, Compressor: store.Snappy, Registerer: registry})
	require.NoError(t, err)
	s, err := timeseries.New(timeseries.Config{Database: db, Stream: "machines", Granularity: series().Granularity, Compressor: store.Zstd, Retention: series().Retention, Registerer: registry})
	require.NoError(t, err)
	options := func(name string) string {
		info, err := store.Collection{Database: db, Name: name}.Look(t.Context())
		require.NoError(t, err)
		require.NotNil(t, info)
		return info.Type + info.Options.String()
	}
	for _, one := range []struct {
		stream  Stream
		prepare func() error
	}{
		{readings(), func() error { return b.Prepare(t.Context()) }},
		{series(), func() error { return s.Prepare(t.Context()) }},
	} {
		p := &planner{Plan: &Plan{cluster: &Cluster{db: db, major: 6}}, stream: one.stream, known: true, sharding: &store.Sharding{}}
		p.create()
		require.Len(t, p.Steps, 1)
		require.NoError(t, db.RunCommand(t.Context(), p.Steps[0].Command).Err())
		ours := options(one.stream.Name)
		require.NoError(t, one.prepare(), "a daemon takes it")
		require.NoError(t, db.Collection(one.stream.Name).Drop(t.Context()))
		require.NoError(t, one.prepare())
		assert.Equal(t, options(one.stream.Name), ours)
	}
}

func TestAReplicaSetIsNoCluster(t *testing.T) {
	t.Parallel()
	_, err := Look(t.Context(), mongodtest.Database(t))
	require.ErrorIs(t, err, ErrNoCluster)
	sharding, err := store.Collection{Database: mongodtest.Database(t), Name: "readings"}.Sharding(t.Context())
	require.NoError(t, err)
	assert.False(t, sharding.Cluster)
}
