package checkpoint

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
)

func TestUpdatesPerCommand(t *testing.T) {
	t.Parallel()
	l := workload{Sensors: 500, ReadingsPerUpdate: 4, ReadingsPerSecond: 4000}
	assert.Equal(t, 5, l.updatesPerCommand())
	assert.Equal(t, 500*time.Millisecond, l.Revisit())
	l.ReadingsPerSecond = 40
	assert.Equal(t, 1, l.updatesPerCommand(), "slower than the command rate")
}

// pretend runs the experiment with known figures.
func pretend(t *testing.T, fill func(lab *bench.Lab)) (r *bench.Result, verdicts map[string]bench.Verdict) {
	t.Helper()
	e := Experiment()
	e.Run = func(_ context.Context, lab *bench.Lab) {
		fill(lab)
	}
	r, err := bench.Run(t.Context(), e, bench.Config{Hasty: true, Dir: t.TempDir()})
	require.NoError(t, err)
	verdicts = make(map[string]bench.Verdict)
	for _, row := range r.Rows {
		verdicts[row.Claim] = row.Verdict
	}
	return r, verdicts
}

func TestDelayedCheckpointsFailTheClaim(t *testing.T) {
	t.Parallel()
	r, got := pretend(t, func(lab *bench.Lab) {
		// One checkpoint every two seconds.
		addCost(lab, nameAppends, 2*time.Second, seenBy{samples: samplesOf(5.5)})
		addCost(lab, nameInserts, time.Second, seenBy{samples: samplesOf(5.5)})
	})
	assert.Equal(t, bench.SizeDiffers, got["every interval takes effect: checkpoints counted of each that was due"])
	interval := r.Table("interval")
	assert.InDelta(t, 1, interval.Median("appends, 2 s", ofDue), 1e-9)
	assert.InDelta(t, 0.5, interval.Median(ownIntervals, ofDue), 1e-9, "the one that is farthest off")
	assert.InDelta(t, 3600*60, r.Table("written").Median("appends, 2 s", hourOf), 1e-6)
	assert.NotEmpty(t, r.Table("dirty, appends").Rows)
}

func TestIntervalsAreComparedWithPublishedOnesAsFarApart(t *testing.T) {
	t.Parallel()
	_, got := pretend(t, func(lab *bench.Lab) {
		for _, d := range []time.Duration{6 * time.Second, 24 * time.Second} {
			for _, load := range []string{nameAppends, nameInserts} {
				for range 3 {
					lab.Add("interval", rowOf(load, d), gatheredOf, 1e6*d.Seconds())
					lab.Add("interval", rowOf(load, d), durationOf, 0.5+0.01*d.Seconds())
					lab.Add("both", seconds(d), duringOf, 0.01)
					lab.Add("written", rowOf(load, d), hourOf, 1e9/d.Seconds())
				}
			}
		}
	})
	assert.Equal(t, map[string]bench.Verdict{
		"inserts: dirty data gathers with the interval, 6 s → 24 s":                 bench.Confirmed,
		"inserts: a checkpoint takes longer with the interval, 6 s → 24 s":          bench.SizeDiffers,
		"the p99 of writes during a checkpoint grows with the interval, 6 s → 24 s": bench.NotSeen,
		"inserts: bytes written to the files an hour are the same, 6 s → 24 s":      bench.NotSeen,
		"appends: bytes written to the files an hour are the same, 6 s → 24 s":      bench.NotSeen,
	}, got)
}
