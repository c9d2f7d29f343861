package scrape

import (
	"cmp"
	"maps"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"
)

// A Histogram counts observations in ranges. The zero value is empty. It is
// made of a native histogram where there is one, whose ranges are 9 % wide or
// as told, and otherwise of the classic buckets.
type Histogram struct {
	Count float64
	Sum   float64

	cells map[cell]float64 // classic buckets, and what a native histogram takes for 0
	// native has the ranges of a native histogram by their index: range i ends at
	// base^i, and base is 2^(2^-schema). One that would have too many ranges
	// lowers its schema by 1, which makes one range of each two neighbours.
	native map[int32]float64
	schema int32
}

// A cell is a range of values: above from, up to and including to.
type cell struct{ from, to float64 }

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
	h.cells = make(map[cell]float64)
	below, count := 0.0, 0.0
	for _, b := range from.GetBucket() {
		if n := float64(b.GetCumulativeCount()) - count; n > 0 {
			h.cells[cell{below, b.GetUpperBound()}] = n
		}
		below, count = b.GetUpperBound(), float64(b.GetCumulativeCount())
	}
	if n := h.Count - count; n > 0 && !math.IsInf(below, 1) {
		h.cells[cell{below, math.Inf(1)}] = n
	}
}

// readNative walks the spans of used ranges. Counts are kept as differences
// from one to the next.
func (h *Histogram) readNative(from *dto.Histogram) {
	if n := from.GetZeroCount(); n > 0 {
		h.cells = map[cell]float64{{0, from.GetZeroThreshold()}: float64(n)}
	}
	h.native, h.schema = make(map[int32]float64, len(from.GetPositiveDelta())), from.GetSchema()
	index, next, count := int32(0), 0, int64(0)
	for _, span := range from.GetPositiveSpan() {
		index += span.GetOffset()
		for range span.GetLength() {
			count += from.GetPositiveDelta()[next]
			next++
			if count > 0 {
				h.native[index] = float64(count)
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
	for _, n := range out.cells {
		fell = fell || n < 0
	}
	for _, n := range out.native {
		fell = fell || n < 0
	}
	if fell {
		return h
	}
	maps.DeleteFunc(out.cells, func(_ cell, n float64) bool { return n == 0 })
	maps.DeleteFunc(out.native, func(_ int32, n float64) bool { return n == 0 })
	return out
}

// combine adds sign times the other's observations. Ranges of two widths become
// the wider ones, since those can be made of the others.
func (h Histogram) combine(other Histogram, sign float64) Histogram {
	out := Histogram{Count: h.Count + sign*other.Count, Sum: h.Sum + sign*other.Sum, schema: h.schema}
	if len(h.native) == 0 || len(other.native) > 0 && other.schema < h.schema {
		out.schema = other.schema
	}
	out.cells = make(map[cell]float64, len(h.cells)+len(other.cells))
	maps.Copy(out.cells, h.cells)
	for c, n := range other.cells {
		out.cells[c] += sign * n
	}
	out.native = make(map[int32]float64, max(len(h.native), len(other.native)))
	h.widen(out.schema, func(index int32, n float64) { out.native[index] += n })
	other.widen(out.schema, func(index int32, n float64) { out.native[index] += sign * n })
	return out
}

// widen tells the ranges of a lower schema: range i of this one is in range i /
// 2^(difference), rounded up, of that.
func (h Histogram) widen(schema int32, tell func(index int32, n float64)) {
	for index, n := range h.native {
		tell(-(-index >> (h.schema - schema)), n)
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
	cell
	n float64
}

// ranges returns those that have observations, from the lowest on, and how many
// observations they have together.
func (h Histogram) ranges() (out []counted, total float64) {
	out = make([]counted, 0, len(h.cells)+len(h.native))
	for c, n := range h.cells {
		out = append(out, counted{c, n})
	}
	exponent := math.Ldexp(1, -int(h.schema))
	bound := func(i int32) float64 { return math.Exp2(float64(i) * exponent) }
	for i, n := range h.native {
		out = append(out, counted{cell{bound(i - 1), bound(i)}, n})
	}
	slices.SortFunc(out, func(a, b counted) int { return cmp.Compare(a.to, b.to) })
	for _, r := range out {
		total += r.n
	}
	return out, total
}

// at returns the value at a share of the range.
func (c cell) at(share float64) float64 {
	switch {
	case math.IsInf(c.to, 1):
		return c.from
	case c.from <= 0:
		return c.to * share
	default:
		return c.from * math.Pow(c.to/c.from, share)
	}
}

// Mean returns the mean observation, NaN if there is none.
func (h Histogram) Mean() float64 { return h.Sum / h.Count }
