package main

import (
	"fmt"
	"strings"
)

// ofStream selects the streams chosen at the top of the page.
const ofStream = `{stream=~"$stream"}`

// rate is a counter's increase per second over Grafana's rate interval.
func rate(series string) string { return "rate(" + series + "[$__rate_interval])" }

// total is the rate summed over all series, or grouped by labels.
func total(series string, by ...string) string {
	if len(by) == 0 {
		return "sum(" + rate(series) + ")"
	}
	return "sum by (" + strings.Join(by, ", ") + ") (" + rate(series) + ")"
}

// seen is a range of five minutes for a metric that rarely changes, without the time
// before the first sample: a single NaN makes the rate of the whole range NaN.
func seen(series string) string { return "(" + series + " >= 0)[5m:5s]" }

// quantile is a quantile of a histogram; series are its buckets.
func quantile(q float64, series string, by ...string) string {
	return fmt.Sprintf("histogram_quantile(%g, %s)", q, total(series, append([]string{"le"}, by...)...))
}

// median and p99 of a histogram.
func medianAndP99(series string) []query {
	return []query{{legend: "p50", expr: quantile(0.5, series)}, {legend: "p99", expr: quantile(0.99, series)}}
}

// byFill are median and p99 of the store's writes over the whole time range,
// for each tenth of the fill.
func byFill() []query {
	const counts = "sum by (le, fill) (increase(brim_store_write_seconds_bucket" + ofStream + "[$__range]))"
	return []query{
		{legend: "p50", expr: "histogram_quantile(0.5, " + counts + ")"},
		{legend: "p99", expr: "histogram_quantile(0.99, " + counts + ")"},
	}
}

// mean is the mean observation of a histogram, given without suffix.
func mean(name string) string { return total(name+"_sum") + " / " + total(name+"_count") }

// each returns a query for each pair of legend and expression.
func each(pairs ...string) []query {
	out := make([]query, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, query{legend: pairs[i], expr: pairs[i+1]})
	}
	return out
}

// with adds queries on the right axis.
func with(queries []query, right string, pairs ...string) []query {
	for _, q := range each(pairs...) {
		q.right = right
		queries = append(queries, q)
	}
	return queries
}
