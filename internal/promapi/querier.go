package promapi

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// queryable implements storage.Queryable for one exchange.
type queryable struct {
	exchange   *exchange
	lookback   lookback
	subqueries bool // the query has subqueries
}

// Querier implements storage.Queryable.
func (q queryable) Querier(int64, int64) (storage.Querier, error) {
	return &querier{exchange: q.exchange, lookback: q.lookback, subqueries: q.subqueries}, nil
}

// A querier reads for one query. The engine first calls Select for each selector, and then reads
// the series of each. The querier reads nothing until the first series is requested, so that it
// can read everything that is selected of a sensor at once.
//
//	Select Select Select │ Next ─▶ sensors ─▶ read each once ─▶ series of all selectors
type querier struct {
	exchange   *exchange
	lookback   lookback
	subqueries bool

	planned []*selection // not read yet
	builder labels.ScratchBuilder

	mu     sync.Mutex
	loaded int // samples in memory
}

// Select implements storage.Querier.
func (q *querier) Select(ctx context.Context, _ bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	s := &selection{querier: q, ctx: ctx, matchers: sortMatchers(ms), at: -1}
	s.from, s.to = max(0, hints.Start), min(hints.End, maxTime-1)+1
	s.statistic, s.substitute = q.statisticOf(hints), q.substituteOf(hints)
	if s.instants = hints.Range == 0; s.instants && q.lookback.auto {
		s.from += extraLookback.Milliseconds() // see lookBack
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

// A selection is what one selector selects. It implements storage.SeriesSet.
type selection struct {
	querier  *querier
	ctx      context.Context //nolint:containedctx // of the query, which ends before the selection does
	matchers matchers

	from, to  int64 // milliseconds since the epoch; to is exclusive
	statistic statistic
	// substitute says what replaces expired readings; nil: nothing.
	substitute *substitute
	instants   bool // the newest sample of each instant is wanted, rather than all of a range

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

// run reads the planned selections. The evaluation releases its slot meanwhile.
func (q *querier) run(ctx context.Context) {
	planned := q.planned
	q.planned = nil
	q.exchange.releaseSlot()
	err := errors.Join(q.read(ctx, planned), q.exchange.acquireSlot(ctx))
	for _, s := range planned {
		if s.done, s.failed = true, err; err != nil {
			s.found = nil
		}
		// Sorted, so that results that depend on the order, like a sum of floats, are
		// reproducible.
		slices.SortFunc(s.found, func(a, b *series) int { return labels.Compare(a.labels, b.labels) })
	}
}

// A task is what to read of one sensor.
type task struct {
	sensor string
	of     []*selection
	known  []string // all its fields; nil: they are not known
	// oneSet says that all readings to be read have the same tags.
	oneSet bool
	tags   []telemetry.Tag
	sets   []telemetry.TagSet
}

// tasks returns a task for each sensor, with the selections that may select it.
func (q *querier) tasks(ctx context.Context, planned []*selection) ([]task, error) {
	tasks := make(map[string]*task)
	for _, group := range grouped(planned) {
		for one, err := range q.sensors(ctx, group) {
			if err != nil {
				return nil, err
			}
			for _, s := range group {
				if !s.mayHave(one) {
					continue
				}
				t := tasks[one.ID]
				if t == nil {
					t = &task{sensor: one.ID}
					if q.exchange.session.HasCatalog() {
						t.known, t.oneSet, t.tags = one.Fields, len(one.Sets) == 1 && one.Sets[0].To-one.Sets[0].From > 1, one.Tags()
						t.sets = one.Sets
					}
					tasks[one.ID] = t
				}
				t.of = append(t.of, s)
			}
		}
	}
	out := make([]task, 0, len(tasks))
	for _, t := range tasks {
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b task) int { return cmp.Compare(a.sensor, b.sensor) })
	return out, nil
}

// sensors yields the sensors that a group of selections may select. They must not be modified,
// because queries that arrive together share the list, unless it is long.
func (q *querier) sensors(ctx context.Context, group []*selection) iter.Seq2[*telemetry.Sensor, error] {
	fields := group[0].matchers.fields()
	for _, s := range group[1:] {
		more := s.matchers.fields()
		if len(fields) == 0 || len(more) == 0 {
			fields = nil
			break
		}
		fields = allOf(fields, more)
	}
	return func(yield func(*telemetry.Sensor, error) bool) {
		asks := group[0].matchers.queries()
		for i, ask := range asks {
			ask.Fields = fields
			key := group[0].matchers.key() + strings.Repeat(";", i)
			for one, err := range q.listed(ctx, key, ask) {
				if err == nil && i > 0 && asks[0].Wants(one.ID) {
					continue
				}
				if !yield(one, err) || err != nil {
					return
				}
			}
		}
	}
}

// listed yields the sensors that a query finds.
func (q *querier) listed(ctx context.Context, key string, ask telemetry.SensorQuery) iter.Seq2[*telemetry.Sensor, error] {
	x := q.exchange
	return func(yield func(*telemetry.Sensor, error) bool) {
		list, err := x.api.shares.list(ctx, x.session, x.active, key, ask)
		if err == nil {
			for i := range list {
				if !yield(&list[i], nil) {
					return
				}
			}
			return
		}
		if !errors.Is(err, errNoRoom) {
			yield(nil, err)
			return
		}
		if err := x.api.scheduler.acquire(ctx, x.active.name); err != nil {
			yield(nil, err)
			return
		}
		defer x.api.scheduler.release(x.active.name)
		for one, err := range x.session.Find(ctx, ask) {
			if !yield(&one, err) {
				return
			}
		}
	}
}

// grouped groups selections that select the same sensors.
func grouped(planned []*selection) (groups [][]*selection) {
	places := make(map[string]int)
	for _, s := range planned {
		key := s.matchers.key()
		at, known := places[key]
		if !known {
			at = len(groups)
			places[key] = at
			groups = append(groups, nil)
		}
		groups[at] = append(groups[at], s)
	}
	return groups
}

// overlaps reports whether readings with a set of tags may be in the selection. It ignores the
// beginning of the set, because for a sensor that is not in a catalog only the newest reading is
// known.
func (s *selection) overlaps(set *telemetry.TagSet) bool {
	from := s.from
	if s.instants && s.querier.lookback.auto {
		from -= maxReach.Milliseconds()
	}
	return set.To > from
}

// mayHave reports whether a sensor may have readings that are selected.
func (s *selection) mayHave(one *telemetry.Sensor) bool {
	// Without a catalog, only the newest readings are known, and only the tags of unstored ones.
	complete := s.querier.exchange.session.HasCatalog() && len(one.Fields)+len(one.Texts) > 0
	if complete && !slices.ContainsFunc(one.Fields, s.matchers.wantsField) {
		return false
	}
	return slices.ContainsFunc(one.Sets, func(set telemetry.TagSet) bool {
		return (!complete || s.overlaps(&set)) && s.matchers.matches(labelsOf(&s.querier.builder, one.ID, set.Tags))
	})
}

// describe calls each for the labels of each series that a sensor may have.
func (s *selection) describe(one *telemetry.Sensor, each func(labels.Labels) error) error {
	b := &s.querier.builder
	for i := range one.Sets {
		l := labelsOf(b, one.ID, one.Sets[i].Tags)
		if !s.overlaps(&one.Sets[i]) || !s.matchers.matches(l) {
			continue
		}
		for _, name := range one.Fields {
			if !s.matchers.wantsField(name) {
				continue
			}
			if err := each(named(b, l, name)); err != nil {
				return err
			}
		}
	}
	return nil
}
