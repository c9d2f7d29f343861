package daemon

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// startOpen starts a daemon without authentication.
func startOpen(t *testing.T, flags map[string]string) *daemon {
	t.Helper()
	all := memoryFlags(t)
	for name, value := range flags {
		all[name] = value
	}
	d := newTestDaemon(t, all)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	require.Eventually(t, func() bool { return d.available() == nil }, patience, 5*time.Millisecond)
	return d
}

func TestOtherSitesAreRefusedWithoutAuthentication(t *testing.T) {
	t.Parallel()
	const reading, form = `{"sensorId":"s","fields":{"t":1}}`, "application/x-www-form-urlencoded"
	client := &http.Client{Timeout: patience}
	t.Cleanup(client.CloseIdleConnections)
	ask := func(d *daemon, method, path, host string, header ...string) (int, string) {
		var body io.Reader = http.NoBody
		if method == http.MethodPost {
			body = strings.NewReader(reading)
		}
		at := d.listeners.http.Addr().String()
		if !strings.HasPrefix(path, "/v1") && path != "/ping" {
			at = d.listeners.admin.Addr().String()
		}
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+at+path, body)
		require.NoError(t, err)
		req.Host = host
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := client.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(text)
	}
	closed, open := startOpen(t, nil), startOpen(t, map[string]string{"allow-unauthenticated": "on"})
	for _, c := range []struct {
		method, path, host string
		header             []string
		closed, open       int    // status for listeners on loopback, and on all addresses
		code               string // of a refusal
	}{
		{"POST", "/v1/readings", "any.example", []string{"Content-Type", "application/json"}, 200, 200, ""}, // the front's
		{"POST", "/v1/readings", "any.example", []string{"X-Other", "net/http's"}, 200, 200, ""},
		{"POST", "/v1/readings", "", []string{"Content-Type", form, "Sec-Fetch-Site", "cross-site"}, 403, 403, "cross_origin"},
		{"POST", "/v1/readings", "", []string{"Content-Type", form, "Origin", "http://evil.example"}, 403, 403, "cross_origin"},
		{"POST", "/v1/readings", "evil.example", []string{"Content-Type", "application/json", "Origin", "http://evil.example"}, 403, 200, "host_forbidden"},
		{"POST", "/v1/readings", "evil.example", []string{"Content-Type", "application/json", "Sec-Fetch-Site", "same-origin"}, 403, 200, "host_forbidden"},
		{"GET", "/v1/sensors", "", nil, 200, 200, ""},
		{"GET", "/v1/sensors", "localhost:8430", nil, 200, 200, ""},
		{"GET", "/v1/sensors", "evil.example:8430", nil, 403, 200, "host_forbidden"},
		{"GET", "/v1/streams", "evil.example", nil, 403, 200, "host_forbidden"},
		{"DELETE", "/v1/sensors/other", "evil.example", nil, 403, 200, "host_forbidden"},
		{"DELETE", "/v1/sensors/other", "", []string{"Sec-Fetch-Site", "cross-site"}, 403, 403, "cross_origin"},
		{"GET", "/ping", "any.example", nil, 204, 204, ""},
		{"GET", "/status", "evil.example", nil, 403, 200, "host_forbidden"},
		{"GET", "/status", "", nil, 200, 200, ""},
		{"GET", "/healthz", "any.example", nil, 200, 200, ""},
		{"POST", "/flush", "evil.example", []string{"Sec-Fetch-Site", "same-origin"}, 403, 200, "host_forbidden"},
	} {
		for d, want := range map[*daemon]int{closed: c.closed, open: c.open} {
			status, body := ask(d, c.method, c.path, c.host, c.header...)
			assert.Equal(t, want, status, "%v: %s", c, body)
			if want == http.StatusForbidden {
				assert.Contains(t, body, c.code)
			}
		}
	}
}

// A request with a token does not come from a page of another site.
func TestAnyHostWithAuthentication(t *testing.T) {
	t.Parallel()
	s := startSecured(t, nil)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.listeners.http.Addr().String()+"/v1/streams", http.NoBody)
	require.NoError(t, err)
	req.Host = "any.example"
	req.Header.Set("Authorization", "Bearer "+s.token)
	resp, err := s.client(t).Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusOK, resp.StatusCode)
}
