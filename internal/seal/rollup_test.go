package seal

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// withRollups gives the scene's stream hourly rollups.
func (s *scene) withRollups() *scene {
	s.t.Helper()
	var err error
	s.store, err = bucket.New(bucket.Config{
		Database: s.db, Stream: storetest.Stream, Granularity: window, MaxReadings: 1000, MaxBytes: 256 << 10,
		Rollup: time.Hour, Retention: 24 * time.Hour, Registerer: prometheus.NewRegistry(),
	})
	require.NoError(s.t, err)
	require.NoError(s.t, s.store.Prepare(s.t.Context()))
	s.restart()
	return s
}

// restart resets the state as after a restart of the daemon.
func (s *scene) restart() {
	after := time.Duration(s.stream.after.Load())
	s.sealer = New(Config{Streams: map[string]Stream{storetest.Stream: {Store: s.store, After: after}}, Registerer: prometheus.NewRegistry()})
	s.stream = s.sealer.streams[storetest.Stream]
}

// counted returns how many of a sensor's readings answers still count when everything expirable
// has expired.
func (s *scene) counted(sensor string) (n int64) {
	s.t.Helper()
	_, err := s.db.Collection(storetest.Stream).DeleteMany(s.t.Context(), bson.D{{Key: "sealed.rolled", Value: true}})
	require.NoError(s.t, err)
	for one, err := range s.store.Summary(s.t.Context(), telemetry.SummaryQuery{Query: telemetry.Query{Sensor: sensor, To: time.Now().UnixMilli()}}) {
		require.NoError(s.t, err)
		n += one.Count
	}
	return n
}

func TestPassMakesRollups(t *testing.T) {
	t.Parallel()
	s := newScene(t, time.Hour).withRollups()
	s.write("a", 0)
	s.write("a", time.Minute)
	s.write("a", time.Hour)
	s.write("b", 2*time.Minute)
	s.write("b", 3*time.Hour) // its hour has not ended
	p := s.pass()
	assert.EqualValues(t, 3, p.Rollups)
	assert.Empty(t, p.Error)
	assert.Zero(t, s.pass().Rollups)
	assert.InDelta(t, 3, testutil.ToFloat64(s.stream.metrics.steps.WithLabelValues("written")), 0)
	assert.Less(t, s.stream.lag(&s.stream.rollupsUntil), 60.0)

	// A late reading is counted although no other step has ended.
	s.stream.sealed = s.stream.sealed.Add(24 * time.Hour)
	s.write("a", 30*time.Second)
	assert.EqualValues(t, 1, s.pass().Rollups)
	assert.EqualValues(t, 4, s.counted("a"))
	assert.EqualValues(t, 2, s.counted("b"))
}

// TestStartFindsWhatIsSealedAndNotCounted, as after a crash in between.
func TestStartFindsWhatIsSealedAndNotCounted(t *testing.T) {
	t.Parallel()
	s := newScene(t, time.Hour)
	s.write("a", 0)
	require.EqualValues(t, 1, s.pass().Parts)
	s.withRollups()
	p := s.pass()
	assert.Zero(t, p.Parts)
	assert.EqualValues(t, 1, p.Rollups)
	assert.EqualValues(t, 1, s.counted("a"))
}

// TestRollupsBeginAgain, as after a change of their length: readings counted by the dropped ones
// are counted again before they expire.
func TestRollupsBeginAgain(t *testing.T) {
	t.Parallel()
	s := newScene(t, time.Hour).withRollups()
	s.write("a", 0)
	require.EqualValues(t, 1, s.pass().Rollups)
	require.NoError(t, s.db.Collection(store.RollupName(storetest.Stream)).Drop(t.Context()))
	s.restart()
	assert.EqualValues(t, 1, s.pass().Rollups)
	assert.EqualValues(t, 1, s.counted("a"))
}

// TestStepIsMadeWhenItHasEnded, though its windows are sealed long before.
func TestStepIsMadeWhenItHasEnded(t *testing.T) {
	t.Parallel()
	s := newScene(t, time.Hour).withRollups()
	s.write("a", 0)
	s.write("a", 59*time.Minute)
	pass := func(ended time.Duration) int64 {
		s.stream.progress.Rollups = 0
		require.NoError(t, s.stream.pass(t.Context(), s.base.Add(ended), false))
		s.stream.sealed = s.base.Add(ended)
		return s.stream.progress.Rollups
	}
	s.stream.lastFullPass = time.Now()
	assert.Zero(t, pass(30*time.Minute))
	assert.Zero(t, pass(59*time.Minute))
	assert.EqualValues(t, 1, pass(time.Hour))
	s.write("a", 90*time.Minute)
	assert.Zero(t, pass(119*time.Minute))
	assert.EqualValues(t, 1, pass(121*time.Minute))
	assert.EqualValues(t, 3, s.counted("a"))
	assert.Zero(t, s.unsealed())
}

func TestDayThatAnotherDaemonChangedIsMadeLater(t *testing.T) {
	t.Parallel()
	s := newScene(t, time.Hour).withRollups()
	s.write("a", 0)
	s.pass()
	s.write("a", time.Second)
	late := map[string]int64{"a": 0}
	for doc, err := range s.store.Unsealed(t.Context(), "a", 0, time.Now().UnixMilli(), 0) {
		require.NoError(t, err)
		seal, err := s.stream.sealer.Seal(doc, time.Now())
		require.NoError(t, err)
		_, err = s.store.ApplySeals(t.Context(), []bucket.Seal{seal})
		require.NoError(t, err)
	}
	r := rollupBatch{stream: s.stream, ended: time.Now().Add(-time.Hour).UnixMilli()}
	require.NoError(t, r.add(t.Context(), "a", 0))
	_, err := s.db.Collection(store.RollupName(storetest.Stream)).UpdateMany(t.Context(), bson.D{}, bson.D{{Key: "$inc", Value: bson.D{{Key: fmt.Sprintf("steps.%d.r", int(s.base.UTC().Sub(s.base.UTC().Truncate(24*time.Hour)).Seconds())), Value: 1}}}})
	require.NoError(t, err)
	require.NoError(t, r.send(t.Context()))
	assert.InDelta(t, 1, testutil.ToFloat64(s.stream.metrics.steps.WithLabelValues("changed")), 0)
	require.NoError(t, s.stream.makeRollups(t.Context(), time.Now().Add(-time.Hour), firstWindows{1, late}))
	assert.EqualValues(t, 2, s.counted("a"))
}

// TestLateReadingsOfTooManySensorsAreCounted: only the start of their first window is known.
func TestLateReadingsOfTooManySensorsAreCounted(t *testing.T) {
	t.Parallel()
	s := newScene(t, time.Hour).withRollups()
	s.write("a", 0)
	s.pass()
	s.stream.progress.Rollups = 0
	s.write("a", time.Second)
	b := batch{stream: s.stream, ended: time.Now().UnixMilli()}
	require.NoError(t, b.add(t.Context(), "a", 0))
	require.NoError(t, b.send(t.Context()))
	require.NoError(t, s.stream.makeRollups(t.Context(), s.stream.sealed, firstWindows{start: s.base.UnixMilli()}))
	assert.EqualValues(t, 1, s.stream.progress.Rollups)
	assert.EqualValues(t, 2, s.counted("a"))
}

// BenchmarkRoll computes an hourly step for each of 500 sensors, from 12 sealed parts with 60
// readings.
//
//	go test -run '^$' -bench Roll -benchtime 3x ./internal/seal
func BenchmarkRoll(b *testing.B) {
	const sensors, parts, readings = 500, 12, 60
	for b.Loop() {
		b.StopTimer()
		db := mongodtest.Database(b)
		s, err := bucket.New(bucket.Config{
			Database: db, Stream: storetest.Stream, Granularity: 5 * time.Minute, Format: store.Columns, MaxReadings: 1000, MaxBytes: 256 << 10,
			Rollup: time.Hour, Registerer: prometheus.NewRegistry(),
		})
		require.NoError(b, err)
		require.NoError(b, s.Prepare(b.Context()))
		next := uint64(1)
		for i := range sensors {
			all := make([]telemetry.Reading, 0, parts*readings)
			for k := range parts * readings {
				all = append(all, storetest.Reading(fmt.Sprintf("s-%d", i), time.Duration(k)*5*time.Second, float64(k%97)/10))
			}
			storetest.WriteAll(b, s, storetest.Pending(storetest.Batch(b, "s1", next, all...), s.Granularity))
			next += uint64(len(all))
		}
		sealer := New(Config{Streams: map[string]Stream{storetest.Stream: {Store: s, After: time.Hour}}, Registerer: prometheus.NewRegistry()})
		one := sealer.streams[storetest.Stream]
		one.budget = 1
		every := s.Rollup
		s.Rollup = 0
		one.passIfDue(b.Context())
		s.Rollup = every
		one.metrics = newMetrics(promauto.With(nil)).of(storetest.Stream, true)
		b.StartTimer()
		require.NoError(b, one.makeRollups(b.Context(), time.Now(), firstWindows{}))
		require.EqualValues(b, sensors, one.progress.Rollups)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*sensors), "µs/step")
}

// TestRollupThatIsTooLargeHoldsUpNoOther, and its readings do not expire.
func TestRollupThatIsTooLargeHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	s := newScene(t, time.Hour).withRollups()
	day := store.WindowStart(s.base.UnixMilli(), 24*time.Hour)
	other := (s.base.UnixMilli() - day + 5*time.Hour.Milliseconds()) % (24 * time.Hour).Milliseconds()
	at := bson.DateTime(day + other)
	long := bson.D{{Key: fmt.Sprint(other / 1000), Value: bson.D{
		{Key: "n", Value: int32(1)}, {Key: "first", Value: at}, {Key: "last", Value: at}, {Key: "at", Value: at}, {Key: "r", Value: int32(1)}, {Key: "src", Value: bson.D{}},
		{Key: "fields", Value: bson.D{{Key: strings.Repeat("x", 16_500_000), Value: bson.D{
			{Key: "n", Value: int32(1)}, {Key: "min", Value: 1.0}, {Key: "max", Value: 1.0}, {Key: "sum", Value: 1.0}, {Key: "first", Value: 1.0}, {Key: "last", Value: 1.0},
		}}}},
	}}}
	for sensor, more := range map[string]bson.D{
		"its steps are known to be too long": {{Key: "steps", Value: long}},
		"MongoDB refuses it":                 {{Key: "steps", Value: bson.D{}}, {Key: "padding", Value: strings.Repeat("x", 16<<20-200)}},
	} {
		doc := append(bson.D{{Key: "_id", Value: bson.D{{Key: "s", Value: sensor}, {Key: "d", Value: bson.DateTime(day)}}}, {Key: "every", Value: int32(3600)}}, more...)
		_, err := s.db.Collection(store.RollupName(storetest.Stream)).InsertOne(t.Context(), doc)
		require.NoError(t, err)
		s.write(sensor, 0)
	}
	s.write("a", 0)
	s.write("z", 0)
	p := s.pass()
	assert.Empty(t, p.Error)
	assert.EqualValues(t, 2, p.Rollups)
	assert.Equal(t, []string{"a", "z"}, s.rolled())
}

// TestDamagedBucketHoldsUpNoOtherRollup, and does not expire.
func TestDamagedBucketHoldsUpNoOtherRollup(t *testing.T) {
	t.Parallel()
	s := newScene(t, time.Hour)
	for _, sensor := range []string{"a", "b", "c"} {
		s.write(sensor, 0)
	}
	require.EqualValues(t, 3, s.pass().Parts)
	_, err := s.db.Collection(storetest.Stream).UpdateOne(t.Context(), bson.D{{Key: "sensorId", Value: "b"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "blocks.0", Value: bson.Binary{Data: []byte("damaged")}}}}})
	require.NoError(t, err)
	p := s.withRollups().pass()
	assert.Empty(t, p.Error)
	assert.EqualValues(t, 1, p.Failed)
	assert.Equal(t, []string{"a", "c"}, s.rolled())
}

// rolled returns the sensors with expirable parts.
func (s *scene) rolled() (sensors []string) {
	s.t.Helper()
	found := s.db.Collection(storetest.Stream).Distinct(s.t.Context(), "sensorId", bson.D{{Key: "sealed.rolled", Value: true}})
	require.NoError(s.t, found.Decode(&sensors))
	return sensors
}
