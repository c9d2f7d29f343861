package report

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/load"
)

// aRamp has four steps of 2.5 s, the last of which is too much.
func aRamp() *load.Result {
	r := aResult()
	r.Setup.Rate, r.Setup.Steps, r.Setup.DurationSeconds = "1000..4000", 4, 10
	r.Intervals = nil
	asked := []float64{1000, 1000, 1500, 2000, 2000, 3000, 3000, 3500, 4000, 4000, 0}
	for i := range asked {
		each := load.Interval{Second: float64(i + 1), Offered: asked[i], P50: 0.001 * float64(i+1), P99: 0.01 * float64(i+1)}
		each.Achieved = min(each.Offered, 3000)
		if i >= 9 {
			each.Dropped = 500
		}
		r.Intervals = append(r.Intervals, each)
	}
	return r
}

func TestRampBySteps(t *testing.T) {
	t.Parallel()
	r := aRamp()
	all := steps(r)
	require.Len(t, all, 4)
	assert.InDelta(t, 1000, all[0].Asked, 1e-6)
	assert.InDelta(t, 0.02, all[0].P99, 1e-9, "the third second is of two steps")
	assert.InDelta(t, 4000, all[3].Asked, 1e-6, "not the waiting after it")
	assert.InDelta(t, 3000, all[3].Achieved, 1e-6)
	assert.InDelta(t, 0.1, all[3].P99, 1e-9)
	assert.InDelta(t, 0.05, all[1].P99, 1e-9)
	assert.EqualValues(t, 1000, all[3].Dropped, "with what was dropped after the end")
	text := textOf(t, r)
	assert.Contains(t, text, "### By step of the ramp; p50 and p99 are those of its slowest second\n")
	assert.Regexp(t, `7\.5–10 s +\| +4,000/s \| +3,000/s \| +10 ms \| +100 ms \| +1,000 \|\n`, text)
	assert.Contains(t, text, ", on average over the ramp")
	page := htmlOf(t, r)
	assert.Contains(t, page, ">7.5–10 s</td><td>4,000/s</td><td>3,000/s</td><td>10 ms</td><td>100 ms</td><td>1,000</td>")

	r.Setup.Steps = 0
	assert.Len(t, steps(r), 10)
	assert.Contains(t, textOf(t, r), "By tenth of the ramp")
	r.Setup.Steps = maxSteps + 1
	assert.Len(t, steps(r), 10)
	r.Setup.Steps = maxSteps
	assert.Len(t, steps(r), maxSteps)
	for _, each := range steps(r) {
		assert.Positive(t, each.P99, "each step lies in some second")
	}
	r.Setup.Rate = "2000"
	assert.Empty(t, steps(r))
	assert.NotContains(t, strings.ToLower(textOf(t, r)), "ramp")
}
