package checkpoint

import (
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// tiny is a load that any machine can take.
func tiny() Load {
	return Load{Sensors: 20, Granularity: time.Hour, Interval: 5 * time.Second, ReadingsPerUpdate: 2, ReadingsPerSecond: 400}
}

func TestCheckpointsOfALoadAreObserved(t *testing.T) {
	t.Parallel()
	for _, inserts := range []bool{false, true} {
		t.Run(Load{Inserts: inserts}.Name(), func(t *testing.T) {
			t.Parallel()
			_, err := inLab(t, func(ctx context.Context, lab *bench.Lab, _ *bench.Result) error {
				l := tiny()
				l.Inserts = inserts
				costs, err := compare(ctx, lab, l, []time.Duration{time.Second})
				require.NoError(t, err)
				require.Len(t, costs, 1)
				c := costs[0]
				require.Len(t, c.Periods, 2, "one more of the shortest interval")
				assert.Positive(t, c.Obeyed())
				assert.LessOrEqual(t, c.Obeyed(), 1.5, "a slow machine makes fewer, none makes more")
				assert.Positive(t, c.Writes)
				assert.Positive(t, c.Dirty().Min())
				assert.Positive(t, c.BytesPerHour().Min())
				assert.Positive(t, c.JournalBytesPerHour().Min())
				return nil
			})
			require.NoError(t, err)
		})
	}
}

func TestWaysToSetTheIntervalAreCounted(t *testing.T) {
	t.Parallel()
	_, err := inLab(t, func(ctx context.Context, lab *bench.Lab, _ *bench.Result) error {
		all, err := settings(ctx, lab, 3*time.Second)
		require.NoError(t, err)
		counted := make(map[string]float64)
		for _, o := range all {
			counted[o.Way] = o.Counted
		}
		require.Len(t, counted, 4)
		assert.Positive(t, counted[wayPeriod])
		assert.Greater(t, counted[wayEngine], counted[wayRuntime], "the engine's come beside mongod's own")
		assert.Zero(t, counted[wayStart], "it is told and not obeyed")
		return nil
	})
	require.NoError(t, err)
}

func TestAKilledMongodIsTimed(t *testing.T) {
	t.Parallel()
	_, err := inLab(t, func(ctx context.Context, lab *bench.Lab, _ *bench.Result) error {
		r, err := recovery(ctx, lab, &plan{appends: tiny(), writing: 300 * time.Millisecond, bare: 1})
		require.NoError(t, err)
		assert.Len(t, r.Bare, 1)
		assert.Len(t, r.Late, 1)
		assert.Positive(t, r.Late.Min())
		assert.Positive(t, r.Journal.Min())
		return nil
	})
	require.NoError(t, err)
}

func TestJournaledWritesAreTimed(t *testing.T) {
	t.Parallel()
	_, err := inLab(t, func(ctx context.Context, lab *bench.Lab, _ *bench.Result) error {
		all, err := journals(ctx, lab, &plan{batch: time.Millisecond})
		require.NoError(t, err)
		require.Len(t, all, 6)
		for _, j := range all {
			assert.Len(t, j.Latencies, len(concerns(j.Topology == "standalone")))
			assert.Equal(t, j.Commit == 0.1, j.Default, "%v", j.Commit)
			assert.InDelta(t, 100<<20, j.FileBytes, 1<<20)
		}
		return nil
	})
	require.NoError(t, err)
}

// TestAUsersMongoDBIsOnlyWrittenTo measures what needs no restart, and says what
// is left out.
func TestAUsersMongoDBIsOnlyWrittenTo(t *testing.T) {
	t.Parallel()
	uri := mongodtest.URI(t)
	r, err := bench.Run(t.Context(), Experiment(), bench.Config{URI: uri, Quick: true, Repeats: 1, Seed: 1, Dir: t.TempDir()})
	require.NoError(t, err)
	assert.Len(t, r.LeftOut, 2+4, "two cells that are slow, and four for its being the user's")
	data, ok := r.Data.(*Measured)
	require.True(t, ok)
	require.Len(t, data.Journal, 1)
	assert.Empty(t, data.Appends)
	require.Len(t, r.Tables, 1)
	_, err = json.Marshal(r)
	require.NoError(t, err)
	server := mongodtest.Shared(t)
	require.True(t, server.Running())
	names, err := mongodtest.Database(t).Client().ListDatabaseNames(t.Context(), bson.D{{Key: "name", Value: r.Environment.Database}})
	require.NoError(t, err)
	assert.Empty(t, names, "the scratch database is dropped")
}

func TestAnInterruptionEndsItSoon(t *testing.T) {
	t.Parallel()
	mongodtest.URI(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := time.Time{}
	e := Experiment()
	e.Run = func(ctx context.Context, lab *bench.Lab, _ *bench.Result) error {
		l := tiny()
		timer := time.AfterFunc(2*time.Second, func() {
			began = time.Now()
			cancel()
		})
		defer timer.Stop()
		_, err := compare(ctx, lab, l, []time.Duration{time.Hour})
		return err
	}
	r, err := bench.Run(ctx, e, bench.Config{Quick: true, Seed: 1, Dir: t.TempDir(), MongodBin: os.Getenv("BRIM_MONGOD_BIN")})
	require.ErrorIs(t, err, bench.ErrInterrupted)
	assert.True(t, r.Interrupted)
	assert.Less(t, time.Since(began), 10*time.Second)
}
