package promapi

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Values of the label source.
const (
	sourceReadings   = "readings"
	sourceShared     = "shared"
	sourceStatistics = "statistics"
)

// readers returns how many sensors of a query are read concurrently.
func readers() int { return min(8, 2*machine.CPUs()) }

// read reads what the selections need, and adds the series to each.
func (q *querier) read(ctx context.Context, planned []*selection) error {
	tasks, err := q.tasks(ctx, planned)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers())
	for _, together := range q.collectors(tasks) {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return guard(q.exchange.api.cfg.Logger, func() error {
				if err := q.collect(ctx, together); err != nil {
					return err
				}
				q.mu.Lock()
				defer q.mu.Unlock()
				for _, c := range together {
					c.emit()
					q.exchange.api.metrics.sensors.WithLabelValues(c.source).Inc()
				}
				return nil
			})
		})
	}
	err = group.Wait()
	q.exchange.api.metrics.samples.Add(float64(q.loaded))
	return err
}

// A query of many sensors reads sensorsTogether of them at once, if its time ranges are short: for
// the newest values of all sensors, a query to MongoDB for each would take most of the time. With
// more than some 30 sensors, MongoDB takes longer for each.
const (
	manySensors     = 200
	sensorsTogether = 25
	shortRange      = time.Hour
)

// collectors returns a collector for each task, grouped by what is read together.
func (q *querier) collectors(tasks []task) (out [][]*collector) {
	var together []*collector
	for _, t := range tasks {
		c := &collector{querier: q, task: t, source: sourceReadings}
		if len(tasks) < manySensors || !t.short() {
			out = append(out, []*collector{c})
			continue
		}
		if together = append(together, c); len(together) == sensorsTogether {
			out, together = append(out, together), nil
		}
	}
	if len(together) > 0 {
		out = append(out, together)
	}
	return out
}

// short reports whether only samples of short time ranges are wanted.
func (t *task) short() bool {
	return !slices.ContainsFunc(t.of, func(s *selection) bool {
		return s.to-s.from > shortRange.Milliseconds() || s.statistic.every > 0 || s.substitute != nil
	})
}

// collect reads what collectors need: one alone, or several sensors with short time ranges.
func (q *querier) collect(ctx context.Context, of []*collector) error {
	if c := of[0]; len(of) == 1 {
		if done, err := c.readSummaries(ctx); done || err != nil {
			return err
		}
	}
	if err := q.readSpans(ctx, of, func(c *collector) [][2]int64 { return c.task.spans() }); err != nil {
		return err
	}
	if q.lookback.auto {
		return q.lookBack(ctx, of)
	}
	return nil
}

// readSpans reads time ranges, each at once for the collectors that need it.
func (q *querier) readSpans(ctx context.Context, of []*collector, needed func(*collector) [][2]int64) error {
	by := make(map[[2]int64][]*collector)
	for _, c := range of {
		for _, span := range needed(c) {
			by[span] = append(by[span], c)
		}
	}
	for _, span := range slices.SortedFunc(maps.Keys(by), func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) }) {
		var err error
		if some := by[span]; len(some) == 1 {
			err = some[0].readSpan(ctx, span)
		} else {
			err = q.readTogether(ctx, span, some)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readTogether reads a time range for several collectors, whose sensors' ids ascend.
func (q *querier) readTogether(ctx context.Context, span [2]int64, of []*collector) error {
	x := q.exchange
	if err := x.api.scheduler.acquire(ctx, x.active.name); err != nil {
		return err
	}
	defer x.api.scheduler.release(x.active.name)
	sensors, fields := make([]string, len(of)), []string{}
	for i, c := range of {
		sensors[i], fields = c.task.sensor, allOf(fields, c.task.fields())
	}
	got, next, n := &record{}, 0, 0
	take := func() error {
		of[next].take(got, span)
		got, n = &record{}, 0
		return of[next].count()
	}
	w := readRange{span[0], span[1], fields}
	for r, err := range x.session.ReadingsOf(ctx, w.query(""), sensors) {
		if err != nil {
			return err
		}
		for ; of[next].task.sensor != r.Sensor; next++ {
			if err := take(); err != nil {
				return err
			}
		}
		if got.add(&r); got.fresh >= growInterval {
			if n, got.fresh = n+got.fresh, 0; q.room(n) != nil {
				return x.tooManySamples()
			}
		}
	}
	return take()
}

// A collector turns the readings of one sensor into series.
type collector struct {
	querier *querier
	task    task

	builder labels.ScratchBuilder
	sets    []*tagSet
	expired []telemetry.Summary // rollup steps whose readings have expired
	fresh   int                 // samples not added to the query's count yet
	source  string              // value of the label
}

// A tagSet has the readings with the same tags.
type tagSet struct {
	tags   []telemetry.Tag
	labels labels.Labels
	wanted []bool // which selections of the task want it
	any    bool   // some selection wants it

	columns []*column
}

// spans returns the time ranges to read, sorted and disjoint.
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

// fields returns the sorted names of all wanted fields; nil if they are not known.
func (t *task) fields() []string {
	out := []string{}
	for _, s := range t.of {
		if t.known != nil {
			for _, name := range t.known {
				if s.matchers.wantsField(name) {
					out = append(out, name)
				}
			}
			continue
		}
		names := s.matchers.fields()
		if names == nil {
			return nil
		}
		out = append(out, names...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// readSummaries reads rollup steps whose readings have expired, and statistics. It reports whether
// nothing else is needed.
func (c *collector) readSummaries(ctx context.Context) (done bool, err error) {
	if err := c.readExpired(ctx); err != nil {
		return false, err
	}
	if len(c.expired) == 0 && c.summarized() {
		exact, err := c.summarize(ctx)
		if err != nil {
			return false, err
		}
		if exact {
			c.source = sourceStatistics
			return true, c.count()
		}
		c.sets, c.fresh = nil, 0
	}
	c.source = sourceShared
	return false, nil
}

// readSpan reads a time range, or uses another query's read of it.
func (c *collector) readSpan(ctx context.Context, span [2]int64) error {
	x, w := c.querier.exchange, readRange{span[0], span[1], c.task.fields()}
	got, joined, err := x.api.shares.read(ctx, x.session, x.active, c.task.sensor, w)
	if errors.Is(err, errNoRoom) {
		got, joined = &record{}, false
		err = c.readAlone(ctx, got, w.query(c.task.sensor))
	}
	if err != nil {
		return err
	}
	if !joined {
		c.source = sourceReadings
	}
	c.take(got, span)
	return c.count()
}

// readAlone reads without sharing.
func (c *collector) readAlone(ctx context.Context, into *record, q telemetry.Query) error {
	x, n := c.querier.exchange, 0
	if err := x.api.scheduler.acquire(ctx, x.active.name); err != nil {
		return err
	}
	defer x.api.scheduler.release(x.active.name)
	return into.read(ctx, x.session, q, func(more int) error {
		n += more
		return c.querier.room(n)
	})
}

// room returns an error if the query cannot hold n more samples.
func (q *querier) room(n int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.loaded+n > q.exchange.api.cfg.MaxSamples {
		return q.exchange.tooManySamples()
	}
	return nil
}

// count adds the new samples to the query's count.
func (c *collector) count() error {
	err := c.querier.room(c.fresh)
	c.querier.mu.Lock()
	defer c.querier.mu.Unlock()
	c.querier.loaded += c.fresh
	c.fresh = 0
	return err
}

// take adds the wanted samples of a record. It does not change the record.
func (c *collector) take(from *record, span [2]int64) {
	for _, part := range from.sets {
		set := c.setOf(part.tags)
		if !set.any {
			continue
		}
		for _, col := range part.columns {
			times, values := col.between(span[0], span[1])
			if into := set.column(c, col.name); into != nil && len(times) > 0 {
				into.times, into.values = mergeSamples(into.times, into.values, times, values)
				c.fresh += len(times)
			}
		}
	}
}

// setOf returns the set of readings with these tags, or with other tags that give the same labels:
// an empty tag is no label.
func (c *collector) setOf(tags []telemetry.Tag) *tagSet {
	for _, set := range c.sets {
		if sameTags(set.tags, tags) {
			return set
		}
	}
	l := labelsOf(&c.builder, c.task.sensor, tags)
	for _, set := range c.sets {
		if labels.Equal(set.labels, l) {
			return set
		}
	}
	set := &tagSet{tags: tags, labels: l, wanted: make([]bool, len(c.task.of))}
	for i, s := range c.task.of {
		set.wanted[i] = s.matchers.matches(set.labels)
		set.any = set.any || set.wanted[i]
	}
	c.sets = append(c.sets, set)
	return set
}

// column returns the column of a field; nil if no selection that wants the tags wants the field.
func (t *tagSet) column(c *collector, name string) *column {
	for _, col := range t.columns {
		if col.name == name {
			return col
		}
	}
	for i, s := range c.task.of {
		if t.wanted[i] && s.matchers.wantsField(name) {
			col := &column{name: name}
			t.columns = append(t.columns, col)
			return col
		}
	}
	return nil
}

// emit adds the series to the selections.
func (c *collector) emit() {
	for _, set := range c.sets {
		for _, col := range set.columns {
			if len(col.times) == 0 && len(c.expired) == 0 {
				continue
			}
			full := named(&c.builder, set.labels, col.name)
			for i, s := range c.task.of {
				if !set.wanted[i] || !s.matchers.wantsField(col.name) {
					continue
				}
				one := s.seriesOf(full, col)
				if s.substitute != nil && len(c.expired) > 0 {
					c.replaceExpired(s, set, col.name, one)
				}
				if len(one.times) > 0 {
					s.found = append(s.found, one)
				}
			}
		}
	}
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

// millis is a time in milliseconds since the epoch. With int64, go vet would confuse Seek with
// that of io.Seeker.
type millis = int64

// Seek implements chunkenc.Iterator.
func (i *iterator) Seek(t millis) chunkenc.ValueType {
	times := i.series.times
	from := max(0, i.at)
	if from < len(times) && times[from] < t {
		// Usually the next one is close.
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
