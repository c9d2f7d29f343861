package promapi

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/prometheus/storage"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Where readings have expired, a function over a range gets samples that are generated from rollup
// steps and give the same result: one sample with the minimum, or as many as there were readings,
// each with their mean. The ranges must consist of whole steps:
//
//	ranges   (────────────────]      with every multiple of the step's length
//	rollup   [───────)[───────)
//
// So a reading exactly at the boundary of two ranges counts toward the later one, not the earlier.

// A substitute says which samples a function gets for a step.
type substitute struct {
	value func(f *telemetry.FieldSummary) telemetry.Value
	each  bool // one sample per reading
}

var substitutes = map[string]substitute{
	"min_over_time":     {value: func(f *telemetry.FieldSummary) telemetry.Value { return f.Min }},
	"max_over_time":     {value: func(f *telemetry.FieldSummary) telemetry.Value { return f.Max }},
	"sum_over_time":     {value: func(f *telemetry.FieldSummary) telemetry.Value { return telemetry.FloatValue(f.Sum) }},
	"last_over_time":    {value: func(f *telemetry.FieldSummary) telemetry.Value { return f.Last }},
	"present_over_time": {value: func(f *telemetry.FieldSummary) telemetry.Value { return f.Last }},
	"count_over_time":   {value: func(f *telemetry.FieldSummary) telemetry.Value { return f.Last }, each: true},
	"avg_over_time":     {value: func(f *telemetry.FieldSummary) telemetry.Value { return telemetry.FloatValue(f.Mean()) }, each: true},
}

// substituteOf returns what can replace expired readings in a selection; nil if nothing can.
func (q *querier) substituteOf(hints *storage.SelectHints) *substitute {
	found, known := substitutes[hints.Func]
	if !known || hints.Range == 0 || hints.Start < 1 || q.subqueries {
		return nil
	}
	every, retention := q.exchange.api.cfg.Rollup(q.exchange.session.Stream())
	length := every.Milliseconds()
	if length == 0 || hints.Range%length != 0 || hints.Step%length != 0 || (hints.Start-1)%length != 0 {
		return nil
	}
	if retention > 0 && hints.Start > time.Now().Add(-retention).UnixMilli() {
		return nil
	}
	return &found
}

// readExpired reads the rollup steps whose readings have expired.
func (c *collector) readExpired(ctx context.Context) error {
	var all task
	for _, s := range c.task.of {
		if s.substitute != nil {
			all.of = append(all.of, s)
		}
	}
	for _, span := range all.spans() {
		q := telemetry.SummaryQuery{Query: telemetry.Query{Sensor: c.task.sensor, From: span[0] - 1, To: span[1]}, Gone: true}
		for step, err := range c.querier.exchange.session.Summary(ctx, q) {
			if err != nil {
				return err
			}
			c.expired = append(c.expired, step)
		}
	}
	every, _ := c.querier.exchange.api.cfg.Rollup(c.querier.exchange.session.Stream())
	each := slices.ContainsFunc(all.of, func(s *selection) bool { return s.substitute.each })
	for i := range c.expired {
		set := c.setOf(c.task.tagsIn(&c.expired[i]))
		for _, f := range c.expired[i].Fields {
			if col := set.column(c, f.Name); !set.any || col == nil {
				continue
			}
			samples := int64(1)
			if each {
				samples = samplesOf(&f, every.Milliseconds())
			}
			c.fresh += int(samples)
		}
	}
	return c.count()
}

// samplesOf returns how many samples represent a field's readings in a step, whose length is in
// milliseconds.
func samplesOf(f *telemetry.FieldSummary, length int64) int64 { return min(f.N, length-1) }

// tagsIn returns the tags of the readings of a step. Rollups have no tags; if the tags changed
// during the step, it returns the newest ones.
func (t *task) tagsIn(step *telemetry.Summary) []telemetry.Tag {
	for _, set := range slices.Backward(t.sets) {
		if set.From <= step.Last && set.To > step.First {
			return set.Tags
		}
	}
	return t.tags
}

// replaceExpired replaces the samples of steps with expired readings by substitutes.
func (c *collector) replaceExpired(of *selection, set *tagSet, name string, in *series) {
	every, _ := c.querier.exchange.api.cfg.Rollup(c.querier.exchange.session.Stream())
	length := every.Milliseconds()
	var times []int64
	var values []float64
	rest := series{times: in.times, values: in.values}
	take := func(before int64) (fromTimes []int64, fromValues []float64) {
		n, _ := slices.BinarySearch(rest.times, before)
		fromTimes, fromValues = rest.times[:n], rest.values[:n]
		rest.times, rest.values = rest.times[n:], rest.values[n:]
		return fromTimes, fromValues
	}
	for i := range c.expired {
		step := &c.expired[i]
		at := slices.IndexFunc(step.Fields, func(f telemetry.FieldSummary) bool { return f.Name == name })
		if at < 0 || step.Start < of.from-1 || step.Start+length > of.to || c.setOf(c.task.tagsIn(step)) != set {
			continue
		}
		keptTimes, keptValues := take(step.Start)
		times, values = append(times, keptTimes...), append(values, keptValues...)
		take(step.Start + length)
		f := &step.Fields[at]
		value, _ := sampleOf(of.substitute.value(f))
		if !of.substitute.each {
			times, values = append(times, max(step.Last, step.Start+1)), append(values, value)
			continue
		}
		n := samplesOf(f, length)
		for k := range n {
			times, values = append(times, step.Start+1+k*(length-1)/n), append(values, value)
		}
	}
	in.times, in.values = slices.Concat(times, rest.times), slices.Concat(values, rest.values)
}
