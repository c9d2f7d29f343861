package promapi

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const (
	// maxTokens bounds how deep a query can be nested: the engine calls itself for each
	// level.
	maxTokens = 10_000
	// maxQuery is the length of a query in bytes. Lists of values of a dashboard's variables
	// make long ones.
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

// evaluate runs a query at the instants from start to end; step is 0 if there is one.
func (x *exchange) evaluate(ctx context.Context, start, end time.Time, step time.Duration) (answer, error) {
	text := x.r.FormValue("query")
	limit, err := x.limit()
	if err != nil {
		return answer{}, err
	}
	if err := checkSize(text); err != nil {
		return answer{}, err
	}
	own, err := x.lookback()
	if err != nil {
		return answer{}, err
	}
	var q promql.Query
	source, opts := queryable{x, own}, promql.NewPrometheusQueryOpts(false, own.longest)
	if step == 0 {
		q, err = x.api.engine.NewInstantQuery(ctx, source, opts, text, start)
	} else {
		q, err = x.api.engine.NewRangeQuery(ctx, source, opts, text, start, end, step)
	}
	if err != nil {
		return answer{}, invalid("the query cannot be parsed: %v", err)
	}
	result := q.Exec(ctx)
	out := answer{data: result.Value, close: q.Close}
	if result.Err != nil {
		return out, result.Err
	}
	out.warnings, out.infos = result.Warnings.AsStrings(text, 10, 10)
	if limit > 0 {
		out = out.cut(limit)
	}
	return out, nil
}

// cut leaves so many series of an answer.
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

// missing says which daemons could not be asked.
func (x *exchange) missing() []string {
	var out []string
	for _, daemon := range x.session.Missing() {
		out = append(out, fmt.Sprintf("daemon %s could not be asked: readings that it has not stored yet are missing", daemon))
	}
	return out
}
