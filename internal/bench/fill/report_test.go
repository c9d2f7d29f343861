package fill

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
)

// addRisen adds a window in which writes took 2 ms at first and a multiple of that in the end.
func addRisen(lab *bench.Lab, cell string, times float64) {
	lab.Add("load", cell, "p50", 0.002)
	lab.Add("load", cell, "p99", 0.008)
	lab.Add("load", cell, "p50 at the start", 0.002)
	lab.Add("load", cell, "p50 after 40 min", 0.002*(1+(times-1)*6/9))
	lab.Add("load", cell, "p50 after 55 min", 0.002*times)
	lab.Add("change", cell, "first third, p50", 0.002)
	lab.Add("change", cell, "last third, p50", 0.002)
}

// pretend runs the experiment with known figures.
func pretend(t *testing.T, fill func(lab *bench.Lab)) *bench.Result {
	t.Helper()
	e := Experiment()
	e.Run = func(_ context.Context, lab *bench.Lab) {
		fill(lab)
	}
	r, err := bench.Run(t.Context(), e, bench.Config{Hasty: true, Dir: t.TempDir()})
	require.NoError(t, err)
	return r
}

func verdicts(r *bench.Result) (all []bench.Verdict) {
	for _, row := range r.Rows {
		all = append(all, row.Verdict)
	}
	return all
}

func TestClaimsAboutAServerThatQueues(t *testing.T) {
	t.Parallel()
	r := pretend(t, func(lab *bench.Lab) {
		for _, times := range []float64{1, 1.02} {
			addRisen(lab, hourSingle, 40*times)
			addRisen(lab, fiveSingle, times)
		}
	})
	assert.Equal(t, []bench.Verdict{bench.Confirmed, bench.Confirmed, bench.Confirmed, bench.Confirmed}, verdicts(r))
}

func TestClaimsAboutAServerThatKeepsUp(t *testing.T) {
	t.Parallel()
	r := pretend(t, func(lab *bench.Lab) {
		for _, times := range []float64{2, 2.04} {
			addRisen(lab, hourSingle, times)
			lab.Add("load", prefilledCell(5), "p50", 0.002)
			lab.Add("load", prefilledCell(95), "p50", 0.006)
			lab.Row("capacity", prefilledCell(5), 2000, 2500*times)
			lab.Row("capacity", prefilledCell(95), 2000, 1000*times)
		}
	})
	assert.Equal(t, []bench.Verdict{bench.SizeDiffers, bench.SizeDiffers, bench.Confirmed, bench.Confirmed}, verdicts(r))
	assert.InDelta(t, 3, r.Rows[2].Measured, 1e-9)
	assert.Zero(t, r.Rows[2].Published, "how long it queued decides how much longer a write takes")
	assert.Contains(t, r.Rows[0].Why, "only what queues takes tens of milliseconds")
}
