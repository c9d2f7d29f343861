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
	cells map[cell]float64
}

// A cell is a range of values: above from, up to and including to.
type cell struct{ from, to float64 }

func newHistogram(h *dto.Histogram) Histogram {
	out := Histogram{Count: float64(h.GetSampleCount()), Sum: h.GetSampleSum(), cells: make(map[cell]float64)}
	if h.Schema == nil || len(h.GetPositiveSpan()) == 0 && h.GetZeroCount() == 0 {
		out.classic(h)
	} else {
		out.native(h)
	}
	return out
}

func (h *Histogram) classic(from *dto.Histogram) {
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

// native walks the spans of used buckets: bucket i ends at base^i, and base is
// 2^(2^-schema). Counts are kept as differences from one to the next.
func (h *Histogram) native(from *dto.Histogram) {
	if n := from.GetZeroCount(); n > 0 {
		h.cells[cell{0, from.GetZeroThreshold()}] = float64(n)
	}
	exponent := math.Ldexp(1, -int(from.GetSchema()))
	bound := func(i int32) float64 { return math.Exp2(float64(i) * exponent) }
	index, next, count := int32(0), 0, int64(0)
	for _, span := range from.GetPositiveSpan() {
		index += span.GetOffset()
		for range span.GetLength() {
			count += from.GetPositiveDelta()[next]
			next++
			if count > 0 {
				h.cells[cell{bound(index - 1), bound(index)}] = float64(count)
			}
			index++
		}
	}
}

// Add returns the observations of both.
func (h Histogram) Add(other Histogram) Histogram { return h.combine(other, 1) }

// Since returns the observations made after before was seen. Where h has fewer
// of them, its process was started anew, and all of h came after.
func (h Histogram) Since(before Histogram) Histogram {
	if h.Count < before.Count {
		return h
	}
	return h.combine(before, -1)
}

func (h Histogram) combine(other Histogram, sign float64) Histogram {
	out := Histogram{Count: h.Count + sign*other.Count, Sum: h.Sum + sign*other.Sum, cells: maps.Clone(h.cells)}
	if out.cells == nil {
		out.cells = make(map[cell]float64, len(other.cells))
	}
	for c, n := range other.cells {
		out.cells[c] += sign * n
	}
	maps.DeleteFunc(out.cells, func(_ cell, n float64) bool { return n <= 0 })
	return out
}

// Quantile returns the value that the share q of the observations does not
// exceed, 0 < q <= 1, as close as the ranges tell; NaN if there are none.
// Within a range observations are taken as spread evenly on a logarithmic
// scale, since latencies are.
func (h Histogram) Quantile(q float64) float64 {
	cells := slices.SortedFunc(maps.Keys(h.cells), func(a, b cell) int { return cmp.Compare(a.to, b.to) })
	total := 0.0
	for _, n := range h.cells {
		total += n
	}
	rank := q * total
	for i, c := range cells {
		n := h.cells[c]
		if rank > n && i < len(cells)-1 {
			rank -= n
			continue
		}
		return c.at(min(rank/n, 1))
	}
	return math.NaN()
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
