package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stepsOf returns steps as a daemon sends them, one per line.
func stepsOf(n int) string {
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, `{"start":"2026-11-21T10:00:00.%03dZ","count":1,"fields":{"t":{"n":1,"min":%d,"max":%[2]d,"mean":%[2]d}}}`+"\n", i%1000, i)
	}
	return lines.String()
}

// TestASummaryIsAskedForAsLines: as a single JSON document it is limited to 8 MiB.
func TestASummaryIsAskedForAsLines(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body, kind string
		cut        bool // the connection breaks off afterwards
		want       string
	}{
		"whole":       {body: stepsOf(3), kind: asLines},
		"none":        {kind: asLines},
		"broken off":  {body: stepsOf(2) + `{"error":{"code":"query_timed_out","message":"it took too long"}}` + "\n", kind: asLines, want: "the daemon stopped in the middle of it: it took too long (query_timed_out)"},
		"cut":         {body: stepsOf(2) + `{"start":`, kind: asLines, want: "read the daemon's answer: unexpected EOF"},
		"cut between": {body: stepsOf(2), kind: asLines, cut: true, want: "read the daemon's answer: unexpected EOF"},
		"as a page":   {body: `{"summary":[` + strings.TrimSpace(stepsOf(1)) + `]}`, kind: asJSON},
		"no daemon":   {body: `{}`, kind: asJSON, want: "is " + "http"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, asLines, r.Header.Get("Accept"))
				w.Header().Set("Content-Type", c.kind)
				_, _ = w.Write([]byte(c.body))
				if c.cut {
					assert.NoError(t, http.NewResponseController(w).Flush())
					panic(http.ErrAbortHandler) // makes net/http break the connection
				}
			}))
			t.Cleanup(server.Close)
			got := runBrim(t, nil, "query", "s", "--every", "1m", "--url", server.URL, "--output", "ndjson")
			if c.want != "" {
				assert.ErrorContains(t, got.err, c.want)
				assert.Empty(t, got.stdout)
				return
			}
			require.NoError(t, got.err)
			assert.Equal(t, strings.Count(c.body, "count"), strings.Count(got.stdout, "\n"))
		})
	}
}

func TestNewestReadingThatMayBeElsewhere(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Brim-Incomplete", "other:8430")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"code":"sensor_unknown","message":"there are none"}`))
	}))
	t.Cleanup(server.Close)
	got := runBrim(t, nil, "query", "s", "--latest", "--url", server.URL)
	require.ErrorContains(t, got.err, "there are none (sensor_unknown, HTTP 404); readings that are acknowledged but not stored yet may be missing: other:8430 could not be asked for them")
}
