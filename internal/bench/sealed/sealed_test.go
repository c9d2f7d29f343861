package sealed

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestExperiment runs at a scale that shows only that it works.
func TestExperiment(t *testing.T) {
	t.Parallel()
	e := Experiment()
	e.Run = func(ctx context.Context, lab *bench.Lab) {
		run(ctx, lab, scale{sensors: 2, ecg: 1500, periods: 2, reading: 1, span: time.Hour, queries: 1})
	}
	r, err := bench.Run(t.Context(), e, bench.Config{
		Quick: true, Hasty: true, Repeats: 1, Brim: program.Path(t), URI: mongodtest.URI(t), Database: t.Name(), Dir: t.TempDir(),
	})
	require.NoError(t, err)
	assert.Len(t, r.Rows, len(claims()), "all claims were checked")
	size := r.Table("size")
	for _, dataset := range allSets {
		for _, c := range compressors() {
			assert.Positive(t, size.Median(row(dataset, nativeShape(), c), totalOf))
			assert.Positive(t, size.Median(row(dataset, sealedShape(windowOf(dataset)), c), sealCPUOf), "they are sealed")
		}
	}
	assert.NotEmpty(t, r.Answer)
}

func TestDatasetsRepeat(t *testing.T) {
	t.Parallel()
	r := newDataset(fourSet, 60, "s-0", "s-1")
	generateFour(rand.New(rand.NewPCG(1, 3)), r, 720) //nolint:gosec // synthetic load
	assert.Equal(t, 720, r.each())
	assert.Equal(t, time.Hour, r.at(1, 723).Sub(r.at(1, 3)))
	assert.Equal(t, r.AppendFields(nil, 1, 3, time.Time{}), r.AppendFields(nil, 1, 723, time.Time{}))
}
