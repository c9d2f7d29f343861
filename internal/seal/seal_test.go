package seal

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/internal/store/storetest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestMain(m *testing.M) { mongodtest.Main(m) }

const window = time.Minute

// scene is a stream with a sealer.
type scene struct {
	t      *testing.T
	db     *mongo.Database
	store  *bucket.Store
	sealer *Sealer
	stream *stream
	base   time.Time // the start of a window that ended long ago
	next   uint64    // sequence
	old    atomic.Bool
}

func newScene(t *testing.T, after time.Duration) *scene {
	t.Helper()
	s := &scene{t: t, db: mongodtest.Database(t), base: time.Now().Truncate(time.Hour).Add(-3 * time.Hour), next: 1}
	var err error
	s.store, err = bucket.New(bucket.Config{
		Database: s.db, Stream: storetest.Stream, Granularity: window, MaxReadings: 1000, MaxBytes: 256 << 10,
		CanReadColumns: func() bool { return !s.old.Load() }, Registerer: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	require.NoError(t, s.store.Prepare(t.Context()))
	s.sealer = New(Config{Streams: map[string]Stream{storetest.Stream: {Store: s.store, After: after}}, Registerer: prometheus.NewRegistry()})
	s.stream = s.sealer.streams[storetest.Stream]
	return s
}

// write stores a reading of a sensor at a time after base.
func (s *scene) write(sensor string, after time.Duration) {
	s.t.Helper()
	r := storetest.Reading(sensor, 0, 1)
	r.Time = s.base.Add(after)
	storetest.WriteAll(s.t, s.store, storetest.Pending(storetest.Batch(s.t, "s1", s.next, r), window))
	s.next++
}

// unsealed counts the parts that are not sealed.
func (s *scene) unsealed() int64 {
	s.t.Helper()
	n, err := s.db.Collection(storetest.Stream).CountDocuments(s.t.Context(), bson.D{{Key: "$expr", Value: bson.D{{Key: "$ne", Value: bson.A{"$count", "$sealed.n"}}}}})
	require.NoError(s.t, err)
	return n
}

// readings counts a sensor's readings.
func (s *scene) readings(sensor string) (n int) {
	s.t.Helper()
	for _, err := range s.store.Readings(s.t.Context(), telemetry.Query{Sensor: sensor, To: time.Now().UnixMilli()}) {
		require.NoError(s.t, err)
		n++
	}
	return n
}

// pass makes a pass if one is due, and returns its progress.
func (s *scene) pass() Progress {
	s.t.Helper()
	s.stream.passIfDue(s.t.Context())
	p, ok := s.sealer.Progress(storetest.Stream)
	require.True(s.t, ok)
	return p
}

func TestWindowsThatEndedAreSealedOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t, time.Hour)
	s.write("a", 0)
	s.write("a", time.Minute)
	s.write("b", 0)
	s.write("b", 3*time.Hour+2*time.Minute) // its hour has just ended, or not yet
	p := s.pass()
	assert.Equal(t, []int64{1, 2, 3, 3, 0, 0}, []int64{p.Pass, p.Sensors, p.Parts, p.Readings, p.Changed, p.Failed})
	assert.Empty(t, p.Error)
	assert.False(t, p.Running)
	assert.EqualValues(t, 1, s.unsealed())
	assert.Zero(t, s.pass().Parts)
	assert.InDelta(t, 3, testutil.ToFloat64(s.stream.metrics.parts.WithLabelValues("sealed")), 0)

	// A late reading is found although passes only check recent windows.
	s.stream.sealed = time.Now().Add(3 * store.MaxGranularity)
	s.write("a", time.Minute)
	assert.EqualValues(t, 1, s.pass().Parts)
	s.stream.sealed = time.Now().Add(3 * store.MaxGranularity)
	assert.Zero(t, s.pass().Parts)
	assert.Equal(t, 3, s.readings("a"))
}

// TestLongWindowsAreSealedWhenTheyEnd: a pass looks back as far as the stream's longest windows.
func TestLongWindowsAreSealedWhenTheyEnd(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	s := newScene(t, time.Hour)
	var err error
	s.stream.opts.Store, err = bucket.New(bucket.Config{
		Database: s.db, Stream: storetest.Stream, Granularity: day, Format: store.Columns, MaxReadings: 1000, MaxBytes: 256 << 10, Registerer: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	require.NoError(t, s.stream.opts.Store.Prepare(t.Context()))
	s.stream.sealer = s.stream.opts.Store.NewSealer()
	s.stream.lastFullPass = time.Now()
	yesterday := time.Now().UTC().Truncate(day).Add(-day)
	s.stream.sealed = yesterday.Add(day - time.Minute)
	r := storetest.Reading("a", 0, 1)
	r.Time = yesterday.Add(time.Hour)
	storetest.WriteAll(t, s.store, storetest.Pending(storetest.Batch(t, "s1", 1, r), day))
	require.NoError(t, s.stream.pass(t.Context(), yesterday.Add(day), false))
	assert.Zero(t, s.unsealed())
}

func TestRequestSealsWhatIsNotDue(t *testing.T) {
	t.Parallel()
	s := newScene(t, 0)
	s.write("a", 0)
	assert.Zero(t, s.pass().Pass, "nothing is sealed unless it is requested")
	s.stream.cfg.Flush = func(context.Context) error {
		s.write("waiting", 0)
		return nil
	}
	n, ok := s.sealer.Seal(storetest.Stream)
	require.True(t, ok)
	assert.EqualValues(t, 1, n)
	p := s.pass()
	assert.EqualValues(t, 1, p.Pass)
	assert.EqualValues(t, 2, p.Parts)
	assert.Zero(t, p.LagSeconds)
	_, ok = s.sealer.Seal("other")
	assert.False(t, ok)
}

func TestNothingIsSealedWhileADaemonCannotReadIt(t *testing.T) {
	t.Parallel()
	s := newScene(t, time.Hour)
	s.old.Store(true)
	s.write("a", 0)
	p := s.pass()
	assert.Contains(t, p.Error, "an earlier release")
	assert.EqualValues(t, 1, s.unsealed())
	s.old.Store(false)
	assert.EqualValues(t, 1, s.pass().Parts)
}

func TestWhatIsNotOursIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newScene(t, time.Hour)
	s.write("a", 0)
	s.write("b", 0)
	_, err := s.db.Collection(storetest.Stream).UpdateOne(t.Context(), bson.D{{Key: "sensorId", Value: "a"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "count", Value: 7}}}})
	require.NoError(t, err)
	p := s.pass()
	assert.Equal(t, []int64{1, 1}, []int64{p.Parts, p.Failed})
	assert.EqualValues(t, 1, s.unsealed())
}

// TestFailedPassForgetsNothing: the next one seals what it did not reach.
func TestFailedPassForgetsNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t, time.Hour)
	s.pass()
	s.stream.sealed = time.Now().Add(3 * store.MaxGranularity)
	s.write("a", 0)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s.stream.passIfDue(ended)
	p, _ := s.sealer.Progress(storetest.Stream)
	require.NotEmpty(t, p.Error)
	assert.EqualValues(t, 1, s.pass().Parts)
}

func TestRunSealsUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	s := newScene(t, 0)
	s.write("a", 0)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.sealer.Run(ctx)
	}()
	n, _ := s.sealer.Seal(storetest.Stream)
	require.Eventually(t, func() bool {
		p, _ := s.sealer.Progress(storetest.Stream)
		return p.Pass == n && !p.Running
	}, time.Minute, 10*time.Millisecond)
	assert.Zero(t, s.unsealed())
	s.sealer.SetAfter(storetest.Stream, time.Hour)
	require.Eventually(t, func() bool {
		p, _ := s.sealer.Progress(storetest.Stream)
		return p.Pass > n
	}, time.Minute, 10*time.Millisecond, "a new setting takes effect at once")
	cancel()
	<-done
	assert.Equal(t, 1, s.readings("a"))
}

// TestSensorWithManyPartsIsSealedInPages, past a page of parts that cannot be sealed.
func TestSensorWithManyPartsIsSealedInPages(t *testing.T) {
	t.Parallel()
	s := newScene(t, time.Hour)
	var readings []telemetry.Reading
	const parts = maxBatchParts + 20
	for i := range parts {
		r := storetest.Reading("a", 0, 1)
		r.Time = s.base.Add(time.Duration(i-parts) * window)
		readings = append(readings, r)
	}
	storetest.WriteAll(t, s.store, storetest.Pending(storetest.Batch(t, "s1", 1, readings...), window))
	_, err := s.db.Collection(storetest.Stream).UpdateMany(t.Context(), bson.D{{Key: "last", Value: bson.D{{Key: "$lt", Value: s.base.Add(-20 * window)}}}}, bson.D{{Key: "$set", Value: bson.D{{Key: "count", Value: 7}}}})
	require.NoError(t, err)
	p := s.pass()
	assert.EqualValues(t, 20, p.Parts)
	assert.GreaterOrEqual(t, p.Failed, int64(maxBatchParts))
	assert.EqualValues(t, 1, p.Sensors)
}
