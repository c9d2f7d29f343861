package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sample is a listener of a daemon with one metric.
func sample(t *testing.T, change func(*Config)) http.Handler {
	t.Helper()
	registry := prometheus.NewRegistry()
	readings := prometheus.NewCounter(prometheus.CounterOpts{Name: "brim_readings_total", Help: "Readings."})
	readings.Add(42)
	registry.MustRegister(readings)
	cfg := Config{
		Gatherer: registry,
		Page:     http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "page "+r.URL.Path) }),
		Parts:    func() []Part { return []Part{{Name: "daemon", Ready: true}} },
		Status:   func() any { return map[string]int{"answer": 42} },
		Flush:    func(context.Context) error { return nil },
		Holder:   noHolder{},
	}
	if change != nil {
		change(&cfg)
	}
	h, err := New(cfg)
	require.NoError(t, err)
	return h
}

// call returns the listener's answer.
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
	h := sample(t, nil)
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

func TestReadinessIsThatOfAllParts(t *testing.T) {
	t.Parallel()
	resp, body := call(t, sample(t, nil), http.MethodGet, "/readyz")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.JSONEq(t, `{"ready":true,"parts":[{"name":"daemon","ready":true}]}`, body)

	h := sample(t, func(c *Config) {
		c.Parts = func() []Part {
			return []Part{{Name: "daemon", Ready: true}, {Name: "mongodb", Reason: "nobody answers"}}
		}
	})
	resp, body = call(t, h, http.MethodGet, "/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.JSONEq(t, `{"ready":false,"parts":[{"name":"daemon","ready":true},{"name":"mongodb","ready":false,"reason":"nobody answers"}]}`, body)

	// Health stays: a restart would not bring MongoDB back.
	resp, body = call(t, h, http.MethodGet, "/healthz")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.JSONEq(t, `{"status":"ok"}`, body)
}

func TestStatusIsShownAsJSON(t *testing.T) {
	t.Parallel()
	resp, body := call(t, sample(t, nil), http.MethodGet, "/status")
	assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	assert.JSONEq(t, `{"answer":42}`, body)

	h := sample(t, func(c *Config) { c.Status = func() any { return func() {} } })
	resp, _ = call(t, h, http.MethodGet, "/status")
	assert.Equal(t, http.StatusInternalServerError, resp.StatusCode)
}

func TestPageAndProfilesAnswer(t *testing.T) {
	t.Parallel()
	h := sample(t, nil)
	for _, path := range []string{"/", "/console", "/console/part"} {
		_, body := call(t, h, http.MethodGet, path)
		assert.Equal(t, "page "+path, body)
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

func TestFlushTellsHowItEnded(t *testing.T) {
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
		"while it starts":   {func(context.Context) error { return ErrNotReady }, "/flush", http.StatusServiceUnavailable, `"starting"`},
		"for another cause": {func(context.Context) error { return errors.New("secret words") }, "/flush", http.StatusInternalServerError, `"internal"`},
		"timeout malformed": {nil, "/flush?timeout=soon", http.StatusBadRequest, `timeout \"soon\" is not a duration`},
		"timeout zero":      {nil, "/flush?timeout=0", http.StatusBadRequest, "above 0"},
		"timeout negative":  {nil, "/flush?timeout=-1s", http.StatusBadRequest, "above 0"},
		"timeout too long":  {nil, "/flush?timeout=61m", http.StatusBadRequest, "up to 1h"},
		"parameter unknown": {nil, "/flush?wait=1s", http.StatusBadRequest, `\"wait\" is unknown`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := sample(t, func(cfg *Config) {
				cfg.Flush = func(ctx context.Context) error {
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

func TestFlushWaitsAMinuteUnlessTold(t *testing.T) {
	t.Parallel()
	timeout, err := flushTimeout(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/flush", http.NoBody))
	require.NoError(t, err)
	assert.Equal(t, defaultFlushTimeout, timeout)
	resp, _ := call(t, sample(t, nil), http.MethodGet, "/flush")
	assert.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
}

func TestNothingMayBeMissing(t *testing.T) {
	t.Parallel()
	_, err := New(Config{})
	assert.ErrorContains(t, err, "set up the admin listener")
}
