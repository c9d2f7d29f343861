package promapi

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const (
	// maxTokens bounds the nesting of a query, because the engine is recursive.
	maxTokens = 10_000
	// maxQuery is the maximum length of a query in bytes. A dashboard's variables with many values
	// make long queries.
	maxQuery = 128 << 10
)

// checkSize refuses a query that is too long or may be nested too deeply, before it is
// parsed.
func checkSize(query string) error {
	if len(query) > maxQuery {
		return telemetry.Errorf(telemetry.TooLarge, "query_too_long", "the query has %d bytes; at most %d are allowed", len(query), maxQuery)
	}
	lexer := parser.Lex(query)
	for n := 0; ; n++ {
		var item parser.Item
		lexer.NextItem(&item)
		if item.Typ == parser.EOF || item.Typ == parser.ERROR {
			return nil // the parser says what is wrong
		}
		if n == maxTokens {
			return telemetry.Errorf(telemetry.TooLarge, "query_too_long", "the query has more than %d names, numbers, operators and brackets, which is the limit", maxTokens)
		}
	}
}

// An evaluation is a query at the instants from start to end; step is 0 for an instant query.
type evaluation struct {
	text       string
	start, end time.Time
	step       time.Duration
	limit      int // of series; 0: none
	subqueries bool
	lookback   lookback
}

// parse reads the query's parameters, and registers what the query will probably read.
func (x *exchange) parse(start, end time.Time, step time.Duration) error {
	e := evaluation{text: x.r.FormValue("query"), start: start, end: end, step: step}
	var err error
	if e.limit, err = x.limit(); err != nil {
		return err
	}
	if err := checkSize(e.text); err != nil {
		return err
	}
	if e.lookback, err = x.lookback(); err != nil {
		return err
	}
	parsed, err := x.api.parser.ParseExpr(e.text)
	if err != nil {
		return invalid("the query cannot be parsed: %v", err)
	}
	e.subqueries = hasSubqueries(parsed)
	x.evaluation = e
	x.api.shares.expect(x.active, e.expected(parsed))
	return nil
}

// expected returns what the query probably reads of each sensor that it selects.
func (e *evaluation) expected(parsed parser.Expr) (w readRange) {
	parsed, err := promql.PreprocessExpr(parsed, e.start, e.end, e.step)
	if err != nil {
		return readRange{} // the engine reports the error
	}
	statement := parser.EvalStmt{Expr: parsed, Start: e.start, End: e.end, Interval: e.step, LookbackDelta: e.lookback.longest}
	if e.lookback.auto {
		statement.LookbackDelta = defaultLookback
	}
	w.from, w.to = promql.FindMinMaxTime(&statement)
	w.to++
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		if selector, ok := n.(*parser.VectorSelector); ok {
			m := sortMatchers(selector.LabelMatchers)
			w.fields = append(w.fields, m.fields()...)
		}
		return nil
	})
	slices.Sort(w.fields)
	w.fields = slices.Compact(w.fields)
	return w
}

// evaluate runs the query.
func (x *exchange) evaluate(ctx context.Context) (answer, error) {
	var q promql.Query
	var err error
	e := &x.evaluation
	source, opts := queryable{x, e.lookback, e.subqueries}, promql.NewPrometheusQueryOpts(false, e.lookback.longest)
	if e.step == 0 {
		q, err = x.api.engine.NewInstantQuery(ctx, source, opts, e.text, e.start)
	} else {
		q, err = x.api.engine.NewRangeQuery(ctx, source, opts, e.text, e.start, e.end, e.step)
	}
	if err != nil {
		return answer{}, invalid("%v", err)
	}
	if err := x.acquireSlot(ctx); err != nil {
		return answer{close: q.Close}, err
	}
	defer x.releaseSlot()
	result := q.Exec(ctx)
	out := answer{data: result.Value, close: q.Close}
	if result.Err != nil {
		return out, result.Err
	}
	out.warnings, out.infos = result.Warnings.AsStrings(e.text, 10, 10)
	if e.limit > 0 {
		out = out.cut(e.limit)
	}
	out.encode()
	return out, nil
}

// acquireSlot waits for a slot to evaluate the query.
func (x *exchange) acquireSlot(ctx context.Context) error {
	err := x.api.scheduler.acquire(ctx, x.active.name)
	x.hasSlot = err == nil
	return err
}

// releaseSlot releases the slot, if the exchange holds it.
func (x *exchange) releaseSlot() {
	if x.hasSlot {
		x.api.scheduler.release(x.active.name)
	}
	x.hasSlot = false
}

// cut limits the number of series in an answer.
func (a answer) cut(limit int) answer {
	switch v := a.data.(type) {
	case promql.Matrix:
		if len(v) > limit {
			a.data, a.warnings = v[:limit], append(a.warnings, truncated)
		}
	case promql.Vector:
		if len(v) > limit {
			a.data, a.warnings = v[:limit], append(a.warnings, truncated)
		}
	}
	return a
}

// missing returns a warning for each daemon that could not be asked.
func (x *exchange) missing() []string {
	var out []string
	for _, daemon := range x.session.Missing() {
		out = append(out, fmt.Sprintf("daemon %s could not be asked: readings that it has not stored yet are missing", daemon))
	}
	return out
}
