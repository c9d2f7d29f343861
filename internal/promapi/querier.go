package promapi

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// queryable is a storage.Queryable of one exchange.
type queryable struct {
	exchange *exchange
	lookback lookback
}

// Querier implements storage.Queryable.
func (q queryable) Querier(int64, int64) (storage.Querier, error) {
	return &querier{exchange: q.exchange, lookback: q.lookback}, nil
}

// A querier reads for one query. The engine first calls Select for each selector, and then
// asks for the series of each: so that all that is selected of a sensor is read at once,
// nothing is read before the first series is asked for.
//
//	Select Select Select │ Next ─▶ sensors ─▶ read each once ─▶ series of all selectors
type querier struct {
	exchange *exchange
	lookback lookback

	planned []*selection // that were not read yet
	loaded  int          // samples in memory
}

// Select implements storage.Querier.
func (q *querier) Select(ctx context.Context, _ bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	s := &selection{querier: q, ctx: ctx, matchers: sortMatchers(ms), at: -1}
	s.from, s.to = max(0, hints.Start), min(hints.End, maxTime-1)+1
	s.labelsOnly = hints.Func == "series"
	if s.instants = hints.Range == 0 && !s.labelsOnly; s.instants && q.lookback.auto {
		s.from += earlier.Milliseconds() // see lookBack
	}
	q.planned = append(q.planned, s)
	return s
}

// LabelValues implements storage.Querier; the engine does not call it.
func (*querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// LabelNames implements storage.Querier; the engine does not call it.
func (*querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// Close implements storage.Querier.
func (*querier) Close() error { return nil }

// maxTime is the end of the year 9999, in milliseconds since the epoch.
const maxTime = 253_402_300_800_000

// A selection is what one selector selects: readings of a span, and then series.
type selection struct {
	querier  *querier
	ctx      context.Context //nolint:containedctx // of the query, which ends before the selection does
	matchers matchers

	from, to   int64 // milliseconds since the epoch, without to
	labelsOnly bool  // no samples are wanted
	instants   bool  // the newest sample of each instant is wanted, rather than all of a range

	done   bool
	found  []*series
	at     int
	failed error
}

// Next implements storage.SeriesSet.
func (s *selection) Next() bool {
	if !s.done {
		s.querier.run(s.ctx)
	}
	if s.failed != nil || s.at+1 >= len(s.found) {
		return false
	}
	s.at++
	return true
}

// At implements storage.SeriesSet.
func (s *selection) At() storage.Series { return s.found[s.at] }

// Err implements storage.SeriesSet.
func (s *selection) Err() error { return s.failed }

// Warnings implements storage.SeriesSet.
func (*selection) Warnings() annotations.Annotations { return nil }

// run reads what is planned.
func (q *querier) run(ctx context.Context) {
	planned := q.planned
	q.planned = nil
	err := q.read(ctx, planned)
	for _, s := range planned {
		if s.done, s.failed = true, err; err != nil {
			s.found = nil
		}
		// Whatever depends on the order, like a sum of floats, is the same each time.
		slices.SortFunc(s.found, func(a, b *series) int { return labels.Compare(a.labels, b.labels) })
	}
}

// A task is what is to be read of one sensor.
type task struct {
	sensor string
	of     []*selection
}

// tasks lists the sensors of some selections, each with those that may select it.
func (q *querier) tasks(ctx context.Context, planned []*selection) ([]task, error) {
	tasks := make(map[string]*task)
	add := func(id string, s *selection) {
		t := tasks[id]
		if t == nil {
			t = &task{sensor: id}
			tasks[id] = t
		}
		if !slices.Contains(t.of, s) {
			t.of = append(t.of, s)
		}
	}
	var open []*selection // that select among all sensors
	for _, s := range planned {
		ids := s.matchers.ids()
		for _, id := range ids {
			add(id, s)
		}
		if ids == nil {
			open = append(open, s)
		}
	}
	for one, err := range q.sensors(ctx, open) {
		if err != nil {
			return nil, err
		}
		for _, s := range open {
			if s.matchers.wantsSensor(one.Sensor) {
				add(one.Sensor, s)
			}
		}
	}
	out := make([]task, 0, len(tasks))
	for _, t := range tasks {
		if q.allowed(t.sensor) {
			out = append(out, *t)
		}
	}
	slices.SortFunc(out, func(a, b task) int { return cmp.Compare(a.sensor, b.sensor) })
	return out, nil
}

// sensors lists the sensors that some selections may need.
func (q *querier) sensors(ctx context.Context, open []*selection) iter.Seq2[telemetry.SensorSeen, error] {
	if len(open) == 0 {
		return func(func(telemetry.SensorSeen, error) bool) {}
	}
	prefix := open[0].matchers.prefix()
	for _, s := range open[1:] {
		if s.matchers.prefix() != prefix {
			prefix = ""
		}
	}
	return q.exchange.session.Sensors(ctx, telemetry.SensorQuery{Prefix: prefix})
}
