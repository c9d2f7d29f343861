package speed

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/internal/store"
)

// Queries and a column of the table.
const (
	dayQuery, daySummary, newestQuery = "a day of a sensor's readings", "its summary", "newest values of all sensors"
	p50Of                             = "p50"
)

// An archive is sensors that report often, for a day, and those that have one reading.
type archive struct {
	often, each int // sensors, and readings of each
	others      int
	queries     int // for one sensor, of each kind; an eighth as many for all sensors
}

// aDay is one of sensors that report every 5 s.
func aDay() archive { return archive{often: 20, each: 17_280, others: 10_000, queries: 40} }

const archivePrefix = "q-"

// sealedParts returns how many parts of buckets a daemon has sealed.
func sealedParts(look scrape.Sample) float64 {
	return known(look.Value("brim_seal_parts_total", scrape.Labels{"outcome": "sealed"}))
}

func queriesRow(query string, format store.Format) string {
	if format == store.Columns {
		return query + ", sealed columns"
	}
	return query + ", documents"
}

// queries measures queries that users ask, from documents and from sealed columns.
func (t *trial) queries(ctx context.Context, a archive) {
	for i := range t.lab.Repeats {
		for _, format := range []store.Format{store.Documents, store.Columns} {
			t.on(ctx, []string{"--granularity", hourly, "--bucket-format", string(format)}, func(ctx context.Context, r *rig) {
				t.lab.Step("queries %d of %d: write %d readings, %s", i+1, t.lab.Repeats, a.often*a.each+a.others, format)
				from := r.archive(ctx, a, format)
				r.settle(ctx)
				t.lab.Step("queries %d of %d: %s", i+1, t.lab.Repeats, format)
				r.query(ctx, a, format, from, rand.New(rand.NewPCG(t.lab.Seed, uint64(i)))) //nolint:gosec // which sensors
			})
		}
	}
}

// archive writes the readings, and returns when they begin.
func (r *rig) archive(ctx context.Context, a archive, format store.Format) (from time.Time) {
	const interval = 5 * time.Second
	const perSecond = 34_560
	span, takes := time.Duration(a.each)*interval, time.Duration(a.often*a.each)*time.Second/perSecond
	result := r.sends(ctx, a.often*a.each, "--sensors", strconv.Itoa(a.often), "--sensor-prefix", archivePrefix, "--interval", interval.String(), "--batch", "1000",
		"--speedup", strconv.FormatFloat(span.Seconds()/takes.Seconds(), 'f', -1, 64), "--duration", takes.String(), "--start", time.Now().Add(-span-3*time.Hour).Truncate(time.Hour).Format(time.RFC3339))
	r.sends(ctx, a.others, "--sensors", strconv.Itoa(a.others), "--sensor-prefix", "n-", "--interval", interval.String(), "--batch", "1000", "--speedup", "5", "--duration", "1s",
		"--start", time.Now().Add(-interval).Format(time.RFC3339))
	bench.Check(r.Flush(ctx, storedTimeout))
	if format == store.Columns {
		r.seal(ctx, a.often*int((span+time.Hour-1)/time.Hour))
	}
	return result.Setup.EventStart
}

// seal packs the windows that have ended, and returns when as many as expected are packed.
func (r *rig) seal(ctx context.Context, windows int) {
	r.beginSealing(ctx)
	const pause = 100 * time.Millisecond
	for range storedTimeout / pause {
		if sealedParts(bench.Must(r.Look(ctx))) >= float64(windows) {
			return
		}
		bench.Check(machine.Pause(ctx, pause))
	}
	bench.Check(fmt.Errorf("%d windows were not sealed within %v", windows, storedTimeout))
}

// beginSealing makes the daemon seal the windows that have ended.
func (r *rig) beginSealing(ctx context.Context) {
	bench.Check(r.Ask(ctx, http.MethodPost, "/seal?stream="+collection, func(io.Reader) error { return nil }))
}

// query asks on one connection, one query after the other.
func (r *rig) query(ctx context.Context, a archive, format store.Format, from time.Time, random *rand.Rand) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	span := between(from, from.Add(24*time.Hour))
	newest := "/prometheus/api/v1/query?" + url.Values{"query": {`t{sensor=~"n-.*"}`}}.Encode()
	for _, kind := range []struct {
		name, of string // of is behind the sensor in the path; empty: no sensor
		sign     string // that the answer has for each entry
		entries  int
	}{
		{dayQuery, fmt.Sprintf("/readings?limit=%d&", a.each) + span, `"ts":`, a.each},
		{daySummary, "/summary?" + span, fmt.Sprintf(`"count":%d,`, a.each), 1},
		{newestQuery, "", `"value":`, a.others},
	} {
		times := max(1, a.queries/8)
		if kind.of != "" {
			times = a.queries
		}
		count := func(body []byte) int { return bytes.Count(body, []byte(kind.sign)) } // decoding would take longer than the answer
		took := repeatedQuery{times, kind.entries, count, func() string {
			if kind.of == "" {
				return newest
			}
			return "/v1/sensors/" + archivePrefix + strconv.Itoa(1+random.IntN(a.often)) + kind.of
		}}.run(ctx, r, client)
		r.lab.Row("queries", queriesRow(kind.name, format), took.Quantile(0.5), took.Quantile(0.99))
	}
}

func queriesTable() bench.Table {
	return bench.Table{
		Name: "queries", Title: "Queries over HTTP, one after the other on one connection", Variant: "query", Measures: bench.In(bench.Seconds, p50Of, p99Of),
		Note: "A sensor that reports four fields every 5 s has 17,280 readings a day, in hourly windows. Newest values: a PromQL query for one field of 10,000 other sensors.",
	}
}

func queriesClaims() (all []bench.Claim) {
	for _, promise := range []struct {
		query string
		most  float64
	}{{dayQuery, 40e-3}, {daySummary, 3e-3}, {newestQuery, 200e-3}} {
		all = append(all, bench.Claim{
			Says: promise.query + " over HTTP", Published: promise.most, PublishedAs: fmt.Sprintf("<= %.0f ms", promise.most*1e3), Unit: bench.Seconds, Rule: bench.AtMost,
			Of: bench.At("queries", queriesRow(promise.query, store.Documents), p50Of),
		})
	}
	return all
}
