package maintain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/internal/store/timeseries"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// testHolder is daemons that can be held, and what they were asked.
type testHolder struct {
	asked    []string
	name     string
	err      error
	onHold   func()
	released int
}

func (h *testHolder) Hold(_ context.Context, lease time.Duration) (string, error) {
	h.asked = append(h.asked, lease.String())
	if h.onHold != nil {
		h.onHold()
	}
	return h.name, h.err
}

func (h *testHolder) Release(context.Context) error { h.released++; return nil }

// storageChange is one to another storage, of a stream with small parts.
func storageChange(db *mongo.Database, to store.Storage) SeriesConfig {
	return SeriesConfig{
		Database: db, Stream: storetest.Stream, To: to, Holder: &testHolder{name: "one"},
		Parts: Parts{Granularity: 5 * time.Minute, MaxReadings: 7, MaxBytes: 1 << 16}, Compressor: store.Zstd,
		Lease: time.Minute, // a mongod under load may not answer for a while
	}
}

func bucketStore(t *testing.T, db *mongo.Database) *bucket.Store {
	t.Helper()
	s, err := bucket.New(bucket.Config{
		Database: db, Stream: storetest.Stream, Granularity: 5 * time.Minute, MaxReadings: 7, MaxBytes: 1 << 16, Compressor: store.Zstd,
		Registerer: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	require.NoError(t, s.Prepare(t.Context()))
	return s
}

func seriesStore(t *testing.T, db *mongo.Database) *timeseries.Store {
	t.Helper()
	s, err := timeseries.New(timeseries.Config{
		Database: db, Stream: storetest.Stream, Granularity: 5 * time.Minute, Compressor: store.Zstd, Registerer: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	require.NoError(t, s.Prepare(t.Context()))
	return s
}

// variedReadings have all kinds of values, tags that change, and times that
// occur more than once. Their fields are sorted by name.
func variedReadings(sensor string, from, n int) []telemetry.Reading {
	out := make([]telemetry.Reading, n)
	for i := range n {
		at := from + i
		out[i] = telemetry.Reading{
			Sensor: sensor, Time: storetest.Base.Add(time.Duration(at/2) * 40 * time.Second),
			Fields: []telemetry.Field{
				{Name: "float", Value: telemetry.FloatValue(float64(at) / 8)}, {Name: "int", Value: telemetry.IntValue(int64(at) << 40)},
				{Name: "on", Value: telemetry.BoolValue(at%2 == 0)}, {Name: "text", Value: telemetry.TextValue(strings.Repeat("☂", at%5))},
			},
		}
		if sensor != "bare" {
			out[i].Tags = []telemetry.Tag{{Name: "a", Value: "x"}, {Name: "b", Value: fmt.Sprint(at / 40)}}
		}
	}
	return out
}

// fillBuckets gives a database a bucket stream, and returns what is in it.
func fillBuckets(t *testing.T, db *mongo.Database, n int) map[string][]telemetry.Reading {
	t.Helper()
	s := bucketStore(t, db)
	for i, sensor := range []string{"bare", "tagged", "µ"} {
		storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", uint64(1+i*n), variedReadings(sensor, 0, n)...), 5*time.Minute))
	}
	return contentOf(t, s)
}

// contentOf reads all sensors. Fields, and readings of one time, have no order
// that both storages keep.
func contentOf(t *testing.T, s storetest.Store) map[string][]telemetry.Reading {
	t.Helper()
	out := make(map[string][]telemetry.Reading)
	for _, sensor := range []string{"bare", "tagged", "µ"} {
		readings := storetest.ReadAll(t, s, sensor)
		for _, r := range readings {
			slices.SortFunc(r.Fields, func(a, b telemetry.Field) int { return strings.Compare(a.Name, b.Name) })
		}
		slices.SortStableFunc(readings, func(a, b telemetry.Reading) int {
			if c := a.Time.Compare(b.Time); c != 0 {
				return c
			}
			return strings.Compare(fmt.Sprint(a.Fields, a.Tags), fmt.Sprint(b.Fields, b.Tags))
		})
		out[sensor] = readings
	}
	return out
}

func TestBucketsBecomeSeriesAndBucketsAgain(t *testing.T) {
	t.Parallel()
	db := database(t)
	want := fillBuckets(t, db, 120)
	var told []string
	cfg := storageChange(db, store.TimeSeries)
	holder := cfg.Holder.(*testHolder)
	cfg.Tell = func(text string) { told = append(told, text) }
	r, err := ChangeStorage(t.Context(), cfg)
	require.NoError(t, err)
	assert.True(t, r.Switched)
	assert.EqualValues(t, 360, r.Readings)
	assert.Zero(t, r.Repaired)
	assert.Equal(t, oldName(storetest.Stream), r.Kept)
	assert.Equal(t, []string{"1m0s", "0s", "1m0s", "0s"}, holder.asked, "held for a while, then until the restart; and once more right before the switch")
	require.Len(t, told, 1)
	assert.Contains(t, told[0], "--storage timeseries")
	assert.Equal(t, want, contentOf(t, seriesStore(t, db)), "a daemon finds the collection as it wants it, and all readings")

	cfg.DropOld = true
	r, err = ChangeStorage(t.Context(), cfg)
	require.NoError(t, err)
	assert.True(t, r.Dropped)
	left, err := db.ListCollectionNames(t.Context(), bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: bson.A{oldName(storetest.Stream), newName(storetest.Stream)}}}}})
	require.NoError(t, err)
	assert.Empty(t, left)

	cfg = storageChange(db, store.Bucket)
	holder = cfg.Holder.(*testHolder)
	r, err = ChangeStorage(t.Context(), cfg)
	require.NoError(t, err)
	assert.False(t, r.Switched, "the name is free only when the old one is dropped")
	assert.Empty(t, holder.asked, "no daemon is held for a copy")
	other := cfg
	other.Parts.Granularity = time.Hour
	_, err = ChangeStorage(t.Context(), other)
	require.ErrorContains(t, err, "the copy that was begun has buckets of 5m, not of 1h: repeat the command with --granularity 5m")
	// What comes in between is caught up.
	s := seriesStore(t, db)
	storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s2", 1, variedReadings("tagged", 50, 100)...), 5*time.Minute))
	want = contentOf(t, s)
	cfg.DropOld = true
	r, err = ChangeStorage(t.Context(), cfg)
	require.NoError(t, err)
	assert.True(t, r.Switched)
	assert.EqualValues(t, 460, r.Readings)
	assert.Equal(t, []string{"1m0s", "0s", "0s"}, holder.asked)
	b := bucketStore(t, db)
	assert.Equal(t, want, contentOf(t, b))
	// The next readings go behind those that were copied.
	storetest.WriteAll(t, b, storetest.Pending(storetest.Batch(t, "s3", 1, variedReadings("bare", 100, 30)...), 5*time.Minute))
	assert.Len(t, contentOf(t, b)["bare"], 150)
	state, err := readState(t.Context(), db, storetest.Stream)
	require.NoError(t, err)
	assert.Nil(t, state)
}

// TestStorageChangesThoughItIsInterrupted ends every run at its next sign of
// progress, and begins it anew.
func TestStorageChangesThoughItIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, to := range []store.Storage{store.TimeSeries, store.Bucket} {
		t.Run(string(to), func(t *testing.T) {
			t.Parallel()
			db := database(t)
			var want map[string][]telemetry.Reading
			if to == store.TimeSeries {
				want = fillBuckets(t, db, 60)
			} else {
				s := seriesStore(t, db)
				for i, sensor := range []string{"bare", "tagged", "µ"} {
					storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", uint64(1+i*60), variedReadings(sensor, 0, 60)...), 5*time.Minute))
				}
				want = contentOf(t, s)
			}
			runs := 0
			for n := 1; ; n++ {
				runs++
				require.Less(t, n, 200)
				ctx, cancel := context.WithCancel(t.Context())
				cfg := storageChange(db, to)
				cfg.DropOld, cfg.chunk = to == store.Bucket, 2000
				seen := 0
				cfg.Progress = func(Progress) {
					if seen++; seen == n {
						cancel()
					}
				}
				_, err := ChangeStorage(ctx, cfg)
				cancel()
				if err == nil {
					break
				}
				require.ErrorIs(t, err, context.Canceled)
			}
			assert.Greater(t, runs, 4)
			if to == store.TimeSeries {
				assert.Equal(t, want, contentOf(t, seriesStore(t, db)))
			} else {
				assert.Equal(t, want, contentOf(t, bucketStore(t, db)))
			}
		})
	}
}

// TestDoubtfulReadingsAreLookedUp goes on behind a run that had sent a piece and
// could not note it.
func TestDoubtfulReadingsAreLookedUp(t *testing.T) {
	t.Parallel()
	db := database(t)
	want := fillBuckets(t, db, 50)
	_, err := ChangeStorage(t.Context(), storageChange(db, store.TimeSeries))
	require.NoError(t, err)
	forgetProgress := func(with bson.D) {
		_, err := db.Collection(stateCollection).UpdateByID(t.Context(), storetest.Stream, bson.D{
			{Key: "$set", Value: append(with, bson.E{Key: "phase", Value: phaseCopy})},
			{Key: "$unset", Value: bson.D{{Key: "series.done", Value: ""}, {Key: "series.verified", Value: ""}}},
		})
		require.NoError(t, err)
	}
	forgetProgress(nil)
	_, err = ChangeStorage(t.Context(), storageChange(db, store.TimeSeries))
	require.NoError(t, err)
	assert.Equal(t, want, contentOf(t, seriesStore(t, db)), "nothing is there twice")

	// Had it been sent again without a look, the comparison would tell.
	forgetProgress(nil)
	_, err = db.Collection(stateCollection).UpdateByID(t.Context(), storetest.Stream, bson.D{{Key: "$unset", Value: bson.D{{Key: "series.until", Value: ""}}}})
	require.NoError(t, err)
	_, err = ChangeStorage(t.Context(), storageChange(db, store.TimeSeries))
	var wrong *SeriesError
	require.ErrorAs(t, err, &wrong)
	assert.EqualValues(t, 150, wrong.Twice)
	assert.Zero(t, wrong.Differ)
}

func TestMissingReadingsAreFoundByTheComparison(t *testing.T) {
	t.Parallel()
	db := database(t)
	want := fillBuckets(t, db, 30)
	cfg := storageChange(db, store.TimeSeries)
	cfg.Progress = func(p Progress) {
		if p.Phase == phaseVerify && p.Done == 0 { // as lost on the way
			_, err := db.Collection(storetest.Stream).DeleteMany(t.Context(), bson.D{{Key: sensorKey + ".id", Value: "µ"}})
			if err != nil {
				require.NoError(t, db.Collection(storetest.Stream).Drop(t.Context()))
				seriesStore(t, db)
			}
		}
	}
	r, err := ChangeStorage(t.Context(), cfg)
	require.NoError(t, err)
	assert.Positive(t, r.Repaired)
	assert.Equal(t, want, contentOf(t, seriesStore(t, db)))
}

func TestWrongReadingsInACopyAreFound(t *testing.T) {
	t.Parallel()
	db := database(t)
	s := seriesStore(t, db)
	storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", 1, variedReadings("bare", 0, 60)...), 5*time.Minute))
	want := contentOf(t, s)
	cfg := storageChange(db, store.Bucket)
	cfg.DropOld = true
	tampered := false
	cfg.Progress = func(p Progress) {
		if p.Phase == phaseVerify && !tampered {
			tampered = true
			_, err := db.Collection(newName(storetest.Stream)).UpdateOne(t.Context(), bson.D{{Key: "_id.p", Value: 0}}, bson.D{{Key: "$set", Value: bson.D{{Key: "measurements.0.float", Value: 99.5}}}})
			assert.NoError(t, err)
		}
	}
	r, err := ChangeStorage(t.Context(), cfg)
	require.NoError(t, err)
	assert.EqualValues(t, 1, r.Repaired)
	assert.Equal(t, want, contentOf(t, bucketStore(t, db)))
}

func TestHoldThatEndedChangesNothing(t *testing.T) {
	t.Parallel()
	for _, to := range []store.Storage{store.TimeSeries, store.Bucket} {
		t.Run(string(to), func(t *testing.T) {
			t.Parallel()
			db := database(t)
			if to == store.TimeSeries {
				fillBuckets(t, db, 20)
			} else {
				storetest.WriteAll(t, seriesStore(t, db), storetest.Pending(storetest.Batch(t, "s1", 1, variedReadings("bare", 0, 20)...), 5*time.Minute))
			}
			cfg := storageChange(db, to)
			cfg.DropOld = true
			holder := &testHolder{}
			holder.onHold = func() { holder.name += "x" } // restarted between
			cfg.Holder = holder
			_, err := ChangeStorage(t.Context(), cfg)
			require.ErrorIs(t, err, errHoldEnded)
			assert.Equal(t, holdAttempts, holder.released)
			present, err := lookUp(t.Context(), db, storetest.Stream)
			require.NoError(t, err)
			assert.False(t, fenced(present), "daemons can write")
			assert.Equal(t, to == store.Bucket, present.Type == "timeseries", "nothing was switched")

			holder.onHold = func() {}
			holder.err = errors.New("no answer")
			_, err = ChangeStorage(t.Context(), cfg)
			require.ErrorContains(t, err, "no answer")
			holder.err = nil
			r, err := ChangeStorage(t.Context(), cfg)
			require.NoError(t, err)
			assert.True(t, r.Switched)
		})
	}
}

func TestStorageChangeIsAborted(t *testing.T) {
	t.Parallel()
	t.Run("before the switch", func(t *testing.T) {
		t.Parallel()
		db := database(t)
		want := fillBuckets(t, db, 20)
		cfg := storageChange(db, store.TimeSeries)
		ctx, cancel := context.WithCancel(t.Context())
		cfg.Progress = func(p Progress) {
			if p.Phase == phaseSwap {
				cancel()
			}
		}
		_, err := ChangeStorage(ctx, cfg)
		require.Error(t, err)
		require.NoError(t, AbortStorage(t.Context(), cfg))
		present, err := lookUp(t.Context(), db, storetest.Stream)
		require.NoError(t, err)
		assert.False(t, fenced(present))
		assert.Equal(t, want, contentOf(t, bucketStore(t, db)))
		assert.Positive(t, cfg.Holder.(*testHolder).released)
		require.ErrorIs(t, AbortStorage(t.Context(), cfg), errNoWork)
	})
	t.Run("behind the switch", func(t *testing.T) {
		t.Parallel()
		db := database(t)
		fillBuckets(t, db, 20)
		cfg := storageChange(db, store.TimeSeries)
		_, err := ChangeStorage(t.Context(), cfg)
		require.NoError(t, err)
		assert.ErrorContains(t, AbortStorage(t.Context(), cfg), "nothing can be undone")
	})
	t.Run("of a copy", func(t *testing.T) {
		t.Parallel()
		db := database(t)
		storetest.WriteAll(t, seriesStore(t, db), storetest.Pending(storetest.Batch(t, "s1", 1, variedReadings("bare", 0, 20)...), 5*time.Minute))
		cfg := storageChange(db, store.Bucket)
		_, err := ChangeStorage(t.Context(), cfg)
		require.NoError(t, err)
		require.NoError(t, AbortStorage(t.Context(), cfg))
		present, err := lookUp(t.Context(), db, newName(storetest.Stream))
		require.NoError(t, err)
		assert.Nil(t, present)
	})
}
