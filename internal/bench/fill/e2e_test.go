package fill

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

// tiny has everything in it, and takes a few seconds.
var tiny = plan{hour: 2 * time.Second, short: time.Second, repeats: 1, prefilledSensors: 500, slot: 500 * time.Millisecond}

// inLab runs a part of the experiment as an experiment of its own.
func inLab(t *testing.T, cells []string, run func(ctx context.Context, lab *bench.Lab, r *bench.Result) error) (*bench.Result, error) {
	t.Helper()
	mongodtest.URI(t) // skips where there is none
	e := Experiment()
	e.Run = run
	dir := t.TempDir()
	r, err := bench.Run(t.Context(), e, bench.Config{
		Brim: program.Path(t), MongodBin: os.Getenv("BRIM_MONGOD_BIN"), Dir: dir, Quick: true, Repeats: 1, Seed: 1, Cells: cells,
		Progress: func(p bench.Progress) { t.Logf("%v %s", p.Elapsed, p.What) },
	})
	left, readErr := os.ReadDir(dir)
	require.NoError(t, readErr)
	assert.Empty(t, left)
	return r, err
}

func TestExperimentRunsInSmall(t *testing.T) {
	t.Parallel()
	cells := []string{hourMerged, "5m-timeseries", "prefilled-5", "prefilled-95"}
	r, err := inLab(t, cells, func(ctx context.Context, lab *bench.Lab, r *bench.Result) error { return runPlan(ctx, lab, r, tiny) })
	require.NoError(t, err)
	came, ok := r.Data.(data)
	require.True(t, ok)
	require.Len(t, came.Windows, 2)
	offered := float64(tiny.sensors()) * tiny.speedup() / interval.Seconds()
	for i, seconds := range []float64{tiny.hour.Seconds(), tiny.short.Seconds()} {
		c := came.Windows[i]
		require.Len(t, c.Repeats, 1, c.Cell)
		f := c.Repeats[0]
		assert.InDelta(t, offered, f.OfferedRate, 20, c.Cell)
		assert.InDelta(t, offered*seconds, f.Readings, 20, "all are stored: "+c.Cell)
		assert.Greater(t, f.ReadingsPerUpdate, 5., c.Cell)
		assert.Positive(t, f.MongodCPU, c.Cell)
		assert.Positive(t, f.JournalBytes, c.Cell)
		assert.Positive(t, f.Write.P99, c.Cell)
	}
	require.Len(t, came.Prefilled, 2)
	for _, c := range came.Prefilled {
		require.Len(t, c.Repeats, 1)
		assert.InDelta(t, rate*tiny.slot.Seconds(), c.Repeats[0].Readings, 50)
		assert.Positive(t, c.Repeats[0].Tenths[c.Percent/10].Updates, "the buckets are as full as that")
		require.Len(t, c.Most, 1)
		assert.Positive(t, c.Most[0].Rate)
		assert.Positive(t, c.Most[0].PerProcessor)
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

func TestAWindowOfOneReadingPerUpdate(t *testing.T) {
	t.Parallel()
	_, err := inLab(t, []string{hourSingle}, func(ctx context.Context, lab *bench.Lab, _ *bench.Result) error {
		m, err := lab.Start(ctx, bench.Setting{})
		if err != nil {
			return err
		}
		// A minute of event time in a second: 12 readings of each sensor.
		passage := Passage{Granularity: time.Minute, Sensors: 20, Interval: interval, Speedup: 60, Duration: time.Second}
		f, err := measure(ctx, lab, m, passage, ways[0].serve...)
		if err != nil {
			return err
		}
		assert.InDelta(t, 240, f.Readings, 1)
		assert.Equal(t, 1., f.ReadingsPerUpdate)
		updates, clock := 0., 0
		for _, tenth := range f.Tenths {
			updates += tenth.Updates
			if tenth.Clock.P50 > 0 {
				clock++
			}
		}
		assert.Equal(t, f.Readings, updates)
		assert.Positive(t, clock)
		names, err := m.Database().ListCollectionNames(ctx, bson.D{})
		assert.Empty(t, names, "nothing is left for the next")
		historyIsTakenBack(ctx, t, m)
		return err
	})
	require.NoError(t, err)
}

func historyIsTakenBack(ctx context.Context, t *testing.T, m *bench.MongoDB) {
	t.Helper()
	seconds := func() int32 {
		raw, err := m.Client().Database("admin").RunCommand(ctx, bson.D{{Key: "getParameter", Value: 1}, {Key: historyWindow, Value: 1}}).Raw()
		require.NoError(t, err)
		return raw.Lookup(historyWindow).Int32()
	}
	assert.Zero(t, seconds())
	inside := int32(0)
	require.NoError(t, withHistory(ctx, m, func() error {
		inside = seconds()
		return nil
	}))
	assert.EqualValues(t, 300, inside)
	assert.Zero(t, seconds())
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
	}(), bench.Config{Brim: program.Path(t), URI: uri, Dir: t.TempDir(), Repeats: 1, Cells: []string{"1m-timeseries", historyCell}})
	require.NoError(t, err)
	assert.Contains(t, r.LeftOut, bench.LeftOut{What: "1h buckets, one reading per update, and the server keeps old versions for 300 s", Why: bench.OwnOnly})
	names, err := mongodtest.Database(t).Client().ListDatabaseNames(t.Context(), bson.D{{Key: "name", Value: r.Environment.Database}})
	require.NoError(t, err)
	assert.Empty(t, names)
}
