package maintain

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

func TestStoppedMoveLiftsItsFence(t *testing.T) {
	t.Parallel()
	db := database(t)
	coll := stocked(t, db, 5, 5)
	ctx, stop := context.WithCancel(t.Context())
	cfg := recompressing(db)
	cfg.Database = comingTo(t, db, isFenced(), stop)
	_, err := Move(ctx, cfg)
	require.ErrorIs(t, err, context.Canceled)
	_, err = coll.InsertOne(t.Context(), movedPart("new", 0, 0))
	require.NoError(t, err)
	before := everything(t, coll)

	// The lease was released, so it does not have to expire.
	cfg = recompressing(db)
	cfg.Progress = func(p Progress) { assert.NotEqual(t, "wait", p.Phase) }
	_, err = Move(t.Context(), cfg)
	require.NoError(t, err)
	assert.Equal(t, before, everything(t, coll))
}

func TestDaemonsWaitNoLongerThanAllowed(t *testing.T) {
	t.Parallel()
	db := database(t)
	coll := stocked(t, db, 5, 5)
	cfg := recompressing(db)
	cfg.FenceLimit = time.Nanosecond
	_, err := Move(t.Context(), cfg)
	require.ErrorIs(t, err, errFenceLimit)
	_, err = coll.InsertOne(t.Context(), movedPart("new", 0, 0))
	require.NoError(t, err)
	_, err = Move(t.Context(), recompressing(db))
	require.NoError(t, err)
	assert.Len(t, everything(t, coll), 51)
}

func TestDeletionAtTheEndIsReported(t *testing.T) {
	t.Parallel()
	db := database(t)
	coll := stocked(t, db, 5, 5)
	before := everything(t, coll)
	cfg := recompressing(db)
	cfg.Database = comingTo(t, db, swapping(), func() {
		_, err := coll.DeleteOne(context.WithoutCancel(t.Context()), before[7])
		assert.NoError(t, err)
	})
	result, err := Move(t.Context(), cfg)
	require.NoError(t, err)
	assert.EqualValues(t, 1, result.Returned)
	assert.Equal(t, before, everything(t, coll), "nothing is lost")
}

func TestDeletionsBeforeAreFollowed(t *testing.T) {
	t.Parallel()
	for _, p := range []point{followed(), compared(), isFenced()} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			coll := stocked(t, db, 5, 5)
			cfg := recompressing(db)
			cfg.Database = comingTo(t, db, p, func() {
				_, err := coll.DeleteOne(context.WithoutCancel(t.Context()), movedPart("s-1", 1, 1))
				assert.NoError(t, err)
			})
			result, err := Move(t.Context(), cfg)
			require.NoError(t, err)
			assert.Zero(t, result.Returned)
			assert.Zero(t, result.Repaired)
			assert.Len(t, everything(t, coll), 49)
		})
	}
}

// A command that waits for its lock stops every writer until it has it.
func TestFenceDoesNotWaitForATransactionLongerThanAllowed(t *testing.T) {
	t.Parallel()
	db := database(t)
	coll := stocked(t, db, 5, 5)
	session, err := db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.WithoutCancel(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 55*time.Second) // the transaction would last for a minute
	defer cancel()
	cfg := recompressing(db)
	cfg.FenceLimit = time.Second
	var began, committed sync.Once
	cfg.Database = comingTo(t, db, compared(), func() {
		began.Do(func() {
			assert.NoError(t, session.StartTransaction())
			_, err := coll.InsertOne(mongo.NewSessionContext(ctx, session), movedPart("transaction", 0, 0))
			assert.NoError(t, err)
		})
	})
	cfg.Progress = func(p Progress) {
		if strings.HasPrefix(p.Note, "daemons were made to wait in vain") {
			committed.Do(func() { assert.NoError(t, session.CommitTransaction(ctx)) })
		}
	}
	_, err = Move(ctx, cfg)
	require.NoError(t, err)
	assert.Len(t, everything(t, coll), 51)
	_, err = coll.InsertOne(t.Context(), movedPart("new", 0, 0))
	require.NoError(t, err)
}
