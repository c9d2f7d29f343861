package trend

import (
	"math"
	"time"

	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// steps are the distances between two moments that are asked for: whole parts
// or multiples of an hour, so that blocks are made of whole ones.
var steps = []time.Duration{
	5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour, 6 * time.Hour, 12 * time.Hour, day,
}

// stepOf makes some 250 moments of a span; of more than 250 days one a day.
func stepOf(span time.Duration) time.Duration {
	const moments = 255
	for _, step := range steps {
		if span <= moments*step {
			return step
		}
	}
	return day
}

// rangeOf is what to ask for: moments on whole steps, of which the last is
// over by now. Each stands for the step before it.
func rangeOf(span time.Duration, now time.Time) prometheus.Range {
	step := stepOf(span)
	end := now.UTC().Truncate(step)
	return prometheus.Range{Start: end.Add(-span).Truncate(step).Add(step), End: end, Step: step}
}

// A grid is a series with a value for each moment; NaN: nothing was seen.
type grid struct {
	start  time.Time // the first moment
	step   time.Duration
	values []float64
}

func newGrid(r prometheus.Range) grid {
	g := grid{start: r.Start, step: r.Step, values: make([]float64, int(r.End.Sub(r.Start)/r.Step)+1)}
	for i := range g.values {
		g.values[i] = math.NaN()
	}
	return g
}

// gridOf places the samples of a query's only series. What is not finite was
// not seen.
func gridOf(r prometheus.Range, samples []model.SamplePair) grid {
	g := newGrid(r)
	for _, s := range samples {
		i := int(s.Timestamp.Time().Sub(r.Start).Round(r.Step) / r.Step)
		if v := float64(s.Value); i >= 0 && i < len(g.values) && !math.IsInf(v, 0) {
			g.values[i] = v
		}
	}
	return g
}

func (g grid) at(i int) time.Time { return g.start.Add(time.Duration(i) * g.step) }

// seen returns where the first and the last value are, and how many there are.
func (g grid) seen() (first, last, count int) {
	first = -1
	for i, v := range g.values {
		if math.IsNaN(v) {
			continue
		}
		if count++; first < 0 {
			first = i
		}
		last = i
	}
	return first, last, count
}

// A layout says how many moments make a block.
type layout struct{ first, size int }

// layoutOf makes blocks of a day, which have its ups and downs in them; where
// less than ten days were seen, sixteen blocks.
func layoutOf(seen grid) layout {
	const days, parts = 10, 16
	first, last, count := seen.seen()
	if count == 0 {
		return layout{size: 1}
	}
	moments := last - first + 1
	if time.Duration(moments)*seen.step >= days*day {
		return layout{first: first, size: int(day / seen.step)}
	}
	return layout{first: first, size: (moments + parts - 1) / parts}
}

// blocks are the medians of a grid's blocks. A block with less than a quarter
// of its moments says nothing and is left out; index tells which are there.
func (g grid) blocks(l layout) (points []point, index []int) {
	for from, n := l.first, 0; from < len(g.values); from, n = from+l.size, n+1 {
		to := min(from+l.size, len(g.values))
		values := known(g.values[from:to])
		if len(values) == 0 || 4*len(values) < l.size {
			continue
		}
		half := time.Duration(to-from) * g.step / 2
		points = append(points, point{at: g.at(from).Add(half - g.step), value: median(values)})
		index = append(index, n)
	}
	return points, index
}

// known returns the values that are there, as a copy.
func known(values []float64) []float64 {
	var out []float64
	for _, v := range values {
		if !math.IsNaN(v) {
			out = append(out, v)
		}
	}
	return out
}

// ends are the medians of the first and of the last tenth of what was seen of a
// series, at least a block and, where there are two, a day each: whole days.
func (g grid) ends(l layout) (begin, now float64) {
	first, last, count := g.seen()
	if count == 0 {
		return math.NaN(), math.NaN()
	}
	moments, ofDay := last-first+1, int(day/g.step)
	part := min(max(l.size, moments/10), moments)
	if moments >= 2*ofDay {
		part = max(part/ofDay, 1) * ofDay
	}
	return median(known(g.values[first : first+part])), median(known(g.values[last+1-part : last+1]))
}
