package compression

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/internal/store"
)

// tiny runs the experiment at a scale that shows only that it works.
func tiny(t *testing.T, c bench.Config) *bench.Result {
	t.Helper()
	mongodtest.URI(t) // skips where there is none
	e := Experiment()
	e.Run = func(ctx context.Context, lab *bench.Lab) {
		run(ctx, lab, scale{sensors: 2, hours: 1, rate: 500, write: 200 * time.Millisecond, checkpoint: 1, paced: []int{buckets5m}})
	}
	c.Quick, c.Hasty, c.Dir, c.MongodBin = true, true, t.TempDir(), os.Getenv("BRIM_MONGOD_BIN")
	r, err := bench.Run(t.Context(), e, c)
	require.NoError(t, err)
	_, err = json.Marshal(r)
	require.NoError(t, err, "a result has a JSON form")
	return r
}

func TestReads(t *testing.T) {
	t.Parallel()
	r := tiny(t, bench.Config{Repeats: 1, Cells: []string{"read"}})
	cold := !slices.ContainsFunc(r.LeftOut, func(l bench.LeftOut) bool { return l.What == "cold reads" })
	for _, s := range shapes() {
		for _, c := range compressors {
			assert.Len(t, r.Table("read").Samples(row(s, c), "warm p50"), 1, row(s, c))
			assert.Equal(t, cold, len(r.Table("read").Samples(row(s, c), "cold p50")) == 1, row(s, c))
		}
	}
	if cold {
		assert.Positive(t, r.Table("read").Median(row(shapes()[documents], store.NoneCompressor), "bytes from the files, cold"), "cold reads come from the files")
	}
	assert.NotEmpty(t, r.Rows)
}

// TestUsersMongoDB measures what needs no restart.
func TestUsersMongoDB(t *testing.T) {
	t.Parallel()
	r := tiny(t, bench.Config{Repeats: 1, URI: mongodtest.URI(t), Database: t.Name(), Cells: []string{"size", "write"}})
	for _, s := range shapes() {
		for _, c := range compressors {
			for _, values := range []string{walk, random} {
				assert.Positive(t, r.Table("size, "+values).Median(s.String(), string(c)), row(s, c))
			}
		}
	}
	size := func(c string) float64 { return r.Table("size, "+walk).Median(shapes()[documents].String(), c) }
	assert.Greater(t, size("none"), 2*size("zstd"), "rounded walks pack well")
	for _, c := range compressors {
		for _, measure := range []string{"p99", "files, a reading", "journal, a reading"} {
			assert.Positive(t, r.Table("write").Median(row(shapes()[buckets5m], c), measure), measure)
		}
		assert.Positive(t, r.Table("checkpoint").Median(string(c), "mongod CPU"))
		assert.Positive(t, r.Table("checkpoint").Median(string(c), "bytes written"))
	}
	assert.Len(t, r.Tables, 4)
	assert.GreaterOrEqual(t, len(r.Rows), 7)
}

func TestColdReadsNeedAnOwnMongod(t *testing.T) {
	t.Parallel()
	e := Experiment()
	e.Run = func(_ context.Context, lab *bench.Lab) {
		assert.False(t, (&trial{lab: lab}).coldPossible())
	}
	r, err := bench.Run(t.Context(), e, bench.Config{URI: "mongodb://nowhere", Dir: t.TempDir()})
	require.NoError(t, err)
	assert.Contains(t, r.LeftOut, bench.LeftOut{What: "cold reads", Why: bench.OwnOnly})
}
