package main

import (
	"fmt"
	"strings"
)

// ofStream selects what the variable on top of the page says.
const ofStream = `{stream=~"$stream"}`

// rate is the increase per second of a counter, over what Grafana thinks fit.
func rate(series string) string { return "rate(" + series + "[$__rate_interval])" }

// total is the rate of all label sets together, or of each of a label.
func total(series string, by ...string) string {
	if len(by) == 0 {
		return "sum(" + rate(series) + ")"
	}
	return "sum by (" + strings.Join(by, ", ") + ") (" + rate(series) + ")"
}

// seen is a range of five minutes for a metric that changes rarely, without the time
// before the first sample: a single NaN makes the rate of the whole range NaN.
func seen(series string) string { return "(" + series + " >= 0)[5m:5s]" }

// quantile is that of a histogram, of which series names the buckets.
func quantile(q float64, series string, by ...string) string {
	return fmt.Sprintf("histogram_quantile(%g, %s)", q, total(series, append([]string{"le"}, by...)...))
}

// median and p99 of a histogram.
func medianAndP99(series string) []query {
	return []query{{legend: "p50", expr: quantile(0.5, series)}, {legend: "p99", expr: quantile(0.99, series)}}
}

// byFill are median and p99 of the store's writes over all that the page shows,
// for each tenth of the fill.
func byFill() []query {
	const counts = "sum by (le, fill) (increase(brim_store_write_seconds_bucket" + ofStream + "[$__range]))"
	return []query{
		{legend: "p50", expr: "histogram_quantile(0.5, " + counts + ")"},
		{legend: "p99", expr: "histogram_quantile(0.99, " + counts + ")"},
	}
}

// mean is the mean observation of a histogram, named without its suffix.
func mean(name string) string { return total(name+"_sum") + " / " + total(name+"_count") }

// each gives a query for each pair of legend and expression.
func each(pairs ...string) []query {
	out := make([]query, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, query{legend: pairs[i], expr: pairs[i+1]})
	}
	return out
}

// with adds queries that have the axis on the right.
func with(queries []query, right string, pairs ...string) []query {
	for _, q := range each(pairs...) {
		q.right = right
		queries = append(queries, q)
	}
	return queries
}
