package promapi_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/promapi"
	"github.com/brim-telemetry/brim/internal/read"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A gate is a source whose reads wait until it opens. Each returns what was stored
// when it began.
type gate struct {
	source
	began chan struct{} // receives for each read
	open  chan struct{}

	mu    sync.Mutex
	asked []telemetry.Query
	more  []telemetry.Reading
}

func newGate(s *stored) *gate {
	return &gate{source: source{s}, began: make(chan struct{}, 1000), open: make(chan struct{})}
}

func (g *gate) Readings(ctx context.Context, q telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	return func(yield func(telemetry.Reading, error) bool) {
		g.mu.Lock()
		g.asked = append(g.asked, q)
		seen := stored{readings: append(g.readings[:len(g.readings):len(g.readings)], g.more...)}
		g.mu.Unlock()
		g.began <- struct{}{}
		select {
		case <-g.open:
		case <-ctx.Done():
			yield(telemetry.Reading{}, ctx.Err())
			return
		}
		seen.Readings(ctx, q)(yield)
	}
}

func (g *gate) queries() []telemetry.Query {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked
}

// sharing returns a reader of a gate, and an API that uses it.
func sharing(t *testing.T, g *gate, queries int, change ...func(*read.Stored, *promapi.Config)) (*read.Reader, *promapi.API) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	reader, err := read.New(read.Config{DefaultStream: "readings", Problem: func(http.ResponseWriter, error) {}, Logger: log, MaxQueries: queries})
	require.NoError(t, err)
	s := read.Stored{
		Sources: map[string]read.Source{"readings": g}, Catalogs: map[string]read.Catalog{"readings": g.stored}, Available: func(string) error { return nil },
	}
	cfg := promapi.Config{Reader: reader, Logger: log}
	for _, c := range change {
		c(&s, &cfg)
	}
	reader.Open(s)
	a, err := promapi.New(cfg)
	require.NoError(t, err)
	return reader, a
}

// machines are ten readings of each sensor.
func machines(sensors int) *stored {
	s := &stored{}
	for second := range 10 {
		for n := range sensors {
			s.readings = append(s.readings, reading(fmt.Sprintf("s-%03d", n), second*60, north(), "a", second+n, "b", n, "c", second))
		}
	}
	return s
}

const patience = 90 * time.Second

func TestQueriesShareReads(t *testing.T) {
	t.Parallel()
	const sensors, mostAtOnce = 30, 8
	queries := []string{"sum(a)", "sum(rate(b[2m]))", "max(c)", "sum(a + b)"}
	form := func(query string) url.Values {
		return url.Values{"query": {query}, "start": {strconv.Itoa(epoch)}, "end": {strconv.Itoa(epoch + 600)}, "step": {"60"}}
	}
	alone := newAPI(t, machines(sensors))

	g := newGate(machines(sensors))
	_, a := sharing(t, g, 1) // others wait for a slot
	together := &api{t, a.Handler()}
	var group errgroup.Group
	bodies := make([]string, len(queries))
	for i, query := range queries {
		group.Go(func() error {
			_, bodies[i] = together.get("/api/v1/query_range", form(query))
			return nil
		})
	}
	require.Eventually(t, func() bool {
		visits, _, _ := a.Shares().Count()
		return visits == len(queries)
	}, patience, time.Millisecond)
	close(g.open)
	require.NoError(t, group.Wait())
	for i, query := range queries {
		_, want := alone.get("/api/v1/query_range", form(query))
		assert.Contains(t, want, `"values":[[`)
		assert.Equal(t, want, bodies[i], query)
	}
	// Reads that began before the last query arrived are repeated for later queries.
	assert.LessOrEqual(t, len(g.queries()), sensors+(len(queries)-1)*mostAtOnce)
	visits, _, held := a.Shares().Count()
	assert.Zero(t, visits)
	assert.Zero(t, held, "nothing is kept")
}

// TestMemoryIsUsedAgainOnlyAfterItsQueries: queries begin and end while others use shared
// reads.
func TestMemoryIsUsedAgainOnlyAfterItsQueries(t *testing.T) {
	t.Parallel()
	a := newAPI(t, machines(20))
	form := url.Values{"start": {strconv.Itoa(epoch)}, "end": {strconv.Itoa(epoch + 600)}, "step": {"60"}}
	queries := []string{"a", "max_over_time(b[2m])", "a + c", `c{sensor="s-007"}`}
	var want []string
	for _, query := range queries {
		_, body := a.get("/api/v1/query_range", ask(query, form))
		require.Contains(t, body, `"values":[[`)
		want = append(want, body)
	}
	var group errgroup.Group
	for user := range 8 {
		group.Go(func() error {
			for n := range 25 {
				at := (user + n) % len(queries)
				_, got := a.get("/api/v1/query_range", ask(queries[at], maps.Clone(form)))
				assert.Equal(t, want[at], got, queries[at])
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
}

// panicking panics in reads.
type panicking struct{ *gate }

func (panicking) Readings(context.Context, telemetry.Query) iter.Seq2[telemetry.Reading, error] {
	return func(func(telemetry.Reading, error) bool) { panic("a bug in readings") }
}

func (panicking) Summary(context.Context, telemetry.SummaryQuery) iter.Seq2[telemetry.Summary, error] {
	return func(func(telemetry.Summary, error) bool) { panic("a bug in summaries") }
}

// TestAPanicInAReadFailsOnlyItsQuery, for shared reads and for statistics, which are not shared.
func TestAPanicInAReadFailsOnlyItsQuery(t *testing.T) {
	t.Parallel()
	g := newGate(machines(3))
	close(g.open)
	var out bytes.Buffer
	_, a := sharing(t, g, 1, func(s *read.Stored, c *promapi.Config) {
		s.Sources["readings"] = panicking{g}
		c.Logger = slog.New(slog.NewTextHandler(&out, nil))
		c.Window = func(string) time.Duration { return time.Minute }
	})
	asker := &api{t, a.Handler()}
	form := url.Values{"start": {strconv.Itoa(epoch)}, "end": {strconv.Itoa(epoch + 600)}, "step": {"60"}}
	for range 10 { // no slot leaks
		for _, query := range []string{"a", "min_over_time(a[2m])"} {
			code, body := asker.get("/api/v1/query_range", ask(query, form))
			assert.Equal(t, 500, code)
			assert.Contains(t, body, "an internal error occurred")
		}
	}
	visits, _, held := a.Shares().Count()
	assert.Zero(t, visits)
	assert.Zero(t, held)
	assert.Contains(t, out.String(), "a bug in readings")
	assert.Contains(t, out.String(), "a bug in summaries")
	assert.Contains(t, out.String(), "share_test.go")
}

func TestQueriesSeeWhatWasThereBeforeThem(t *testing.T) {
	t.Parallel()
	g := newGate(&stored{readings: []telemetry.Reading{reading("s", 0, nil, "v", 1)}})
	_, a := sharing(t, g, 4)
	asker := &api{t, a.Handler()}
	first, second := make(chan string), make(chan string)
	go func() { first <- asker.value("v", 100) }()
	<-g.began
	g.mu.Lock()
	g.more = []telemetry.Reading{reading("s", 50, nil, "v", 2)}
	g.mu.Unlock()
	go func() { second <- asker.value("v", 100) }()
	<-g.began
	close(g.open)
	assert.Equal(t, "1", <-first)
	assert.Equal(t, "2", <-second, "this was there before the query")
}

func TestAReadOutlivesTheQueryThatBeganIt(t *testing.T) {
	t.Parallel()
	g := newGate(machines(2))
	reader, _ := sharing(t, g, 4)
	s := promapi.NewShares(1000, 1)
	ctx, session, err := reader.Begin(t.Context(), read.SessionConfig{})
	require.NoError(t, err)
	defer session.End()
	type outcome struct {
		samples int
		joined  bool
		err     error
	}
	ask := func(ctx context.Context, sensor string, fields ...string) chan outcome {
		out := make(chan outcome, 1)
		go func() {
			v := s.Arrive("readings")
			defer s.Leave(v)
			samples, joined, err := s.Read(ctx, session, v, sensor, epoch*1000, (epoch+1000)*1000, fields...)
			out <- outcome{samples, joined, err}
		}()
		return out
	}
	joined := func(n int) func() bool {
		return func() bool {
			_, most, _ := s.Count()
			return most == n
		}
	}
	busy := ask(ctx, "s-000", "a")
	<-g.began
	leaving, leave := context.WithCancel(ctx)
	first := ask(leaving, "s-001", "a") // waits for a slot
	require.Eventually(t, func() bool { visits, _, _ := s.Count(); return visits == 2 }, patience, time.Millisecond)
	second := ask(ctx, "s-001", "b")
	require.Eventually(t, joined(2), patience, time.Millisecond)
	leave()
	require.ErrorIs(t, (<-first).err, context.Canceled)
	close(g.open)
	assert.Equal(t, outcome{30, false, nil}, <-busy)
	assert.Equal(t, outcome{30, true, nil}, <-second)
	asked := g.queries()
	require.Len(t, asked, 2)
	assert.Equal(t, []string{"a", "b"}, asked[1].Fields, "those of both")

	alone, leave := context.WithCancel(ctx)
	g.open = make(chan struct{})
	<-g.began // of s-001
	last := ask(alone, "s-000", "a")
	<-g.began
	leave()
	require.ErrorIs(t, (<-last).err, context.Canceled, "and the read has ended")
}

func TestListsOfLabelsAreLimited(t *testing.T) {
	t.Parallel()
	a := newAPI(t, machines(500))
	_, body := a.get("/api/v1/label/sensor/values", url.Values{"limit": {"3"}})
	assert.JSONEq(t, `{"status":"success","data":["s-000","s-001","s-002"],"warnings":["results truncated due to limit"]}`, body)
	_, body = a.get("/api/v1/labels", url.Values{"limit": {"3"}})
	assert.JSONEq(t, `{"status":"success","data":["__name__","sensor","site"]}`, body)
	_, body = a.get("/api/v1/series", url.Values{"match[]": {"b", "a"}, "limit": {"2"}})
	assert.JSONEq(t, `{"status":"success","data":[{"__name__":"a","sensor":"s-000","site":"north"},{"__name__":"a","sensor":"s-001","site":"north"}],"warnings":["results truncated due to limit"]}`, body)
}
