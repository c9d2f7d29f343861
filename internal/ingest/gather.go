package ingest

import (
	"cmp"
	"math"
	"slices"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A gatherer makes readings of samples that arrive metric by metric, as in remote write and
// OTLP: those with the same tags and time are the fields of one reading.
type gatherer struct {
	in      *intake
	sets    []tagSet
	metrics []metric
	samples []metricSample
	order   []metricSample // by set
	text    int64          // bytes of tags and alias keys

	// ended is called with the samples of each reading, and why it was refused.
	ended func(samples []metricSample, refused *telemetry.Refusal)
}

// A tagSet is a set of tags, which identifies a sensor.
type tagSet struct {
	series  *batch.Series   // nil: not known yet
	tags    []telemetry.Tag // sorted by name, if series is not known
	alias   []byte          // key to remember the series by; empty: none
	samples uint32
	refusal *telemetry.Refusal // of everything with these tags
}

// A metric is a metric with a set of tags.
type metric struct {
	name  []byte // escaped
	kind  telemetry.Kind
	set   uint32
	point int // that its samples belong to, see otlpMapper
}

// A metricSample is a value of a metric, as a word of a batch.
type metricSample struct {
	at     int64
	word   uint64
	metric uint32
}

func (g *gatherer) addSet(s tagSet) (number uint32) {
	g.text += int64(len(s.alias))
	for _, t := range s.tags {
		g.text += int64(32 + len(t.Name) + len(t.Value))
	}
	g.sets = append(g.sets, s)
	return uint32(len(g.sets) - 1)
}

func (g *gatherer) addMetric(m metric) (number uint32) {
	g.metrics = append(g.metrics, m)
	return uint32(len(g.metrics) - 1)
}

func (g *gatherer) add(metric uint32, at int64, word uint64) {
	g.samples = append(g.samples, metricSample{at, word, metric})
	g.sets[g.metrics[metric].set].samples++
}

// memory returns how many bytes are gathered.
func (g *gatherer) memory() int64 {
	return int64(len(g.samples)*2*24+len(g.sets)*128+len(g.metrics)*48) + g.text
}

// give passes the readings to the builder, set by set.
func (g *gatherer) give() error {
	// A stable counting sort by set.
	end := uint32(0)
	for i := range g.sets {
		end += g.sets[i].samples
		g.sets[i].samples = end - g.sets[i].samples // now the index of its first sample
	}
	g.order = slices.Grow(g.order[:0], len(g.samples))[:len(g.samples)]
	for _, s := range g.samples {
		set := &g.sets[g.metrics[s.metric].set]
		g.order[set.samples] = s
		set.samples++ // at the end, the index where the next set begins
	}
	from := uint32(0)
	for i := range g.sets {
		set := &g.sets[i]
		all := g.order[from:set.samples]
		from = set.samples
		if !slices.IsSortedFunc(all, bySampleTime) {
			slices.SortStableFunc(all, bySampleTime)
		}
		for len(all) > 0 {
			n := 1
			for n < len(all) && all[n].at == all[0].at && n < telemetry.MaxFields {
				n++
			}
			if err := g.reading(set, all[:n]); err != nil {
				return err
			}
			all = all[n:]
		}
	}
	return nil
}

func bySampleTime(a, b metricSample) int { return cmp.Compare(a.at, b.at) }

// divide divides samples into groups without a name twice: the first of each name, the second of
// each, and so on.
func (g *gatherer) divide(samples []metricSample) (groups [][]metricSample) {
	times := make(map[string]int, len(samples))
	for _, s := range samples {
		name := string(g.metrics[s.metric].name)
		if times[name] == len(groups) {
			groups = append(groups, nil)
		}
		groups[times[name]] = append(groups[times[name]], s)
		times[name]++
	}
	return groups
}

// reading passes one reading to the builder, or several if a metric has several values with the
// same time.
func (g *gatherer) reading(set *tagSet, samples []metricSample) error {
	if err := g.in.begin(); err != nil {
		return err
	}
	b := g.in.builder
	if set.series != nil {
		b.SameSeries(set.series)
	} else {
		b.Sensor(telemetry.AppendTagsKey(nil, set.tags))
		for _, t := range set.tags {
			b.Tag([]byte(t.Name), []byte(t.Value))
		}
	}
	b.Time(samples[0].at)
	for i := range samples {
		if m := &g.metrics[samples[i].metric]; m.kind == telemetry.Int {
			b.Int(m.name, int64(samples[i].word))
		} else {
			b.Float(m.name, math.Float64frombits(samples[i].word))
		}
	}
	refused := b.End()
	if refused != nil && refused.Code == telemetry.FieldDuplicate {
		if groups := g.divide(samples); len(groups) > 1 {
			g.in.count--
			for _, group := range groups {
				if err := g.reading(set, group); err != nil {
					return err
				}
			}
			return nil
		}
	}
	if g.in.ended(refused) && set.series == nil {
		set.series = b.LastSeries()
		if len(set.alias) > 0 {
			g.in.server.known.SetAlias(set.alias, set.series)
		}
	}
	g.ended(samples, refused)
	return nil
}
