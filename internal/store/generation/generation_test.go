package generation

import (
	"context"
	"fmt"
	"iter"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/internal/store/timeseries"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TestMain keeps movers' locks in its own folder.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "brim-generation-")
	if err == nil {
		err = os.Setenv("TMPDIR", dir)
	}
	if err != nil {
		panic(err)
	}
	mongodtest.Main(m, func() { _ = os.RemoveAll(dir) })
}

func snappy() Target { return Target{store.Bucket, store.Snappy} }
func zstd() Target   { return Target{store.Bucket, store.Zstd} }
func series() Target { return Target{store.TimeSeries, store.Snappy} }

// daemon returns the store of a daemon with a target.
func daemon(t *testing.T, db *mongo.Database, target Target, earlier map[string]Target) *Store {
	t.Helper()
	s, err := New(Config{
		Config: store.Config{
			Database: db, Stream: storetest.Stream, Granularity: store.MaxGranularity, Compressor: target.Compressor,
			MaxReadings: 100, MaxBytes: 100 << 10, Registerer: prometheus.NewRegistry(),
		},
		Storage: target.Storage, Earlier: earlier,
	})
	require.NoError(t, err)
	return s
}

func prepared(t *testing.T, db *mongo.Database, target Target, earlier map[string]Target) *Store {
	t.Helper()
	s := daemon(t, db, target, earlier)
	require.NoError(t, s.Prepare(t.Context()))
	return s
}

// put writes a reading of sensor s whose value is its sequence.
func put(t *testing.T, s *Store, session string, sequence uint64) {
	t.Helper()
	b := storetest.Batch(t, session, sequence, storetest.Reading("s", 0, float64(sequence)))
	storetest.WriteAll(t, s, storetest.Pending(b, store.MaxGranularity))
}

// again writes it like a process that may have sent it before.
func again(t *testing.T, s *Store, session string, sequence uint64) {
	t.Helper()
	pending := storetest.Pending(storetest.Batch(t, session, sequence, storetest.Reading("s", 0, float64(sequence))), store.MaxGranularity)
	for _, of := range pending {
		of.Recovered = true
	}
	storetest.WriteAll(t, s, pending)
}

// values returns the values of sensor s.
func values(t *testing.T, s *Store, unstored ...telemetry.Unstored) (out []float64) {
	t.Helper()
	at := storetest.Base.UnixMilli()
	for r, err := range s.Readings(t.Context(), telemetry.Query{Sensor: "s", From: at, To: at + 1, Unstored: unstored}) {
		require.NoError(t, err)
		out = append(out, r.Fields[0].Value.Float())
	}
	return out
}

func list(t *testing.T, db *mongo.Database) (out []string) {
	t.Helper()
	found, err := Read(t.Context(), db, storetest.Stream)
	require.NoError(t, err)
	require.NotNil(t, found)
	for _, g := range found.Generations {
		out = append(out, fmt.Sprintf("%s %s %s", g.Collection, g.Target, g.State))
	}
	return out
}

func TestTheStoreIsLikeOthers(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Store {
		t.Helper()
		db := mongodtest.Database(t)
		s := prepared(t, db, snappy(), nil)
		prepared(t, db, series(), nil)
		return s
	})
}

// TestDaemonsThatChangeAtOnce add one generation in all.
func TestDaemonsThatChangeAtOnce(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	prepared(t, db, snappy(), nil)
	var all sync.WaitGroup
	for i := range 4 {
		s := daemon(t, db, []Target{zstd(), series()}[i%2], nil)
		all.Go(func() { assert.NoError(t, s.Prepare(context.Background())) })
	}
	all.Wait()
	found := list(t, db)
	require.Len(t, found, 3)
	require.Equal(t, "readings bucket/snappy open", found[0])
	require.ElementsMatch(t, []string{"bucket/zstd open", "timeseries/snappy open"}, []string{found[1][len("readings.g2 "):], found[2][len("readings.g3 "):]})
	// Changing back needs no further generation.
	back := prepared(t, db, snappy(), nil)
	require.Equal(t, Generation{Collection: "readings", Target: snappy(), State: Open}, back.Current())
	require.Len(t, list(t, db), 3)
}

// TestADaemonReadsWhatAnotherHasBegun at once, even if it has just read the list.
func TestADaemonReadsWhatAnotherHasBegun(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	old := prepared(t, db, snappy(), nil)
	put(t, old, "s1", 1)
	begun := daemon(t, db, series(), nil)
	ended := make(chan error, 1)
	go func() { ended <- begun.Prepare(context.Background()) }()
	var err error
	for waits := true; waits; {
		select {
		case err = <-ended:
			waits = false
		default:
			require.Equal(t, []float64{1}, values(t, old))
		}
	}
	require.NoError(t, err)
	require.Equal(t, "readings.g2", begun.Current().Collection)
	listed, err := Read(t.Context(), db, storetest.Stream)
	require.NoError(t, err)
	require.Equal(t, "readings.g2", listed.Written(series()).Collection)
	require.Equal(t, "readings", listed.Written(snappy()).Collection)
	put(t, begun, "s2", 2)
	require.Equal(t, []float64{1, 2}, values(t, old))
	sum := telemetry.SummaryQuery{Query: telemetry.Query{Sensor: "s", To: 1 << 50}}
	for s, err := range old.Summary(t.Context(), sum) {
		require.NoError(t, err)
		require.EqualValues(t, 2, s.Count)
		require.InDelta(t, 3.0, s.Fields[0].Sum, 0)
	}
	latest, found, err := old.Latest(t.Context(), "s", nil)
	require.NoError(t, err)
	require.True(t, found)
	require.InDelta(t, 2.0, latest.Fields[0].Value.Float(), 0)
	n, err := old.Delete(t.Context(), "s")
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	require.Empty(t, values(t, begun))
}

// TestReadingsOfAnEarlierProcess are stored where that process may have stored them.
func TestReadingsOfAnEarlierProcess(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	put(t, prepared(t, db, snappy(), nil), "s1", 1)
	put(t, prepared(t, db, series(), nil), "s2", 2)
	now := prepared(t, db, zstd(), map[string]Target{"s1": snappy(), "s2": series()})
	again(t, now, "s1", 1)
	again(t, now, "s2", 2)
	put(t, now, "s3", 3)
	require.Equal(t, []float64{1, 2, 3}, values(t, now))
	// Waiting readings are recognized in their generation.
	waits := func(session string, sequence uint64, value float64) telemetry.Unstored {
		return telemetry.Unstored{Session: session, Sequence: sequence, Granularity: store.MaxGranularity, Target: now.TargetOf(session), Reading: storetest.Reading("s", 0, value)}
	}
	require.ElementsMatch(t, []float64{1, 2, 3, 4}, values(t, now, waits("s1", 1, 1), waits("s2", 2, 2), waits("s3", 3, 3), waits("s2", 4, 4)))
}

// TestAStreamOfAnEarlierRelease has a collection and no list.
func TestAStreamOfAnEarlierRelease(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	put(t, prepared(t, db, snappy(), nil), "s1", 1)
	require.NoError(t, db.Collection(Collection).Drop(t.Context()))
	// Its journals do not record compressors.
	now := prepared(t, db, series(), map[string]Target{"s1": {Storage: store.Bucket}})
	require.Equal(t, []string{"readings bucket/snappy open", "readings.g2 timeseries/snappy open"}, list(t, db))
	again(t, now, "s1", 1)
	require.Equal(t, []float64{1}, values(t, now))
	// A lost list is created again.
	require.NoError(t, db.Collection(Collection).Drop(t.Context()))
	prepared(t, db, snappy(), nil)
	require.Equal(t, []string{"readings bucket/snappy open", "readings.g2 timeseries/snappy open"}, list(t, db))
}

// TestARecompressedCollection remains the one for readings with its former compressor.
func TestARecompressedCollection(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	prepared(t, db, snappy(), nil)
	require.NoError(t, db.Collection(storetest.Stream).Drop(t.Context()))
	require.NoError(t, db.CreateCollection(t.Context(), storetest.Stream, options.CreateCollection().SetStorageEngine(store.Zstd.StorageEngine())))
	now := prepared(t, db, zstd(), map[string]Target{"s1": snappy()})
	again(t, now, "s1", 1)
	prepared(t, db, snappy(), nil) // uses it as it is
	require.Equal(t, []string{"readings bucket/zstd open"}, list(t, db))
	// A migrated one may have any readings for its former storage.
	require.NoError(t, db.Collection(storetest.Stream).Drop(t.Context()))
	require.NoError(t, db.CreateCollection(t.Context(), storetest.Stream, options.CreateCollection().SetTimeSeriesOptions(options.TimeSeries().SetTimeField("ts").SetMetaField("sensor"))))
	var mismatch *store.MismatchError
	require.ErrorAs(t, daemon(t, db, Target{store.TimeSeries, store.Zstd}, map[string]Target{"s1": zstd()}).Prepare(t.Context()), &mismatch)
}

// TestUnfinishedWorkOfAnEarlierReleaseIsRefused: its collection may be renamed or fenced, so
// nothing is created or written, even with unchanged settings.
func TestUnfinishedWorkOfAnEarlierReleaseIsRefused(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	work := db.Collection(store.MaintenanceName)
	_, err := work.InsertOne(t.Context(), bson.D{{Key: "_id", Value: storetest.Stream}, {Key: "kind", Value: "recompress"}, {Key: "phase", Value: "swap"}})
	require.NoError(t, err)
	refused := func() {
		var mismatch *store.MismatchError
		require.ErrorAs(t, daemon(t, db, snappy(), nil).Prepare(t.Context()), &mismatch)
		require.ErrorContains(t, mismatch, "an unfinished `brim recompress` in phase swap")
		require.ErrorContains(t, mismatch, "with the release that began it")
	}
	refused()
	names, err := db.ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Equal(t, []string{store.MaintenanceName}, names)

	phase := func(to string) {
		_, err := work.UpdateByID(t.Context(), storetest.Stream, bson.D{{Key: "$set", Value: bson.D{{Key: "phase", Value: to}}}})
		require.NoError(t, err)
	}
	phase("done")
	prepared(t, db, snappy(), nil)
	prepared(t, db, zstd(), nil)
	phase("swap")
	refused()
}

// TestNothingIsAdded while some daemons would not read it.
func TestNothingIsAdded(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	prepared(t, db, snappy(), nil)
	older := daemon(t, db, zstd(), nil)
	older.cfg.ReadGenerations = func() bool { return false }
	require.ErrorIs(t, older.Prepare(t.Context()), errOlderDaemons)
	require.Len(t, list(t, db), 1)
}

// A sealer looks for the parts of a step in one collection only.
func TestAStreamWithRollupsStaysInOneCollection(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	rolled := func(target Target) error {
		s := daemon(t, db, target, nil)
		s.cfg.Rollup, s.registry.rollups = store.MaxGranularity, true
		return s.Prepare(t.Context())
	}
	prepared(t, db, snappy(), nil)
	require.NoError(t, rolled(snappy()))
	var mismatch *store.MismatchError
	require.ErrorAs(t, rolled(zstd()), &mismatch)
	assert.Contains(t, mismatch.Error(), "a stream with rollups stays in one collection")
	prepared(t, db, zstd(), nil)
	require.ErrorAs(t, rolled(snappy()), &mismatch)
	assert.Contains(t, mismatch.Error(), "rollups, which need a single collection: start all daemons of the stream without rollup")
}

// A stream with rollups has a second collection, added by a daemon without them.
func TestOnlyTheFirstCollectionAnswersFromRollups(t *testing.T) {
	t.Parallel()
	s := daemon(t, mongodtest.Database(t), snappy(), nil)
	s.cfg.Rollup = store.MaxGranularity
	second, err := s.open(Generation{Collection: "s.g2", Target: zstd()}, false)
	require.NoError(t, err)
	assert.Zero(t, second.(*bucket.Store).Rollup)
	s.snapshot.Store(&snapshot{list: &List{}, backends: []backend{fake{gone: 3}, fake{gone: 4}}, at: time.Now()})
	var got []int64
	for step, err := range s.Summary(t.Context(), telemetry.SummaryQuery{Gone: true}) {
		require.NoError(t, err)
		got = append(got, step.Start)
	}
	assert.Equal(t, []int64{3}, got)
}

func TestADeletionThatFailsHalfway(t *testing.T) {
	t.Parallel()
	s := daemon(t, mongodtest.Database(t), snappy(), nil)
	denied := &telemetry.Error{Kind: telemetry.Forbidden, Code: "delete_not_granted", Message: "nothing was deleted"}
	s.snapshot.Store(&snapshot{list: &List{Generations: make([]Generation, 2)}, backends: []backend{fake{}, fake{err: denied}}, at: time.Now()})
	_, err := s.Delete(t.Context(), "s")
	var failed *telemetry.Error
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, "delete_not_granted", failed.Code)
	assert.Contains(t, failed.Message, "deleted from 1 of the stream's collections, not yet from the others; repeat the request once the daemon's MongoDB user has the action remove")
	s.snapshot.Store(&snapshot{list: &List{Generations: make([]Generation, 2)}, backends: []backend{fake{err: denied}, fake{}}, at: time.Now()})
	_, err = s.Delete(t.Context(), "s")
	require.ErrorIs(t, err, denied)
}

// slow is a generation with answers so slow that collections may be dropped meanwhile.
type slow struct {
	backend
	of *Store
}

func (s slow) wait() { s.of.snapshot.Load().at = time.Now().Add(-propagationDelay) }

func (s slow) Newest(context.Context, string) (int64, bool, error) {
	s.wait()
	return 0, false, nil
}

func (s slow) Latest(context.Context, string, []telemetry.Unstored) (r telemetry.Reading, found bool, err error) {
	s.wait()
	return r, false, nil
}

// TestASlowLookupOfTheNewestReading reports that it may have missed moved readings.
func TestASlowLookupOfTheNewestReading(t *testing.T) {
	t.Parallel()
	s := daemon(t, mongodtest.Database(t), snappy(), nil)
	_, err := s.cfg.Database.Collection(Collection).InsertOne(t.Context(), List{
		Stream: storetest.Stream, Version: 2, Generations: []Generation{{Collection: "readings.g2"}}, Moved: []Moved{{Collection: "readings", Dropped: true}},
	})
	require.NoError(t, err)
	for name, of := range map[string][]string{"one collection": {"readings"}, "two": {"readings", "readings.g2"}} {
		begin := func() {
			n := &snapshot{list: &List{}, at: time.Now()}
			for _, collection := range of {
				n.list.Generations = append(n.list.Generations, Generation{Collection: collection})
				n.backends = append(n.backends, slow{of: s})
			}
			s.snapshot.Store(n)
		}
		var says *telemetry.Error
		begin()
		_, _, err := s.Newest(t.Context(), "s")
		require.ErrorAs(t, err, &says, name)
		assert.Equal(t, "stream_moved", says.Code, name)
		begin()
		_, _, err = s.Latest(t.Context(), "s", nil)
		require.ErrorAs(t, err, &says, name)
		assert.Equal(t, "stream_moved", says.Code, name)
	}
}

// A granularity that columns or the daemon's own storage allow may be invalid for another
// generation.
func TestAGenerationHasAGranularityOfItsOwn(t *testing.T) {
	t.Parallel()
	s := daemon(t, mongodtest.Database(t), zstd(), nil)
	s.cfg.Granularity, s.settings.Format = 48*time.Minute, store.Columns
	for target, want := range map[Target]time.Duration{snappy(): 48 * time.Minute, series(): time.Hour} {
		of, err := s.open(Generation{Collection: "s.g2", Target: target}, false)
		require.NoError(t, err, target)
		switch of := of.(type) {
		case *bucket.Store:
			assert.Equal(t, want, of.Granularity)
		case *timeseries.Store:
			assert.Equal(t, want, of.Granularity)
		}
	}
}

// An earlier bucket collection keeps its view while time series are written.
func TestSettingsOfBucketsUnderTimeSeries(t *testing.T) {
	t.Parallel()
	s := daemon(t, mongodtest.Database(t), series(), nil)
	require.NoError(t, s.Change(store.Settings{View: true, Duplicates: store.DropIdentical}))
	of, err := s.open(Generation{Collection: "s", Target: snappy()}, true)
	require.NoError(t, err)
	live := of.(*bucket.Store).Live.Load()
	assert.True(t, live.View)
	assert.Equal(t, store.DropIdentical, live.Duplicates)
}

// fake is a generation that yields one step that is gone, and fails deletions with err.
type fake struct {
	backend
	gone int64
	err  error
}

func (f fake) Summary(context.Context, telemetry.SummaryQuery) iter.Seq2[telemetry.Summary, error] {
	return func(yield func(telemetry.Summary, error) bool) { yield(telemetry.Summary{Start: f.gone}, nil) }
}

func (f fake) Delete(context.Context, string) (int64, error) { return 1, f.err }
