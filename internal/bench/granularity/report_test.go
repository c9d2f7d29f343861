package granularity

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/config"
)

// pretend runs the experiment with known figures: appends cost 600 µs plus each µs per reading
// held, and a slow repeat slows all of them.
func pretend(t *testing.T, each float64) *bench.Result {
	t.Helper()
	e := Experiment()
	e.Run = func(_ context.Context, lab *bench.Lab) {
		x := &trial{lab: lab, numbers: *numbersOf(true)}
		for _, slow := range []float64{1, 1.3, 0.99} {
			var points []*point
			for _, n := range x.appends.residents {
				p := &point{residents: n}
				p.times = bench.Samples{slow * (600 + each*float64(n)) * 1e-6}
				p.cpu, p.journals = bench.Samples{slow * (300 + each*float64(n)) * 1e-6}, bench.Samples{700}
				points = append(points, p)
			}
			x.conclude(points, 1, "")
			lab.Add("indexes", noIndex, cpuOf, slow*1e-4)
		}
		lab.Add("indexes", threeIndexes, cpuOf, 1.02e-4, 1.22e-4, 1.01e-4)
		fiveMinutes := 0.0
		for i, document := range []int64{1000, 4200, 12000, 47000} {
			documents := int64(published[i].documents / 1e4)
			x.addSize(config.FormatDuration(published[i].granularity), shape.Size{Documents: documents, Logical: document * documents}, 1e4, fiveMinutes)
			if i == 1 {
				fiveMinutes = float64(document * documents)
			}
		}
	}
	r, err := bench.Run(t.Context(), e, bench.Config{Hasty: true, Dir: t.TempDir(), Seed: 1})
	require.NoError(t, err)
	return r
}

func verdicts(r *bench.Result) map[string]bench.Verdict {
	all := make(map[string]bench.Verdict)
	for _, row := range r.Rows {
		all[row.Claim] = row.Verdict
	}
	return all
}

func TestClaimsAreAboutTheFigures(t *testing.T) {
	t.Parallel()
	r := pretend(t, 1)
	want := map[string]bench.Verdict{
		"time of an append, 1m to 5m (12 to 60 readings in the bucket)":   bench.NotSeen, // a slow repeat does not hide the others
		"time of an append, 1m to 15m (12 to 180 readings in the bucket)": bench.SizeDiffers,
		"time of an append, 1m to 1h (12 to 360 readings in the bucket)":  bench.SizeDiffers,
		"mongod's CPU for an append among many in a command, 1m to 1h":    bench.SizeDiffers,
		"an append costs more with 3 further indexes":                     bench.NotSeen,
		"bytes of documents a day at 5m, before compression":              bench.Confirmed,
		"bytes of documents a day at 1h, before compression":              bench.SizeDiffers,
		"part of the bytes a day at 5m that 1h saves":                     bench.SizeDiffers,
	}
	for _, p := range []string{"1m", "5m", "15m", "1h"} {
		want["a full document at "+p+", before compression"] = bench.SizeDiffers
		want["documents a day at "+p] = bench.Confirmed
	}
	assert.Equal(t, want, verdicts(r))
	assert.InDelta(t, 7.647, r.Rows[2].Published, 1e-3)
	assert.InDelta(t, (600.0+360)/(600+12), r.Rows[2].Measured, 1e-6)
	assert.InDelta(t, (300.0+360)/(300+12), r.Rows[3].Measured, 1e-6)
	assert.Equal(t, becauseFixed, r.Rows[2].Why)
	steep := verdicts(pretend(t, 20))
	for i, p := range published[1:] {
		name := []string{"5m", "15m", "1h"}[i]
		assert.Equal(t, bench.Confirmed, steep[fmt.Sprintf("time of an append, 1m to %s (12 to %d readings in the bucket)", name, p.held)], "appends that grow as published are confirmed")
	}
}

func TestArithmetic(t *testing.T) {
	t.Parallel()
	assert.InDelta(t, 122_000, rewritten(60, 1, 4000), 1e-9)
	assert.InDelta(t, 12_000, rewritten(60, 12, 4000), 1e-9)
	assert.InDelta(t, 4000, rewritten(60, 720, 4000), 1e-9, "all of a bucket at once")
	r := pretend(t, 1)
	assert.Nil(t, r.Table("rewritten").Samples("1m", "60 readings an append"), "a minute has no 60 readings")
}
