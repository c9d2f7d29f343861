package bench

import (
	"math"
	"slices"
)

// Samples are what the repeats of one measurement gave, in the order of the
// repeats.
type Samples []float64

// Min returns the smallest sample; NaN of none.
func (s Samples) Min() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	return slices.Min(s)
}

// Max returns the largest sample; NaN of none.
func (s Samples) Max() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	return slices.Max(s)
}

// Median returns the one in the middle, or the mean of the two there; NaN of
// none.
func (s Samples) Median() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// Quantile returns the least sample that a share of all do not exceed: of p99 and
// fewer than 100 the greatest. NaN of none.
func (s Samples) Quantile(share float64) float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(max(int(math.Ceil(share*float64(len(sorted))))-1, 0), len(sorted)-1)]
}

// Overlaps reports whether the ranges of two have something in common, so that
// the repeats show no difference.
func (s Samples) Overlaps(other Samples) bool {
	return s.Min() <= other.Max() && other.Min() <= s.Max()
}

// Over returns the samples of s over those of the same repeats of other.
func (s Samples) Over(other Samples) Samples {
	ratios := make(Samples, min(len(s), len(other)))
	for i := range ratios {
		ratios[i] = s[i] / other[i]
	}
	return ratios
}

// Each returns f of each sample.
func (s Samples) Each(f func(float64) float64) Samples {
	out := make(Samples, len(s))
	for i, v := range s {
		out[i] = f(v)
	}
	return out
}
