package maintain

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	commands "go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/internal/store/timeseries"
)

// watched is the same database, and tells of each command before it is sent.
func watched(t *testing.T, db *mongo.Database, before func(e *commands.CommandStartedEvent)) *mongo.Database {
	t.Helper()
	return monitored(t, db, &commands.CommandMonitor{Started: func(_ context.Context, e *commands.CommandStartedEvent) { before(e) }})
}

// A pausedProcess is a process that stops, as by SIGSTOP, right before it sends the
// first command that fits, or is one whose command is late.
type pausedProcess struct {
	db      *mongo.Database
	reached chan struct{}
	goOn    chan struct{}
}

// standBefore stops at a command on a collection, or any; whole stops all that
// the process sends from then on.
func standBefore(t *testing.T, db *mongo.Database, whole bool, command, collection string) *pausedProcess {
	t.Helper()
	s := &pausedProcess{reached: make(chan struct{}), goOn: make(chan struct{})}
	var once sync.Once
	var stopped atomic.Bool
	s.db = watched(t, db, func(e *commands.CommandStartedEvent) {
		if e.CommandName == command && (collection == "" || collection == on(e)) {
			once.Do(func() { stopped.Store(true); close(s.reached); <-s.goOn })
		}
		if whole && stopped.Load() {
			<-s.goOn
		}
	})
	return s
}

// abandon makes the work anybody's, as if the lease had run out.
func abandon(t *testing.T, db *mongo.Database) {
	t.Helper()
	_, err := db.Collection(stateCollection).UpdateOne(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "lease", Value: time.Time{}}}}})
	require.NoError(t, err)
}

// fillSeries gives a database a time-series stream.
func fillSeries(t *testing.T, db *mongo.Database, n int) {
	t.Helper()
	s := seriesStore(t, db)
	for i, sensor := range []string{"bare", "tagged", "µ"} {
		storetest.WriteAll(t, s, storetest.Pending(storetest.Batch(t, "s1", uint64(1+i*n), variedReadings(sensor, 0, n)...), 5*time.Minute))
	}
}

// killedAt runs a change of storage that ends without a word at a point.
func killedAt(t *testing.T, cfg SeriesConfig, at point) {
	t.Helper()
	db, died := cfg.Database, false
	cfg.Database = comingTo(t, db, at, func() { died = true; runtime.Goexit() })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var run sync.WaitGroup
	var err error
	run.Go(func() { _, err = ChangeStorage(ctx, cfg) })
	run.Wait()
	require.NoError(t, err)
	require.True(t, died)
	abandon(t, db)
}

// seriesInTheGap creates a time series while the name is free, as a daemon of an
// earlier version or a person may.
func seriesInTheGap(t *testing.T, db *mongo.Database) {
	t.Helper()
	s, err := timeseries.New(timeseries.Config{
		Database: db, Stream: storetest.Stream, Granularity: 5 * time.Minute, Compressor: store.Zstd, Exchanging: true, Registerer: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	require.NoError(t, s.Prepare(t.Context()))
}

func documents(t *testing.T, db *mongo.Database, name string) int64 {
	t.Helper()
	n, err := db.Collection(name).CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	return n
}

// TestSeriesMadeInTheGapIsNotTheSource stands for a daemon that is restarted as it
// was after the command was killed behind its drop: it makes an empty time series.
func TestSeriesMadeInTheGapIsNotTheSource(t *testing.T) {
	t.Parallel()
	db := database(t)
	fillSeries(t, db, 60)
	want := contentOf(t, seriesStore(t, db))
	cfg := storageChange(db, store.Bucket)
	cfg.DropOld = true
	cfg.apart = true
	killedAt(t, cfg, dropped())
	n := documents(t, db, newName(cfg.Stream))
	require.Positive(t, n)
	seriesInTheGap(t, db)
	for _, drop := range []bool{true, false} {
		cfg.DropOld = drop
		_, err := ChangeStorage(t.Context(), cfg)
		require.ErrorContains(t, err, "is not the one that was copied")
		require.Equal(t, n, documents(t, db, newName(cfg.Stream)), "the only copy")
	}
	require.ErrorContains(t, AbortStorage(t.Context(), cfg), "is left alone")
	require.Equal(t, n, documents(t, db, newName(cfg.Stream)))

	require.NoError(t, db.Collection(cfg.Stream).Drop(t.Context())) // as the message says
	r, err := ChangeStorage(t.Context(), cfg)
	require.NoError(t, err)
	assert.True(t, r.Switched)
	assert.Equal(t, want, contentOf(t, bucketStore(t, db)))
}

// TestSeriesThatIsReplacedDuringTheCopy is one that was dropped, and a
// daemon made again.
func TestSeriesThatIsReplacedDuringTheCopy(t *testing.T) {
	t.Parallel()
	db := database(t)
	fillSeries(t, db, 60)
	cfg := storageChange(db, store.Bucket)
	_, err := ChangeStorage(t.Context(), cfg)
	require.NoError(t, err)
	n := documents(t, db, newName(cfg.Stream))
	require.NoError(t, db.Collection(cfg.Stream).Drop(t.Context()))
	cfg.DropOld = true
	_, err = ChangeStorage(t.Context(), cfg)
	require.ErrorContains(t, err, "is gone, which this command has not dropped")
	require.Error(t, AbortStorage(t.Context(), cfg))
	seriesInTheGap(t, db)
	_, err = ChangeStorage(t.Context(), cfg)
	require.ErrorContains(t, err, "is not the one that was copied")
	assert.Equal(t, n, documents(t, db, newName(cfg.Stream)))
}

// TestCopyWithReadingsTwiceIsMadeAnew has a part in the copy twice, as from a query that
// met a bucket of the time series twice.
func TestCopyWithReadingsTwiceIsMadeAnew(t *testing.T) {
	t.Parallel()
	db := database(t)
	fillSeries(t, db, 60)
	cfg := storageChange(db, store.Bucket)
	_, err := ChangeStorage(t.Context(), cfg)
	require.NoError(t, err)
	copied := db.Collection(newName(cfg.Stream))
	n := documents(t, db, copied.Name())
	var one bson.M
	require.NoError(t, copied.FindOne(t.Context(), bson.D{}).Decode(&one))
	id := one["_id"].(bson.D)
	id[len(id)-1].Value = int32(99) // its number in the bucket
	_, err = copied.InsertOne(t.Context(), one)
	require.NoError(t, err)
	cfg.DropOld = true
	_, err = ChangeStorage(t.Context(), cfg)
	require.NoError(t, err)
	assert.Equal(t, n, documents(t, db, cfg.Stream))
}

// TestCopyShrinksByAgeAlone lets a source lose readings of which the copy knows.
func TestCopyShrinksByAgeAlone(t *testing.T) {
	t.Parallel()
	db := database(t)
	fillSeries(t, db, 60)
	cfg := storageChange(db, store.Bucket)
	cfg.DropOld = true
	killedAt(t, cfg, swapping())
	n := documents(t, db, newName(cfg.Stream))
	_, err := db.Collection(cfg.Stream).DeleteMany(t.Context(), bson.D{{Key: sensorKey + ".id", Value: "µ"}})
	require.NoError(t, err)
	_, err = ChangeStorage(t.Context(), cfg)
	require.ErrorIs(t, err, errShrunk)
	assert.Equal(t, n, documents(t, db, newName(cfg.Stream)))

	// The same readings are old enough, once they expire.
	require.NoError(t, db.RunCommand(t.Context(), bson.D{{Key: "collMod", Value: cfg.Stream}, {Key: "expireAfterSeconds", Value: int64(time.Since(storetest.Base)/time.Second) - 3600}}).Err())
	r, err := ChangeStorage(t.Context(), cfg)
	require.NoError(t, err)
	assert.EqualValues(t, 120, r.Readings)
}

// TestExchangeIsOneStep sends neither a drop nor a renaming where it may do both
// in one.
func TestExchangeIsOneStep(t *testing.T) {
	t.Parallel()
	db := database(t)
	fillSeries(t, db, 60)
	want := contentOf(t, seriesStore(t, db))
	var steps atomic.Int64
	cfg := storageChange(watched(t, db, func(e *commands.CommandStartedEvent) {
		if e.CommandName == "drop" || e.CommandName == "renameCollection" {
			steps.Add(1)
		}
	}), store.Bucket)
	cfg.DropOld = true
	r, err := ChangeStorage(t.Context(), cfg)
	require.NoError(t, err)
	assert.True(t, r.Switched)
	assert.Zero(t, steps.Load())
	assert.Equal(t, want, contentOf(t, bucketStore(t, db)))
	assert.Zero(t, documents(t, db, "system.views"))
}

// TestHalfDroppedSeriesIsDropped stands for a server that died within the drop.
func TestHalfDroppedSeriesIsDropped(t *testing.T) {
	t.Parallel()
	db := database(t)
	fillSeries(t, db, 60)
	want := contentOf(t, seriesStore(t, db))
	cfg := storageChange(db, store.Bucket)
	cfg.DropOld = true
	killedAt(t, cfg, swapping())
	require.NoError(t, db.Client().Database("admin").RunCommand(t.Context(), bson.D{{Key: "applyOps", Value: bson.A{bson.D{
		{Key: "op", Value: "d"}, {Key: "ns", Value: db.Name() + ".system.views"}, {Key: "o", Value: bson.D{{Key: "_id", Value: db.Name() + "." + cfg.Stream}}},
	}}}}).Err())
	_, err := ChangeStorage(t.Context(), cfg)
	require.NoError(t, err)
	assert.Equal(t, want, contentOf(t, bucketStore(t, db)))
}

// TestStoppedChangeLetsDaemonsGo is stopped by its operator while they are held
// until their restart.
func TestStoppedChangeLetsDaemonsGo(t *testing.T) {
	t.Parallel()
	for _, to := range []store.Storage{store.TimeSeries, store.Bucket} {
		t.Run(string(to), func(t *testing.T) {
			t.Parallel()
			db := database(t)
			if to == store.TimeSeries {
				fillBuckets(t, db, 20)
			} else {
				fillSeries(t, db, 20)
			}
			cfg := storageChange(db, to)
			cfg.DropOld = to == store.Bucket
			ctx, cancel := context.WithCancel(t.Context())
			cfg.Progress = func(p Progress) {
				if p.Phase == phaseSwap {
					cancel()
				}
			}
			_, err := ChangeStorage(ctx, cfg)
			require.ErrorIs(t, err, context.Canceled)
			assert.Equal(t, 1, cfg.Holder.(*testHolder).released)
			present, err := lookUp(t.Context(), db, cfg.Stream)
			require.NoError(t, err)
			assert.False(t, fenced(present))
			state, err := readState(t.Context(), db, cfg.Stream)
			require.NoError(t, err)
			assert.NotEqual(t, phaseSwap, state.Phase)
			cfg.Progress = nil
			_, err = ChangeStorage(t.Context(), cfg)
			require.NoError(t, err)
		})
	}
}

// TestLostHoldIsTheSuccessors lets a process lose its work while it holds.
func TestLostHoldIsTheSuccessors(t *testing.T) {
	t.Parallel()
	db := database(t)
	fillBuckets(t, db, 20)
	cfg := storageChange(db, store.TimeSeries)
	holder := cfg.Holder.(*testHolder)
	holder.onHold = func() {
		if len(holder.asked) == 2 { // until the restart
			_, err := db.Collection(stateCollection).UpdateByID(t.Context(), cfg.Stream, bson.D{{Key: "$set", Value: bson.D{{Key: "owner.id", Value: "another"}}}})
			assert.NoError(t, err)
		}
	}
	_, err := ChangeStorage(t.Context(), cfg)
	require.ErrorIs(t, err, errLost)
	assert.Zero(t, holder.released)
	present, err := lookUp(t.Context(), db, cfg.Stream)
	require.NoError(t, err)
	assert.True(t, fenced(present), "the fence is another's now")
}

// TestLateDropDropsNoBuckets holds a drop back until another process has done
// all of the work.
func TestLateDropDropsNoBuckets(t *testing.T) {
	t.Parallel()
	db := database(t)
	fillSeries(t, db, 60)
	late := standBefore(t, db, false, "applyOps", "")
	first := storageChange(late.db, store.Bucket)
	first.DropOld, first.Lease = true, 10*time.Minute
	var run sync.WaitGroup
	run.Go(func() { _, _ = ChangeStorage(t.Context(), first) })
	<-late.reached
	abandon(t, db)
	second := storageChange(db, store.Bucket)
	second.DropOld = true
	_, err := ChangeStorage(t.Context(), second)
	require.NoError(t, err)
	n := documents(t, db, second.Stream)
	close(late.goOn)
	run.Wait()
	assert.Equal(t, n, documents(t, db, second.Stream))
}

// TestStalledProcessSendsNothing stops a whole process until another one
// has done its work.
func TestStalledProcessSendsNothing(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		to      store.Storage
		command string
		on      string
	}{
		"readings":    {store.TimeSeries, "insert", storetest.Stream},
		"documents":   {store.Bucket, "insert", newName(storetest.Stream)},
		"a drop":      {store.Bucket, "drop", storetest.Stream},
		"an exchange": {store.Bucket, "applyOps", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t)
			fillSeries(t, db, 60)
			want := contentOf(t, seriesStore(t, db))
			if tt.to == store.TimeSeries {
				require.NoError(t, db.Collection(storetest.Stream).Drop(t.Context()))
				want = fillBuckets(t, db, 60)
			}
			still := standBefore(t, db, true, tt.command, tt.on)
			first := storageChange(still.db, tt.to)
			first.DropOld, first.Lease, first.apart = tt.to == store.Bucket, shortLease, tt.command == "drop"
			holder := first.Holder.(*testHolder)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var run sync.WaitGroup
			run.Go(func() { _, _ = ChangeStorage(ctx, first) })
			<-still.reached
			second := storageChange(db, tt.to)
			second.DropOld, second.Lease = first.DropOld, time.Minute
			_, err := ChangeStorage(t.Context(), second)
			if busy := (*BusyError)(nil); errors.As(err, &busy) { // by a sign of life that was on its way when the process stopped: its last
				_, err = ChangeStorage(t.Context(), second)
			}
			require.NoError(t, err)
			close(still.goOn)
			run.Wait()
			assert.Zero(t, holder.released, "the daemons are the successor's to release")
			if tt.to == store.TimeSeries {
				assert.Equal(t, want, contentOf(t, seriesStore(t, db)))
			} else {
				assert.Equal(t, want, contentOf(t, bucketStore(t, db)))
			}
		})
	}
}

// TestDaemonRestartedWhileReadingsAreCounted takes readings between the two
// counts, with a daemon whose hold has ended.
func TestDaemonRestartedWhileReadingsAreCounted(t *testing.T) {
	t.Parallel()
	db := database(t)
	fillSeries(t, db, 60)
	holder := &testHolder{name: "one"}
	var last, restarted atomic.Bool
	slow := watched(t, db, func(e *commands.CommandStartedEvent) {
		name, _ := e.Command.Lookup("aggregate").StringValueOK()
		// The source is counted last: what comes before the copy's count would be found.
		if e.CommandName == "aggregate" && name == storetest.Stream && last.Load() && restarted.CompareAndSwap(false, true) {
			holder.name = "restarted"
		}
	})
	cfg := storageChange(slow, store.Bucket)
	cfg.DropOld, cfg.Holder = true, holder
	holder.onHold = func() {
		if asked := holder.asked; asked[len(asked)-1] != "0s" {
			return
		}
		if last.Swap(true) && len(holder.asked) == 3 { // behind the counts
			storetest.WriteAll(t, seriesStore(t, db), storetest.Pending(storetest.Batch(t, "s2", 1, variedReadings("bare", 100, 20)...), 5*time.Minute))
		}
	}
	r, err := ChangeStorage(t.Context(), cfg)
	require.NoError(t, err)
	assert.Positive(t, holder.released, "the first hold was of no use")
	assert.EqualValues(t, 200, r.Readings)
	n := 0
	for _, all := range contentOf(t, bucketStore(t, db)) {
		n += len(all)
	}
	assert.Equal(t, 200, n)
}
