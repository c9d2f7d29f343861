package scrape

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// A Histogram counts observations in ranges. The zero value is empty. It is read from a
// native histogram, as all of Brim's are whose quantiles matter; for a classic one only the
// count and the sum are known.
type Histogram struct {
	Count float64
	Sum   float64
	Zero  float64 // observations that are nearly 0
	// Native has the ranges by their index: range i ends at base^i, and base is
	// 2^(2^-schema). A histogram that would have too many ranges lowers its schema by 1,
	// which merges pairs of neighbouring ranges.
	Native map[int32]float64
	Schema int32
}

// HistogramOf returns that of a metric, an empty one if it has none or is nil.
func HistogramOf(m *dto.Metric) Histogram {
	h := m.GetHistogram()
	if h == nil {
		return Histogram{}
	}
	out := Histogram{
		Count: float64(h.GetSampleCount()), Sum: h.GetSampleSum(), Zero: float64(h.GetZeroCount()),
		Native: make(map[int32]float64, len(h.GetPositiveDelta())), Schema: h.GetSchema(),
	}
	// Spans are used ranges. Counts are stored as differences between neighbours.
	index, next, count := int32(0), 0, int64(0)
	for _, span := range h.GetPositiveSpan() {
		index += span.GetOffset()
		for range span.GetLength() {
			count += h.GetPositiveDelta()[next]
			next++
			if count > 0 {
				out.Native[index] = float64(count)
			}
			index++
		}
	}
	return out
}

// Add returns the observations of both.
func (h Histogram) Add(other Histogram) Histogram { return h.combine(other, 1) }

// Since returns the observations made after before was seen. Where h has fewer
// of them, in all or in any range, its process was started anew or has emptied
// it, and all of h came after.
func (h Histogram) Since(before Histogram) Histogram {
	out := h.combine(before, -1)
	fell := out.Count < 0 || out.Zero < 0
	for _, n := range out.Native {
		fell = fell || n < 0
	}
	if fell {
		return h
	}
	maps.DeleteFunc(out.Native, func(_ int32, n float64) bool { return n == 0 })
	return out
}

// combine adds sign times the other's observations. Ranges of two widths become
// the wider ones, since those can be made of the others.
func (h Histogram) combine(other Histogram, sign float64) Histogram {
	out := Histogram{Count: h.Count + sign*other.Count, Sum: h.Sum + sign*other.Sum, Zero: h.Zero + sign*other.Zero, Schema: h.Schema}
	if len(h.Native) == 0 || len(other.Native) > 0 && other.Schema < h.Schema {
		out.Schema = other.Schema
	}
	out.Native = make(map[int32]float64, max(len(h.Native), len(other.Native)))
	h.widen(out.Schema, func(index int32, n float64) { out.Native[index] += n })
	other.widen(out.Schema, func(index int32, n float64) { out.Native[index] += sign * n })
	return out
}

// widen passes on the ranges of a lower schema: range i of h is in range i /
// 2^(difference), rounded up, of that.
func (h Histogram) widen(schema int32, add func(index int32, n float64)) {
	for index, n := range h.Native {
		add(-(-index >> (h.Schema - schema)), n)
	}
}

// Quantile returns the value that a fraction q of the observations does not
// exceed, 0 < q <= 1, as close as the ranges tell; NaN if there are none.
// Within a range observations are assumed to be spread evenly on a logarithmic
// scale, since latencies are.
func (h Histogram) Quantile(q float64) float64 {
	ranges, total := slices.Sorted(maps.Keys(h.Native)), h.Zero
	for _, n := range h.Native {
		total += n
	}
	rank := q*total - h.Zero
	if rank <= 0 && h.Zero > 0 {
		return 0
	}
	width := math.Ldexp(1, -int(h.Schema)) // of a range, as an exponent of 2
	for i, index := range ranges {
		n := h.Native[index]
		if rank > n && i < len(ranges)-1 {
			rank -= n
			continue
		}
		return math.Exp2((float64(index) - 1 + min(rank/n, 1)) * width)
	}
	return math.NaN()
}

// Mean returns the mean observation, NaN if there is none.
func (h Histogram) Mean() float64 { return h.Sum / h.Count }

// WithNative gives a histogram native ranges beside its classic buckets, which
// every Prometheus can read: 10 % wide at most, so that a quantile is right to
// that, and twice as wide whenever there would be more than 160, which bounds
// what a label costs.
func WithNative(o prometheus.HistogramOpts) prometheus.HistogramOpts {
	o.NativeHistogramBucketFactor = 1.1
	o.NativeHistogramMaxBucketNumber = 160
	o.NativeHistogramMinResetDuration = time.Hour
	return o
}
