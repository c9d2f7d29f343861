package read

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	r := newReader(t, fakeSource{}, func(_ *Config, s *Stored) {
		s.Sources["volatile"] = fakeSource{}
		s.Available = func(stream string) error {
			if stream == "volatile" {
				return nil
			}
			return errors.New("no server")
		}
	})
	assert.Contains(t, get(r, "/v1/sensors/a/readings").body, "mongodb_away")
	assert.Equal(t, http.StatusOK, get(r, "/v1/sensors/a/readings?stream=volatile").status, "it has no database to wait for")
}

func TestDatabaseThatHangsIsAway(t *testing.T) {
	t.Parallel()
	r := newReader(t, fakeSource{err: fmt.Errorf("find: %w", context.DeadlineExceeded)})
	assert.Contains(t, get(r, "/v1/sensors/a/readings").body, "mongodb_away")
}

func TestUnopenedReaderRefuses(t *testing.T) {
	t.Parallel()
	r, err := New(Config{DefaultStream: "readings", Problem: problem, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	assert.Contains(t, get(r, "/v1/sensors").body, "starting")
}

func TestFailureBeforeTheAnswerBegan(t *testing.T) {
	t.Parallel()
	r := newReader(t, fakeSource{readings: []telemetry.Reading{reading("a", 0, 1)}, err: errors.New("broken")})
	for _, accept := range []string{asJSON, asLines} {
		got := get(r, "/v1/sensors/a/readings", accept)
		assert.Equal(t, http.StatusTeapot, got.status)
		assert.Contains(t, got.body, "broken")
	}
}

// many returns more readings than fit in the first piece of an answer.
func many() []telemetry.Reading {
	all := make([]telemetry.Reading, 10_000)
	for i := range all {
		all[i] = reading("a", time.Duration(i)*time.Second, int64(i))
	}
	return all
}

func TestFailureMidwayIsReportedAndBreaksTheConnection(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	r := newReader(t, fakeSource{readings: many(), err: errors.New("broken: secret")}, func(c *Config, _ *Stored) { c.Registerer = registry })
	resp, body, err := overTheWire(t, r, "/v1/sensors/a/readings?limit=100000", asLines)
	require.Equal(t, http.StatusOK, resp.StatusCode, "the failure came behind the head")
	require.Error(t, err, "a client notices that the answer is not whole")
	lines := strings.Split(strings.TrimSpace(body), "\n")
	assert.JSONEq(t, `{"error":{"code":"internal","message":"an internal error occurred; see the daemon's log"}}`, lines[len(lines)-1])
	assert.Greater(t, len(lines), 1000)
	assert.InDelta(t, 1, counted(t, registry, "readings", codeCut), 0)
}

func TestLongAnswersHaveTheCursorInATrailer(t *testing.T) {
	t.Parallel()
	r := newReader(t, fakeSource{readings: many()})
	resp, body, err := overTheWire(t, r, "/v1/sensors/a/readings?limit=9000", asLines)
	require.NoError(t, err)
	assert.Equal(t, 9000, strings.Count(body, "\n"))
	assert.Empty(t, resp.Header.Get(telemetry.AfterHeader))
	assert.Equal(t, fmt.Sprintf("%d.0", base.Add(8999*time.Second).UnixMilli()+1), resp.Trailer.Get(telemetry.AfterHeader))
	resp, _, err = overTheWire(t, r, "/v1/sensors/a/readings?limit=10000", asLines)
	require.NoError(t, err)
	assert.Equal(t, []string{""}, resp.Trailer.Values(telemetry.AfterHeader), "this was all, and no proxy has removed the trailer")
	resp, _, err = overTheWire(t, r, "/v1/sensors/a/readings?limit=10", asLines)
	require.NoError(t, err)
	assert.NotEmpty(t, resp.Header.Get(telemetry.AfterHeader), "a short answer has it in front")
	assert.Equal(t, resp.Header.Get(telemetry.AfterHeader), resp.Trailer.Get(telemetry.AfterHeader))
}

func TestTooManyQueriesAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inside, leave := make(chan struct{}), make(chan struct{})
		r := newReader(t, fakeSource{asked: func(context.Context) { inside <- struct{}{}; <-leave }}, func(c *Config, _ *Stored) { c.MaxQueries = 1 })
		done := make(chan reply)
		ask := func() { done <- get(r, "/v1/sensors/a/readings") }
		go ask()
		<-inside
		begin := time.Now()
		got := get(r, "/v1/sensors/a/readings")
		assert.Contains(t, got.body, "queries_too_many")
		assert.Contains(t, got.body, "--max-queries")
		assert.Equal(t, slotWait, time.Since(begin))
		go ask()
		<-time.After(slotWait / 2) // in the bubble's time
		leave <- struct{}{}
		assert.Equal(t, http.StatusOK, (<-done).status)
		<-inside
		leave <- struct{}{}
		assert.Equal(t, http.StatusOK, (<-done).status, "who waits gets the place that is free again")
	})
}

func TestAnswersOverTheByteLimitAreRefused(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	r := newReader(t, fakeSource{readings: many(), cost: 1000}, func(c *Config, _ *Stored) { c.MaxBytes, c.Registerer = 1<<20, registry })
	assert.Equal(t, http.StatusOK, get(r, "/v1/sensors/a/readings").status)
	got := get(r, "/v1/sensors/a/summary").body
	assert.Contains(t, got, "query_too_costly")
	assert.Contains(t, got, "narrower span")
	assert.InDelta(t, 1, counted(t, registry, "readings", "200"), 0)
	assert.InDelta(t, 1, counted(t, registry, "summary", codeOther), 0)
}

func TestAnswersThatTakeTooLongAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := func(bytes int) string {
			r := newReader(t, fakeSource{asked: func(ctx context.Context) {
				assert.NoError(t, telemetry.Spend(ctx, bytes))
				<-ctx.Done()
			}})
			return get(r, "/v1/sensors/a/readings").body
		}
		got := slow(1)
		assert.Contains(t, got, fmt.Sprint(telemetry.Unavailable, " query_timed_out"), "another time it may be answered")
		assert.Contains(t, got, "30s")
		got = slow(0)
		assert.Contains(t, got, "mongodb_away", "nothing came, and less would not come sooner")
		assert.Contains(t, got, "30s")
	})
}

func TestDisconnectedClientEndsItsQuery(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	r := newReader(t, fakeSource{asked: func(ctx context.Context) { <-ctx.Done() }}, func(c *Config, _ *Stored) { c.Registerer = registry })
	ctx, cancel := context.WithCancel(context.Background())
	req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/sensors/a/readings", http.NoBody)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Handler().ServeHTTP(httptest.NewRecorder(), req)
	}()
	cancel()
	<-done
	assert.InDelta(t, 1, counted(t, registry, "readings", codeGone), 0)
}

func TestDeleteFlushesFirst(t *testing.T) {
	t.Parallel()
	var order []string
	var log bytes.Buffer
	source := fakeSource{deleted: func(sensor string) (int64, error) { order = append(order, "delete "+sensor); return 7, nil }}
	r := newReader(t, source, func(c *Config, s *Stored) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s.FlushSensor = func(_ context.Context, stream, sensor string) error {
			order = append(order, "flush "+stream+" "+sensor)
			return nil
		}
	})
	got := ask(r, http.MethodDelete, "/v1/sensors/a%20b")
	assert.Equal(t, http.StatusOK, got.status)
	assert.Equal(t, "{\"deleted\":7}\n", got.body)
	assert.Equal(t, []string{"flush readings a b", "delete a b"}, order)
	assert.Contains(t, log.String(), `msg="deleted a sensor" stream=readings sensor="a b" readings=7 by=anyone`)
}

func TestFailedFlushDeletesNothing(t *testing.T) {
	t.Parallel()
	source := fakeSource{deleted: func(string) (int64, error) { t.Error("it deleted"); return 0, nil }}
	r := newReader(t, source, func(_ *Config, s *Stored) {
		s.FlushSensor = func(context.Context, string, string) error { return errors.New("slow") }
	})
	assert.Contains(t, ask(r, http.MethodDelete, "/v1/sensors/a").body, "not_flushed")
	assert.Contains(t, ask(r, http.MethodDelete, "/v1/sensors/a?unstored=only").body, "not_flushed")
	assert.Contains(t, ask(r, http.MethodDelete, "/v1/sensors/a?unstored=off").body, "allowed: on and only")
}

func TestAbortedDeleteHasAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	r := newReader(t, fakeSource{deleted: func(string) (int64, error) { return 0, errors.New("cut") }})
	got := ask(r, http.MethodDelete, "/v1/sensors/a").body
	assert.Contains(t, got, fmt.Sprint(telemetry.UnknownOutcome, " outcome_unknown"))
}

func TestDeleteReportsThatItDidNotStart(t *testing.T) {
	t.Parallel()
	waits := telemetry.Errorf(telemetry.Unavailable, "not_deleted", "nothing was deleted")
	r := newReader(t, fakeSource{deleted: func(string) (int64, error) { return 0, waits }})
	got := ask(r, http.MethodDelete, "/v1/sensors/a").body
	assert.Contains(t, got, fmt.Sprint(telemetry.Unavailable, " not_deleted"))
}

func TestForbiddenDeleteDeletesNothing(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	forbidden := telemetry.Errorf(telemetry.Forbidden, "delete_not_granted", "MongoDB forbids it")
	r := newReader(t, fakeSource{deleted: func(string) (int64, error) { return 0, forbidden }},
		func(c *Config, _ *Stored) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	got := ask(r, http.MethodDelete, "/v1/sensors/a").body
	assert.Contains(t, got, fmt.Sprint(telemetry.Forbidden, " delete_not_granted"))
	assert.Contains(t, log.String(), `msg="a sensor may not be deleted" stream=readings sensor=a by=anyone`)
}

func TestSettingsOutOfRangeAreRefused(t *testing.T) {
	t.Parallel()
	good := Config{Problem: problem, Logger: slog.New(slog.DiscardHandler)}
	for want, change := range map[string]func(*Config){
		"query-timeout":            func(c *Config) { c.Timeout = time.Microsecond },
		"max-queries":              func(c *Config) { c.MaxQueries = -1 },
		"query-max-bytes":          func(c *Config) { c.MaxBytes = 1 },
		"query-max-backlog":        func(c *Config) { c.MaxBacklog = 1 },
		"function to write errors": func(c *Config) { c.Problem = nil },
		"logger":                   func(c *Config) { c.Logger = nil },
	} {
		cfg := good
		change(&cfg)
		_, err := New(cfg)
		assert.ErrorContains(t, err, want)
	}
}

func TestMetricsBeginAtZero(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	newReader(t, fakeSource{}, func(c *Config, _ *Stored) { c.Registerer = registry })
	n, err := testutil.GatherAndCount(registry, "brim_read_requests_total")
	require.NoError(t, err)
	assert.Equal(t, len(calls)*len(codes), n)
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	assert.Empty(t, problems)
}

// counted returns a value of brim_read_requests_total.
func counted(t *testing.T, g prometheus.Gatherer, call, code string) float64 {
	t.Helper()
	families, err := g.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "brim_read_requests_total" && m.GetLabel()[0].GetValue() == call && m.GetLabel()[1].GetValue() == code {
				return m.GetCounter().GetValue()
			}
		}
	}
	return -1
}
