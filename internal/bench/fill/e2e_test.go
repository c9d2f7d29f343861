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

// tiny covers everything in a few seconds.
var tiny = plan{hour: 2 * time.Second, short: time.Second, repeats: 1, prefilledSensors: 200, slot: 200 * time.Millisecond}

// inLab runs a part of the experiment as its own experiment, in the mongod shared by all tests.
func inLab(t *testing.T, cells []string, run func(ctx context.Context, lab *bench.Lab)) (*bench.Result, error) {
	t.Helper()
	client := mongodtest.Database(t).Client() // skips where there is none
	e := Experiment()
	e.Run = run
	dir := t.TempDir()
	r, err := bench.Run(t.Context(), e, bench.Config{
		Hasty: true, Brim: program.Path(t), URI: mongodtest.URI(t), Dir: dir, Quick: true, Repeats: 1, Seed: 1, Cells: cells,
		Progress: func(p bench.Progress) { t.Logf("%v %s", p.Elapsed, p.What) },
	})
	left, readErr := os.ReadDir(dir)
	require.NoError(t, readErr)
	assert.Empty(t, left)
	names, listErr := client.ListDatabaseNames(t.Context(), bson.D{{Key: "name", Value: r.Environment.Database}})
	require.NoError(t, listErr)
	assert.Empty(t, names, "the scratch database is dropped")
	return r, err
}

func TestExperimentRunsInSmall(t *testing.T) {
	t.Parallel()
	cells := []string{"1h-merged", "5m-timeseries", "prefilled-5", "prefilled-95", fullSealed}
	r, err := inLab(t, cells, func(ctx context.Context, lab *bench.Lab) { run(ctx, lab, tiny) })
	require.NoError(t, err)
	offered := float64(tiny.sensors()) * tiny.speedup() / interval.Seconds()
	for _, cell := range cells[:2] {
		sent := r.Table("speed").Median(cell, "readings/s")
		assert.Positive(t, sent, cell)
		assert.LessOrEqual(t, sent, 1.25*offered, "%s: a slow machine sends fewer, none sends more", cell)
		assert.Zero(t, r.Table("speed").Median(cell, "left"), cell)
		assert.Greater(t, r.Table("speed").Median(cell, "readings per update"), 5., cell)
		assert.Positive(t, r.Table("cost").Median(cell, "mongod CPU"), cell)
		assert.Positive(t, r.Table("cost").Median(cell, "journal"), cell)
		assert.Positive(t, r.Table("speed").Median(cell, "p99"), cell)
	}
	for _, cell := range cells[2:] {
		assert.Len(t, r.Table("speed").Samples(cell, "p50"), 1, cell)
		assert.Positive(t, r.Table("capacity").Median(cell, "readings/s"), cell)
		assert.Positive(t, r.Table("capacity").Median(cell, "per CPU of mongod"), cell)
	}
	_, err = json.Marshal(r)
	require.NoError(t, err)
	assert.Contains(t, r.LeftOut, bench.LeftOut{What: "1h buckets, time-series collection", Why: "not among the cells asked for"})
}

func TestWindowOfOneReadingPerUpdate(t *testing.T) {
	t.Parallel()
	_, err := inLab(t, []string{hourSingle}, func(ctx context.Context, lab *bench.Lab) {
		m := lab.Start(ctx, bench.Setting{})
		// One second is a minute of event time: 12 readings per sensor.
		phase := phase{Granularity: time.Minute, Sensors: 20, Speedup: 60, Duration: time.Second}
		f := measure(ctx, lab, m, phase, ways[0].serve...)
		assert.InDelta(t, 240, f.readings(), 1)
		assert.Equal(t, 1., f.updates().Mean())
		assert.Equal(t, f.readings(), f.writes(0, 10).Count)
		assert.Equal(t, f.readings(), f.window(0, 60).Count) // counts past the end of the load: a busy machine stores late
		assert.Empty(t, bench.Must(m.Database().ListCollectionNames(ctx, bson.D{})), "nothing is left for the next")
	})
	require.NoError(t, err)
}

func TestInterruptedExperimentLeavesNothing(t *testing.T) {
	t.Parallel()
	r, err := inLab(t, []string{hourSingle}, func(ctx context.Context, lab *bench.Lab) {
		ctx, cancel := context.WithTimeout(ctx, 1500*time.Millisecond) // in the load, or before it on a slow machine
		defer cancel()
		run(ctx, lab, plan{hour: time.Hour, short: time.Hour, repeats: 1, prefilledSensors: 1, slot: time.Second})
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Empty(t, r.Rows)
}
