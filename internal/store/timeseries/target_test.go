package timeseries

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
)

// TestNothingIsInsertedIntoAnotherCollection: neither into one that an insert
// would create, nor into a regular collection with that name.
func TestNothingIsInsertedIntoAnotherCollection(t *testing.T) {
	t.Parallel()
	mongodtest.Before(t, 7, "an insert into a time series takes no UUID of a collection")
	db := connect(t)
	lost := make(chan struct{}, 1)
	s := open(t, db, Config{Retention: 24 * time.Hour * 365 * 50, OnLost: func() { lost <- struct{}{} }})
	c := store.Collection{Database: db, Name: storetest.Stream}
	writes := func(seq uint64) []*batch.Pending {
		return storetest.Pending(storetest.Batch(t, "s1", seq, storetest.Reading("a", 0, float64(seq))), 5*time.Minute)
	}
	storetest.WriteAll(t, s, writes(1))

	require.NoError(t, db.Collection(storetest.Stream).Drop(t.Context()))
	pending := writes(2)
	s.Write(t.Context(), pending)
	require.Equal(t, batch.Wait, pending[0].Verdict, "the insert made no collection")
	<-lost
	info, err := c.Lookup(t.Context())
	require.NoError(t, err)
	assert.Nil(t, info)

	require.NoError(t, db.CreateCollection(t.Context(), storetest.Stream))
	s.Write(t.Context(), pending)
	assert.Equal(t, batch.Unsent, pending[0].Verdict)
	require.ErrorIs(t, pending[0].Err, store.ErrNotPrepared)
	var mismatch *store.MismatchError
	require.ErrorAs(t, s.Prepare(t.Context()), &mismatch)
	n, err := db.Collection(storetest.Stream).CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	assert.Zero(t, n)

	require.NoError(t, db.Collection(storetest.Stream).Drop(t.Context()))
	require.NoError(t, s.Prepare(t.Context()))
	storetest.WriteAll(t, s, pending)
	info, err = c.Lookup(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "timeseries", info.Type)
	assert.Equal(t, int64(24*3600*365*50), number(info.Options, "expireAfterSeconds"))
	n, err = db.Collection(storetest.Stream).CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	assert.EqualValues(t, 1, n, "what was stored before the drop stays gone")
	assert.InDelta(t, 1, testutil.ToFloat64(s.Metrics.Recreated), 0)
}

// TestReplacedCollectionIsCounted as replaced, or as recreated.
func TestReplacedCollectionIsCounted(t *testing.T) {
	t.Parallel()
	db := connect(t)
	s := open(t, db, Config{})
	require.NoError(t, db.Collection(storetest.Stream).Drop(t.Context()))
	open(t, db, Config{})
	require.NoError(t, s.Prepare(t.Context()))
	assert.InDelta(t, 1, testutil.ToFloat64(s.Metrics.Replaced), 0)
}
