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

// tiny runs the experiment at a scale that shows nothing but that it works.
func tiny(t *testing.T, c bench.Config) *bench.Result {
	t.Helper()
	mongodtest.URI(t) // skips where there is none
	e := Experiment()
	e.Run = func(ctx context.Context, lab *bench.Lab, r *bench.Result) error {
		return runScale(ctx, lab, r, scale{readings: 6000, finds: 20, means: 20, late: 300})
	}
	c.Quick, c.Dir, c.MongodBin = true, t.TempDir(), os.Getenv("BRIM_MONGOD_BIN")
	r, err := bench.Run(t.Context(), e, c)
	require.NoError(t, err)
	_, err = json.Marshal(r)
	require.NoError(t, err, "a result has a JSON form")
	for _, p := range r.Plots {
		_, err := p.Drawing.SVG()
		require.NoError(t, err)
	}
	return r
}

func TestEveryCellHasItsTablesAndClaims(t *testing.T) {
	t.Parallel()
	r := tiny(t, bench.Config{Repeats: 2})
	d, ok := r.Data.(Data)
	require.True(t, ok)
	for i, s := range d.Shapes {
		assert.Len(t, s.Load, 2, s.Shape)
		assert.Len(t, s.Finds, 2, s.Shape)
		assert.Len(t, s.Means.All, 2, s.Shape)
		assert.Len(t, s.Means.Tenth, 2, s.Shape)
		assert.Len(t, s.Sorts, 2, s.Shape)
		assert.False(t, s.Sorts[1].Failed, "with the disk's help every sort ends")
		assert.Equal(t, i == buckets, s.StatsMeans.All != nil)
		want := int64(100) // hours
		if i == documents {
			want = 6000
		}
		assert.Equal(t, want, s.Size.Documents, s.Shape)
	}
	assert.True(t, d.Shapes[documents].Sorts[0].Failed)
	assert.Len(t, r.Rows, 11)
	assert.Len(t, r.Tables, 5)
	assert.NotEmpty(t, r.Notes)
	assert.Greater(t, total(d.compressed(documents, store.Snappy)), 4*total(d.compressed(series, store.Snappy)))
	for i, l := range d.Late {
		if l.Shape == d.Shapes[buckets].Shape {
			assert.InDelta(t, 1, d.lateGrowth(i), 0, "a late reading goes into the bucket that it belongs to")
		}
	}
}

// TestUsersMongoDBKeepsItsLimit of a sort, which is left out.
func TestUsersMongoDBKeepsItsLimit(t *testing.T) {
	t.Parallel()
	r := tiny(t, bench.Config{Repeats: 1, URI: mongodtest.URI(t), Database: t.Name(), Cells: []string{cellSort, cellAggregate}})
	require.Len(t, r.Rows, 3)
	found := false
	for _, l := range r.LeftOut {
		found = found || l.Why == bench.OwnOnly
	}
	assert.True(t, found)
}

func TestSavingIsSharedOutBetweenShapeAndCompressor(t *testing.T) {
	t.Parallel()
	d := Data{Shapes: make([]ShapeData, len(shapes()))}
	for i, s := range shapes() {
		d.Shapes[i].Shape = s.String()
		for _, c := range []store.Compressor{store.Snappy, store.Zstd} {
			d.Compressors = append(d.Compressors, CompressorData{Shape: s.String(), Compressor: c, Size: shape.Size{Readings: 1, File: 1000, IndexFile: 1000}})
		}
	}
	d.Compressors[2*series].Size = shape.Size{Readings: 1, File: 600}   // snappy: 0.3
	d.Compressors[2*series+1].Size = shape.Size{Readings: 1, File: 200} // zstd: 0.1
	var r bench.Result
	d.noteSizes(&r)
	assert.Contains(t, r.Notes[0], "leaves 10 % with the compressors that the server gives to each; with the same one on both, 30 %")
	assert.Contains(t, r.Notes[0], "makes 22.2 % of the difference")
	assert.Contains(t, r.Notes[1], "Indexes are 50 %")
	assert.Contains(t, r.Notes[1], "71.4 % of what a time series does", "1000 of 1400")
}

func TestLateNoteFollowsFromTheFigures(t *testing.T) {
	t.Parallel()
	assert.Contains(t, lateAdvice(29, 1), "buckets by key")
	assert.Contains(t, lateAdvice(1.1, 1), "decide nothing")
	assert.Equal(t, bench.Confirmed, sortClaim(true).Verdict)
	assert.Equal(t, bench.NotSeen, sortClaim(false).Verdict)
	assert.Equal(t, bench.Confirmed, indexRow(bench.Samples{0, 0}).Verdict)
	assert.Equal(t, bench.NotSeen, indexRow(bench.Samples{4096}).Verdict)
}

func TestMeansAreNotedAtATenthAtHalfAndInTheEnd(t *testing.T) {
	t.Parallel()
	var m Means
	for i := range 20 {
		m.note(i+1, 20, float64(i+1))
	}
	assert.Equal(t, Means{Tenth: bench.Samples{2}, Half: bench.Samples{10}, All: bench.Samples{20}}, m)
	require.NoError(t, agree([]float64{1, 2}, []float64{1, 2}))
	require.ErrorIs(t, agree([]float64{1, 2}, []float64{1, 2.1}), errDisagree)
}

// TestWhatWasCutShortIsNotClaimed: a run that was interrupted has halves of
// everything.
func TestWhatWasCutShortIsNotClaimed(t *testing.T) {
	t.Parallel()
	r := &bench.Result{}
	trial := &trial{result: r, scale: scale{readings: 10, finds: 1, means: 10}}
	trial.data.Shapes = make([]ShapeData, len(shapes()))
	first := &trial.data.Shapes[documents]
	first.Load, first.Size = bench.Samples{1}, shape.Size{Readings: 10, File: 100}
	first.Data, first.Index, first.Total = bench.Samples{90}, bench.Samples{10}, bench.Samples{100}
	first.Finds, first.Means = bench.Samples{1}, Means{Tenth: bench.Samples{1}}
	trial.data.Late = make([]LateData, 3)
	trial.data.Compressors = []CompressorData{{Shape: shapes()[documents].String(), Compressor: pinned, Size: first.Size}}
	first.Means.All = bench.Samples{1}
	trial.report()
	assert.Empty(t, r.Rows)
	assert.Empty(t, r.Notes)
	_, err := json.Marshal(r)
	require.NoError(t, err)
}
