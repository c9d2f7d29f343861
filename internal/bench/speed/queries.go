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

	"github.com/dustin/go-humanize"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/internal/store"
)

// Queries and a column of the table.
const (
	dayQuery, daySummary, newestQuery = "a day of a sensor's readings", "its summary", "newest values of all sensors"
	p50Of                             = "p50"
)

// An archive has sensors that report often for a day, and others with one reading each.
type archive struct {
	often, each int // sensors, and readings per sensor
	others      int
	queries     int // of each kind about one sensor; an eighth as many about all sensors
}

// aDay is a day of sensors that report every 5 s.
func aDay() archive { return archive{often: 20, each: 17_280, others: 10_000, queries: 40} }

const archivePrefix = "q-"

// sealedParts returns how many bucket parts a daemon has sealed.
func sealedParts(sample scrape.Sample) float64 {
	return known(sample.Value("brim_seal_parts_total", scrape.Labels{"outcome": "sealed"}))
}

func queriesRow(query string, format store.Format) string {
	if format == store.Columns {
		return query + ", sealed columns"
	}
	return query + ", documents"
}

// queries measures typical user queries against documents and sealed columns.
func (t *trial) queries(ctx context.Context, a archive) {
	for i := range t.lab.Repeats {
		for _, format := range []store.Format{store.Documents, store.Columns} {
			t.on(ctx, []string{"--granularity", hourly, "--bucket-format", string(format)}, func(ctx context.Context, r *rig) {
				t.lab.Step("queries %d of %d: write %d readings, %s", i+1, t.lab.Repeats, a.often*a.each+a.others, format)
				from := r.archive(ctx, a, format)
				r.settle(ctx)
				t.lab.Step("queries %d of %d: %s", i+1, t.lab.Repeats, format)
				r.query(ctx, a, format, from, rand.New(rand.NewPCG(t.lab.Seed, uint64(i)))) //nolint:gosec // picks sensors
			})
		}
	}
}

// archive writes the readings and returns the start of their event time.
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

// seal seals the ended windows, and returns once the expected number is sealed.
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

// beginSealing makes the daemon seal the ended windows.
func (r *rig) beginSealing(ctx context.Context) {
	bench.Check(r.Ask(ctx, http.MethodPost, "/seal?stream="+collection, func(io.Reader) error { return nil }))
}

// query queries random sensors.
func (r *rig) query(ctx context.Context, a archive, format store.Format, from time.Time, random *rand.Rand) {
	span := bench.Between(from, from.Add(24*time.Hour))
	newest := "/prometheus/api/v1/query?" + url.Values{"query": {`t{sensor=~"n-.*"}`}}.Encode()
	one := func(suffix string) func() string {
		return func() string { return "/v1/sensors/" + archivePrefix + strconv.Itoa(1+random.IntN(a.often)) + suffix }
	}
	r.ask(ctx, "queries", []repeatedQuery{
		{queriesRow(dayQuery, format), a.queries, a.each, `"ts":`, one(fmt.Sprintf("/readings?limit=%d&", a.each) + span)},
		{queriesRow(daySummary, format), a.queries, 1, fmt.Sprintf(`"count":%d,`, a.each), one("/summary?" + span)},
		{queriesRow(newestQuery, format), max(1, a.queries/8), a.others, `"value":`, func() string { return newest }},
	})
}

func queriesTable() bench.Table {
	return bench.Table{
		Name: "queries", Title: "Queries over HTTP, one after the other on one connection", Variant: "query", Measures: bench.In(bench.Seconds, p50Of, p99Of),
		Note: "A sensor that reports four fields every 5 s has 17,280 readings a day, in hourly windows. Newest values: a PromQL query for one field of 10,000 other sensors.",
	}
}

// A backlog is acknowledged readings that a daemon has not written yet, and the queries it
// answers meanwhile.
type backlog struct {
	sensors int
	each    int // waiting readings per sensor; one more is stored
	queries int // of each kind
	listed  int // pages of sensors to request
}

func fullBacklog(quick bool) backlog {
	b := backlog{sensors: 100_000, each: 10, queries: 2000, listed: 20}
	if quick {
		b.queries, b.listed = 500, 5
	}
	return b
}

// patient keeps a daemon from writing anything unless asked.
var patient = []string{
	"--granularity", hourly, "--flush-max", "1h", "--merge-readings", "1000000", "--flush-budget", "0%", "--queue-max-bytes", "4GiB", "--stop-timeout", "1s",
}

// Kinds of queries.
const (
	pageQuery, latestQuery, summaryQuery, sensorsQuery = "a page of readings", "the newest reading", "a summary", "a page of 100 sensors"
)

// waiting measures queries while readings wait.
func (t *trial) waiting(ctx context.Context, b backlog) {
	t.on(ctx, patient, func(ctx context.Context, r *rig) {
		t.lab.Step("store a reading of each of %d sensors", b.sensors)
		stored := r.post(ctx, b, 1, "--start", "-3h")
		bench.Check(r.Flush(ctx, storedTimeout))
		before, _ := r.memory()
		t.lab.Step("let %d readings wait", b.sensors*b.each)
		waiting := r.post(ctx, b, b.each)
		r.addWaiting(ctx, b, before)
		span := bench.Between(stored.Setup.EventStart, waiting.Setup.EventEnd)
		for i := range t.lab.Repeats {
			t.lab.Step("queries while readings wait, %d of %d", i+1, t.lab.Repeats)
			random := rand.New(rand.NewPCG(t.lab.Seed, uint64(i))) //nolint:gosec // picks sensors
			one := func(suffix string) func() string {
				return func() string { return "/v1/sensors/" + waitingPrefix + strconv.Itoa(1+random.IntN(b.sensors)) + suffix }
			}
			r.ask(ctx, "waiting", []repeatedQuery{
				{pageQuery, b.queries, b.each + 1, `"ts":`, one("/readings?" + span)},
				{latestQuery, b.queries, 1, `"ts":`, one("/latest")},
				{summaryQuery, b.queries, 1, fmt.Sprintf(`"count":%d,`, b.each+1), one("/summary?" + span)},
				{sensorsQuery, b.listed, min(100, b.sensors), `"sensorId":`, func() string { return "/v1/sensors?limit=100" }},
			})
		}
	})
}

// backlogRate is roughly how many readings per second are sent.
const backlogRate = 20_000

// post sends readings of each sensor.
func (r *rig) post(ctx context.Context, b backlog, each int, more ...string) *load.Result {
	interval := time.Duration(b.sensors) * time.Second / backlogRate
	return r.sends(ctx, b.sensors*each, append([]string{
		"--target", "grpc://" + r.GRPC, "--http", "http://" + r.HTTP, "--sensor-prefix", waitingPrefix, "--batch", "1000",
		"--sensors", strconv.Itoa(b.sensors), "--interval", interval.String(), "--duration", (time.Duration(each) * interval).String(),
	}, more...)...)
}

// sends runs a load, and fails unless all readings are acknowledged.
func (r *rig) sends(ctx context.Context, readings int, flags ...string) *load.Result {
	result := r.Load(ctx, flags...)
	if result.Acked != int64(readings) {
		bench.Check(fmt.Errorf("%d of %d readings were acknowledged: %v", result.Acked, readings, result.FirstErrors))
	}
	return result
}

const waitingPrefix = "w-"

// addWaiting checks that the readings wait, and adds the memory they take.
func (r *rig) addWaiting(ctx context.Context, b backlog, before float64) {
	sample := bench.Must(r.Look(ctx))
	n := float64(b.sensors * b.each)
	if waits := sample.Value("brim_queue_readings", nil); waits < 0.99*n {
		bench.Check(fmt.Errorf("only %.0f of %.0f readings wait", waits, n))
	}
	now, _ := r.memory()
	r.lab.Row("backlog", fmt.Sprintf("%s readings of %s sensors", humanize.Comma(int64(n)), humanize.Comma(int64(b.sensors))), before, now, (now-before)/n, known(sample.Value("brim_journal_bytes", nil))/n)
}

// A repeatedQuery is a kind of query that is sent several times.
type repeatedQuery struct {
	row            string
	times, entries int           // number of queries, and of entries in each answer
	sign           string        // of an entry; counting it is cheaper than decoding the answer
	path           func() string // of the next query
}

// ask sends queries one by one on one connection, and adds how long the answers took.
func (r *rig) ask(ctx context.Context, table string, kinds []repeatedQuery) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for _, q := range kinds {
		var took bench.Samples
		for range q.times {
			path, began := q.path(), time.Now()
			body := r.Get(ctx, client, path)
			took = append(took, time.Since(began).Seconds())
			if n := bytes.Count(body, []byte(q.sign)); n != q.entries {
				bench.Check(fmt.Errorf("the answer of %s has %d of %d entries", path, n, q.entries))
			}
		}
		figures := []float64{took.Quantile(0.5), took.Quantile(0.99), took.Max(), float64(q.times)}
		r.lab.Row(table, q.row, figures[:len(r.lab.Table(table).Measures)]...)
	}
}

func waitingTables() []bench.Table {
	return []bench.Table{
		{
			Name: "waiting", Title: "Queries while acknowledged readings wait, one after the other on one connection", Variant: "query",
			Measures: append(bench.In(bench.Seconds, "p50", p99Of, "at most"), bench.Measure{Name: "queries", Unit: bench.Count}),
			Note:     "For random sensors, over HTTP. MongoDB has one reading of each sensor, all others wait; answers include both.",
		},
		{
			Name: "backlog", Title: "What waiting readings take", Variant: "readings", Measures: bench.In(bench.Bytes, "RSS before", "RSS", "memory per reading", "journal per reading"),
			Note: "Four fields, 1,000 readings per request.",
		},
	}
}
