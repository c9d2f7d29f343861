package speed

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// inLab runs the experiment with sides of a pair that are short.
func inLab(ctx context.Context, t *testing.T, run func(ctx context.Context, x *trial) error, c bench.Config) (*bench.Result, error) {
	t.Helper()
	mongodtest.URI(t) // skips where there is none
	e := Experiment()
	e.Run = func(ctx context.Context, lab *bench.Lab) error {
		return run(ctx, &trial{lab: lab, length: 200 * time.Millisecond})
	}
	c.Hasty, c.Brim, c.Dir, c.MongodBin = true, program.Path(t), t.TempDir(), os.Getenv("BRIM_MONGOD_BIN")
	r, err := bench.Run(ctx, e, c)
	left, readErr := os.ReadDir(c.Dir)
	require.NoError(t, readErr)
	assert.Empty(t, left)
	return r, err
}

func TestCheapCellsAreMeasured(t *testing.T) {
	t.Parallel()
	cells := []string{"lines", "grpc", "ndjson", "timeseries", "journal"}
	r, err := inLab(t.Context(), t, func(ctx context.Context, x *trial) error { return x.run(ctx) }, bench.Config{Repeats: 1, Cells: cells})
	require.NoError(t, err)
	require.Len(t, r.Rows, 8)
	for _, row := range r.Rows {
		assert.Positive(t, row.Measured, row.Claim)
	}
	for _, way := range []string{lineProtocol, rawDocuments} {
		assert.Positive(t, r.Table("lines").Median(way, rateOf), way)
	}
	assert.Greater(t, r.Table("lines").Median(lineProtocol, perUpdateOf), 1.)
	assert.Positive(t, r.Table("timeseries").Median(rawSeries, mongodOf))
}

func TestAnInterruptedMeasurementLeavesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := inLab(ctx, t, func(ctx context.Context, x *trial) error {
		return x.on(ctx, []string{"--granularity", hourly}, func(ctx context.Context, _ *rig) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
	}, bench.Config{})
	require.ErrorIs(t, err, bench.ErrInterrupted)
}

func TestAUsersMongoDBIsNotMeasured(t *testing.T) {
	t.Parallel()
	r, err := inLab(t.Context(), t, func(ctx context.Context, x *trial) error { return x.run(ctx) }, bench.Config{URI: "mongodb://nowhere"})
	require.NoError(t, err)
	assert.Empty(t, r.Tables)
	assert.Len(t, r.LeftOut, 9)
}

// TestGrowthIsMeasured writes a few points with few sensors into a real mongod.
func TestGrowthIsMeasured(t *testing.T) {
	t.Parallel()
	r, err := inLab(t.Context(), t, func(ctx context.Context, x *trial) error {
		return x.grow(ctx, grid{
			sensors: []int{20, 50}, perUpdate: []int{1, 60}, fields: []int{2}, writers: []int{1, 2},
			centre: point{20, 60, 2, 2}, length: 200 * time.Millisecond,
		})
	}, bench.Config{})
	require.NoError(t, err)
	growth := r.Table("growth")
	require.Len(t, growth.Rows, 5)
	for _, row := range growth.Rows {
		for _, measure := range []string{rateOf, "mongod CPU an update", "write p50", "sensors written"} {
			assert.Positive(t, growth.Median(row.Name, measure), row.Name)
		}
	}
	assert.Len(t, r.Table("hosts").Rows, 4)
}

func TestTheGridHasEachShapeOnce(t *testing.T) {
	t.Parallel()
	g := fullGrid()
	shapes := g.points()
	assert.Len(t, shapes, 20)
	assert.Contains(t, shapes, g.centre)
	for i, s := range shapes[1:] {
		assert.LessOrEqual(t, shapes[i].sensors, s.sensors)
		assert.NotContains(t, shapes[:i+1], s)
	}
	for _, k := range g.perUpdate {
		assert.Zero(t, 360%k, "an hour of %d readings an update ends with one", k)
	}
}

func TestTheStrideVisitsEverySensor(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 10, 1000, 6180} {
		seen := make(map[int]bool)
		for i, stride := 0, coprime(n); i < n; i++ {
			seen[i*stride%n] = true
		}
		assert.Len(t, seen, n)
	}
}

func TestAtTheKneeADoublingGainsATenth(t *testing.T) {
	t.Parallel()
	l := bench.Line{Base: 40, Each: 2}
	k := knee(l)
	assert.InDelta(t, 90, k, 1e-9)
	reading := func(k float64) float64 { return l.At(k) / k }
	assert.InDelta(t, 0.1, reading(k)/reading(2*k)-1, 1e-9)
}

func TestHosts(t *testing.T) {
	t.Parallel()
	for cores, want := range map[float64]float64{0: 0, 2: 1, 9.6: 1, 9.7: 2, 96: 10} {
		assert.InDelta(t, want, hostsFor(cores), 0, cores)
	}
}

func TestGrowthOfALagIsAQuarterAndHalfASecond(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		first, last float64
		want        bool
	}{{2, 2.51, true}, {2, 2.5, false}, {0.1, 0.6, false}, {0.1, 0.61, true}} {
		first, last, got := grows(bench.Samples{c.first, c.first, c.first, 1, 1, 1, c.last, c.last, c.last})
		assert.Equal(t, []any{c.first, c.last, c.want}, []any{first, last, got})
	}
	_, _, got := grows(nil)
	assert.False(t, got)
}

func TestEveryLooksUntilItIsStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		samples := 0
		stop := every(t.Context(), time.Second, func(context.Context) error {
			samples++
			return nil
		})
		<-time.After(3*time.Second + time.Millisecond)
		require.NoError(t, stop())
		assert.Equal(t, 4, samples)
	})
}

func TestEveryEndsWithAnErrorButNotThatOfItsEnd(t *testing.T) {
	t.Parallel()
	broken := errors.New("gone")
	synctest.Test(t, func(t *testing.T) {
		samples := 0
		stop := every(t.Context(), time.Second, func(context.Context) error {
			if samples++; samples == 3 {
				return broken
			}
			return nil
		})
		<-time.After(time.Minute)
		require.ErrorIs(t, stop(), broken)
		assert.Equal(t, 3, samples)
	})
	stop := every(t.Context(), time.Hour, func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	assert.NoError(t, stop(), "a sample in flight when it was stopped")
}
