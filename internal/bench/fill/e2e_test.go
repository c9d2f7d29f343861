package fill

import (
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// tiny has everything in it, and takes a few seconds.
var tiny = plan{hour: 2 * time.Second, short: time.Second, repeats: 1, prefilledSensors: 1000, slot: time.Second}

// inLab runs a part of the experiment as an experiment of its own.
func inLab(t *testing.T, cells []string, run func(ctx context.Context, lab *bench.Lab, r *bench.Result) error) (*bench.Result, error) {
	t.Helper()
	mongodtest.URI(t) // skips where there is none
	e := Experiment()
	e.Run = run
	dir := t.TempDir()
	r, err := bench.Run(t.Context(), e, bench.Config{
		Brim: program.Path(t), MongodBin: os.Getenv("BRIM_MONGOD_BIN"), Dir: dir, Quick: true, Repeats: 1, Seed: 1, Cells: cells,
	})
	left, readErr := os.ReadDir(dir)
	require.NoError(t, readErr)
	assert.Empty(t, left)
	return r, err
}

func TestExperimentRunsInSmall(t *testing.T) {
	t.Parallel()
	cells := []string{hourSingle, hourMerged, "5m-timeseries", historyCell, "prefilled-5", "prefilled-95"}
	r, err := inLab(t, cells, func(ctx context.Context, lab *bench.Lab, r *bench.Result) error { return runPlan(ctx, lab, r, tiny) })
	require.NoError(t, err)
	came, ok := r.Data.(data)
	require.True(t, ok)
	require.Len(t, came.Windows, 4)
	for _, c := range came.Windows {
		require.Len(t, c.Repeats, 1, c.Cell)
		f := c.Repeats[0]
		assert.InDelta(t, rate, f.OfferedRate, 100, c.Cell)
		assert.InDelta(t, rate*f.Readings/(f.Readings+1), f.Readings/map[bool]float64{true: 2, false: 1}[c.GranularitySeconds == 3600], 100, "all are stored: "+c.Cell)
		assert.Positive(t, f.MongodCPU, c.Cell)
		assert.Positive(t, f.JournalBytes, c.Cell)
		assert.Positive(t, f.Write.P99, c.Cell)
		assert.Positive(t, f.Tenths[5].Updates, c.Cell)
	}
	assert.Equal(t, 1., came.Windows[0].Repeats[0].ReadingsPerUpdate)
	assert.Greater(t, came.Windows[1].Repeats[0].ReadingsPerUpdate, 5.)
	require.Len(t, came.Prefilled, 2)
	for _, c := range came.Prefilled {
		require.Len(t, c.Repeats, 1)
		assert.InDelta(t, rate, c.Repeats[0].Readings, 50)
		assert.Positive(t, c.Repeats[0].Tenths[c.Percent/10].Updates, "the buckets are as full as that")
		require.Len(t, c.Most, 1)
	}
	require.NotNil(t, came.Checkpoint)
	assert.GreaterOrEqual(t, came.Checkpoint.Checkpoints, 1.)
	assert.Positive(t, came.Checkpoint.FileBytes)
	assert.Len(t, r.Tables, 5)
	assert.Len(t, r.Plots, 4)
	for _, p := range r.Plots {
		svg, err := p.Drawing.SVG()
		require.NoError(t, err)
		assert.NotEmpty(t, svg)
	}
	_, err = json.Marshal(r)
	require.NoError(t, err)
	assert.Contains(t, r.LeftOut, bench.LeftOut{What: "1h buckets, time-series collection", Why: "not among the cells asked for"})
}

func TestInterruptedExperimentLeavesNothing(t *testing.T) {
	t.Parallel()
	r, err := inLab(t, []string{hourSingle}, func(ctx context.Context, lab *bench.Lab, r *bench.Result) error {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		return runPlan(ctx, lab, r, plan{hour: time.Hour, short: time.Hour, repeats: 1, prefilledSensors: 1, slot: time.Second})
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Empty(t, r.Rows)
}

func TestAUsersMongoDBIsLeftAsItWas(t *testing.T) {
	t.Parallel()
	uri := mongodtest.URI(t)
	r, err := bench.Run(t.Context(), func() *bench.Experiment {
		e := Experiment()
		e.Run = func(ctx context.Context, lab *bench.Lab, r *bench.Result) error { return runPlan(ctx, lab, r, tiny) }
		return e
	}(), bench.Config{Brim: program.Path(t), URI: uri, Dir: t.TempDir(), Repeats: 1, Cells: []string{"1m-merged", historyCell}})
	require.NoError(t, err)
	assert.Contains(t, r.LeftOut, bench.LeftOut{What: "1h buckets, one reading per update, and the server keeps old versions for 300 s", Why: bench.OwnOnly})
	names, err := mongodtest.Database(t).Client().ListDatabaseNames(t.Context(), map[string]any{"name": r.Environment.Database})
	require.NoError(t, err)
	assert.Empty(t, names)
}
