package maintain

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
)

const testStream = "readings"

// database returns an empty database with the concerns of production.
func database(t *testing.T) *mongo.Database {
	t.Helper()
	db := mongodtest.Database(t)
	c, err := store.Connect(store.ConnectionConfig{URI: mongodtest.URI(t), Database: db.Name(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return c.Database()
}

// testStart is where the windows of the tests' documents begin.
var testStart = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

func movedID(sensor string, window, number int) bson.D {
	start := testStart.Add(time.Duration(window) * time.Minute)
	return bson.D{{Key: "s", Value: sensor}, {Key: "b", Value: start}, {Key: "g", Value: int32(60)}, {Key: "p", Value: int32(number)}}
}

// movedPart is as a daemon writes it, of one reading.
func movedPart(sensor string, window, number int) bson.D {
	start := testStart.Add(time.Duration(window) * time.Minute)
	return bson.D{
		{Key: "_id", Value: movedID(sensor, window, number)},
		{Key: "sensorId", Value: sensor}, {Key: "bucketStart", Value: start}, {Key: "count", Value: int32(1)},
		{Key: "measurements", Value: bson.A{bson.D{{Key: "ts", Value: start}, {Key: "t", Value: 1.5}}}},
		{Key: "w", Value: bson.D{{Key: "a1", Value: int64(7)}}},
	}
}

// stocked makes a stream's collection with a daemon's options and some documents.
func stocked(t *testing.T, db *mongo.Database, sensors, windows int) *mongo.Collection {
	t.Helper()
	require.NoError(t, db.CreateCollection(t.Context(), testStream, options.CreateCollection().SetStorageEngine(store.Snappy.StorageEngine())))
	coll := db.Collection(testStream)
	var documents []any
	for s := range sensors {
		for w := range windows {
			documents = append(documents, movedPart(fmt.Sprintf("s-%d", s), w, 0), movedPart(fmt.Sprintf("s-%d", s), w, 1))
		}
	}
	_, err := coll.InsertMany(t.Context(), documents)
	require.NoError(t, err)
	return coll
}

func recompressing(db *mongo.Database) Config {
	return Config{
		Lease:    time.Minute, // a mongod under load may not answer for a while
		Database: db, Stream: testStream, Kind: "recompress", To: "zstd", Compressor: store.Zstd, SameDocuments: true,
	}
}

// everything reads a collection.
func everything(t *testing.T, coll *mongo.Collection) []bson.Raw {
	t.Helper()
	cursor, err := coll.Find(context.Background(), bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	require.NoError(t, err)
	var documents []bson.Raw
	require.NoError(t, cursor.All(context.Background(), &documents))
	return documents
}

// names are those of the database's collections.
func names(t *testing.T, db *mongo.Database) []string {
	t.Helper()
	list, err := db.ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	return list
}

func compressorOf(t *testing.T, db *mongo.Database) store.Compressor {
	t.Helper()
	size, err := statsOf(t.Context(), db, testStream)
	require.NoError(t, err)
	return size.compressor()
}

// killed carries a move out until it comes to a point, where it ends as by a
// kill: nothing is tidied up.
func killed(t *testing.T, cfg Config, at point) {
	t.Helper()
	db, died := cfg.Database, false
	cfg.Database = comingTo(t, db, at, func() { died = true; runtime.Goexit() })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var moving sync.WaitGroup
	var err error
	moving.Go(func() { _, err = Move(ctx, cfg) })
	moving.Wait()
	require.NoError(t, err)
	require.True(t, died, "the move does not come to %s", at.name)
	bury(t, db)
}

// bury makes the owner of the work a process that is known to be dead.
func bury(t *testing.T, db *mongo.Database) {
	t.Helper()
	const noProcess = 1 << 30
	_, err := db.Collection(stateCollection).UpdateOne(t.Context(), bson.D{{Key: "_id", Value: testStream}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "owner.id", Value: "dead"}, {Key: "owner.pid", Value: noProcess}}}})
	require.NoError(t, err)
}

// A writer appends to documents of some sensors as a daemon does, and waits
// while it is refused.
type writer struct {
	coll    *mongo.Collection
	stop    context.CancelFunc
	writing sync.WaitGroup
	counts  map[string]int // what is stored, by _id
	refused int
}

func write(t *testing.T, coll *mongo.Collection) *writer {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &writer{coll: coll, stop: stop, counts: make(map[string]int)}
	for _, d := range everything(t, coll) {
		w.counts[d.Lookup("_id").String()] = 1
	}
	w.writing.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			w.append(ctx, movedID(fmt.Sprintf("s-%d", i%7), i%50+i/100, 0))
		}
	})
	t.Cleanup(func() { w.stop(); w.writing.Wait() })
	return w
}

func (w *writer) append(ctx context.Context, id bson.D) {
	reading := bson.D{{Key: "ts", Value: testStart}, {Key: "t", Value: 2.5}}
	update := bson.D{{Key: "$push", Value: bson.D{{Key: "measurements", Value: reading}}}, {Key: "$inc", Value: bson.D{{Key: "count", Value: 1}}}}
	for {
		_, err := w.coll.UpdateOne(context.WithoutCancel(ctx), bson.D{{Key: "_id", Value: id}}, update, options.UpdateOne().SetUpsert(true))
		if err == nil {
			raw, _ := bson.Marshal(bson.D{{Key: "_id", Value: id}})
			w.counts[bson.Raw(raw).Lookup("_id").String()]++
			return
		}
		if w.refused++; ctx.Err() != nil {
			return
		}
		<-time.After(time.Millisecond)
	}
}

// check ends the writer, and finds each of its readings once.
func (w *writer) check(t *testing.T) {
	t.Helper()
	w.stop()
	w.writing.Wait()
	counts := make(map[string]int)
	for _, d := range everything(t, w.coll) {
		list, err := d.Lookup("measurements").Array().Values()
		require.NoError(t, err)
		counts[d.Lookup("_id").String()] = len(list)
	}
	assert.Equal(t, w.counts, counts)
}

func TestMoveChangesOnlyTheCompressor(t *testing.T) {
	t.Parallel()
	db := database(t)
	coll := stocked(t, db, 20, 90)
	before := everything(t, coll)
	var phases []string
	cfg := recompressing(db)
	cfg.Progress = func(p Progress) {
		if len(phases) == 0 || phases[len(phases)-1] != p.Phase {
			phases = append(phases, p.Phase)
		}
	}
	result, err := Move(t.Context(), cfg)
	require.NoError(t, err)
	assert.Equal(t, before, everything(t, coll))
	assert.Equal(t, before, everything(t, db.Collection(oldName(testStream))))
	assert.Equal(t, store.Zstd, compressorOf(t, db))
	assert.EqualValues(t, len(before), result.Documents)
	assert.EqualValues(t, 1, result.Copies)
	assert.Equal(t, oldName(testStream), result.Kept)
	assert.Positive(t, result.BytesBefore)
	assert.Positive(t, result.BytesAfter)
	assert.Equal(t, []string{phaseCopy, phaseFollow, phaseVerify, phaseFence}, phases)

	_, err = coll.InsertOne(t.Context(), movedPart("new", 0, 0))
	require.NoError(t, err, "daemons write again")
	_, err = db.Collection(oldName(testStream)).InsertOne(t.Context(), movedPart("new", 0, 0))
	require.Error(t, err, "the old one stays as it was")

	result, err = Move(t.Context(), cfg)
	require.NoError(t, err)
	assert.True(t, result.AlreadyDone)
	back := recompressing(db)
	back.To, back.Compressor = "snappy", store.Snappy
	_, err = Move(t.Context(), back)
	require.ErrorContains(t, err, "`brim recompress --stream readings --drop-old`")

	dropped, err := DropOld(t.Context(), cfg)
	require.NoError(t, err)
	assert.Equal(t, oldName(testStream), dropped.Collection)
	assert.ElementsMatch(t, []string{testStream, stateCollection}, names(t, db))
	_, err = DropOld(t.Context(), cfg)
	require.ErrorContains(t, err, "no `brim recompress` has kept a collection")
	_, err = Move(t.Context(), back)
	require.NoError(t, err)
	assert.Equal(t, store.Snappy, compressorOf(t, db))
}

func TestKilledMoveIsFinishedByTheNext(t *testing.T) {
	t.Parallel()
	for _, p := range points() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			finishedAfterKill(t, SwapAtomic, p)
		})
	}
	for _, p := range []point{swapping(), swapped()} {
		t.Run("replace "+p.name, func(t *testing.T) {
			t.Parallel()
			finishedAfterKill(t, SwapReplace, p)
		})
	}
}

// finishedAfterKill kills a move twice at a point, while a writer runs.
func finishedAfterKill(t *testing.T, swap Swap, at point) {
	t.Helper()
	db := database(t)
	coll := stocked(t, db, 10, 30)
	w := write(t, coll)
	cfg := recompressing(db)
	cfg.Swap = swap
	killed(t, cfg, at)
	if at.name != swapped().name { // which leaves nothing to be killed
		killed(t, cfg, at)
	}
	result, err := Move(t.Context(), cfg)
	require.NoError(t, err)
	w.check(t)
	assert.Equal(t, store.Zstd, compressorOf(t, db))
	assert.Zero(t, result.Repaired, "what differs is known to have been written into")
	want := []string{testStream, stateCollection}
	if swap == SwapAtomic {
		want = append(want, oldName(testStream))
	}
	assert.ElementsMatch(t, want, names(t, db))
}

func TestExchangeThatStoppedHalfwayIsFinished(t *testing.T) {
	t.Parallel()
	db := database(t)
	coll := stocked(t, db, 3, 3)
	before := everything(t, coll)
	cfg := recompressing(db)
	cfg.Swap = SwapRenames
	killed(t, cfg, half())
	assert.ElementsMatch(t, []string{oldName(testStream), newName(testStream), stateCollection}, names(t, db))
	_, err := Move(t.Context(), cfg)
	require.NoError(t, err)
	assert.Equal(t, before, everything(t, coll))
	assert.Equal(t, store.Zstd, compressorOf(t, db))
}

func TestCollectionCreatedMeanwhileIsLeftAlone(t *testing.T) {
	t.Parallel()
	db := database(t)
	coll := stocked(t, db, 3, 3)
	before := everything(t, coll)
	cfg := recompressing(db)
	cfg.Swap = SwapRenames
	killed(t, cfg, half())
	_, err := coll.InsertOne(t.Context(), movedPart("stray", 0, 0))
	require.NoError(t, err)
	_, err = Move(t.Context(), cfg)
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, fmt.Sprintf(`db.adminCommand({renameCollection: "%s.readings", to: "%[1]s.readings.stray"})`, db.Name()))
	assert.Len(t, everything(t, coll), 1)
	require.ErrorAs(t, Abort(t.Context(), cfg), &refused)

	// What it says helps.
	require.NoError(t, rename(t.Context(), db, testStream, testStream+".stray", false))
	_, err = Move(t.Context(), cfg)
	require.NoError(t, err)
	assert.Equal(t, before, everything(t, coll))
	assert.Len(t, everything(t, db.Collection(testStream+".stray")), 1)
}
