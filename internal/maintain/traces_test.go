package maintain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// traces of the tests' stream.
func traces(t *testing.T, cfg Config) *Traces {
	t.Helper()
	found, err := LookForTraces(t.Context(), cfg.Database, cfg.Stream)
	require.NoError(t, err)
	return found
}

func TestTracesOfAMove(t *testing.T) {
	t.Parallel()
	db := database(t)
	cfg := recompressing(db)
	assert.Equal(t, &Traces{Stream: testStream}, traces(t, cfg))

	stocked(t, db, 5, 5)
	cfg.Progress = func(Progress) {
		if now := traces(t, cfg); now.Phase != "" {
			assert.True(t, now.Alive)
		}
	}
	_, err := Move(t.Context(), cfg)
	require.NoError(t, err)
	after := traces(t, cfg)
	assert.True(t, after.Done)
	assert.False(t, after.Alive)
	assert.False(t, after.Fenced, "the new collection takes writes")
	assert.Nil(t, after.Copy)
	require.NotNil(t, after.Old)
	assert.Equal(t, "readings.brim_old", after.Old.Collection)
	assert.Positive(t, after.Old.Bytes)
	assert.Equal(t, "brim recompress --stream readings --drop-old", after.DropOld)
}

func TestTracesOfAnAbandonedMove(t *testing.T) {
	t.Parallel()
	db := database(t)
	cfg := recompressing(db)
	stocked(t, db, 1, 1)
	require.NoError(t, db.CreateCollection(t.Context(), newName(testStream)))
	require.NoError(t, raiseFence(t.Context(), db, testStream, "recompress"))
	none := traces(t, cfg)
	assert.True(t, none.Fenced)
	assert.Empty(t, none.Again, "nothing is noted")

	s := state{Stream: testStream, Kind: "recompress", To: "zstd", Phase: phaseFence, Owner: owner{ID: "x", Host: "elsewhere", PID: 1}, Lease: time.Now().Add(-time.Minute)}
	_, err := db.Collection(stateCollection).InsertOne(t.Context(), s)
	require.NoError(t, err)
	dead := traces(t, cfg)
	assert.True(t, dead.Fenced)
	assert.False(t, dead.Alive)
	assert.Equal(t, phaseFence, dead.Phase)
	require.NotNil(t, dead.Copy)
	assert.Equal(t, "brim recompress --to zstd --stream readings", dead.Again)
	assert.Equal(t, "brim recompress --stream readings --abort", dead.Abort)

	_, err = db.Collection(stateCollection).UpdateByID(t.Context(), testStream, bson.D{{Key: "$set", Value: bson.D{{Key: "lease", Value: time.Now().Add(time.Minute)}}}})
	require.NoError(t, err)
	assert.True(t, traces(t, cfg).Alive)
}
