package checkpoint

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
)

// planned returns the plan of a run without starting anything.
func planned(t *testing.T, quick bool, cells ...string) (p *plan, r *bench.Result) {
	t.Helper()
	e := Experiment()
	e.Run = func(_ context.Context, lab *bench.Lab) {
		p = planOf(lab)
		p.tell(lab)
	}
	r, err := bench.Run(t.Context(), e, bench.Config{Hasty: true, Quick: quick, Seed: 1, Dir: t.TempDir(), Cells: cells})
	require.NoError(t, err)
	return p, r
}

func TestIntervalsArePlannedByCell(t *testing.T) {
	t.Parallel()
	p, r := planned(t, true)
	assert.Equal(t, []time.Duration{time.Second, 4 * time.Second}, p.intervals)
	assert.Len(t, r.Reduced, 2)
	assert.Len(t, r.LeftOut, 3, "every published interval by name")

	p, r = planned(t, false)
	assert.Equal(t, []time.Duration{6 * time.Second, 12 * time.Second, 24 * time.Second}, p.intervals, "the long ones only if they are asked for")
	assert.Len(t, r.LeftOut, 3)

	p, _ = planned(t, false, "interval", "interval-300", "interval-60")
	assert.Equal(t, []time.Duration{6 * time.Second, 12 * time.Second, 24 * time.Second, time.Minute, 5 * time.Minute}, p.intervals)
	assert.Equal(t, []time.Duration{6 * time.Second, 24 * time.Second, time.Minute, 5 * time.Minute}, p.forInserts())

	p, _ = planned(t, false, "journal")
	assert.Empty(t, p.intervals)
}

func TestQuickRunGathersAsMuchPerInterval(t *testing.T) {
	t.Parallel()
	full, _ := planned(t, false)
	quick, _ := planned(t, true)
	gathers := func(p *plan) float64 { return p.inserts.ReadingsPerSecond * p.intervals[0].Seconds() }
	assert.InEpsilon(t, gathers(full), gathers(quick), 0.5)
	for _, p := range []*plan{full, quick} {
		assert.GreaterOrEqual(t, p.intervals[0], p.appends.Revisit(), "each bucket gets an append between two checkpoints")
	}
}
