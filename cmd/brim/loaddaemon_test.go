package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTheStoresTimesAreOfOneStream has an admin listener whose daemon writes
// two streams.
func TestTheStoresTimesAreOfOneStream(t *testing.T) {
	t.Parallel()
	var looks atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("POST /flush", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		n := looks.Add(1)
		_, _ = fmt.Fprintln(w, "# TYPE brim_store_write_seconds histogram")
		for _, stream := range []struct {
			name          string
			quick, writes int64
		}{{"readings", 10 * n, 10 * n}, {"machines", 0, 1000 * n}} {
			labels := fmt.Sprintf(`stream=%q,fill="30-40"`, stream.name)
			_, _ = fmt.Fprintf(w, "brim_store_write_seconds_bucket{%s,le=\"0.001\"} %d\n", labels, stream.quick)
			_, _ = fmt.Fprintf(w, "brim_store_write_seconds_bucket{%s,le=\"1\"} %d\n", labels, stream.writes)
			_, _ = fmt.Fprintf(w, "brim_store_write_seconds_bucket{%s,le=\"+Inf\"} %d\n", labels, stream.writes)
			_, _ = fmt.Fprintf(w, "brim_store_write_seconds_sum{%s} 1\nbrim_store_write_seconds_count{%s} %d\n", labels, labels, stream.writes)
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	look, err := newStoreLook(t.Context(), strings.TrimPrefix(server.URL, "http://"), "readings")
	require.NoError(t, err)
	rows, err := look.finish(t.Context())
	require.NoError(t, err)
	require.Len(t, rows, 10)
	for i, row := range rows {
		if i != 3 {
			assert.Zero(t, row.Count)
		}
	}
	assert.EqualValues(t, 10, rows[3].Count)
	assert.LessOrEqual(t, rows[3].P99, 0.001)
}

// TestAnAdminListenerThatIsSilentEndsTheRun has one that takes connections and
// never answers, which a gRPC target asks first of all.
func TestAnAdminListenerThatIsSilentEndsTheRun(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(server.Close)
	address := strings.TrimPrefix(server.URL, "http://")
	o := &loadOptions{target: "grpc://127.0.0.1:1", admin: address, adminTimeout: 50 * time.Millisecond}
	_, _, err := o.httpSide(t.Context())
	assert.EqualError(t, err, "ask "+address+"/status (--admin): no answer came in time")
}
