package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPanelsAreDrawnWithTheirLegends(t *testing.T) {
	t.Parallel()
	queries := make(map[string]bool)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		queries[r.FormValue("query")] = true
		now := float64(time.Now().Unix())
		_, _ = fmt.Fprintf(w, `{"status":"success","data":{"result":[{"metric":{"stream":"readings"},"values":[[%f,"1"],[%f,"NaN"],[%f,"2.5"]]}]}}`, now-120, now-60, now-10)
	}))
	t.Cleanup(s.Close)
	var page strings.Builder
	require.NoError(t, run(&page, s.URL, 5*time.Minute, []string{filepath.Join("..", "dashboards", "write-path.json")}))
	for _, text := range []string{"<title>Brim: write path</title>", ">Updates<", ">readings<", ">Readings per update<"} {
		assert.Contains(t, page.String(), text)
	}
	assert.NotContains(t, page.String(), ">active buckets<", "it has a unit of its own")
	assert.Equal(t, strings.Count(page.String(), "<figure>"), strings.Count(page.String(), "<svg"))
	require.NotEmpty(t, queries)
	for query := range queries {
		assert.NotContains(t, query, "$", "every variable has a value")
	}
}

func TestErrorsNameThePanelAndTheFile(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"status":"error","error":"no such metric"}`)
	}))
	t.Cleanup(s.Close)
	dashboard := filepath.Join("..", "dashboards", "write-path.json")
	var page strings.Builder
	assert.EqualError(t, run(&page, s.URL, time.Hour, []string{dashboard}), `panel "Latency over the window": no such metric`)
	assert.ErrorContains(t, run(&page, s.URL, time.Hour, nil), "name one dashboard")
	assert.ErrorContains(t, run(&page, s.URL, time.Second, []string{dashboard}), "at least --last 1m")
	assert.ErrorContains(t, run(&page, s.URL, time.Hour, []string{"main.go"}), "read main.go")
}
