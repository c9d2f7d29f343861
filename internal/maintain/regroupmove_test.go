package maintain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func migration(coll *mongo.Collection, to time.Duration, name string) Migration {
	return Migration{
		Config:  Config{Database: coll.Database(), Stream: coll.Name(), Kind: "migrate", To: name},
		Regroup: RegroupConfig{Granularity: to, MaxReadings: 1000, MaxBytes: 256 << 10},
	}
}

// live are the documents of a group that are no tombstones.
func live(t *testing.T, coll *mongo.Collection) (parts, tombstones []summary) {
	t.Helper()
	for _, s := range summaries(t, allOf(t, coll)) {
		if s.tombstone {
			tombstones = append(tombstones, s)
		} else {
			parts = append(parts, s)
		}
	}
	return parts, tombstones
}

// TestMigrationThereSweptAndFinished goes the whole way of an operator: migrate,
// an old daemon writes on, migrate again, drop the old.
func TestMigrationThereSweptAndFinished(t *testing.T) {
	t.Parallel()
	coll := testCollection(t)
	group, readings := testGroup(t,
		testPart{start: 0, grain: 60, times: []int64{1000, 2000}}, testPart{start: 60, grain: 60, times: []int64{61_000}}, testPart{start: 300, grain: 60, times: []int64{301_000}})
	insertAll(t, coll, group)
	_, err := coll.Indexes().CreateOne(t.Context(), mongo.IndexModel{
		Keys: bson.D{{Key: "bucketStart", Value: 1}}, Options: options.Index().SetName("brim_retention").SetExpireAfterSeconds(1_000_000_060),
	})
	require.NoError(t, err)

	m := migration(coll, 5*time.Minute, "5m")
	result, err := m.Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "readings.brim_old", result.Kept)
	parts, tombstones := live(t, coll)
	assert.Len(t, parts, 2)
	assert.Len(t, tombstones, 3)
	all, err := indexes(t.Context(), coll.Database(), coll.Name())
	require.NoError(t, err)
	require.Len(t, all, 1)
	after, _ := seconds(valueOf(all[0], expiry))
	assert.Equal(t, int64(1_000_000_300), after, "a longer window is removed later")

	again, err := m.Run(t.Context())
	require.NoError(t, err)
	assert.True(t, again.AlreadyDone)

	insertAll(t, coll, []bson.Raw{testDocument(t, testPart{start: 0, grain: 60, number: 1, times: []int64{3000}}, readings)})
	swept, err := m.Run(t.Context())
	require.NoError(t, err)
	assert.False(t, swept.AlreadyDone)
	parts, tombstones = live(t, coll)
	assert.Len(t, parts, 3)
	assert.Len(t, tombstones, 4)

	other := migration(coll, time.Hour, "1h")
	_, _, err = other.Finish(t.Context())
	require.ErrorContains(t, err, "was migrated to 5m")
	require.ErrorContains(t, other.Abort(t.Context()), "is being migrated to 5m")
	_, err = Move(t.Context(), Config{Database: coll.Database(), Stream: coll.Name(), Kind: "recompress", To: "zstd"})
	require.ErrorContains(t, err, "is still kept")
	dropped, gone, err := m.Finish(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "readings.brim_old", dropped.Collection)
	assert.Equal(t, &DropResult{Dropped: 4}, gone)
	parts, tombstones = live(t, coll)
	assert.Len(t, parts, 3)
	assert.Empty(t, tombstones)
	_, err = m.Run(t.Context())
	require.ErrorIs(t, err, ErrNothingToMove)
}

// TestMigrationFollowsAnother does not require dropping the first one's old collection: that
// would also drop what old daemons still need.
func TestMigrationFollowsAnother(t *testing.T) {
	t.Parallel()
	coll := testCollection(t)
	group, _ := testGroup(t, testPart{start: 0, grain: 60, times: []int64{1000, 2000}}, testPart{start: 60, grain: 60, times: []int64{61_000}})
	insertAll(t, coll, group)
	for _, m := range []Migration{migration(coll, 5*time.Minute, "5m"), migration(coll, time.Minute, "1m"), migration(coll, time.Hour, "1h")} {
		_, err := m.Run(t.Context())
		require.NoError(t, err)
	}
	parts, tombstones := live(t, coll)
	assert.Equal(t, []summary{{idAt(0, 3600, 0), 3, false, false, `{"migrated": {"$numberLong":"3"}}`}}, parts)
	assert.Len(t, tombstones, 2+1+2)
	before, _, err := migration(coll, time.Hour, "1h").Finish(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "readings.brim_old", before.Collection)
}

// TestMigrationFindsAnUnknownGranularity has one long bucket among many
// short ones, which no look at a few of them finds, but by chance.
func TestMigrationFindsAnUnknownGranularity(t *testing.T) {
	t.Parallel()
	coll := testCollection(t)
	var parts []testPart
	for i := range int64(3000) {
		parts = append(parts, testPart{start: i * 60, grain: 60, times: []int64{i * 60_000}})
	}
	parts = append(parts, testPart{start: 120 * 3600, grain: 3600, times: []int64{120*3_600_000 + 1000, 120*3_600_000 + 3_599_000}})
	group, readings := testGroup(t, parts...)
	insertAll(t, coll, group)
	m := migration(coll, 5*time.Minute, "5m")
	_, err := m.Run(t.Context())
	require.NoError(t, err)
	left, tombstones := live(t, coll)
	assert.Len(t, tombstones, len(parts))
	count := int32(0)
	for _, s := range left {
		assert.Equal(t, int32(300), s.id.grain)
		count += s.count
	}
	assert.Equal(t, int32(readings), count)
}

func TestNothingToMove(t *testing.T) {
	t.Parallel()
	coll := testCollection(t)
	group, _ := testGroup(t, testPart{start: 0, grain: 300, times: []int64{1000}})
	insertAll(t, coll, group)
	_, err := migration(coll, 5*time.Minute, "5m").Run(t.Context())
	require.ErrorIs(t, err, ErrNothingToMove)
}

// TestTombstonesGoUnderTheClaim tries to begin other work while they are
// removed, and to remove them while there is some.
func TestTombstonesGoUnderTheClaim(t *testing.T) {
	t.Parallel()
	coll := testCollection(t)
	group, _ := testGroup(t, testPart{start: 0, grain: 60, times: []int64{1000}})
	part, err := readPart(group[0])
	require.NoError(t, err)
	insertAll(t, coll, []bson.Raw{tombstone(part)})
	m := migration(coll, 5*time.Minute, "5m")
	m.Lease = shortLease // a busy mongod may not answer at once
	claimed := claimConfig{Database: coll.Database(), Stream: coll.Name(), Kind: m.Kind, To: m.To, Lease: m.Lease}

	another, err := claim(t.Context(), claimed)
	require.NoError(t, err)
	var busy *BusyError
	_, _, err = m.Finish(t.Context())
	require.ErrorAs(t, err, &busy)
	_, tombstones := live(t, coll)
	assert.Len(t, tombstones, 1)
	another.end() // what a killed Finish leaves: a claim, and nothing begun

	other := claimed
	other.Kind, other.To = "recompress", "zstd"
	tried := 0
	m.Progress = func(Progress) {
		tried++
		_, err := claim(t.Context(), other)
		assert.ErrorAs(t, err, &busy)
	}
	for range 2 { // with that claim, and without one
		dropped, gone, err := m.Finish(t.Context())
		require.NoError(t, err)
		assert.Equal(t, &Dropped{Stream: coll.Name()}, dropped)
		assert.Equal(t, int64(1), gone.Dropped)
		state, err := readState(t.Context(), coll.Database(), coll.Name())
		require.NoError(t, err)
		assert.Nil(t, state)
		insertAll(t, coll, []bson.Raw{tombstone(part)})
	}
	assert.Equal(t, 2, tried)
}
