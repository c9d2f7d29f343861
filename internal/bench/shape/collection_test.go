package shape

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
)

// inLab runs f as an experiment in the mongod shared by tests.
func inLab(t *testing.T, f func(ctx context.Context, m *bench.MongoDB)) {
	t.Helper()
	e := &bench.Experiment{Name: "test", Run: func(ctx context.Context, lab *bench.Lab) {
		lab.On(ctx, bench.Setting{}, func(m *bench.MongoDB) { f(ctx, m) })
	}}
	_, err := bench.Run(t.Context(), e, bench.Config{Hasty: true, URI: mongodtest.URI(t), Database: "shape_" + t.Name(), Dir: t.TempDir()})
	require.NoError(t, err)
}

// TestEveryShapeGivesTheSameAnswers makes the shapes' times comparable.
func TestEveryShapeGivesTheSameAnswers(t *testing.T) {
	t.Parallel()
	readings := Readings{Source: Ratings(7), Sensors: 1, Count: 3000, Begin: Begin(), Interval: time.Minute}
	shapes := []Shape{
		{Kind: Documents}, {Kind: Buckets, Granularity: time.Hour}, {Kind: Series}, {Kind: TimeSeries}, {Kind: Native},
		{Kind: Buckets, Granularity: time.Hour, Format: store.Columns}, {Kind: Buckets, Granularity: time.Hour, Sealed: true},
	}
	inLab(t, func(ctx context.Context, m *bench.MongoDB) {
		var want float64
		for _, s := range shapes {
			c := New(ctx, m, Config{Name: "all", Shape: s, Compressor: store.Snappy, Readings: readings, PerUpdate: CommandReadings})
			c.Load(ctx)
			m.Checkpoint(ctx)

			span := Portion{First: 1234, Count: 360}
			assert.Equal(t, 360, c.Read(ctx, span), s)
			for _, way := range []Way{Unwind, Stats} {
				mean := c.Mean(ctx, span, RatingField, way)
				if want == 0 {
					want = mean
				}
				assert.InDelta(t, want, mean, 1e-9, "%v %v", s, way)
			}
			if !s.Packed() {
				require.True(t, c.Sort(ctx, true), s)
			}
			sealed, err := c.coll.CountDocuments(ctx, bson.D{{Key: "sealed", Value: bson.D{{Key: "$exists", Value: true}}}})
			require.NoError(t, err)
			assert.Equal(t, s.Sealed, sealed > 0, s)

			size := c.Size(ctx)
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

// ownLab runs f as an experiment with its own mongods.
func ownLab(t *testing.T, f func(ctx context.Context, lab *bench.Lab)) {
	t.Helper()
	mongodtest.URI(t) // skips where there is none
	e := &bench.Experiment{Name: "test", Run: f}
	_, err := bench.Run(t.Context(), e, bench.Config{Hasty: true, MongodBin: os.Getenv("BRIM_MONGOD_BIN"), Dir: t.TempDir()})
	require.NoError(t, err)
}

// TestReadsGoOnAfterARestart also checks that a sort beyond the memory limit is reported.
func TestReadsGoOnAfterARestart(t *testing.T) {
	t.Parallel()
	ownLab(t, func(ctx context.Context, lab *bench.Lab) {
		m := lab.Start(ctx, bench.Setting{})
		readings := Readings{Source: Ratings(0), Sensors: 2, Count: 1500, Begin: Begin(), Interval: time.Minute}
		var all []*Collection
		for _, s := range []Shape{{Kind: Documents}, {Kind: Buckets, Granularity: time.Hour}, {Kind: TimeSeries}} {
			c := New(ctx, m, Config{Name: string(s.Kind), Shape: s, Readings: readings, PerUpdate: 60})
			c.Load(ctx)
			all = append(all, c)
		}
		limit := map[string]string{"internalQueryMaxBlockingSortMemoryUsageBytes": "10000"}
		m.Restart(ctx, bench.Setting{Parameters: limit})
		for _, c := range all {
			c.Attach(ctx, m)
			assert.Equal(t, 100, c.Read(ctx, Portion{Sensor: 1, First: 700, Count: 100}), c.Shape)
			assert.True(t, c.Sort(ctx, true))
		}
		require.False(t, all[0].Sort(ctx, false), "it does not fit the memory")
	})
}

// TestOnlyTimeSeriesGrowWithLateReadings: a keyed bucket takes late readings.
func TestOnlyTimeSeriesGrowWithLateReadings(t *testing.T) {
	t.Parallel()
	readings := Readings{
		Source: Ratings(0), Sensors: 1, Count: 600, Begin: Begin(), Interval: time.Minute,
		Late: Late{Part: 0.1, From: 2 * time.Hour, To: 3 * time.Hour},
	}
	inLab(t, func(ctx context.Context, m *bench.MongoDB) {
		documents := make(map[Kind]int64)
		for _, s := range []Shape{{Kind: Buckets, Granularity: time.Hour}, {Kind: TimeSeries}} {
			c := New(ctx, m, Config{Name: "late", Shape: s, Readings: readings, PerUpdate: 60})
			c.Load(ctx)
			assert.Equal(t, 600, c.Read(ctx, Portion{Count: 600}), "none is lost")
			documents[s.Kind] = c.Size(ctx).Documents
		}
		assert.EqualValues(t, 10, documents[Buckets])
		assert.GreaterOrEqual(t, documents[TimeSeries], documents[Buckets])
	})
}
