package console

import (
	"cmp"
	"slices"
	"strings"

	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/internal/store"
)

// A stretch is what one process counted within the span: between two looks.
type stretch struct{ from, to scrape.Look }

// stretches are those of all processes within the span, the present one last.
func (h *history) stretches() []stretch {
	var out []stretch
	for i := 0; i < len(h.checkpoints); {
		from := i
		for i < len(h.checkpoints) && h.checkpoints[i].run == h.checkpoints[from].run {
			i++
		}
		s := stretch{from: h.checkpoints[from].look, to: h.checkpoints[i-1].look}
		if h.checkpoints[from].run == h.run && h.last != nil {
			s.to = h.last
		}
		out = append(out, s)
	}
	return out
}

// A count is how often something happened.
type count struct {
	Name   string
	Recent float64 // within the span, over restarts
	Total  float64 // since the process was started
}

// counts tells a counter by the values of its labels, of those that ever rose.
func counts(stretches []stretch, last scrape.Look, family string, labels ...string) []count {
	by := make(map[string]*count)
	of := func(name string) *count {
		if by[name] == nil {
			by[name] = &count{Name: name}
		}
		return by[name]
	}
	for name, v := range valuesBy(last, family, labels) {
		of(name).Total = v
	}
	for _, s := range stretches {
		before := valuesBy(s.from, family, labels)
		for name, v := range valuesBy(s.to, family, labels) {
			of(name).Recent += rise(before[name], v)
		}
	}
	var out []count
	for _, c := range by {
		if c.Total > 0 || c.Recent > 0 {
			out = append(out, *c)
		}
	}
	slices.SortFunc(out, func(a, b count) int {
		return cmp.Or(cmp.Compare(b.Recent, a.Recent), cmp.Compare(b.Total, a.Total), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// valuesBy sums a counter by the values of its labels, which are joined by a
// space.
func valuesBy(look scrape.Look, family string, labels []string) map[string]float64 {
	out := make(map[string]float64)
	for _, m := range look[family].GetMetric() {
		values := make([]string, len(labels))
		for i, l := range labels {
			values[i] = scrape.Label(m, l)
		}
		out[strings.Join(values, " ")] += m.GetCounter().GetValue()
	}
	return out
}

// total tells a counter without regard to its labels.
func total(stretches []stretch, last scrape.Look, family, name string) count {
	out := count{Name: name}
	for _, c := range counts(stretches, last, family) {
		out.Recent, out.Total = c.Recent, c.Total
	}
	return out
}

// byTenth returns the writes of a stream within the span, by tenth; an empty
// name stands for all streams.
func byTenth(stretches []stretch, stream string) [len(store.Fills)]scrape.Histogram {
	var out [len(store.Fills)]scrape.Histogram
	for i, fill := range store.Fills {
		labels := scrape.Labels{"fill": fill}
		if stream != "" {
			labels["stream"] = stream
		}
		for _, s := range stretches {
			out[i] = out[i].Add(s.to.Histogram(metricWrite, labels).Since(s.from.Histogram(metricWrite, labels)))
		}
	}
	return out
}
