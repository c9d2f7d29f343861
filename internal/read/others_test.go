package read

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// others are daemons that are called without a network. Any status except 200 and 404
// is a failure.
type others struct {
	daemons map[string]http.Handler // by address
	asked   []string                // targets
}

func (o *others) Ask(_ context.Context, method, stream, target, credentials string) func(func([]byte) error) []string {
	o.asked = append(o.asked, method+" "+stream+" "+target)
	return func(take func([]byte) error) (failed []string) {
		for address, daemon := range o.daemons {
			req := httptest.NewRequest(method, target, http.NoBody)
			req.Header.Set("Accept", typeLines+", "+typeJSON)
			if credentials != "" {
				req.Header.Set("Authorization", credentials)
			}
			w := httptest.NewRecorder()
			daemon.ServeHTTP(w, req)
			if w.Code == http.StatusOK && w.Body.Len() > 0 {
				if take(w.Body.Bytes()) != nil {
					failed = append(failed, address)
				}
			} else if w.Code != http.StatusOK && w.Code != http.StatusNotFound {
				failed = append(failed, address)
			}
		}
		return failed
	}
}

// says returns a daemon that always gives the same response.
func says(code int, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	})
}

// statusOf writes errors like the daemon, as far as the tests need.
func statusOf(w http.ResponseWriter, err error) {
	code := map[telemetry.ErrorKind]int{
		telemetry.NotFound: http.StatusNotFound, telemetry.Unavailable: http.StatusServiceUnavailable, telemetry.Unauthenticated: http.StatusUnauthorized,
		telemetry.Forbidden: http.StatusForbidden, telemetry.Invalid: http.StatusBadRequest,
	}[telemetry.KindOf(err)]
	http.Error(w, err.Error(), max(code, http.StatusBadRequest))
}

// twoDaemons returns the readers of two daemons. Unstored are "a" 0 here, and "a" 10 and
// "b" 11 in the other daemon, which cannot read from MongoDB. Stored are "a" 5 and "c" 6.
func twoDaemons(t *testing.T, change ...func(*Config)) (here, there *Reader, o *others) {
	t.Helper()
	stored := fakeSource{readings: []telemetry.Reading{reading("a", 5*time.Second, 5), reading("c", 6*time.Second, 6)}}
	mine, theirs := openJournal(t), openJournal(t, func(c *journal.Config) { c.Session = "s2" })
	journaled(t, mine, readingsOf("readings", 0, "a"))
	journaled(t, theirs, readingsOf("readings", 10, "a", "b"))
	o = &others{daemons: make(map[string]http.Handler)}
	var rest, restThere atomic.Uint64
	rest.Store(mine.Oldest())
	restThere.Store(theirs.Oldest())
	set := func(c *Config) {
		c.Problem = statusOf
		for _, f := range change {
			f(c)
		}
	}
	here = newReader(t, stored, func(c *Config, s *Stored) {
		s.Backlog, s.Others = backlogOf(mine, &rest), o
		set(c)
	})
	there = newReader(t, fakeSource{}, func(c *Config, s *Stored) {
		s.Backlog, s.Others = backlogOf(theirs, &restThere), &others{daemons: map[string]http.Handler{"third": says(500, "a peer passed the request on")}}
		s.Available = func(string) error { return assert.AnError }
		c.Daemon = "there"
		set(c)
	})
	o.daemons["there:8430"] = there.Handler()
	return here, there, o
}

func TestQueriesShowWhatWaitsInOtherDaemons(t *testing.T) {
	t.Parallel()
	here, _, o := twoDaemons(t)
	for target, want := range map[string][]string{
		"/v1/sensors/a/readings":                {`"v":0`, `"v":5`, `"v":10`},
		"/v1/sensors/a/readings?limit=1":        {`"v":0`},
		"/v1/sensors/a/latest":                  {`"v":10`},
		"/v1/sensors/b/latest":                  {`"v":11`},
		"/v1/sensors/c/latest":                  {`"v":6`},
		"/v1/sensors/a/summary":                 {`"count":3`, `"max":10`},
		"/v1/sensors":                           {`"a","newest":"2026-11-21T10:00:10.000Z"`, `"b","newest":"2026-11-21T10:00:11.000Z"`, `"c"`},
		"/v1/sensors?prefix=b":                  {`"b"`},
		"/v1/sensors/a/readings?unstored=off":   {`"v":5`},
		"/v1/sensors/a/readings?unstored=only":  {`"v":0,"session"`},
		"/v1/sensors?limit=1&after=a":           {`"b"`, `"after":"b"`},
		"/v1/sensors/%2F..%2Fx%3F%25/readings":  {`[]`},
		"/v1/sensors/a/readings?from=7&to=7":    {`[]`},
		"/v1/sensors/a/readings?after=5000.0":   {`"v":0`, `"v":5`, `"v":10`},
		"/v1/sensors/b/readings?limit=100000":   {`"v":11`},
		"/v1/sensors?limit=10000&prefix=absent": {`[]`},
	} {
		got := get(here, target)
		assert.Equal(t, http.StatusOK, got.status, target)
		assert.Empty(t, got.header.Get(telemetry.IncompleteHeader), target)
		assert.NotContains(t, got.body, "incomplete", target)
		at := 0
		for _, w := range want {
			i := strings.Index(got.body[at:], strings.Replace(w, `"v":0,"session"`, `"v":0},"session"`, 1))
			require.GreaterOrEqual(t, i, 0, "%s: %s in %s", target, w, got.body)
			at += i + 1
		}
	}
	o.asked = nil
	get(here, "/v1/sensors/a/readings?unstored=off")
	get(here, "/v1/sensors?unstored=only")
	assert.Empty(t, o.asked)
	assert.Equal(t, http.StatusNotFound, get(here, "/v1/sensors/absent/latest").status)
}

// TestOthersFindSensorsBehindAPage requests the last of more sensors than fit on a page.
func TestOthersFindSensorsBehindAPage(t *testing.T) {
	t.Parallel()
	theirs := openJournal(t)
	var rest atomic.Uint64
	var ids []string
	for i := range 2 * sensorPage {
		ids = append(ids, fmt.Sprintf("w-%04d", i))
	}
	journaled(t, theirs, readingsOf("readings", 0, ids...))
	there := newReader(t, fakeSource{}, func(_ *Config, s *Stored) { s.Backlog = backlogOf(theirs, &rest) })
	here := newReader(t, fakeSource{}, func(_ *Config, s *Stored) {
		s.Backlog, s.Others = backlogOf(openJournal(t), &rest), &others{daemons: map[string]http.Handler{"there:8430": there.Handler()}}
	})
	for pattern, want := range map[string][]string{"w-1990": {"w-1990"}, "w-0007|w-1999": {"w-0007", "w-1999"}, "w-1(5|6)10": {"w-1510", "w-1610"}} {
		m, err := telemetry.NewMatcher("", telemetry.MatchRegexp, pattern)
		require.NoError(t, err)
		ctx, session, err := here.Begin(t.Context(), SessionConfig{})
		require.NoError(t, err)
		var found []string
		for one, err := range session.Find(ctx, telemetry.SensorQuery{Sensor: []telemetry.Matcher{m}}) {
			require.NoError(t, err)
			found = append(found, one.ID)
		}
		assert.Equal(t, want, found)
		assert.Empty(t, session.Missing())
		session.End()
	}
	refused := get(here, "/v1/sensors?sensor=%3Da")
	assert.Contains(t, refused.body, "only allowed with unstored=only")
}

// Unstored readings in other daemons would reappear, so they are stored before a sensor
// is deleted.
func TestOthersStoreASensorBeforeItIsDeleted(t *testing.T) {
	t.Parallel()
	var order []string
	flushes := func(where string, s *Stored) {
		s.FlushSensor = func(_ context.Context, stream, sensor string) error {
			order = append(order, where+" "+stream+" "+sensor)
			return nil
		}
	}
	there := newReader(t, fakeSource{deleted: func(string) (int64, error) { return 0, assert.AnError }}, func(_ *Config, s *Stored) {
		flushes("there", s)
		s.Others = &others{daemons: map[string]http.Handler{"third": says(500, "a peer passed the request on")}}
	})
	o := &others{daemons: map[string]http.Handler{"there:8430": there.Handler()}}
	here := newReader(t, fakeSource{deleted: func(string) (int64, error) { order = append(order, "deleted"); return 3, nil }}, func(_ *Config, s *Stored) {
		flushes("here", s)
		s.Others = o
	})
	got := ask(here, http.MethodDelete, "/v1/sensors/a%2Fb?stream=readings")
	assert.Equal(t, reply{http.StatusOK, got.header, "{\"deleted\":3}\n"}, got)
	assert.Equal(t, []string{"here readings a/b", "there readings a/b", "deleted"}, order)
	assert.Equal(t, []string{"DELETE readings /v1/sensors/a%2Fb?stream=readings&unstored=only"}, o.asked)

	order, o.daemons = nil, map[string]http.Handler{"gone:8430": says(http.StatusBadGateway, "")}
	got = ask(here, http.MethodDelete, "/v1/sensors/a")
	assert.Contains(t, got.body, "not_flushed")
	assert.Contains(t, got.body, "gone:8430")
	assert.Equal(t, []string{"here readings a"}, order, "nothing is deleted")
}

func TestWaitingReadingsAreGivenWithTheirOrigin(t *testing.T) {
	t.Parallel()
	_, there, _ := twoDaemons(t)
	const one = `{"sensorId":"a","ts":"2026-11-21T10:00:10.000Z","fields":{"v":10},"session":"s2","sequence":1,"arrival":1795255200000,"granularity":300}`
	got := get(there, "/v1/sensors/a/readings?unstored=only", typeLines)
	assert.JSONEq(t, one, got.body, "although its MongoDB is away, and without asking other daemons")
	assert.Equal(t, "there", got.header.Get(daemonHeader))
	assert.JSONEq(t, one, get(there, "/v1/sensors/a/latest?unstored=only").body)
	assert.JSONEq(t, `{"readings":[`+one+`]}`, get(there, "/v1/sensors/a/readings?unstored=only").body)
	assert.JSONEq(t, `{"readings":[]}`, get(there, "/v1/sensors/a/readings?unstored=only&to=7").body)
	assert.Equal(t, http.StatusNotFound, get(there, "/v1/sensors/x/latest?unstored=only").status)
	assert.Contains(t, get(there, "/v1/sensors?unstored=only").body, `[{"sensorId":"a","newest":"2026-11-21T10:00:10.000Z","fields":["v"]},`)
	for target, want := range map[string]string{
		"/v1/sensors/a/summary?unstored=only":          "allowed: on and off",
		"/v1/sensors/a/readings?unstored=only&after=1": "after is not allowed",
		"/v1/sensors/a/readings?unstored=all":          "allowed: on, off and only",
	} {
		got := get(there, target)
		assert.Equal(t, http.StatusBadRequest, got.status)
		assert.Contains(t, got.body, want)
	}
}

func TestDaemonsThatCannotBeAskedAreNamed(t *testing.T) {
	t.Parallel()
	good := `{"sensorId":"a","ts":"2026-11-21T10:00:10.000Z","fields":{"v":99},"session":"s9","sequence":1,"granularity":300}` + "\n"
	for name, bad := range map[string]http.Handler{
		"fails":                says(http.StatusInternalServerError, ""),
		"no JSON":              says(http.StatusOK, good+"hello\n"),
		"cut off":              says(http.StatusOK, good+good[:40]),
		"of another sensor":    says(http.StatusOK, good+strings.Replace(good, `"a"`, `"x"`, 1)),
		"no session":           says(http.StatusOK, good+strings.Replace(good, `"s9"`, `""`, 1)),
		"no sequence":          says(http.StatusOK, good+strings.Replace(good, `"sequence":1,`, ``, 1)),
		"negative sequence":    says(http.StatusOK, good+strings.Replace(good, `"sequence":1`, `"sequence":-1`, 1)),
		"no time":              says(http.StatusOK, good+strings.Replace(good, `"ts"`, `"time"`, 1)),
		"no fields":            says(http.StatusOK, good+strings.Replace(good, `{"v":99}`, `{}`, 1)),
		"nested":               says(http.StatusOK, good+strings.Replace(good, `{"v":99}`, `{"v":{"x":1}}`, 1)),
		"too large a number":   says(http.StatusOK, good+strings.Replace(good, `99`, `1e999`, 1)),
		"too long a window":    says(http.StatusOK, good+strings.Replace(good, `300`, `86401`, 1)),
		"an error in the body": says(http.StatusOK, good+`{"error":{"code":"internal","message":"x"}}`+"\n"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			here, _, o := twoDaemons(t)
			o.daemons["bad:8430"] = bad
			for _, what := range []string{"a/readings", "a/latest", "a/summary"} {
				got := get(here, "/v1/sensors/"+what)
				assert.Equal(t, http.StatusOK, got.status, "%s", got.body)
				assert.Equal(t, "bad:8430", got.header.Get(telemetry.IncompleteHeader), what)
				assert.NotContains(t, got.body, "99", "no part of an invalid answer is used")
				assert.Contains(t, got.body, "10", "the other daemon's reading")
				assert.Equal(t, what != "a/latest", strings.Contains(got.body, `,"incomplete":["bad:8430"]}`), "%s", got.body)
			}
			got := get(here, "/v1/sensors/a/readings", typeLines)
			assert.Equal(t, "bad:8430", got.header.Get(telemetry.IncompleteHeader))
			assert.NotContains(t, got.body, "incomplete", "NDJSON has lines for readings only")
		})
	}
	for _, bad := range []string{"hello", `{"sensorId":"z"}`, `{"newest":"2026-11-21T10:00:10.000Z"}`, `{"sensorId":"z","newest":"2026-11-21T10:00:10.000Z"}` + "\n{"} {
		here, _, o := twoDaemons(t)
		o.daemons["bad:8430"] = says(http.StatusOK, bad)
		got := get(here, "/v1/sensors")
		assert.Equal(t, "bad:8430", got.header.Get(telemetry.IncompleteHeader))
		assert.Contains(t, got.body, `],"incomplete":["bad:8430"]}`)
		assert.Contains(t, got.body, `"b"`)
		assert.NotContains(t, got.body, `"z"`)
	}
}

func TestOtherDaemonsApplyAccessRules(t *testing.T) {
	t.Parallel()
	guard, token := guardFor(t, "read", "a")
	here, _, _ := twoDaemons(t, func(c *Config) { c.Guard = guard })
	ask := func(target, token string) reply {
		req := httptest.NewRequest(http.MethodGet, target, http.NoBody)
		req.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		here.Handler().ServeHTTP(w, req)
		return reply{w.Code, w.Header(), w.Body.String()}
	}
	got := ask("/v1/sensors/a/readings", token)
	assert.Equal(t, http.StatusOK, got.status)
	assert.Empty(t, got.header.Get(telemetry.IncompleteHeader))
	assert.Contains(t, got.body, `"v":10`)
	got = ask("/v1/sensors", token)
	assert.Contains(t, got.body, `"a"`)
	assert.NotContains(t, got.body, `"b"`, "sensors of the prefix only")
	assert.Empty(t, got.header.Get(telemetry.IncompleteHeader))
	assert.Equal(t, http.StatusForbidden, ask("/v1/sensors/b/readings?unstored=only", token).status)
	assert.Equal(t, http.StatusUnauthorized, ask("/v1/sensors/a/readings?unstored=only", "brim_wrong").status)
}

// guardFor returns a guard with one token.
func guardFor(t *testing.T, scope, prefix string) (*access.Guard, string) {
	t.Helper()
	token, err := access.NewToken()
	require.NoError(t, err)
	path := t.TempDir() + "/access.yaml"
	require.NoError(t, os.WriteFile(path, []byte(fmt.Sprintf("identities:\n  - name: one\n    hash: %s\n    scopes: [%s]\n    sensor_prefix: %s\n", access.HashOf(token), scope, prefix)), 0o600))
	guard, err := access.Open(access.Config{Path: path})
	require.NoError(t, err)
	return guard, token
}

// TestOthersDoNotTakeSlotsOfQueries: otherwise two daemons that query each other
// might deadlock.
func TestOthersDoNotTakeSlotsOfQueries(t *testing.T) {
	t.Parallel()
	here, there, o := twoDaemons(t, func(c *Config) { c.MaxQueries = 1 })
	o.daemons["there:8430"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		get(here, "/v1/sensors/a/readings?unstored=only") // while this query has the only slot
		there.Handler().ServeHTTP(w, r)
	})
	got := get(here, "/v1/sensors/a/readings")
	assert.Equal(t, http.StatusOK, got.status)
	assert.Contains(t, got.body, `"v":10`)
}

// TestManyReadingsWaitInOtherDaemons: the limit for a journal applies.
func TestManyReadingsWaitInOtherDaemons(t *testing.T) {
	t.Parallel()
	here, _, o := twoDaemons(t)
	much := func(session string) http.Handler {
		j := openJournal(t, func(c *journal.Config) { c.Session = session })
		b := batch.NewBuilder(base)
		for i := range 4000 { // more than half of maxUnstoredBytes
			b.Begin("readings", i, telemetry.TimeRange{Newest: math.MaxInt64})
			b.Sensor([]byte("a"))
			b.Time(base.Add(time.Minute + time.Duration(i)*time.Second).UnixMilli())
			b.Text([]byte("v"), bytes.Repeat([]byte("x"), telemetry.MaxTextBytes))
			require.Nil(t, b.End())
		}
		journaled(t, j, b.Batch())
		var rest atomic.Uint64
		rest.Store(j.Oldest())
		return newReader(t, fakeSource{}, func(c *Config, s *Stored) { s.Backlog, c.Problem = backlogOf(j, &rest), statusOf }).Handler()
	}
	o.daemons["much:8430"] = much("s3")
	count := func(target string) int {
		got := get(here, target)
		require.Equal(t, http.StatusOK, got.status, "%.300s", got.body)
		require.Empty(t, got.header.Get(telemetry.IncompleteHeader))
		var page struct{ Readings []json.RawMessage }
		require.NoError(t, json.Unmarshal([]byte(got.body), &page))
		return len(page.Readings)
	}
	assert.Equal(t, 4003, count("/v1/sensors/a/readings?limit=100000"))
	assert.Equal(t, 2000, count("/v1/sensors/a/readings?limit=2000"))
	o.daemons["copy:8430"] = much("s3") // like a copied journal
	assert.Equal(t, 4003, count("/v1/sensors/a/readings?limit=100000"), "each once")
	o.daemons["more:8430"] = much("s4")
	assert.Equal(t, 1001, count("/v1/sensors/a/readings?limit=1001"), "three, and pairs with the same time")
	got := get(here, "/v1/sensors/a/readings?limit=100000")
	assert.Equal(t, http.StatusServiceUnavailable, got.status)
	assert.Contains(t, got.body, "backlog_too_long")
}
