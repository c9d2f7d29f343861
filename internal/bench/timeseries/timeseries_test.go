package timeseries

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
)

// tiny runs the experiment at a scale that shows only that it works.
func tiny(t *testing.T, c bench.Config) *bench.Result {
	t.Helper()
	mongodtest.URI(t) // skips where there is none
	e := Experiment()
	e.Run = func(ctx context.Context, lab *bench.Lab) {
		run(ctx, lab, scale{readings: 6000, finds: 20, means: 20, late: 300})
	}
	c.Quick, c.Hasty, c.Dir, c.MongodBin = true, true, t.TempDir(), os.Getenv("BRIM_MONGOD_BIN")
	r, err := bench.Run(t.Context(), e, c)
	require.NoError(t, err)
	_, err = json.Marshal(r)
	require.NoError(t, err, "a result has a JSON form")
	return r
}

// TestUsersMongoDB measures everything but the sort, which would change the server's limit.
func TestUsersMongoDB(t *testing.T) {
	t.Parallel()
	r := tiny(t, bench.Config{Repeats: 2, URI: mongodtest.URI(t), Database: t.Name()})
	for _, s := range shapes() {
		name := s.String()
		assert.Len(t, r.Table("load").Samples(name, loadOf), 2, name)
		for _, measure := range []string{findOf, tenthOf, halfOf, allOf} {
			assert.Len(t, r.Table("reads").Samples(name, measure), 2, name)
		}
		assert.Equal(t, s.Kind == shape.Buckets && !s.Packed(), r.Table("reads").Samples(name+", by stats", allOf) != nil)
		want := 100.0 // hours
		if s.Kind == shape.Documents {
			want = 6000
		}
		assert.InDelta(t, want, r.Table("load").Median(name, "documents"), 0, name)
	}
	documents, buckets, series := shapes()[0], shapes()[1], shapes()[2]
	assert.Len(t, r.Rows, 10)
	assert.Len(t, r.Tables, 5)
	total := func(s shape.Shape) float64 { return r.Table("defaults").Median(compressed(s, store.Snappy), totalOf) }
	assert.Greater(t, total(documents), 4*total(series))
	for _, late := range []string{"0", "0.01", "0.1", "0.3"} {
		assert.Equal(t, bench.Samples{1}, r.Table("late").Samples(late, buckets.String()), "a late reading goes into the bucket that it belongs to")
	}
	for _, row := range r.Rows {
		if row.Claim == "a time series needs no index on time" {
			assert.Equal(t, bench.Confirmed, row.Verdict)
		}
	}
	assert.Contains(t, r.LeftOut, bench.LeftOut{What: "a sort of everything by time, without an index", Why: bench.OwnOnly})
}

func TestSort(t *testing.T) {
	t.Parallel()
	r := tiny(t, bench.Config{Repeats: 1, Cells: []string{"sort"}})
	for _, s := range shapes()[:4] {
		assert.Len(t, r.Table("sort").Samples(s.String(), "allowDiskUse true"), 1, "with the disk every sort ends")
	}
	assert.Equal(t, bench.Samples{1}, r.Table("sort").Samples(shapes()[0].String(), failedOf))
	require.Len(t, r.Rows, 1)
	assert.Equal(t, bench.Confirmed, r.Rows[0].Verdict)
}

func TestMeansMustAgree(t *testing.T) {
	t.Parallel()
	require.NoError(t, agree([]float64{1, 2}, []float64{1, 2}))
	require.ErrorIs(t, agree([]float64{1, 2}, []float64{1, 2.1}), errDisagree)
}
