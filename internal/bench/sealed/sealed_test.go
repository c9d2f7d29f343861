package sealed

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// TestExperiment runs it at a scale that shows nothing but that it works.
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
	for _, recording := range allSets {
		for _, c := range compressors() {
			assert.Positive(t, size.Median(row(recording, nativeShape(), c), totalOf))
			assert.Positive(t, size.Median(row(recording, sealedShape(windowOf(recording)), c), sealCPUOf), "they are sealed")
		}
	}
	assert.NotEmpty(t, r.Answer)
}

func TestRecordingOfAFile(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(dataFolder, dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ecg.csv"), []byte("sensor,ts,a,b\ns,3600500,1,2.5\nz,3600600,1,\ns,3601000,,3.0\ns,9000000,1,1.5\nz,7300000,2,1.0\n"), 0o600))
	r := recordings(1, scaleOf(true))[1]
	assert.Equal(t, []string{"s", "z"}, r.ids)
	assert.Equal(t, 2, r.each(), "as many as the sensor with the fewest")
	assert.Equal(t, 2*time.Hour, r.period)
	assert.Equal(t, 2*time.Hour+3_700*time.Second, r.at(1, 3).Sub(r.at(1, 0).Truncate(time.Hour)), "the second reading of the second period")
	assert.Equal(t, []telemetry.Field{{Name: "b", Value: telemetry.FloatValue(3)}}, r.AppendFields(nil, 0, 3, time.Time{}), "it repeats")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cpu.csv"), []byte("sensor,ts,a\ns,now,1\n"), 0o600))
	err := bench.Try(func() { recordings(1, scaleOf(true)) })
	require.ErrorContains(t, err, "cpu.csv")
}
