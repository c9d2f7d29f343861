package compression

import (
	"math"
	"slices"

	"github.com/brim-telemetry/brim/internal/bench"
)

// quantile returns the smallest sample that a share of all do not exceed; NaN of
// none.
func quantile(s bench.Samples, share float64) float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	at := int(math.Ceil(share*float64(len(sorted)))) - 1
	return sorted[min(max(at, 0), len(sorted)-1)]
}
