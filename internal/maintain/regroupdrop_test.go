package maintain

import (
	"context"
	"log/slog"
	"slices"
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

// testCollection is an empty one, with the concerns of production.
func testCollection(t *testing.T) *mongo.Collection {
	t.Helper()
	db := mongodtest.Database(t)
	c, err := store.Connect(store.ConnectionConfig{URI: mongodtest.URI(t), Database: db.Name(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return c.Database().Collection("readings")
}

func insertAll(t *testing.T, coll *mongo.Collection, group []bson.Raw) {
	t.Helper()
	_, err := coll.InsertMany(t.Context(), group)
	require.NoError(t, err)
}

func allOf(t *testing.T, coll *mongo.Collection) []bson.Raw {
	t.Helper()
	cursor, err := coll.Find(t.Context(), bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	require.NoError(t, err)
	var all []bson.Raw
	require.NoError(t, cursor.All(t.Context(), &all))
	return all
}

func TestTombstonesAreDroppedWhereNothingElseIs(t *testing.T) {
	t.Parallel()
	coll := testCollection(t)
	var parts []testPart
	for i := range int64(60) {
		for n := range int32(20) { // more than go in one command
			parts = append(parts, testPart{start: i * 60, grain: 60, number: n, full: true, times: []int64{i * 60_000}})
		}
	}
	group, readings := testGroup(t, parts...)
	both := []time.Duration{time.Minute, 5 * time.Minute}
	moved := reshape(t, newRegroup(t, RegroupConfig{Granularity: 5 * time.Minute, Found: both}), group)
	// A window of the present granularity keeps the tombstones of a move before.
	native, err := readPart(testDocument(t, testPart{start: 0, grain: 300, number: 1, full: true, times: []int64{1000}}, readings))
	require.NoError(t, err)
	moved = append(moved, tombstone(native),
		// An old daemon has written on in another.
		testDocument(t, testPart{start: 60, grain: 60, number: 20, times: []int64{61_000}}, readings+1))
	insertAll(t, coll, moved)

	var told []int64
	result, err := DropTombstones(t.Context(), DropConfig{Collection: coll, Granularity: 5 * time.Minute, Progress: func(p Progress) { told = append(told, p.Documents) }})
	require.NoError(t, err)
	assert.Equal(t, &DropResult{Dropped: 59 * 20, Windows: 1}, result)
	assert.Equal(t, []int64{49*20 + 0, 59 * 20}, told)
	left := summaries(t, allOf(t, coll))
	tombstones := slices.DeleteFunc(slices.Clone(left), func(s summary) bool { return !s.tombstone })
	assert.Len(t, tombstones, 20+1)
	for _, s := range tombstones[:len(tombstones)-1] {
		assert.Contains(t, []partID{idAt(60, 60, 0).window(), idAt(0, 300, 0).window()}, s.id.window())
	}
	assert.Len(t, left, 12+21+1)

	again, err := DropTombstones(t.Context(), DropConfig{Collection: coll, Granularity: 5 * time.Minute})
	require.NoError(t, err)
	assert.Equal(t, &DropResult{Windows: 1}, again)
}

func TestGranularitiesAreFound(t *testing.T) {
	t.Parallel()
	coll := testCollection(t)
	group, _ := testGroup(t,
		testPart{start: 0, grain: 3600, times: []int64{0}}, testPart{start: 0, grain: 60, times: []int64{0}}, testPart{start: 60, grain: 60, times: []int64{60_000}})
	found, err := Granularities(t.Context(), coll)
	require.NoError(t, err)
	assert.Empty(t, found)
	insertAll(t, coll, group)
	found, err = Granularities(t.Context(), coll)
	require.NoError(t, err)
	assert.Equal(t, []time.Duration{time.Minute, time.Hour}, found)
}

// TestOtherGranularitiesAreFoundByTheIndex asks the server what it reads.
func TestOtherGranularitiesAreFoundByTheIndex(t *testing.T) {
	t.Parallel()
	coll := testCollection(t)
	var parts []testPart
	for i := range int64(50) {
		parts = append(parts, testPart{start: i * 300, grain: 300, times: []int64{i * 300_000}})
	}
	group, readings := testGroup(t, parts...)
	insertAll(t, coll, group)
	var plan bson.Raw
	require.NoError(t, coll.Database().RunCommand(t.Context(), bson.D{
		{Key: "explain", Value: bson.D{
			{Key: "aggregate", Value: coll.Name()}, {Key: "pipeline", Value: otherPartsIn(5 * time.Minute)},
			{Key: "cursor", Value: bson.D{}}, {Key: "hint", Value: bson.D{{Key: "_id", Value: 1}}},
		}},
		{Key: "verbosity", Value: "executionStats"},
	}).Decode(&plan))
	text := plan.String()
	assert.Contains(t, text, `"totalDocsExamined": {"$numberInt":"0"}`)
	assert.Contains(t, text, `"totalKeysExamined": {"$numberInt":"50"}`)

	look := func() bool {
		left, err := others(t.Context(), coll, 5*time.Minute)
		require.NoError(t, err)
		return left
	}
	assert.False(t, look())
	var old []testPart
	for i := range int64(2 * dropAtOnce) {
		old = append(old, testPart{start: i * 60, grain: 60, times: []int64{i * 60_000}})
	}
	documents, _ := testGroup(t, old...)
	var tombstones []bson.Raw
	for _, raw := range documents {
		p, err := readPart(raw)
		require.NoError(t, err)
		tombstones = append(tombstones, tombstone(p))
	}
	insertAll(t, coll, tombstones)
	assert.False(t, look(), "tombstones hold no readings")
	insertAll(t, coll, []bson.Raw{testDocument(t, testPart{start: 60 * (2*dropAtOnce - 1), grain: 60, number: 1, times: []int64{60_000 * (2*dropAtOnce - 1)}}, readings)})
	assert.True(t, look(), "behind all tombstones")
	_, err := coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}})
	require.NoError(t, err)
	_, err = others(t.Context(), coll, 5*time.Minute)
	require.ErrorContains(t, err, "none of a bucket stream")
}
