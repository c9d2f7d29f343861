package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/daemon/console"
)

// samplePages is the admin listener of a daemon with one metric.
func samplePages(t *testing.T, change func(*adminPages)) http.Handler {
	t.Helper()
	registry := prometheus.NewRegistry()
	readings := prometheus.NewCounter(prometheus.CounterOpts{Name: "brim_readings_total", Help: "Readings."})
	readings.Add(42)
	registry.MustRegister(readings)
	pages := adminPages{
		gatherer: registry,
		page:     http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "page "+r.URL.Path) }),
		sensors:  http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "sensors "+r.URL.EscapedPath()) }),
		parts:    func() []console.Part { return []console.Part{{Name: "daemon", Ready: true}} },
		status:   func() any { return map[string]int{"answer": 42} },
		flush:    func(context.Context) error { return nil },
		seal:     func(string) (any, error) { return map[string]int{}, nil },
		log:      slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&pages)
	}
	return pages.handler()
}

// call returns the listener's response.
func call(t *testing.T, h http.Handler, method, target string) (*http.Response, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, target, http.NoBody))
	resp := w.Result()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(body)
}

func TestMetricsAreServedInBothFormats(t *testing.T) {
	t.Parallel()
	h := samplePages(t, nil)
	resp, body := call(t, h, http.MethodGet, "/metrics")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Contains(t, body, "\nbrim_readings_total 42\n")

	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
	r.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	assert.Contains(t, w.Header().Get("Content-Type"), "application/openmetrics-text")
	assert.Contains(t, w.Body.String(), "# EOF")
}

func TestUnknownPathsAndMethodsAreErrorsInJSON(t *testing.T) {
	t.Parallel()
	h := samplePages(t, nil)
	resp, body := call(t, h, http.MethodGet, "/nope")
	assert.Equal(t, http.StatusNotFound, resp.StatusCode)
	assert.Contains(t, body, `"code": "path_unknown"`)
	resp, body = call(t, h, http.MethodDelete, "/v1/sensors/b")
	assert.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
	assert.Equal(t, "GET, HEAD", resp.Header.Get("Allow"))
	assert.Contains(t, body, `"code": "method_not_allowed"`)
	assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
}

func TestReadinessOfAllParts(t *testing.T) {
	t.Parallel()
	resp, body := call(t, samplePages(t, nil), http.MethodGet, "/readyz")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.JSONEq(t, `{"ready":true,"parts":[{"name":"daemon","ready":true}]}`, body)

	h := samplePages(t, func(c *adminPages) {
		c.parts = func() []console.Part {
			return []console.Part{{Name: "daemon", Ready: true}, {Name: "mongodb", Reason: "no reply"}}
		}
	})
	resp, body = call(t, h, http.MethodGet, "/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.JSONEq(t, `{"ready":false,"parts":[{"name":"daemon","ready":true},{"name":"mongodb","ready":false,"reason":"no reply"}]}`, body)

	// The health check passes: a restart would not bring MongoDB back.
	resp, body = call(t, h, http.MethodGet, "/healthz")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.JSONEq(t, `{"status":"ok"}`, body)
}

func TestStatusIsJSON(t *testing.T) {
	t.Parallel()
	resp, body := call(t, samplePages(t, nil), http.MethodGet, "/status")
	assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	assert.JSONEq(t, `{"answer":42}`, body)

	h := samplePages(t, func(c *adminPages) { c.status = func() any { return func() {} } })
	resp, _ = call(t, h, http.MethodGet, "/status")
	assert.Equal(t, http.StatusInternalServerError, resp.StatusCode)
}

func TestPageAndProfilesAreServed(t *testing.T) {
	t.Parallel()
	h := samplePages(t, nil)
	for _, path := range []string{"/", "/console", "/console/seconds", "/page/main.js"} {
		_, body := call(t, h, http.MethodGet, path)
		assert.Equal(t, "page "+path, body)
	}
	for _, path := range []string{"/v1/sensors", "/v1/sensors/s-1/latest", "/v1/sensors/a%2F%2F..%2Fb/summary"} {
		_, body := call(t, h, http.MethodGet, path)
		assert.Equal(t, "sensors "+path, body)
		resp, _ := call(t, h, http.MethodDelete, path)
		assert.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode, path)
	}
	for _, path := range []string{"/status", "/readyz", "/healthz", "/metrics", "/debug/pprof/"} {
		resp, _ := call(t, h, http.MethodGet, path)
		assert.Equal(t, http.StatusOK, resp.StatusCode, path)
	}
	resp, body := call(t, h, http.MethodGet, "/debug/pprof/goroutine?debug=1")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Contains(t, body, "goroutine profile")
	resp, _ = call(t, h, http.MethodGet, "/nothing")
	assert.Equal(t, http.StatusNotFound, resp.StatusCode)
}

func TestFlushAnswers(t *testing.T) {
	t.Parallel()
	untilTimeout := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, c := range map[string]struct {
		flush  func(context.Context) error
		target string
		code   int
		want   string
	}{
		"stored":            {func(context.Context) error { return nil }, "/flush", http.StatusOK, `"flushed": true`},
		"not in time":       {untilTimeout, "/flush?timeout=1ms", http.StatusGatewayTimeout, `"flush_timeout"`},
		"while it starts":   {func(context.Context) error { return errNotReady }, "/flush", http.StatusServiceUnavailable, `"starting"`},
		"for another cause": {func(context.Context) error { return errors.New("secret words") }, "/flush", http.StatusInternalServerError, `"internal"`},
		"timeout malformed": {nil, "/flush?timeout=soon", http.StatusBadRequest, `timeout \"soon\" is not a duration`},
		"timeout zero":      {nil, "/flush?timeout=0", http.StatusBadRequest, "above 0"},
		"timeout negative":  {nil, "/flush?timeout=-1s", http.StatusBadRequest, "above 0"},
		"timeout too long":  {nil, "/flush?timeout=61m", http.StatusBadRequest, "up to 1h"},
		"parameter unknown": {nil, "/flush?wait=1s", http.StatusBadRequest, `\"wait\" is unknown`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := samplePages(t, func(cfg *adminPages) {
				cfg.flush = func(ctx context.Context) error {
					if c.flush == nil {
						t.Error("a bad request was carried out")
						return nil
					}
					return c.flush(ctx)
				}
			})
			resp, body := call(t, h, http.MethodPost, c.target)
			assert.Equal(t, c.code, resp.StatusCode)
			assert.Contains(t, body, c.want)
			assert.NotContains(t, body, "secret words")
			assert.True(t, json.Valid([]byte(body)))
		})
	}
}

func TestSealNeedsAStream(t *testing.T) {
	t.Parallel()
	h := samplePages(t, func(a *adminPages) {
		a.seal = func(stream string) (any, error) {
			if stream != "readings" {
				return nil, errUnknownStream
			}
			return map[string]string{"stream": stream}, nil
		}
	})
	resp, body := call(t, h, http.MethodPost, "/seal?stream=readings")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.JSONEq(t, `{"stream":"readings"}`, body)
	resp, body = call(t, h, http.MethodPost, "/seal?stream=other")
	assert.Equal(t, http.StatusNotFound, resp.StatusCode)
	assert.Contains(t, body, `"unknown_stream"`)
	resp, body = call(t, h, http.MethodPost, "/seal")
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
	assert.Contains(t, body, "parameter stream is missing")
}

func TestFlushNeedsPost(t *testing.T) {
	t.Parallel()
	resp, _ := call(t, samplePages(t, nil), http.MethodGet, "/flush")
	assert.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
}

func TestFlushWaitsAMinuteByDefault(t *testing.T) {
	t.Parallel()
	h := samplePages(t, func(a *adminPages) {
		a.flush = func(ctx context.Context) error {
			until, ok := ctx.Deadline()
			assert.True(t, ok)
			assert.InDelta(t, time.Minute, time.Until(until), float64(30*time.Second))
			return nil
		}
	})
	resp, _ := call(t, h, http.MethodPost, "/flush")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
}
