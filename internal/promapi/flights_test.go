package promapi_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/promapi"
)

// TestEqualRequestsShareAnAnswer: many send the same request while another query has
// the only slot; the first of them disconnects.
func TestEqualRequestsShareAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, shareAnAnswer)
}

func shareAnAnswer(t *testing.T) {
	t.Helper()
	const sensors, users = 3, 20
	g := newGate(machines(sensors))
	reader, _ := sharing(t, g, 1)
	registry := prometheus.NewRegistry()
	a, err := promapi.New(promapi.Config{Reader: reader, Logger: slog.New(slog.DiscardHandler), Registerer: registry})
	require.NoError(t, err)
	form := url.Values{"query": {"sum(a)"}, "start": {strconv.Itoa(epoch)}, "end": {strconv.Itoa(epoch + 600)}, "step": {"60"}}
	ask := func(ctx context.Context, form url.Values) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		a.Handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/prometheus/api/v1/query_range?"+form.Encode(), http.NoBody))
		return w
	}
	answers := make(chan *httptest.ResponseRecorder, users+1)
	go func() { answers <- ask(t.Context(), form) }() // already reading
	synctest.Wait()
	leaving, leave := context.WithCancel(t.Context())
	go ask(leaving, form)
	synctest.Wait()
	for range users {
		go func() { answers <- ask(t.Context(), form) }()
	}
	synctest.Wait()
	leave()
	synctest.Wait()
	close(g.open)
	want := (<-answers).Body.String()
	assert.Contains(t, want, `"values":[[`)
	for range users {
		w := <-answers
		assert.Equal(t, http.StatusOK, w.Code)
		assert.Equal(t, want, w.Body.String())
	}
	const samples = sensors * 10 // per query
	assert.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader("# HELP brim_promql_samples_total Samples read for queries.\n# TYPE brim_promql_samples_total counter\nbrim_promql_samples_total "+
		strconv.Itoa(2*samples)+"\n"), "brim_promql_samples_total"), "one query read before the others came, one for all of them")
	form.Set("query", "sum(b)")
	assert.NotEqual(t, want, ask(t.Context(), form).Body.String())
}

// TestAPanicKeepsNothing: it frees the slot, and equal requests do not wait for it.
func TestAPanicKeepsNothing(t *testing.T) {
	t.Parallel()
	g := newGate(machines(1))
	close(g.open)
	_, a := sharing(t, g, 1)
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	for range 2 { // the second one would hang
		assert.Equal(t, "a defect", a.Panic(httptest.NewRecorder(), request, "a defect"))
	}
	w := httptest.NewRecorder()
	a.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/prometheus/api/v1/query?query=a&time="+strconv.Itoa(epoch), http.NoBody))
	assert.Equal(t, http.StatusOK, w.Code, w.Body)
}
