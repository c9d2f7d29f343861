package fill

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
)

// risen are figures of a window in which writes took 2 ms at first and so many
// times as long in the end.
func risen(times float64) *Figures {
	f := &Figures{
		OfferedRate: 2000, AchievedRate: 2000, FirstRate: 2000, LastRate: 2000, ReadingsPerUpdate: 1, JournalBytes: 600,
		MongodCPU: 2e-4 * (1 + times) / 2, MongodCPUFirst: 2e-4, MongodCPULast: 2e-4 * times,
		Write: Latency{P50: 0.002, P99: 0.008}, Loaded: Latency{P50: 0.002, P99: 0.008},
		First: Latency{P50: 0.002}, Last: Latency{P50: 0.002},
	}
	for i := range f.Tenths {
		l := Latency{P50: 0.002 * (1 + (times-1)*float64(i)/9), P99: 0.01}
		f.Tenths[i] = Tenth{Updates: 100, Write: l, Clock: l, MongodCPU: 1e-4}
	}
	f.Start, f.After40, f.After55 = f.Tenths[0].Clock, f.Tenths[6].Clock, f.Tenths[9].Clock
	return f
}

// pretend runs the experiment with figures that are known.
func pretend(t *testing.T, fill func(lab *bench.Lab)) *bench.Result {
	t.Helper()
	e := Experiment()
	e.Run = func(_ context.Context, lab *bench.Lab) error {
		fill(lab)
		return nil
	}
	r, err := bench.Run(t.Context(), e, bench.Config{Dir: t.TempDir()})
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
			add(lab, hourSingle, risen(40*times), true)
			add(lab, fiveSingle, risen(times), true)
		}
	})
	assert.Equal(t, []bench.Verdict{bench.Confirmed, bench.Confirmed, bench.Confirmed, bench.Confirmed}, verdicts(r))
	assert.InEpsilon(t, 0.002, r.Table("tenth-p50").Median("0.05", hourSingle), 1e-6)
}

func TestClaimsAboutAServerThatKeepsUp(t *testing.T) {
	t.Parallel()
	r := pretend(t, func(lab *bench.Lab) {
		for _, times := range []float64{2, 2.04} {
			add(lab, hourSingle, risen(times), true)
			low, high := risen(1), risen(1)
			high.Loaded.P50 = 0.006
			add(lab, prefilledCell(5), low, false)
			add(lab, prefilledCell(95), high, false)
			lab.Add("capacity", prefilledCell(5), "for each processor of mongod", 2500*times)
			lab.Add("capacity", prefilledCell(95), "for each processor of mongod", 1000*times)
		}
	})
	assert.Equal(t, []bench.Verdict{bench.SizeDiffers, bench.SizeDiffers, bench.Confirmed, bench.Confirmed}, verdicts(r))
	assert.InDelta(t, 3, r.Rows[2].Measured, 1e-9)
	assert.Zero(t, r.Rows[2].Published, "how long it queued decides how much longer a write takes")
	assert.Contains(t, r.Rows[0].Why, "only what queues takes tens of milliseconds")
	assert.Empty(t, r.Table("change").Samples(prefilledCell(5), "first third, p50"), "phases into filled buckets have no parts of a window")
}
