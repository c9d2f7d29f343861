package bucket

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/mongod/mongostest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const shardedName = "brim." + storetest.Stream

// onCluster returns a store, not yet prepared, on a cluster that is not real: see
// package mongostest. Its collection exists.
func onCluster(t *testing.T, concern store.WriteConcern, log *slog.Logger) (*Store, *mongostest.Cluster) {
	t.Helper()
	cluster := mongostest.StartCluster(t)
	cluster.Documents[shardedName] = nil
	c, err := store.Connect(store.ConnectionConfig{URI: cluster.URI(), Database: "brim", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	s, err := New(Config{
		Database: c.Database(), Stream: storetest.Stream, Granularity: 5 * time.Minute, MaxReadings: 1000, MaxBytes: 256 << 10,
		WriteConcern: concern, Logger: log, Registerer: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	return s, cluster
}

// sent are the commands of one name on the stream's collection.
func sent(c *mongostest.Cluster, name string) []mongostest.Command {
	return slices.DeleteFunc(c.Commands(), func(one mongostest.Command) bool {
		return one.Name != name || one.Database != "brim" || one.Body[0].Value != storetest.Stream
	})
}

// targets reports whether a router can tell the shard from a filter, by the rules
// that MongoDB documents for its extraction of shard keys: every field of the key
// stands in it with an equality, by its own path or inside a whole _id.
func targets(t *testing.T, filter bson.Raw, paths ...string) bool {
	t.Helper()
	return !slices.ContainsFunc(paths, func(path string) bool {
		if v, err := filter.LookupErr(path); err == nil {
			return v.Type == bson.TypeEmbeddedDocument
		}
		v, err := filter.LookupErr("_id", path[len("_id."):])
		_, operator := filter.LookupErr("_id", "$gte")
		return err != nil || operator == nil || v.Type == bson.TypeEmbeddedDocument
	})
}

func TestAStreamThatWouldStoreTwiceOnAClusterIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		key bson.D
		bad bool
	}{
		"by a field of the document": {bson.D{{Key: "sensorId", Value: "hashed"}}, true},
		"by a field of it besides":   {bson.D{{Key: "_id.s", Value: 1}, {Key: "bucketStart", Value: 1}}, true},
		"by hash":                    {bson.D{{Key: "_id.s", Value: "hashed"}}, false},
		"in order, cut by time":      {bson.D{{Key: "_id.s", Value: 1}, {Key: "_id.b", Value: 1}}, false},
		"by _id":                     {bson.D{{Key: "_id", Value: 1}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, cluster := onCluster(t, store.WriteConcern{}, nil)
			cluster.Shard(shardedName, test.key)
			err := s.Prepare(t.Context())
			if !test.bad {
				require.NoError(t, err)
				assert.True(t, s.sharded.Load())
				return
			}
			var mismatch *store.MismatchError
			require.ErrorAs(t, err, &mismatch, "it is final")
			assert.Equal(t, "shard key", mismatch.What)
		})
	}
}

func TestACollectionOnOneShardIsTakenAndSaid(t *testing.T) {
	t.Parallel()
	var lines lineHandler
	s, _ := onCluster(t, store.WriteConcern{}, slog.New(&lines))
	require.NoError(t, s.Prepare(t.Context()))
	assert.False(t, s.sharded.Load())
	assert.Contains(t, lines.messages, "MongoDB is a sharded cluster, and the stream's collection lies on one of its shards alone; `brim shard init` spreads it")
}

// lineHandler keeps the messages of a log.
type lineHandler struct {
	slog.Handler
	messages []string
}

func (h *lineHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h *lineHandler) Handle(_ context.Context, r slog.Record) error {
	h.messages = append(h.messages, r.Message)
	return nil
}

func TestACatalogThatIsNotToldKeepsTheStreamWaiting(t *testing.T) {
	t.Parallel()
	s, cluster := onCluster(t, store.WriteConcern{}, nil)
	cluster.Change(func() {
		cluster.Refuse = func(c mongostest.Command) bson.D {
			if c.Database == "config" {
				return mongostest.Failure(13, "Unauthorized", "not authorized")
			}
			return nil
		}
	})
	err := s.Prepare(t.Context())
	require.ErrorContains(t, err, "brimServeShards")
	var mismatch *store.MismatchError
	assert.NotErrorAs(t, err, &mismatch, "the right may be granted while the daemon runs")
	cluster.Change(func() { cluster.Refuse = nil })
	require.NoError(t, s.Prepare(t.Context()))
}

// shareOf are some readings of a sensor's window.
func shareOf(t *testing.T, sensor string, n int) *batch.Share {
	t.Helper()
	var readings []telemetry.Reading
	for i := range n {
		readings = append(readings, storetest.Reading(sensor, time.Duration(i)*time.Second, 1.5))
	}
	return storetest.Shares(storetest.Batch(t, "session", 1, readings...), 5*time.Minute)[0]
}

// sharded returns a store whose collection is spread by the hash of sensors.
func sharded(t *testing.T, concern store.WriteConcern) (*Store, *mongostest.Cluster) {
	t.Helper()
	s, cluster := onCluster(t, concern, nil)
	cluster.Shard(shardedName, bson.D{{Key: "_id.s", Value: "hashed"}, {Key: "_id.b", Value: 1}})
	require.NoError(t, s.Prepare(t.Context()))
	cluster.Forget()
	return s, cluster
}

func TestEveryUpdateNamesItsShard(t *testing.T) {
	t.Parallel()
	s, cluster := sharded(t, store.WriteConcern{})
	shares := []*batch.Share{shareOf(t, "s-1", 3), shareOf(t, "s-2", 2)}
	s.Write(t.Context(), shares)
	updates := sent(cluster, "update")
	require.Len(t, updates, 1)
	require.Len(t, updates[0].Operations, 2)
	for i, op := range updates[0].Operations {
		filter := op.Lookup("q").Document()
		assert.True(t, targets(t, filter, "_id.s", "_id.b"), "%s", filter)
		assert.Equal(t, shares[i].Sensor, filter.Lookup("_id", "s").StringValue())
		assert.True(t, op.Lookup("upsert").Boolean())
		assert.False(t, op.Lookup("multi").Type == bson.TypeBoolean && op.Lookup("multi").Boolean())
	}
}

func TestEveryQueryForASensorNamesItsShard(t *testing.T) {
	t.Parallel()
	s, cluster := sharded(t, store.WriteConcern{})
	span := telemetry.Query{Sensor: "s-1", From: 0, To: 3_600_000}
	for range s.Readings(t.Context(), span) {
		t.Fatal("there is nothing stored")
	}
	_, _, err := s.Latest(t.Context(), "s-1", nil)
	require.NoError(t, err)
	_, _, err = s.newest(t.Context(), "s-1")
	require.NoError(t, err)
	recovered := shareOf(t, "s-1", 3)
	recovered.Recovered = true
	s.Write(t.Context(), []*batch.Share{recovered})
	_, err = s.Delete(t.Context(), "s-1")
	require.NoError(t, err)

	finds := sent(cluster, "find")
	require.GreaterOrEqual(t, len(finds), 4)
	for _, c := range finds {
		filter := rawOf(t, c, "filter")
		if either, err := filter.LookupErr("$or"); err == nil {
			values, err := either.Array().Values()
			require.NoError(t, err)
			for _, v := range values {
				assert.Equal(t, "s-1", v.Document().Lookup("_id.s").StringValue())
			}
			continue
		}
		assert.True(t, targets(t, filter, "_id.s"), "%s", filter)
	}
	deletes := sent(cluster, "delete")
	require.Len(t, deletes, 1)
	assert.True(t, targets(t, deletes[0].Operations[0].Lookup("q").Document(), "_id.s"))
}

// rawOf is a document among a command's elements.
func rawOf(t *testing.T, c mongostest.Command, key string) bson.Raw {
	t.Helper()
	body, err := bson.Marshal(c.Body)
	require.NoError(t, err)
	return bson.Raw(body).Lookup(key).Document()
}

func TestWithoutAClusterNoQueryIsDifferent(t *testing.T) {
	t.Parallel()
	s := &Store{}
	filter := bson.D{{Key: "_id", Value: 1}}
	assert.Equal(t, filter, s.ofSensor("s-1", filter))
}

func TestOnAClusterAFenceGoesToTheShardsThatWereLookedAt(t *testing.T) {
	t.Parallel()
	s, cluster := sharded(t, store.WriteConcern{Members: 3})
	cluster.Change(func() {
		cluster.Documents[shardedName] = []bson.D{{
			{Key: "_id", Value: bson.D{{Key: "s", Value: "s-1"}, {Key: "b", Value: bson.DateTime(0)}, {Key: "g", Value: int32(300)}, {Key: "p", Value: int32(0)}}},
			{Key: "count", Value: 3}, {Key: "w", Value: bson.D{}},
		}}
	})
	s.look(t.Context(), []*batch.Share{shareOf(t, "s-1", 3), shareOf(t, "s-2", 1)})
	updates := sent(cluster, "update")
	require.Len(t, updates, 1)
	concern := rawOf(t, updates[0], "writeConcern")
	assert.EqualValues(t, 3, concern.Lookup("w").AsInt64())
	require.Len(t, updates[0].Operations, 2)
	for _, op := range updates[0].Operations {
		filter := op.Lookup("q").Document()
		assert.True(t, targets(t, filter, "_id.s", "_id.b"), "%s", filter)
		assert.Equal(t, "never", filter.Lookup("full").StringValue())
		_, err := op.LookupErr("upsert")
		assert.Error(t, err, "it makes nothing")
	}
	for _, c := range cluster.Commands() {
		assert.NotEqual(t, "brim_fence", c.Body[0].Value)
	}
}

// TestAFenceMatchesNothing holds what a cluster is sent against a real server.
func TestAFenceMatchesNothing(t *testing.T) {
	t.Parallel()
	db := connect(t)
	s := open(t, db, Config{WriteConcern: store.WriteConcern{Members: 1}})
	share := shareOf(t, "s-1", 3)
	s.Write(t.Context(), []*batch.Share{share})
	before := documents(t, db)
	require.Len(t, before, 1)
	s.sharded.Store(true)
	now := *s.live.Load()
	now.WriteConcern.Members = 2 // of which there is one: what is sent goes by the collection's, one member
	s.live.Store(&now)
	require.NoError(t, s.confirm(t.Context(), []*batch.Share{shareOf(t, "s-1", 1), shareOf(t, "s-9", 1)}))
	assert.Equal(t, before, documents(t, db))
}
