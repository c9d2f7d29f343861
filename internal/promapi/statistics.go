package promapi

import (
	"context"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A statistic is what a selection needs instead of its samples: the minimum or the maximum of each
// step. Steps begin and end with ranges of the query, so that each step is entirely inside or
// outside of a range:
//
//	ranges  (────────────────]
//	              (────────────────]
//	steps   (─────](─────────](────]
//
// A step then has one sample, at its end. Sums, counts and means are computed from samples: those
// of a bucket are added in another order, and the last digits would differ.
type statistic struct {
	every    int64 // length of a step in milliseconds; 0: samples are wanted
	greatest bool  // rather than the least
}

// statisticOf returns the statistic that a selection needs.
func (q *querier) statisticOf(hints *storage.SelectHints) (s statistic) {
	if hints.Range == 0 || hints.Start < 0 || q.subqueries || hints.Func != "min_over_time" && hints.Func != "max_over_time" {
		return statistic{}
	}
	s = statistic{every: gcd(hints.Range, hints.Step), greatest: hints.Func == "max_over_time"}
	if window := q.exchange.api.cfg.Window(q.exchange.session.Stream()); window == 0 || s.every < window.Milliseconds() {
		return statistic{} // hardly any bucket would lie within a step
	}
	return s
}

// gcd returns the greatest common divisor.
func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// hasSubqueries reports whether an expression has a subquery. Its instants differ from those of
// the query.
func hasSubqueries(e parser.Expr) bool {
	found := false
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		_, is := n.(*parser.SubqueryExpr)
		found = found || is
		return nil
	})
	return found
}

// summarized reports whether the only selection needs statistics, of readings with the same tags.
func (c *collector) summarized() bool {
	return c.task.oneSet && len(c.task.of) == 1 && c.task.of[0].statistic.every > 0
}

// summarize generates samples from statistics. It reports false if they differ from the readings,
// because a field is a boolean or a string in some of them.
func (c *collector) summarize(ctx context.Context) (exact bool, err error) {
	scheduler, client := c.querier.exchange.api.scheduler, c.querier.exchange.active.name
	if err := scheduler.acquire(ctx, client); err != nil {
		return false, err
	}
	defer scheduler.release(client)
	s := c.task.of[0]
	q := telemetry.SummaryQuery{Query: telemetry.Query{Sensor: c.task.sensor, From: s.from, To: s.to}, Every: s.statistic.every}
	q.Offset = s.from % q.Every
	set := c.setOf(c.task.tags)
	for step, err := range c.querier.exchange.session.Summary(ctx, q) {
		if err != nil {
			return false, err
		}
		wanted := 0
		for i := range step.Fields {
			f := &step.Fields[i]
			if !s.matchers.wantsField(f.Name) {
				continue
			}
			if wanted++; f.N != step.Count {
				return false, nil
			}
			v := f.Min
			if s.statistic.greatest {
				v = f.Max
			}
			value, _ := sampleOf(v)
			col := set.column(c, f.Name)
			col.times, col.values = append(col.times, step.Start+q.Every-1), append(col.values, value)
			c.fresh++
		}
		if wanted == 0 {
			return false, nil
		}
	}
	return true, nil
}
