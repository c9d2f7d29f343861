package maintain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
)

func TestStorageChangeRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		to    store.Storage
		make  []bson.D
		wants string
	}{
		"no collection":           {store.TimeSeries, nil, "there is no collection"},
		"what it is already":      {store.Bucket, []bson.D{{{Key: "create", Value: storetest.Stream}}}, "holds bucket documents already"},
		"a kept collection":       {store.TimeSeries, []bson.D{{{Key: "create", Value: storetest.Stream}}, {{Key: "create", Value: oldName(storetest.Stream)}}}, "its name is needed"},
		"a storage there is none": {store.Memory, nil, "cannot be migrated to"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			for _, command := range tt.make {
				require.NoError(t, db.RunCommand(t.Context(), command).Err())
			}
			_, err := ChangeStorage(t.Context(), storageChange(db, tt.to))
			require.ErrorContains(t, err, tt.wants)
			state, err := readState(t.Context(), db, storetest.Stream)
			require.NoError(t, err)
			assert.Nil(t, state, "the stream is free for other work")
		})
	}
}

// TestCollectionInTheGapIsNotLost stands for a daemon that was not named, and
// made a collection by an upsert while the name was free.
func TestCollectionInTheGapIsNotLost(t *testing.T) {
	t.Parallel()
	db := database(t)
	fillBuckets(t, db, 20)
	cfg := storageChange(db, store.TimeSeries)
	cfg.Progress = func(p Progress) {
		if p.Phase == phaseSwap {
			assert.NoError(t, db.Client().Database("admin").RunCommand(t.Context(), bson.D{
				{Key: "renameCollection", Value: db.Name() + "." + storetest.Stream}, {Key: "to", Value: db.Name() + "." + oldName(storetest.Stream)},
			}).Err())
			_, err := db.Collection(storetest.Stream).InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}})
			assert.NoError(t, err)
		}
	}
	_, err := ChangeStorage(t.Context(), cfg)
	require.ErrorContains(t, err, "stop that daemon")
	require.NoError(t, db.Collection(storetest.Stream).Drop(t.Context()))
	cfg.Progress = nil
	r, err := ChangeStorage(t.Context(), cfg)
	require.NoError(t, err)
	assert.EqualValues(t, 60, r.Readings)
}

// TestBucketDaemonWaitsAtATimeSeries stands for a daemon that was not restarted:
// what it cannot store any more stays in its journal, and is no dead letter.
func TestBucketDaemonWaitsAtATimeSeries(t *testing.T) {
	t.Parallel()
	db := database(t)
	daemon := bucketStore(t, db)
	require.NoError(t, db.Collection(storetest.Stream).Drop(t.Context()))
	seriesStore(t, db)
	for _, recovered := range []bool{false, true} {
		shares := storetest.Pending(storetest.Batch(t, "s1", 1, variedReadings("bare", 0, 12)...), 5*time.Minute)
		for _, share := range shares {
			share.Recovered = recovered
		}
		for range 3 {
			daemon.Write(t.Context(), shares)
			for _, share := range shares {
				assert.Contains(t, []batch.Verdict{batch.Wait, batch.Unsent}, share.Verdict, share.Err)
				assert.NotEmpty(t, share.Rows)
			}
		}
	}
}
