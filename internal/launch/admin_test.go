package launch

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAdminRequests(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.String() {
		case "GET /status":
			_, _ = fmt.Fprint(w, `{"version":"1"}`)
		case "GET /metrics":
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			_, _ = fmt.Fprint(w, "brim_queue_readings 3\n")
		case "POST /flush?timeout=1s":
		case "POST /flush?timeout=1ms":
			w.WriteHeader(http.StatusGatewayTimeout)
		default:
			http.Error(w, "no such page", http.StatusNotFound)
		}
	}))
	defer server.Close()
	d := &Daemon{Admin: strings.TrimPrefix(server.URL, "http://")}
	var s struct{ Version string }
	require.NoError(t, d.Get(t.Context(), "/status", &s))
	assert.Equal(t, "1", s.Version)
	require.NoError(t, d.Flush(t.Context(), time.Second))
	require.ErrorIs(t, d.Flush(t.Context(), time.Millisecond), ErrNotInTime)
	sample, err := d.Look(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 3.0, sample.Value("brim_queue_readings", nil))
	require.ErrorContains(t, d.Get(t.Context(), "/nowhere", &s), "GET /nowhere: the answer is 404 Not Found no such page")
	require.ErrorContains(t, d.Get(t.Context(), "/metrics", &s), "read the answer of /metrics")
	server.Close()
	require.ErrorContains(t, d.Get(t.Context(), "/status", &s), "ask the daemon")
}
