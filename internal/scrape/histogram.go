package scrape

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// A Histogram counts observations in ranges. The zero value is empty. It is read from
// the native histogram if there is one, and otherwise from the classic buckets.
type Histogram struct {
	Count float64
	Sum   float64

	Classic map[Range]float64 // classic buckets, and what a native histogram takes for 0
	// Native has the ranges of a native histogram by their index: range i ends at
	// base^i, and base is 2^(2^-schema). One that would have too many ranges
	// lowers its schema by 1, which makes one range of each two neighbours.
	Native map[int32]float64
	Schema int32
}

// A Range of values: above From, up to and including To.
type Range struct{ From, To float64 }

// HistogramOf returns that of a metric, an empty one if it has none or is nil.
func HistogramOf(m *dto.Metric) Histogram {
	h := m.GetHistogram()
	if h == nil {
		return Histogram{}
	}
	out := Histogram{Count: float64(h.GetSampleCount()), Sum: h.GetSampleSum()}
	if h.Schema == nil || len(h.GetPositiveSpan()) == 0 && h.GetZeroCount() == 0 {
		out.readClassic(h)
	} else {
		out.readNative(h)
	}
	return out
}

func (h *Histogram) readClassic(from *dto.Histogram) {
	h.Classic = make(map[Range]float64)
	below, count := 0.0, 0.0
	for _, b := range from.GetBucket() {
		if n := float64(b.GetCumulativeCount()) - count; n > 0 {
			h.Classic[Range{below, b.GetUpperBound()}] = n
		}
		below, count = b.GetUpperBound(), float64(b.GetCumulativeCount())
	}
	if n := h.Count - count; n > 0 && !math.IsInf(below, 1) {
		h.Classic[Range{below, math.Inf(1)}] = n
	}
}

// readNative walks the spans of used ranges. Counts are kept as differences
// from one to the next.
func (h *Histogram) readNative(from *dto.Histogram) {
	if n := from.GetZeroCount(); n > 0 {
		h.Classic = map[Range]float64{{0, from.GetZeroThreshold()}: float64(n)}
	}
	h.Native, h.Schema = make(map[int32]float64, len(from.GetPositiveDelta())), from.GetSchema()
	index, next, count := int32(0), 0, int64(0)
	for _, span := range from.GetPositiveSpan() {
		index += span.GetOffset()
		for range span.GetLength() {
			count += from.GetPositiveDelta()[next]
			next++
			if count > 0 {
				h.Native[index] = float64(count)
			}
			index++
		}
	}
}

// Add returns the observations of both.
func (h Histogram) Add(other Histogram) Histogram { return h.combine(other, 1) }

// Since returns the observations made after before was seen. Where h has fewer
// of them, in all or in any range, its process was started anew or has emptied
// it, and all of h came after.
func (h Histogram) Since(before Histogram) Histogram {
	out := h.combine(before, -1)
	fell := out.Count < 0
	for _, n := range out.Classic {
		fell = fell || n < 0
	}
	for _, n := range out.Native {
		fell = fell || n < 0
	}
	if fell {
		return h
	}
	maps.DeleteFunc(out.Classic, func(_ Range, n float64) bool { return n == 0 })
	maps.DeleteFunc(out.Native, func(_ int32, n float64) bool { return n == 0 })
	return out
}

// combine adds sign times the other's observations. Ranges of two widths become
// the wider ones, since those can be made of the others.
func (h Histogram) combine(other Histogram, sign float64) Histogram {
	out := Histogram{Count: h.Count + sign*other.Count, Sum: h.Sum + sign*other.Sum, Schema: h.Schema}
	if len(h.Native) == 0 || len(other.Native) > 0 && other.Schema < h.Schema {
		out.Schema = other.Schema
	}
	out.Classic = make(map[Range]float64, len(h.Classic)+len(other.Classic))
	maps.Copy(out.Classic, h.Classic)
	for c, n := range other.Classic {
		out.Classic[c] += sign * n
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

// Quantile returns the value that the share q of the observations does not
// exceed, 0 < q <= 1, as close as the ranges tell; NaN if there are none.
// Within a range observations are taken as spread evenly on a logarithmic
// scale, since latencies are.
func (h Histogram) Quantile(q float64) float64 {
	ranges, total := h.ranges()
	rank := q * total
	for i, r := range ranges {
		if rank > r.n && i < len(ranges)-1 {
			rank -= r.n
			continue
		}
		return r.at(min(rank/r.n, 1))
	}
	return math.NaN()
}

// A counted is a range with its observations.
type counted struct {
	Range

	n float64
}

// ranges returns those that have observations, from the lowest on, and how many
// observations they have together.
func (h Histogram) ranges() (out []counted, total float64) {
	out = make([]counted, 0, len(h.Classic)+len(h.Native))
	for c, n := range h.Classic {
		out = append(out, counted{c, n})
	}
	exponent := math.Ldexp(1, -int(h.Schema))
	bound := func(i int32) float64 { return math.Exp2(float64(i) * exponent) }
	for i, n := range h.Native {
		out = append(out, counted{Range{bound(i - 1), bound(i)}, n})
	}
	slices.SortFunc(out, func(a, b counted) int { return cmp.Compare(a.To, b.To) })
	for _, r := range out {
		total += r.n
	}
	return out, total
}

// at returns the value at a share of the range.
func (r Range) at(share float64) float64 {
	switch {
	case math.IsInf(r.To, 1):
		return r.From
	case r.From <= 0:
		return r.To * share
	default:
		return r.From * math.Pow(r.To/r.From, share)
	}
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
