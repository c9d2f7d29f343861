package speed

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/load"
)

// A backlog is readings that a daemon has acknowledged and not written yet, and the
// queries that it answers meanwhile.
type backlog struct {
	sensors int
	each    int // readings of a sensor that wait; one more is stored
	queries int // of each kind
	listed  int // pages of sensors to ask for
}

func fullBacklog(quick bool) backlog {
	b := backlog{sensors: 100_000, each: 10, queries: 2000, listed: 20}
	if quick {
		b.queries, b.listed = 500, 5
	}
	return b
}

// patient are settings with which a daemon writes nothing unless asked.
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
		client := &http.Client{Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		for i := range t.lab.Repeats {
			t.lab.Step("queries while readings wait, %d of %d", i+1, t.lab.Repeats)
			b.ask(ctx, r, client, between(stored.Setup.EventStart, waiting.Setup.EventEnd), rand.New(rand.NewPCG(t.lab.Seed, uint64(i)))) //nolint:gosec // which sensors
		}
	})
}

// backlogRate is how many readings a second are posted, more or less.
const backlogRate = 20_000

// post sends a number of readings of each sensor.
func (r *rig) post(ctx context.Context, b backlog, each int, more ...string) *load.Result {
	interval := time.Duration(b.sensors) * time.Second / backlogRate
	return r.sends(ctx, b.sensors*each, append([]string{
		"--target", "grpc://" + r.GRPC, "--http", "http://" + r.HTTP, "--sensor-prefix", waitingPrefix, "--batch", "1000",
		"--sensors", strconv.Itoa(b.sensors), "--interval", interval.String(), "--duration", (time.Duration(each) * interval).String(),
	}, more...)...)
}

// sends runs a load, of which all readings must be acknowledged.
func (r *rig) sends(ctx context.Context, readings int, flags ...string) *load.Result {
	result := bench.Must(r.Load(ctx, flags...))
	if result.Acked != int64(readings) {
		bench.Check(fmt.Errorf("%d of %d readings were acknowledged: %v", result.Acked, readings, result.FirstErrors))
	}
	return result
}

const waitingPrefix = "w-"

// addWaiting checks that the readings wait, and adds how much memory they take.
func (r *rig) addWaiting(ctx context.Context, b backlog, before float64) {
	look := bench.Must(r.Look(ctx))
	n := float64(b.sensors * b.each)
	if waits := look.Value("brim_queue_readings", nil); waits < 0.99*n {
		bench.Check(fmt.Errorf("only %.0f of %.0f readings wait", waits, n))
	}
	now, _ := r.memory()
	r.lab.Row("backlog", fmt.Sprintf("%s readings of %s sensors", humanize.Comma(int64(n)), humanize.Comma(int64(b.sensors))), before, now, (now-before)/n, known(look.Value("brim_journal_bytes", nil))/n)
}

// ask asks each kind of query of random sensors, and adds how long the answers took.
func (b *backlog) ask(ctx context.Context, r *rig, client *http.Client, span string, random *rand.Rand) {
	for _, kind := range []struct {
		name, of string // of is behind the sensor in the path
		times    int
		entries  int // in the answer
	}{
		{pageQuery, "/readings?" + span, b.queries, b.each + 1},
		{latestQuery, "/latest", b.queries, 0},
		{summaryQuery, "/summary?" + span, b.queries, 1},
		{sensorsQuery, "", b.listed, min(100, b.sensors)},
	} {
		took := repeatedQuery{kind.times, kind.entries, listed, func() string {
			if kind.name == sensorsQuery {
				return "/v1/sensors?limit=100"
			}
			return "/v1/sensors/" + waitingPrefix + strconv.Itoa(1+random.IntN(b.sensors)) + kind.of
		}}.run(ctx, r, client)
		r.lab.Row("waiting", kind.name, took.Quantile(0.5), took.Quantile(0.99), took.Max(), float64(len(took)))
	}
}

// A repeatedQuery is a query of one kind that is sent several times, one after the other.
type repeatedQuery struct {
	times, entries int                   // queries, and entries that each answer must have
	count          func(body []byte) int // of the entries in an answer
	path           func() string         // of the next query
}

// run sends the queries, and returns how long the answers took.
func (q repeatedQuery) run(ctx context.Context, r *rig, client *http.Client) (took bench.Samples) {
	for range q.times {
		path, began := q.path(), time.Now()
		body := bench.Must(bench.Query(ctx, client, "http://"+r.HTTP+path))
		took = append(took, time.Since(began).Seconds())
		if n := q.count(body); n != q.entries {
			bench.Check(fmt.Errorf("the answer of %s has %d of %d entries", path, n, q.entries))
		}
	}
	return took
}

// between returns the parameters of a time range.
func between(from, to time.Time) string {
	return url.Values{"from": {from.Format(time.RFC3339Nano)}, "to": {to.Format(time.RFC3339Nano)}}.Encode()
}

// listed returns how many entries the list in an answer has; -1: it is not JSON.
func listed(body []byte) int {
	var lists struct{ Readings, Summary, Sensors []json.RawMessage }
	if json.Unmarshal(body, &lists) != nil {
		return -1
	}
	return len(lists.Readings) + len(lists.Summary) + len(lists.Sensors)
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
