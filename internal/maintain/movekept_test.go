package maintain

import (
	"context"
	"log/slog"
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
)

// moreOptions gives the stream's collection a validator and indexes.
func moreOptions(t *testing.T, db *mongo.Database) {
	t.Helper()
	require.NoError(t, db.RunCommand(t.Context(), bson.D{
		{Key: "collMod", Value: testStream}, {Key: "validator", Value: bson.D{{Key: "count", Value: bson.D{{Key: "$gt", Value: 0}}}}},
		{Key: "validationLevel", Value: "moderate"}, {Key: "validationAction", Value: "error"},
	}).Err())
	_, err := db.Collection(testStream).Indexes().CreateMany(t.Context(), []mongo.IndexModel{
		{Keys: bson.D{{Key: "bucketStart", Value: 1}}, Options: options.Index().SetName("brim_retention").SetExpireAfterSeconds(1 << 30)},
		{Keys: bson.D{{Key: "sensorId", Value: 1}, {Key: "last", Value: -1}}, Options: options.Index().SetSparse(true)},
		{Keys: bson.D{{Key: "count", Value: 1}}, Options: options.Index().SetPartialFilterExpression(bson.D{{Key: "full", Value: true}})},
	})
	require.NoError(t, err)
}

// form is what an index is but for its version.
func form(t *testing.T, db *mongo.Database, name string) []bson.D {
	t.Helper()
	list, err := indexes(t.Context(), db, name)
	require.NoError(t, err)
	return list
}

func TestMovedCollectionKeepsOptionsAndIndexes(t *testing.T) {
	t.Parallel()
	db := database(t)
	require.NoError(t, db.CreateCollection(t.Context(), testStream, options.CreateCollection().
		SetChangeStreamPreAndPostImages(bson.D{{Key: "enabled", Value: true}}).
		SetStorageEngine(bson.D{{Key: "wiredTiger", Value: bson.D{{Key: "configString", Value: "leaf_page_max=64KB,block_compressor=snappy,prefix_compression=false"}}}})))
	_, err := db.Collection(testStream).InsertOne(t.Context(), movedPart("s-1", 0, 0))
	require.NoError(t, err)
	moreOptions(t, db)
	before, err := lookUp(t.Context(), db, testStream)
	require.NoError(t, err)
	had := form(t, db, testStream)

	killed(t, recompressing(db), isFenced())
	fenced, err := lookUp(t.Context(), db, testStream)
	require.NoError(t, err)
	words, _ := fenced.Options.Lookup("validator", "$jsonSchema", "description").StringValueOK()
	assert.Contains(t, words, "run the same command again, or with --abort")
	_, err = db.Collection(testStream).InsertOne(t.Context(), movedPart("s-2", 0, 0))
	require.ErrorContains(t, err, "`brim recompress` exchanges this collection", "the refusal says why")
	for _, index := range form(t, db, newName(testStream)) {
		assert.Nil(t, valueOf(index, expiry), "nothing may be removed from a copy")
	}

	_, err = Move(t.Context(), recompressing(db))
	require.NoError(t, err)
	assert.ElementsMatch(t, had, form(t, db, testStream))
	after, err := lookUp(t.Context(), db, testStream)
	require.NoError(t, err)
	assert.Equal(t, originalOf(before), originalOf(after))
	assert.Equal(t, before.Options.Lookup("changeStreamPreAndPostImages").String(), after.Options.Lookup("changeStreamPreAndPostImages").String())
	config, _ := after.Options.Lookup("storageEngine", "wiredTiger", "configString").StringValueOK()
	assert.Equal(t, "leaf_page_max=64KB,prefix_compression=false,block_compressor=zstd", config)
}

func TestIndexCreatedMeanwhileIsKept(t *testing.T) {
	t.Parallel()
	db := database(t)
	stocked(t, db, 3, 3)
	killed(t, recompressing(db), compared())
	require.NoError(t, store.Collection{Database: db, Name: testStream}.EnsureExpiry(t.Context(), "bucketStart", 90*24*time.Hour))
	cfg := recompressing(db)
	cfg.ExpireAtLeast = 100 * 24 * time.Hour
	_, err := Move(t.Context(), cfg)
	require.NoError(t, err)
	have := form(t, db, testStream)
	require.Len(t, have, 1)
	after, _ := seconds(valueOf(have[0], expiry))
	assert.EqualValues(t, 100*24*3600, after)
}

func TestAbortedMoveLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, p := range []point{created(), copied(), isFenced()} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			coll := stocked(t, db, 3, 3)
			moreOptions(t, db)
			before, err := lookUp(t.Context(), db, testStream)
			require.NoError(t, err)
			killed(t, recompressing(db), p)
			other := recompressing(db)
			other.To = "none"
			_, err = Move(t.Context(), other)
			require.ErrorContains(t, err, "`brim recompress --stream readings --abort`", "something else is refused meanwhile")

			require.NoError(t, Abort(t.Context(), recompressing(db)))
			assert.ElementsMatch(t, []string{testStream, stateCollection}, names(t, db))
			after, err := lookUp(t.Context(), db, testStream)
			require.NoError(t, err)
			assert.Equal(t, before, after)
			assert.Len(t, everything(t, coll), 18)
			require.ErrorIs(t, Abort(t.Context(), recompressing(db)), errNoWork)
		})
	}
	t.Run("not once the exchange is ordered", func(t *testing.T) {
		t.Parallel()
		db := database(t)
		stocked(t, db, 3, 3)
		killed(t, recompressing(db), swapping())
		require.ErrorContains(t, Abort(t.Context(), recompressing(db)), "Finish it with `brim recompress --to zstd --stream readings`")
	})
	t.Run("not once the names are exchanged", func(t *testing.T) {
		t.Parallel()
		db := database(t)
		stocked(t, db, 3, 3)
		killed(t, recompressing(db), swapped())
		require.ErrorContains(t, Abort(t.Context(), recompressing(db)), "the collections are exchanged")
	})
}

func TestTamperedCopyIsRepaired(t *testing.T) {
	t.Parallel()
	db := database(t)
	coll := stocked(t, db, 5, 5)
	before := everything(t, coll)
	killed(t, recompressing(db), followed())
	target := db.Collection(newName(testStream))
	_, err := target.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: movedID("s-1", 2, 1)}}, bson.D{{Key: "$set", Value: bson.D{{Key: "count", Value: 2}}}})
	require.NoError(t, err)
	_, err = target.DeleteOne(t.Context(), bson.D{{Key: "_id", Value: movedID("s-3", 2, 1)}})
	require.NoError(t, err)
	_, err = target.InsertOne(t.Context(), movedPart("zzz", 2, 1))
	require.NoError(t, err)
	result, err := Move(t.Context(), recompressing(db))
	require.NoError(t, err)
	assert.EqualValues(t, 3, result.Repaired)
	assert.Equal(t, before, everything(t, coll))
}

func TestCopyThatFallsBehindTheOplogIsBegunAnew(t *testing.T) {
	t.Parallel()
	db := database(t)
	coll := stocked(t, db, 5, 5)
	before := everything(t, coll)
	killed(t, recompressing(db), copied())
	late := connectedAs(t, db, mongodtest.URI(t), "brim too late")
	failing(t, db, "brim too late", bson.D{{Key: "times", Value: 1}}, bson.E{Key: "failCommands", Value: bson.A{"aggregate"}}, bson.E{Key: "errorCode", Value: 286})
	result, err := Move(t.Context(), recompressing(late))
	require.NoError(t, err)
	assert.EqualValues(t, 2, result.Copies)
	assert.Equal(t, before, everything(t, coll))
}

// connectedAs is the database through a connection of another name.
func connectedAs(t *testing.T, db *mongo.Database, uri, app string) *mongo.Database {
	t.Helper()
	c, err := store.Connect(store.ConnectionConfig{URI: uri, Database: db.Name(), App: app, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return c.Database()
}

// failing makes commands fail that come through connections of a name.
func failing(t *testing.T, db *mongo.Database, app string, mode bson.D, how ...bson.E) {
	t.Helper()
	require.NoError(t, db.Client().Database("admin").RunCommand(t.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode}, {Key: "data", Value: append(bson.D{{Key: "appName", Value: app}}, how...)},
	}).Err())
}

func TestWhatCannotBeMovedIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(t *testing.T, db *mongo.Database)
		says string
	}{
		"nothing": {func(*testing.T, *mongo.Database) {}, "there is no collection"},
		"the same": {func(t *testing.T, db *mongo.Database) {
			require.NoError(t, db.CreateCollection(t.Context(), testStream, options.CreateCollection().SetStorageEngine(store.Zstd.StorageEngine())))
		}, "has compressor zstd already"},
		"time series": {func(t *testing.T, db *mongo.Database) {
			require.NoError(t, db.CreateCollection(t.Context(), testStream, options.CreateCollection().SetTimeSeriesOptions(options.TimeSeries().SetTimeField("ts"))))
		}, "brim migrate --storage bucket"},
		"capped": {func(t *testing.T, db *mongo.Database) {
			require.NoError(t, db.CreateCollection(t.Context(), testStream, options.CreateCollection().SetCapped(true).SetSizeInBytes(1<<20)))
		}, "is capped"},
		"foreign documents": {func(t *testing.T, db *mongo.Database) {
			stocked(t, db, 1, 1)
			_, err := db.Collection(testStream).InsertOne(t.Context(), bson.D{{Key: "x", Value: 1}})
			require.NoError(t, err)
		}, "none of Brim's"},
		"in the way": {func(t *testing.T, db *mongo.Database) {
			stocked(t, db, 1, 1)
			require.NoError(t, db.CreateCollection(t.Context(), oldName(testStream)))
		}, "is in the way"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			c.make(t, db)
			_, err := Move(t.Context(), recompressing(db))
			var refused *RefusedError
			require.ErrorAs(t, err, &refused)
			require.ErrorContains(t, err, c.says)
			s, err := readState(t.Context(), db, testStream)
			require.NoError(t, err)
			assert.Nil(t, s, "other work may begin")
		})
	}
}

func TestStandaloneIsRefused(t *testing.T) {
	t.Parallel()
	db := mongodtest.DatabaseAt(t, mongodtest.Start(t, mongod.Config{Standalone: true}).URI())
	stocked(t, db, 1, 1)
	_, err := Move(t.Context(), recompressing(db))
	require.ErrorContains(t, err, "restart mongod with --replSet rs0")
}

func TestLostConnectionsAreSurvived(t *testing.T) {
	t.Parallel()
	server := mongodtest.Start(t, mongod.Config{}) // fail points are of a whole mongod
	db := mongodtest.DatabaseAt(t, server.URI())
	coll := stocked(t, db, 20, 20)
	w := write(t, coll)
	const app = "brim cut off"
	far := connectedAs(t, db, server.URI(), app)
	failing(t, db, app, bson.D{{Key: "activationProbability", Value: 0.05}},
		bson.E{Key: "failCommands", Value: bson.A{"find", "insert", "update", "delete", "getMore", "aggregate", "collMod", "applyOps"}}, bson.E{Key: "closeConnection", Value: true})
	cfg := recompressing(far)
	cfg.Lease = time.Minute
	_, err := Move(t.Context(), cfg)
	failing(t, db, app, bson.D{{Key: "times", Value: 0}}, bson.E{Key: "failCommands", Value: bson.A{}}, bson.E{Key: "errorCode", Value: 1})
	if err != nil { // a command that is not tried again
		t.Log(err)
		_, err = Move(t.Context(), recompressing(db))
	}
	require.NoError(t, err)
	w.check(t)
	assert.Equal(t, store.Zstd, compressorOf(t, db))
}
