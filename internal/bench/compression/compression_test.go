package compression

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

// tiny runs the experiment at a scale that shows nothing but that it works.
func tiny(t *testing.T, c bench.Config) *bench.Result {
	t.Helper()
	mongodtest.URI(t) // skips where there is none
	e := Experiment()
	e.Run = func(ctx context.Context, lab *bench.Lab, r *bench.Result) error {
		return runScale(ctx, lab, r, scale{sensors: 2, hours: 1, rate: 500, write: 200 * time.Millisecond, checkpoint: 1, paced: []int{buckets5m}})
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
	r := tiny(t, bench.Config{Repeats: 1})
	d, ok := r.Data.(Data)
	require.True(t, ok)
	assert.Len(t, d.Sizes, 24)
	for _, s := range d.Sizes {
		assert.Equal(t, 2*721, s.Size.Readings)
		assert.Positive(t, s.Size.Data(), s.Shape)
	}
	assert.Greater(t, d.size(documents, none, Walk).Size.Data(), 2*d.size(documents, zstd, Walk).Size.Data(), "rounded walks pack well")
	for _, s := range d.Reads {
		assert.Len(t, s.WarmP50, 1, s.Shape)
	}
	for _, s := range d.Writes {
		assert.Len(t, s.P99, 1)
		assert.Positive(t, s.Journal.Min())
		assert.Positive(t, s.Blocks.Min())
	}
	for _, s := range d.Checkpoints {
		assert.Positive(t, s.CPU.Min())
		assert.Positive(t, s.Bytes.Min())
	}
	assert.Len(t, r.Tables, 4)
	if provesCold(t.TempDir()) == nil {
		for _, s := range d.Reads {
			assert.Len(t, s.ColdP50, 1, s.Shape)
		}
		assert.Positive(t, d.read(documents, none).ColdBytes.Min(), "what is cold comes from the files")
	}
	assert.GreaterOrEqual(t, len(r.Rows), 8)
	assert.NotEmpty(t, r.Notes)
}

func TestUsersMongoDBIsNotRestarted(t *testing.T) {
	t.Parallel()
	r := tiny(t, bench.Config{Repeats: 1, URI: mongodtest.URI(t), Database: t.Name(), Cells: []string{cellRead}})
	var left []string
	for _, l := range r.LeftOut {
		left = append(left, l.What)
	}
	assert.Contains(t, left, "cold reads")
	require.Len(t, r.Rows, 1)
	assert.Contains(t, r.Rows[0].Claim, "warm")
}
