package promapi

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Values of the label source.
const (
	sourceReadings   = "readings"
	sourceStatistics = "statistics"
)

// readers is how many sensors of a query are read at once.
func readers() int { return min(8, 2*runtime.GOMAXPROCS(0)) }

// allowed reports whether the identity may read the sensor: others do not exist for it.
func (q *querier) allowed(sensor string) bool {
	return access.From(q.exchange.r.Context()).Allows(sensor)
}

// read reads what some selections need, and gives each its series.
func (q *querier) read(ctx context.Context, planned []*selection) error {
	tasks, err := q.tasks(ctx, planned)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers())
	for _, t := range tasks {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			c := collector{querier: q, task: t}
			if err := c.read(ctx, &mu); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			c.give()
			return nil
		})
	}
	q.exchange.api.metrics.sources.WithLabelValues(sourceReadings).Add(float64(len(planned)))
	err = group.Wait()
	q.exchange.api.metrics.samples.Add(float64(q.loaded))
	return err
}

// A collector turns the readings of one sensor into series.
type collector struct {
	querier *querier
	task    task

	builder labels.ScratchBuilder
	sets    []*tagSet
	fresh   int // samples since count
}

// A tagSet has the readings with the same tags.
type tagSet struct {
	tags   []telemetry.Tag
	labels labels.Labels
	wanted []bool // by selection of the task
	any    bool   // of wanted

	columns []*column
	places  map[string]int
}

// A column has the samples of one field, in time order.
type column struct {
	name   string
	wanted bool // by any selection that wants the tags
	times  []int64
	values []float64
}

// spans returns the times to be read, in order and apart from each other.
func (t *task) spans() [][2]int64 {
	var all, out [][2]int64
	for _, s := range t.of {
		if s.from < s.to {
			all = append(all, [2]int64{s.from, s.to})
		}
	}
	slices.SortFunc(all, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	for _, one := range all {
		if last := len(out) - 1; last >= 0 && one[0] <= out[last][1] {
			out[last][1] = max(out[last][1], one[1])
			continue
		}
		out = append(out, one)
	}
	return out
}

// fields returns the names of all fields that are wanted, nil if they are not known.
func (t *task) fields() []string {
	out := []string{}
	for _, s := range t.of {
		names := s.matchers.fields()
		if names == nil || len(names) > maxNamed {
			return nil
		}
		for _, name := range names {
			if telemetry.CheckFieldName([]byte(name)) == nil { // no field has another name
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// maxNamed is how many fields are worth naming: each is compared with each of a reading.
const maxNamed = 16

func (c *collector) read(ctx context.Context, mu *sync.Mutex) error {
	for _, span := range c.task.spans() {
		if err := c.readSpan(ctx, mu, span); err != nil {
			return err
		}
	}
	if c.querier.lookback.auto {
		if err := c.lookBack(ctx, mu); err != nil {
			return err
		}
	}
	return c.count(mu)
}

func (c *collector) readSpan(ctx context.Context, mu *sync.Mutex, span [2]int64) error {
	q := telemetry.Query{Sensor: c.task.sensor, From: span[0], To: span[1], Fields: c.task.fields()}
	for r, err := range c.querier.exchange.session.Readings(ctx, q) {
		if err != nil {
			return err
		}
		c.add(&r)
		if c.fresh >= 10_000 {
			if err := c.count(mu); err != nil {
				return err
			}
		}
	}
	return nil
}

// count adds the new samples to those of the query.
func (c *collector) count(mu *sync.Mutex) error {
	mu.Lock()
	defer mu.Unlock()
	c.querier.loaded += c.fresh
	c.fresh = 0
	if c.querier.loaded > c.querier.exchange.api.cfg.MaxSamples {
		return c.querier.exchange.tooManySamples()
	}
	return nil
}

// add adds the fields of a reading that are selected.
func (c *collector) add(r *telemetry.Reading) {
	set := c.setOf(r.Tags)
	if !set.any {
		return
	}
	at := r.Time.UnixMilli()
	for i := range r.Fields {
		f := &r.Fields[i]
		v, ok := sampleOf(f.Value)
		if !ok {
			continue
		}
		col := set.column(c, i, f.Name)
		if !col.wanted {
			continue
		}
		if n := len(col.times); n > 0 && col.times[n-1] == at { // the later one of two
			col.values[n-1] = v
			continue
		}
		col.times, col.values = append(col.times, at), append(col.values, v)
		c.fresh++
	}
}

// sampleOf returns a value as a number, false for a string.
func sampleOf(v telemetry.Value) (float64, bool) {
	switch v.Kind() {
	case telemetry.Float:
		return v.Float(), true
	case telemetry.Int:
		return float64(v.Int()), true
	case telemetry.Bool:
		if v.Bool() {
			return 1, true
		}
		return 0, true
	default:
		return 0, false
	}
}

func sameTags(a, b []telemetry.Tag) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// setOf returns the set of readings with these tags; mostly it is the last one.
func (c *collector) setOf(tags []telemetry.Tag) *tagSet {
	for i := len(c.sets) - 1; i >= 0; i-- {
		if sameTags(c.sets[i].tags, tags) {
			return c.sets[i]
		}
	}
	set := &tagSet{tags: tags, labels: labelsOf(&c.builder, c.task.sensor, tags), wanted: make([]bool, len(c.task.of)), places: make(map[string]int)}
	for i, s := range c.task.of {
		set.wanted[i] = s.matchers.matches(set.labels)
		set.any = set.any || set.wanted[i]
	}
	c.sets = append(c.sets, set)
	return set
}

// column returns the column of a field, which mostly has the same place in each reading.
func (t *tagSet) column(c *collector, guess int, name string) *column {
	if guess < len(t.columns) && t.columns[guess].name == name {
		return t.columns[guess]
	}
	i, ok := t.places[name]
	if !ok {
		i = len(t.columns)
		col := &column{name: name}
		for at, s := range c.task.of {
			col.wanted = col.wanted || t.wanted[at] && s.matchers.wantsName(name)
		}
		t.places[name] = i
		t.columns = append(t.columns, col)
	}
	return t.columns[i]
}

// give gives the selections their series.
func (c *collector) give() {
	for _, set := range c.sets {
		for _, col := range set.columns {
			if !col.wanted || len(col.times) == 0 {
				continue
			}
			full := named(&c.builder, set.labels, col.name)
			for i, s := range c.task.of {
				if !set.wanted[i] || !s.matchers.wantsName(col.name) {
					continue
				}
				if one := s.seriesOf(full, col); len(one.times) > 0 {
					s.found = append(s.found, one)
				}
			}
		}
	}
}

// between returns the samples from a time to before another one.
func (c *column) between(from, to int64) ([]int64, []float64) {
	first, _ := slices.BinarySearch(c.times, from)
	last, _ := slices.BinarySearch(c.times, to)
	return c.times[first:max(first, last)], c.values[first:max(first, last)]
}

// A series is a storage.Series in memory.
type series struct {
	labels labels.Labels
	times  []int64
	values []float64
}

// Labels implements storage.Series.
func (s *series) Labels() labels.Labels { return s.labels }

// Iterator implements storage.Series.
func (s *series) Iterator(old chunkenc.Iterator) chunkenc.Iterator {
	if it, ok := old.(*iterator); ok {
		it.series, it.at = s, -1
		return it
	}
	return &iterator{series: s, at: -1}
}

// An iterator goes through the samples of a series.
type iterator struct {
	series *series
	at     int
}

// Next implements chunkenc.Iterator.
func (i *iterator) Next() chunkenc.ValueType {
	if i.at+1 >= len(i.series.times) {
		i.at = len(i.series.times)
		return chunkenc.ValNone
	}
	i.at++
	return chunkenc.ValFloat
}

// millis is a time in milliseconds since the epoch. With an int64, go vet takes Seek for
// that of io.Seeker.
type millis = int64

// Seek implements chunkenc.Iterator.
func (i *iterator) Seek(t millis) chunkenc.ValueType {
	times := i.series.times
	from := max(0, i.at)
	if from < len(times) && times[from] < t {
		// The next one is mostly close.
		step := 1
		for from+step < len(times) && times[from+step] < t {
			from += step
			step *= 2
		}
		rest := times[from:min(len(times), from+step+1)]
		n, _ := slices.BinarySearch(rest, t)
		from += n
	}
	if i.at = from; from >= len(times) {
		return chunkenc.ValNone
	}
	return chunkenc.ValFloat
}

// At implements chunkenc.Iterator.
func (i *iterator) At() (int64, float64) { return i.series.times[i.at], i.series.values[i.at] }

// AtHistogram implements chunkenc.Iterator.
func (*iterator) AtHistogram(*histogram.Histogram) (int64, *histogram.Histogram) { return 0, nil }

// AtFloatHistogram implements chunkenc.Iterator.
func (*iterator) AtFloatHistogram(*histogram.FloatHistogram) (int64, *histogram.FloatHistogram) {
	return 0, nil
}

// AtT implements chunkenc.Iterator.
func (i *iterator) AtT() int64 { return i.series.times[i.at] }

// AtST implements chunkenc.Iterator.
func (*iterator) AtST() int64 { return 0 }

// Err implements chunkenc.Iterator.
func (*iterator) Err() error { return nil }
