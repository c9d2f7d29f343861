package shape

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/bench"
)

// buckets returns an empty collection of buckets of at most 100 readings, for 20 sensors that
// report every second.
func buckets(ctx context.Context, t *testing.T, m *bench.MongoDB) *Collection {
	t.Helper()
	r := readingsOf(t, 20)
	r.Interval = time.Second
	return New(ctx, m, Config{Name: "readings", Shape: Shape{Kind: Buckets, Granularity: 5 * time.Minute}, Readings: r, PerUpdate: 2, MaxReadings: 100, MaxBytes: 1 << 20})
}

func TestFilledBucketsCanBeAppendedTo(t *testing.T) {
	t.Parallel()
	inLab(t, func(ctx context.Context, m *bench.MongoDB) {
		c := buckets(ctx, t, m)
		f := c.Fleet(1, 3, []int{0, 3, 19})
		f.Fill(ctx, 60, time.Time{})
		n, err := c.coll.CountDocuments(ctx, bson.D{})
		require.NoError(t, err)
		assert.EqualValues(t, 3, n, "the model is not one of them")
		assert.EqualValues(t, 60, f.Workers[0].Next[0])

		f.Workers[0].Turn(ctx)
		n, err = c.coll.CountDocuments(ctx, bson.D{{Key: "count", Value: 62}, {Key: "_id.p", Value: 0}})
		require.NoError(t, err)
		assert.EqualValues(t, 3, n, "what is appended goes into the copies")
		for _, sensor := range []int{0, 3, 19} {
			assert.Equal(t, 62, c.Read(ctx, Portion{Sensor: sensor, Count: 100}))
			require.ErrorContains(t, bench.Try(func() { c.ReadAll(ctx, Portion{Sensor: sensor, Count: 63}) }), "got 62 readings")
		}
		var document bson.Raw
		require.NoError(t, c.coll.FindOne(ctx, bson.D{{Key: "sensorId", Value: "s-20"}}).Decode(&document))
		writes, err := document.Lookup("w").Document().Elements()
		require.NoError(t, err)
		assert.Len(t, writes, 1, "the lane that made the model is the one that appends")
		assert.Positive(t, f.DocumentBytes)
	})
}

func TestModelMustBeOneBucket(t *testing.T) {
	t.Parallel()
	inLab(t, func(ctx context.Context, m *bench.MongoDB) {
		for what, p := range map[string]Portion{"two windows": {0, 290, 20}, "two parts": {0, 0, 101}} {
			c := buckets(ctx, t, m)
			assert.ErrorContains(t, bench.Try(func() { c.writer.(*lane).model(ctx, c.coll, p) }), "not all of one window and part", what)
		}
	})
}

func TestFillStopsAtItsDeadline(t *testing.T) {
	t.Parallel()
	inLab(t, func(ctx context.Context, m *bench.MongoDB) {
		f := buckets(ctx, t, m).Fleet(2, 3, nil)
		f.Fill(ctx, 1, time.Now())
		for _, w := range f.Workers {
			assert.Empty(t, w.Sensors)
		}
	})
}
