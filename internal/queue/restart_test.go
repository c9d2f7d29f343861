package queue

import (
	"context"
	"iter"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
	bucketstore "github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/internal/store/timeseries"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// readableStore is a store that a test can look into.
type readableStore interface {
	Store
	Prepare(ctx context.Context) error
	Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error]
}

func countReadings(t *testing.T, s readableStore, sensor string) int {
	t.Helper()
	n := 0
	for _, err := range s.Readings(t.Context(), telemetry.Query{Sensor: sensor, To: math.MaxInt64 / 2}) {
		require.NoError(t, err)
		n++
	}
	return n
}

// stuckSensor keeps one sensor from being written.
type stuckSensor struct{ readableStore }

func (s stuckSensor) Write(ctx context.Context, writes []*batch.Pending) {
	var others []*batch.Pending
	for _, pending := range writes {
		if pending.Sensor == "stuck" {
			pending.Verdict, pending.Err = batch.Wait, errAway
			continue
		}
		others = append(others, pending)
	}
	if len(others) > 0 {
		s.readableStore.Write(ctx, others)
	}
}

// TestRestartBehindAStuckBucket has one reading that cannot be stored, which
// holds up the journal, and many behind it that are. After the next start these
// come again, in more rounds than one, and none may be stored a second time.
func TestRestartBehindAStuckBucket(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T, db *mongo.Database) readableStore{
		"bucket": openBuckets, "timeseries": openSeries,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, dir := mongodtest.Database(t), t.TempDir()
			conn, err := store.Connect(store.ConnectionConfig{URI: mongodtest.URI(t), Database: db.Name(), Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
			const requests = 16
			runBehindStuck(t, dir, open(t, conn.Database()), func(j *journal.Journal) {
				take := func(sensor string, n int) {
					_, err := j.Append(t.Context(), request(sensor, n), batch.Request{Want: telemetry.Journaled})
					require.NoError(t, err)
				}
				take("stuck", 1)
				for range requests {
					take("busy", 280)
				}
			})
			s := open(t, conn.Database())
			require.Equal(t, requests*280, countReadings(t, s, "busy"))
			runBehindStuck(t, dir, s, func(*journal.Journal) {})
			assert.Equal(t, requests*280, countReadings(t, s, "busy"))
		})
	}
}

// runBehindStuck is the life of a daemon that stores all but one reading.
func runBehindStuck(t *testing.T, dir string, s readableStore, feed func(*journal.Journal)) {
	t.Helper()
	require.NoError(t, s.Prepare(t.Context()))
	j, err := journal.Open(journal.Config{Dir: dir, Session: batch.NewSession(), Streams: map[string]journal.Stream{stream: {Granularity: 5 * time.Minute}}})
	require.NoError(t, err)
	q, err := New(Config{
		Journal: j, Streams: map[string]Stream{stream: {Store: stuckSensor{s}, Granularity: 5 * time.Minute, Policy: Policy{Interval: 10 * time.Millisecond}}},
		Lanes: 4, MaxBytes: 1 << 20,
		DeadLetters: &fakeLetters{}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	feed(j)
	require.Eventually(t, func() bool { return q.Status().Readings == 1 }, time.Minute, 10*time.Millisecond, "all but one are stored")
	j.Stop()
	assert.Equal(t, 1, q.Close(cancelled()))
	require.NoError(t, j.Close())
}

func openBuckets(t *testing.T, db *mongo.Database) readableStore {
	t.Helper()
	s, err := bucketstore.New(bucketstore.Config{
		Database: db, Stream: stream, Granularity: 5 * time.Minute, MaxReadings: 70, MaxBytes: 256 << 10, Registerer: prometheus.NewRegistry(),
	})
	require.NoError(t, err)
	return s
}

func openSeries(t *testing.T, db *mongo.Database) readableStore {
	t.Helper()
	s, err := timeseries.New(timeseries.Config{Database: db, Stream: stream, Granularity: 5 * time.Minute, Registerer: prometheus.NewRegistry()})
	require.NoError(t, err)
	return s
}
