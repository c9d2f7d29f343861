package maintain

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// exchangeLate carries out what a process had ordered before it was killed.
func exchangeLate(t *testing.T, db *mongo.Database, ordered *state) {
	t.Helper()
	require.NoError(t, applyRenames(context.WithoutCancel(t.Context()), db,
		renaming{testStream, oldName(testStream), &ordered.Source}, renaming{newName(testStream), testStream, &ordered.Target}))
}

func stateOf(t *testing.T, db *mongo.Database) *state {
	t.Helper()
	s, err := readState(t.Context(), db, testStream)
	require.NoError(t, err)
	return s
}

func TestOrderedExchangeIsCarriedOutBehindTheSameFence(t *testing.T) {
	t.Parallel()
	for _, swap := range []Swap{SwapAtomic, SwapReplace} {
		t.Run(string(swap), func(t *testing.T) {
			t.Parallel()
			db := database(t)
			coll := stocked(t, db, 3, 5)
			before := everything(t, coll)
			cfg := recompressing(db)
			cfg.Swap = swap
			killed(t, cfg, swapping())
			ordered := stateOf(t, db)
			require.Equal(t, phaseSwap, ordered.Phase)
			var refused error
			cfg.Database = comingTo(t, db, swapping(), func() {
				_, refused = coll.InsertOne(context.WithoutCancel(t.Context()), movedPart("s-1", 77, 0))
			})
			_, err := Move(t.Context(), cfg)
			require.NoError(t, err)
			require.Error(t, refused, "daemons have waited since the collections were the same")
			assert.Equal(t, before, everything(t, coll))

			_, err = coll.InsertOne(t.Context(), movedPart("s-1", 77, 0))
			require.NoError(t, err)
			if swap == SwapAtomic {
				exchangeLate(t, db, ordered)
			}
			assert.Len(t, everything(t, coll), 31)
		})
	}
}

func TestDeletionBetweenTwoExchangesIsReported(t *testing.T) {
	t.Parallel()
	db := database(t)
	coll := stocked(t, db, 3, 5)
	killed(t, recompressing(db), swapping())
	_, err := coll.DeleteOne(t.Context(), movedPart("s-1", 1, 1))
	require.NoError(t, err)
	result, err := Move(t.Context(), recompressing(db))
	require.NoError(t, err)
	assert.EqualValues(t, 1, result.Returned)
	assert.Zero(t, result.Missed)
	assert.Len(t, everything(t, coll), 30)
}

func TestLateExchangeIsReportedAndFinished(t *testing.T) {
	t.Parallel()
	// opened does what a user does to abandon the move.
	opened := func(t *testing.T, db *mongo.Database) {
		t.Helper()
		require.NoError(t, liftFence(t.Context(), db, testStream, validation{}))
	}
	write := func(t *testing.T, db *mongo.Database) {
		t.Helper()
		_, err := db.Collection(testStream).InsertOne(context.WithoutCancel(t.Context()), movedPart("s-1", 77, 0))
		require.NoError(t, err)
	}
	for name, come := range map[string]func(*testing.T, *mongo.Database, *state, *Config){
		"before the next process": func(t *testing.T, db *mongo.Database, ordered *state, _ *Config) {
			t.Helper()
			_, err := db.Collection(stateCollection).UpdateOne(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "phase", Value: phaseVerify}}}})
			require.NoError(t, err)
			write(t, db)
			exchangeLate(t, db, ordered)
			require.NoError(t, raiseFence(t.Context(), db, testStream, "recompress")) // by a process that went on meanwhile
		},
		"while it compares": func(t *testing.T, db *mongo.Database, ordered *state, cfg *Config) {
			t.Helper()
			once := false
			cfg.Database = comingTo(t, db, compared(), func() {
				if !once {
					once = true
					write(t, db)
					exchangeLate(t, db, ordered)
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			coll := stocked(t, db, 3, 5)
			killed(t, recompressing(db), swapping())
			ordered := stateOf(t, db)
			opened(t, db)
			cfg := recompressing(db)
			come(t, db, ordered, &cfg)
			result, err := Move(t.Context(), cfg)
			require.NoError(t, err)
			assert.EqualValues(t, 1, result.Missed)
			assert.Equal(t, phaseDone, stateOf(t, db).Phase)
			assert.Len(t, everything(t, db.Collection(oldName(testStream))), 31)
			_, err = coll.InsertOne(t.Context(), movedPart("s-1", 78, 0))
			require.NoError(t, err, "no writer waits indefinitely")
		})
	}
}
