package checkpoint

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// tiny is a load that any machine can take.
func tiny() workload {
	return workload{Sensors: 20, ReadingsPerUpdate: 2, ReadingsPerSecond: 400}
}

func TestCheckpointsUnderLoad(t *testing.T) {
	t.Parallel()
	for _, inserts := range []bool{false, true} {
		t.Run(workload{Inserts: inserts}.Name(), func(t *testing.T) {
			t.Parallel()
			l := tiny()
			l.Inserts = inserts
			r, err := inLab(t, func(ctx context.Context, lab *bench.Lab) {
				compare(ctx, lab, l, []time.Duration{time.Second})
			})
			require.NoError(t, err)
			row := rowOf(l.Name(), time.Second)
			dirty := r.Table("interval").Samples(row, dirtyOf)
			require.Len(t, dirty, 2, "one more of the shortest interval")
			assert.Positive(t, dirty.Min())
			obeyed := r.Table("interval").Median(row, ofDue)
			assert.Positive(t, obeyed)
			assert.LessOrEqual(t, obeyed, 1.5, "a slow machine makes fewer, none makes more")
			assert.Positive(t, r.Table("written").Samples(row, hourOf).Min())
			assert.Positive(t, r.Table("written").Samples(row, "journal, an hour").Min())
		})
	}
}

func TestWaysToSetTheInterval(t *testing.T) {
	t.Parallel()
	var counted func(way string) float64
	// A slow machine takes longer to show a difference.
	for _, length := range []time.Duration{3 * time.Second, 15 * time.Second} {
		r, err := inLab(t, func(ctx context.Context, lab *bench.Lab) { settings(ctx, lab, length) })
		require.NoError(t, err)
		counted = func(way string) float64 { return r.Table("settings").Median(way, "checkpoints") }
		if counted(wayPeriod) > 0 && counted(wayEngine) > counted(wayRuntime) {
			break
		}
	}
	assert.Positive(t, counted(wayPeriod))
	assert.Greater(t, counted(wayEngine), counted(wayRuntime), "the engine's come on top of mongod's own")
	assert.Zero(t, counted(wayStart), "it is reported and does not take effect")
}

func TestRecoveryAfterKill(t *testing.T) {
	t.Parallel()
	r, err := inLab(t, func(ctx context.Context, lab *bench.Lab) {
		recovery(ctx, lab, &plan{appends: tiny(), writing: 300 * time.Millisecond, bare: 1})
	})
	require.NoError(t, err)
	table := r.Table("recovery")
	assert.Len(t, table.Samples(bareRow, "took"), 1)
	assert.Positive(t, table.Median(lateRow, "took"))
	assert.Positive(t, table.Median(lateRow, "journal since the checkpoint"))
	assert.GreaterOrEqual(t, table.Median(lateRow, replayOf), 0., "faster than with nothing to replay is noise")
}

func TestJournaledWrites(t *testing.T) {
	t.Parallel()
	r, err := inLab(t, func(ctx context.Context, lab *bench.Lab) {
		measure := func(m *bench.MongoDB) { journals(ctx, lab, m, time.Millisecond) }
		lab.On(ctx, bench.Setting{}, measure)
		lab.On(ctx, bench.Setting{Standalone: true}, measure)
	})
	require.NoError(t, err)
	for _, topology := range []string{"replica_set", "standalone"} {
		for _, commit := range []string{"10", "100", "300"} {
			row := topology + ", " + commit + " ms"
			assert.Len(t, r.Table("journal").Samples(row, waiting), 1, row)
			assert.Equal(t, topology == "replica_set", r.Table("journal").Samples(row, majority) != nil, row)
		}
		assert.InDelta(t, 0.1, r.Table("default").Median(topology, commitOf), 1e-9)
		assert.InDelta(t, 100<<20, r.Table("default").Median(topology, journalFileOf), 1<<20)
	}
	assert.Len(t, r.Rows, 3)
}

// TestUsersMongoDB measures what needs no restart, and reports what is left out.
func TestUsersMongoDB(t *testing.T) {
	t.Parallel()
	uri := mongodtest.URI(t)
	r, err := bench.Run(t.Context(), Experiment(), bench.Config{Hasty: true, URI: uri, Quick: true, Repeats: 1, Seed: 1, Dir: t.TempDir()})
	require.NoError(t, err)
	assert.Len(t, r.LeftOut, 5, "everything that needs the experiment's own mongod")
	require.Len(t, r.Tables, 1)
	assert.Len(t, r.Table("journal").Rows, 1)
	_, err = json.Marshal(r)
	require.NoError(t, err)
	server := mongodtest.Shared(t)
	require.True(t, server.Running())
	names, err := mongodtest.Database(t).Client().ListDatabaseNames(t.Context(), bson.D{{Key: "name", Value: r.Environment.Database}})
	require.NoError(t, err)
	assert.Empty(t, names, "the scratch database is dropped")
}

// TestInterruptionEndsTheExperiment interrupts it while the next checkpoint is an hour away.
func TestInterruptionEndsTheExperiment(t *testing.T) {
	t.Parallel()
	mongodtest.URI(t) // skips where there is none
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := tiny()
	l.Inserts = true
	e := Experiment()
	e.Run = func(ctx context.Context, lab *bench.Lab) {
		compare(ctx, lab, l, []time.Duration{time.Hour})
	}
	r, err := bench.Run(ctx, e, bench.Config{
		Hasty: true, Quick: true, Seed: 1, Dir: t.TempDir(), MongodBin: os.Getenv("BRIM_MONGOD_BIN"), Progress: func(p bench.Progress) {
			if strings.Contains(p.What, "with a checkpoint every") {
				time.AfterFunc(500*time.Millisecond, cancel)
			}
		},
	})
	require.ErrorIs(t, err, bench.ErrInterrupted)
	assert.True(t, r.Interrupted)
}
