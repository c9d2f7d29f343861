package shape

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
)

// inLab runs f as an experiment on the mongod that tests share.
func inLab(t *testing.T, f func(ctx context.Context, m *bench.MongoDB)) {
	t.Helper()
	e := &bench.Experiment{Name: "test", Run: func(ctx context.Context, lab *bench.Lab, _ *bench.Result) error {
		m, err := lab.Start(ctx, bench.Setting{})
		if err != nil {
			return err
		}
		f(ctx, m)
		return m.Close()
	}}
	_, err := bench.Run(t.Context(), e, bench.Config{URI: mongodtest.URI(t), Dir: t.TempDir()})
	require.NoError(t, err)
}

// TestEveryShapeGivesTheSameAnswers is what makes their times comparable.
func TestEveryShapeGivesTheSameAnswers(t *testing.T) {
	t.Parallel()
	readings := Readings{Source: Ratings{Seed: 7}, Sensors: 1, Count: 3000, Begin: Begin(), Interval: time.Minute}
	shapes := []Shape{{Kind: Documents}, {Kind: Buckets, Granularity: time.Hour}, {Kind: Series}, {Kind: TimeSeries}}
	inLab(t, func(ctx context.Context, m *bench.MongoDB) {
		var want float64
		for _, s := range shapes {
			c, err := New(ctx, m, Config{Name: "all", Shape: s, Compressor: store.Snappy, Readings: readings, PerUpdate: CommandReadings})
			require.NoError(t, err, s)
			_, err = c.Load(ctx)
			require.NoError(t, err, s)
			require.NoError(t, m.Checkpoint(ctx))

			span := Span{First: 1234, Count: 360}
			n, err := c.Read(ctx, span)
			require.NoError(t, err, s)
			assert.Equal(t, 360, n, s)
			for _, way := range []Way{Unwind, Stats} {
				mean, err := c.Mean(ctx, span, RatingField, way)
				require.NoError(t, err, s)
				if want == 0 {
					want = mean
				}
				assert.InDelta(t, want, mean, 1e-9, "%v %v", s, way)
			}
			require.NoError(t, c.Sort(ctx, true), s)

			size, err := c.Size(ctx)
			require.NoError(t, err, s)
			assert.Equal(t, 3000, size.Readings)
			assert.Positive(t, size.Data(), s)
			assert.Positive(t, size.Logical, s)
			switch s.Kind {
			case Documents:
				assert.EqualValues(t, 3000, size.Documents)
				assert.Positive(t, size.Index())
			case Series:
				assert.EqualValues(t, 50, size.Documents)
				assert.Zero(t, size.Index(), "the server makes none before 6.3")
			default:
				assert.EqualValues(t, 50, size.Documents)
				assert.Positive(t, size.Index())
			}
		}
	})
}

func TestASortThatDoesNotFitIsToldAsThat(t *testing.T) {
	t.Parallel()
	e := &bench.Experiment{Name: "test", Run: func(ctx context.Context, lab *bench.Lab, _ *bench.Result) error {
		m, err := lab.Start(ctx, bench.Setting{Parameters: map[string]string{"internalQueryMaxBlockingSortMemoryUsageBytes": "10000"}})
		if err != nil {
			return err
		}
		readings := Readings{Source: Ratings{}, Sensors: 1, Count: 2000, Begin: Begin(), Interval: time.Minute}
		for _, s := range []Shape{{Kind: Documents}, {Kind: Series}} {
			c, err := New(ctx, m, Config{Name: string(s.Kind), Shape: s, Readings: readings, PerUpdate: CommandReadings})
			require.NoError(t, err)
			_, err = c.Load(ctx)
			require.NoError(t, err)
			if s.Kind == Documents {
				require.ErrorIs(t, c.Sort(ctx, false), ErrMemoryLimit)
			}
			t.Log(s, c.Sort(ctx, false), c.Sort(ctx, true))
		}
		return m.Close()
	}}
	_, err := bench.Run(t.Context(), e, bench.Config{MongodBin: os.Getenv("BRIM_MONGOD_BIN"), Dir: t.TempDir()})
	require.NoError(t, err)
}
