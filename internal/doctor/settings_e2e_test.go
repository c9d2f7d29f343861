package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/generation"
)

// advised takes a sample and returns the setting finding whose cause contains the
// words, or nil.
func advised(t *testing.T, b *bench, words string) *Finding {
	t.Helper()
	b.Sample(t.Context())
	f := b.facts()
	f.sampleTime = time.Minute
	require.NoError(t, f.gather(t.Context()))
	found := f.judge(settingRules)
	for i := range found {
		if strings.Contains(found[i].Cause, words) {
			return &found[i]
		}
	}
	return nil
}

// follow runs the command that an advice quotes in db.adminCommand(…).
func follow(t *testing.T, db *mongo.Database, advice *Finding) {
	t.Helper()
	_, command, ok := strings.Cut(advice.Action, "db.adminCommand({setParameter: 1, ")
	require.True(t, ok, advice.Action)
	command, _, _ = strings.Cut(command, "})")
	var parameter bson.D
	name, value, _ := strings.Cut(command, ": ")
	require.NoError(t, bson.UnmarshalExtJSON([]byte(`{"setParameter": 1, "`+name+`": `+value+`}`), false, &parameter))
	require.NoError(t, db.Client().Database("admin").RunCommand(t.Context(), parameter).Err())
}

// TestTheHistoryWindowIsNamed for a replica set, even while idle, until the
// advice is followed.
func TestTheHistoryWindowIsNamed(t *testing.T) {
	t.Parallel()
	server := mongodtest.Start(t, mongod.Config{Parameters: map[string]string{"minSnapshotHistoryWindowInSeconds": "300"}})
	db := mongodtest.DatabaseAt(t, server.URI())
	readings := db.Collection("readings")
	_, err := readings.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}, {Key: "measurements", Value: bson.A{}}})
	require.NoError(t, err)
	b := newBench(t, Config{Database: db, Streams: []Stream{{Name: "readings", Storage: store.Bucket}}})

	const window = "minSnapshotHistoryWindowInSeconds is 300"
	idle := advised(t, b, window)
	require.NotNil(t, idle)
	assert.Equal(t, Setting, idle.Kind)

	for range 50 {
		_, err := readings.UpdateByID(t.Context(), 1, bson.D{{Key: "$push", Value: bson.D{{Key: "measurements", Value: bson.D{{Key: "t", Value: 1}}}}}})
		require.NoError(t, err)
	}
	require.NoError(t, db.Client().Database("admin").RunCommand(t.Context(), bson.D{{Key: "fsync", Value: 1}}).Err()) // writes the history
	busy := advised(t, b, window)
	require.NotNil(t, busy)
	assert.Contains(t, busy.Evidence, "in the last")
	assert.NotContains(t, busy.Evidence, "; 0 old versions a second")

	follow(t, db, busy)
	assert.Nil(t, advised(t, b, "minSnapshotHistoryWindowInSeconds"))
	b = newBench(t, Config{Database: db, Streams: []Stream{{Name: "readings", Storage: store.TimeSeries}}})
	require.NoError(t, db.Client().Database("admin").RunCommand(t.Context(), bson.D{{Key: "setParameter", Value: 1}, {Key: "minSnapshotHistoryWindowInSeconds", Value: 300}}).Err())
	assert.Nil(t, advised(t, b, "minSnapshotHistoryWindowInSeconds"), "what is inserted leaves no old versions")
}

// TestEmbeddedMongodHasNoSettingsFindings: the daemon's own mongod is well
// configured.
func TestEmbeddedMongodHasNoSettingsFindings(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	_, err := db.Collection("readings").InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}})
	require.NoError(t, err)
	b := newBench(t, Config{Database: db, Streams: []Stream{{Name: "readings", Storage: store.Bucket}}})
	b.Sample(t.Context())
	found, err := b.CheckSettings(t.Context())
	require.NoError(t, err)
	assert.Empty(t, found)
}

// TestAStandaloneServerIsNamed, though it keeps no history whatever the window.
func TestAStandaloneServerIsNamed(t *testing.T) {
	t.Parallel()
	server := mongodtest.Start(t, mongod.Config{Standalone: true})
	b := newBench(t, Config{Database: mongodtest.DatabaseAt(t, server.URI()), Streams: []Stream{{Name: "readings", Storage: store.Bucket}}})
	assert.NotNil(t, advised(t, b, "standalone"))
	assert.Nil(t, advised(t, b, "minSnapshotHistoryWindowInSeconds"))
}

// TestZstdIsAdvisedForWhatItSaves: the estimate is close to what MongoDB then
// achieves.
func TestZstdIsAdvisedForWhatItSaves(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	different, documents := buckets(60, rounded), make([]any, 750) // more than a block apart
	for i := range documents {
		documents[i] = bson.D{{Key: "_id", Value: i}, {Key: "measurements", Value: different[i%60].Lookup("measurements")}}
	}
	for _, c := range []store.Compressor{store.Snappy, store.Zstd} {
		require.NoError(t, db.CreateCollection(t.Context(), string(c), options.CreateCollection().SetStorageEngine(c.StorageEngine())))
		_, err := db.Collection(string(c)).InsertMany(t.Context(), documents)
		require.NoError(t, err)
	}
	require.NoError(t, db.Client().Database("admin").RunCommand(t.Context(), bson.D{{Key: "fsync", Value: 1}}).Err())
	var generations bson.A
	for _, c := range []store.Compressor{store.Zstd, store.Snappy} {
		generations = append(generations, bson.D{{Key: "collection", Value: string(c)}, {Key: "storage", Value: store.Bucket}, {Key: "compressor", Value: c}, {Key: "state", Value: generation.Open}})
	}
	for _, stream := range []string{"readings", "moved"} {
		_, err := db.Collection(generation.Collection).InsertOne(t.Context(), bson.D{{Key: "_id", Value: stream}, {Key: "generations", Value: generations}})
		require.NoError(t, err)
	}
	b := newBench(t, Config{Database: db, Streams: []Stream{{Name: "readings", Storage: store.Bucket, Compressor: store.Snappy}, {Name: "moved", Storage: store.Bucket, Compressor: store.Zstd}}})
	found := advised(t, b, "stream readings has snappy")
	require.NotNil(t, found)
	assert.Contains(t, found.Evidence, "documents of snappy")
	assert.Contains(t, found.Action, "brim move readings")
	assert.Nil(t, advised(t, b, "stream moved"))

	f := b.facts()
	f.sampleTime = time.Minute
	trial, err := f.try(t.Context(), f.streams[0])
	require.NoError(t, err)
	require.NotNil(t, trial)
	snappy, zstd := f.view.last.collections["readings"], f.view.last.collections["moved"]
	assert.Equal(t, "zstd", zstd.compressor)
	// The fill of pages varies by a few percent between runs.
	assert.InEpsilon(t, (zstd.storage-zstd.free)/(snappy.storage-snappy.free), float64(trial.packed[store.Zstd])/float64(trial.packed[store.Snappy]), 0.3)
}

// TestAnIndexThatNothingUsesIsNamed until it is dropped; indexes in use and
// Brim's own are not.
func TestAnIndexThatNothingUsesIsNamed(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	readings := db.Collection("readings")
	_, err := readings.Indexes().CreateMany(t.Context(), []mongo.IndexModel{
		{Keys: bson.D{{Key: "last", Value: 1}}}, {Keys: bson.D{{Key: "tags.site", Value: 1}}},
		{Keys: bson.D{{Key: "bucketStart", Value: 1}}, Options: options.Index().SetName("brim_retention").SetExpireAfterSeconds(3600)},
		{Keys: bson.D{{Key: "serial", Value: 1}}, Options: options.Index().SetUnique(true).SetSparse(true)},
	})
	require.NoError(t, err)
	_, err = readings.InsertOne(t.Context(), bson.D{{Key: "tags", Value: bson.D{{Key: "site", Value: "north"}}}})
	require.NoError(t, err)
	require.NoError(t, readings.FindOne(t.Context(), bson.D{{Key: "tags.site", Value: "north"}}).Err())
	b := newBench(t, Config{Database: db, Streams: []Stream{{Name: "readings", Storage: store.Bucket}}, Now: func() time.Time { return time.Now().Add(25 * time.Hour) }})
	b.Sample(t.Context())
	found, err := b.CheckSettings(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Contains(t, found[0].Cause, "nothing uses last_1 of stream readings")
	assert.Contains(t, found[0].Evidence, "each append changes last")
	require.NoError(t, db.RunCommand(t.Context(), bson.D{
		{Key: "collMod", Value: "readings"}, {Key: "index", Value: bson.D{{Key: "name", Value: "last_1"}, {Key: "hidden", Value: true}}},
	}).Err())
	assert.NotNil(t, advised(t, b, "last_1"), "hidden, it is still kept")
	require.NoError(t, readings.Indexes().DropOne(t.Context(), "last_1"))
	assert.Nil(t, advised(t, b, "index"))
}
