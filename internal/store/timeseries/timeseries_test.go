package timeseries

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestMain(m *testing.M) { mongodtest.Main(m) }

// connect returns a new database with production's concerns.
func connect(t *testing.T) *mongo.Database {
	t.Helper()
	db := mongodtest.Database(t)
	c, err := store.Connect(store.ConnectionConfig{URI: mongodtest.URI(t), Database: db.Name(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return c.Database()
}

func build(t *testing.T, db *mongo.Database, cfg Config) *Store {
	t.Helper()
	cfg.Database, cfg.Stream, cfg.Registerer = db, storetest.Stream, prometheus.NewRegistry()
	if cfg.Granularity == 0 {
		cfg.Granularity = 5 * time.Minute
	}
	s, err := New(cfg)
	require.NoError(t, err)
	return s
}

// open returns a prepared store. At the end of the test, each reading must be stored once: answers would
// not show a second document.
func open(t *testing.T, db *mongo.Database, cfg Config) *Store {
	t.Helper()
	s := build(t, db, cfg)
	require.NoError(t, s.Prepare(t.Context()))
	t.Cleanup(func() { assert.Empty(t, storedTwice(t, db.Collection(storetest.Stream))) })
	return s
}

// storedTwice returns the _ids shared by several documents.
func storedTwice(t *testing.T, c *mongo.Collection) (ids []bson.Raw) {
	t.Helper()
	cursor, err := c.Aggregate(context.Background(), mongo.Pipeline{
		{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$_id"}, {Key: "n", Value: bson.D{{Key: "$sum", Value: 1}}}}}},
		{{Key: "$match", Value: bson.D{{Key: "n", Value: bson.D{{Key: "$gt", Value: 1}}}}}},
	})
	require.NoError(t, err)
	require.NoError(t, cursor.All(context.Background(), &ids))
	return ids
}

// stored returns a sensor's documents.
func stored(t *testing.T, s *Store, sensor string) (docs []bson.Raw) {
	t.Helper()
	cursor, err := s.Majority.Find(t.Context(), bson.D{{Key: idField, Value: sensor}})
	require.NoError(t, err)
	require.NoError(t, cursor.All(t.Context(), &docs))
	return docs
}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Store {
		return open(t, connect(t), Config{})
	})
}

func TestDocument(t *testing.T) {
	t.Parallel()
	db := connect(t)
	s := open(t, db, Config{Compressor: store.Zstd, Retention: 24 * time.Hour})
	reading := telemetry.Reading{
		Sensor: "s-1", Time: storetest.Base,
		Fields: []telemetry.Field{{Name: "t", Value: telemetry.FloatValue(23.5)}, {Name: "h", Value: telemetry.IntValue(65)}},
		Tags:   []telemetry.Tag{{Name: "site", Value: "north"}},
	}
	storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", 7, reading), 5*time.Minute))
	var doc bson.M
	require.NoError(t, db.Collection(storetest.Stream).FindOne(t.Context(), bson.D{}).Decode(&doc))
	assert.Equal(t, bson.M{
		"_id": bson.ObjectID(batch.ReadingID("s1", 7)), "ts": bson.NewDateTimeFromTime(storetest.Base),
		"sensor": bson.D{{Key: "id", Value: "s-1"}, {Key: "tags", Value: bson.D{{Key: "site", Value: "north"}}}},
		"t":      23.5, "h": int64(65),
	}, doc)
	c := store.Collection{Database: db, Name: storetest.Stream}
	info, err := c.Lookup(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "timeseries", info.Type)
	assert.Equal(t, int64(86400), info.Options.Lookup("expireAfterSeconds").AsInt64())
	assert.Equal(t, "block_compressor=zstd", info.Options.Lookup("storageEngine", "wiredTiger", "configString").StringValue())
	require.NoError(t, s.Prepare(t.Context()), "the collection that was made is the one that is asked for")
}

func TestPrepareRefusesAnotherCollection(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		make  bson.D
		wants string
	}{
		{"an ordinary collection", bson.D{{Key: "create", Value: storetest.Stream}}, "type collection, the stream asks for timeseries"},
		{"another timeField", timeSeries("time", "sensor", "seconds"), `timeField "time", the stream asks for "ts"`},
		{"another metaField", timeSeries("ts", "meta", "seconds"), `metaField "meta", the stream asks for "sensor"`},
		{"another compressor", append(timeSeries("ts", "sensor", "seconds"), bson.E{Key: "storageEngine", Value: store.Zstd.StorageEngine()}), "compressor zstd, the stream asks for snappy"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			db := connect(t)
			require.NoError(t, db.RunCommand(t.Context(), tt.make).Err())
			err := build(t, db, Config{Compressor: store.Snappy}).Prepare(t.Context())
			var mismatch *store.MismatchError
			require.ErrorAs(t, err, &mismatch)
			assert.ErrorContains(t, err, tt.wants)
		})
	}
}

func timeSeries(timeField, metaField, granularity string) bson.D {
	return bson.D{{Key: "create", Value: storetest.Stream}, {Key: "timeseries", Value: bson.D{
		{Key: "timeField", Value: timeField}, {Key: "metaField", Value: metaField}, {Key: "granularity", Value: granularity},
	}}}
}

// TestLostReplyIsLookedUp: the server stores an insert but reports a failed
// write concern; stored readings must not be sent again.
func TestLostReplyIsLookedUp(t *testing.T) {
	t.Parallel()
	c, err := store.Connect(store.ConnectionConfig{
		URI: mongodtest.URI(t), Database: mongodtest.Database(t).Name(), App: "reply is lost", Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	s := open(t, c.Database(), Config{})
	writes := storetest.Pending(storetest.Batch(t, "s1", 1, storetest.Reading("a", 0, 1), storetest.Reading("b", time.Second, 2)), 5*time.Minute)
	admin := c.Client().Database("admin")
	require.NoError(t, admin.RunCommand(t.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: bson.D{{Key: "times", Value: 1}}},
		{Key: "data", Value: bson.D{
			{Key: "failCommands", Value: bson.A{"insert"}}, {Key: "appName", Value: "reply is lost"},
			{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: 64}, {Key: "errmsg", Value: "waiting for replication timed out"}}},
		}},
	}).Err())
	s.Write(t.Context(), writes)
	for _, pending := range writes {
		require.Equal(t, batch.Wait, pending.Verdict)
		require.Len(t, pending.Rows, 1)
	}
	storetest.WriteAll(t, s, writes)
	assert.Len(t, stored(t, s, "a"), 1)
	assert.Len(t, stored(t, s, "b"), 1)
	assert.InDelta(t, 2, testutil.ToFloat64(s.Metrics.Duplicates), 0)
	assert.InDelta(t, 2, testutil.ToFloat64(s.Metrics.Unknown), 0)
}

// TestNewestReadingIsFoundInTheLastBucket by the server: a simple sort by time
// would unpack all of the sensor's buckets.
func TestNewestReadingIsFoundInTheLastBucket(t *testing.T) {
	t.Parallel()
	s := open(t, connect(t), Config{})
	var readings []telemetry.Reading
	for i := range 40 {
		readings = append(readings, storetest.Reading("old", time.Duration(i)*time.Hour, float64(i)), storetest.Reading("other", time.Duration(i)*25*time.Hour, 0))
	}
	recent := storetest.Reading("recent", 0, 7)
	recent.Time = time.Now().Add(-time.Minute).Truncate(time.Millisecond).UTC()
	storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", 1, append(readings, recent)...), 5*time.Minute))

	got, found, err := s.Latest(t.Context(), "old", nil)
	require.NoError(t, err)
	assert.True(t, found)
	assert.Equal(t, storetest.Reading("old", 39*time.Hour, 39), got)
	got, found, err = s.Latest(t.Context(), "recent", nil)
	require.NoError(t, err)
	assert.True(t, found)
	assert.Equal(t, recent, got)
	newest := make(map[string]int64)
	for seen, err := range s.Sensors(t.Context(), telemetry.SensorQuery{Limit: 10}) {
		require.NoError(t, err)
		newest[seen.Sensor] = seen.Newest
	}
	assert.Equal(t, map[string]int64{
		"old": storetest.Base.Add(39 * time.Hour).UnixMilli(), "other": storetest.Base.Add(39 * 25 * time.Hour).UnixMilli(), "recent": recent.Time.UnixMilli(),
	}, newest)

	var plan struct {
		Stages []bson.D `bson:"stages"`
	}
	explain := bson.D{{Key: "explain", Value: bson.D{{Key: "aggregate", Value: s.Majority.Name()}, {Key: "pipeline", Value: lastBucket("old")}, {Key: "cursor", Value: bson.D{}}}}}
	require.NoError(t, s.Majority.Database().RunCommand(t.Context(), explain).Decode(&plan))
	var stages []string
	for _, stage := range plan.Stages {
		stages = append(stages, stage[0].Key)
	}
	require.Contains(t, stages, "$_internalUnpackBucket")
	assert.Less(t, slices.Index(stages, "$group"), slices.Index(stages, "$_internalUnpackBucket"), "one bucket is left before it is unpacked: %v", stages)
}
