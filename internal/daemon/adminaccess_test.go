package daemon

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/access"
)

// A sender is a caller, as in the access file.
type sender struct{ name, scopes, prefix, token string }

// guarded returns the admin pages with an access file for the senders, and sets their tokens.
func guarded(t *testing.T, senders []*sender) http.Handler {
	t.Helper()
	var file strings.Builder
	file.WriteString("identities:\n")
	for _, s := range senders {
		var err error
		s.token, err = access.NewToken()
		require.NoError(t, err)
		fmt.Fprintf(&file, "  - name: %s\n    hash: %s\n    scopes: [%s]\n", s.name, access.HashOf(s.token), s.scopes)
		if s.prefix != "" {
			fmt.Fprintf(&file, "    sensor_prefix: %q\n", s.prefix)
		}
	}
	path := filepath.Join(t.TempDir(), "access.yaml")
	require.NoError(t, os.WriteFile(path, []byte(file.String()), 0o600))
	guard, err := access.Open(access.Config{Path: path})
	require.NoError(t, err)
	return samplePages(t, func(c *adminPages) { c.guard = guard })
}

// as returns the response to a request with these credentials.
func as(t *testing.T, h http.Handler, authorization, method, target string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, http.NoBody)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestScopesOfTheAdminPages(t *testing.T) {
	t.Parallel()
	sensors := &sender{name: "sensors", scopes: "ingest"}
	dashboard := &sender{name: "dashboard", scopes: "read"}
	north := &sender{name: "north", scopes: "ingest, read", prefix: "north-"}
	operator := &sender{name: "operator", scopes: "admin"}
	half := &sender{name: "half", scopes: "admin", prefix: "north-"}
	unknown := &sender{name: "unknown", token: "brim_of_another_daemon"}
	anonymous := &sender{name: "anonymous"}
	all := []*sender{sensors, dashboard, north, operator, half, unknown, anonymous}
	h := guarded(t, all[:5])
	const open, watching, managing = "open", "watching", "managing"
	may := map[string][]*sender{
		open:     all,
		watching: {dashboard, operator, half},
		managing: {operator, half},
	}
	for _, row := range []struct{ kind, method, target string }{
		{open, "GET", "/healthz"},
		{open, "GET", "/readyz"},
		{watching, "GET", "/metrics"},
		{watching, "GET", "/status"},
		{watching, "GET", "/"},
		{watching, "GET", "/console"},
		{watching, "GET", "/console/seconds"},
		{watching, "GET", "/page/main.js"},
		{watching, "GET", "/v1/sensors"},
		{watching, "GET", "/v1/sensors/north-1/latest"},
		{managing, "POST", "/flush"},
		{managing, "POST", "/seal?stream=readings"},
		{managing, "GET", "/debug/pprof/"},
		{managing, "GET", "/debug/pprof/heap"},
		{managing, "GET", "/debug/pprof/cmdline"},
		{managing, "GET", "/debug/pprof/symbol"},
		{managing, "POST", "/debug/pprof/symbol"},
		{managing, "GET", "/debug/pprof/trace?seconds=0.001"},
	} {
		t.Run(row.method+" "+row.target, func(t *testing.T) {
			t.Parallel() // refusals are delayed
			for _, s := range all {
				authorization := ""
				if s != anonymous {
					authorization = "Bearer " + s.token
				}
				w := as(t, h, authorization, row.method, row.target)
				about := fmt.Sprintf("%s %s of %s: %d %s", row.method, row.target, s.name, w.Code, w.Body)
				allowed := false
				for _, one := range may[row.kind] {
					allowed = allowed || one == s
				}
				switch {
				case allowed:
					assert.NotContains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, w.Code, about)
				case s == anonymous || s == unknown:
					assert.Equal(t, http.StatusUnauthorized, w.Code, about)
					assert.Contains(t, strings.Join(w.Header().Values("WWW-Authenticate"), ", "), "Basic realm", about)
				default:
					assert.Equal(t, http.StatusForbidden, w.Code, about)
					assert.Contains(t, w.Body.String(), `"message"`, about)
				}
				assert.NotContains(t, w.Body.String(), "brim_of_another_daemon", about)
			}
		})
	}
}

// TestBrowserLogin sends the token as the password.
func TestBrowserLogin(t *testing.T) {
	t.Parallel()
	operator := &sender{name: "operator", scopes: "admin"}
	h := guarded(t, []*sender{operator})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	r.SetBasicAuth("any name", operator.token)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, "DENY", w.Header().Get("X-Frame-Options"))
	assert.Contains(t, w.Header().Get("Content-Security-Policy"), "frame-ancestors 'none'")
	assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
}

// TestOtherSitesCannotChangeAnything even without authentication: a page on the
// internet can make a browser call loopback.
func TestOtherSitesCannotChangeAnything(t *testing.T) {
	t.Parallel()
	h := samplePages(t, nil)
	post := func(header, value string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:8432/flush", http.NoBody)
		r.Header.Set(header, value)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	assert.Equal(t, http.StatusForbidden, post("Sec-Fetch-Site", "cross-site"))
	assert.Equal(t, http.StatusForbidden, post("Sec-Fetch-Site", "same-site"))
	assert.Equal(t, http.StatusForbidden, post("Origin", "https://example.com"))
	assert.Equal(t, http.StatusForbidden, post("Origin", "null"))
	assert.Equal(t, http.StatusOK, post("Sec-Fetch-Site", "same-origin"))
	assert.Equal(t, http.StatusOK, post("Origin", "http://127.0.0.1:8432"))
	assert.Equal(t, http.StatusOK, post("User-Agent", "curl"))
}

// TestDNSRebindingIsRefused: a host name resolves to this machine, so a browser takes the
// listener for the page's own site.
func TestDNSRebindingIsRefused(t *testing.T) {
	t.Parallel()
	h := samplePages(t, func(c *adminPages) { c.hosts = access.NewHosts("127.0.0.1:8432") })
	for _, path := range []string{"GET /metrics", "GET /status", "GET /", "GET /console", "GET /v1/sensors", "POST /flush", "POST /seal", "GET /debug/pprof/"} {
		method, target, _ := strings.Cut(path, " ")
		w := as(t, h, "", method, "http://evil.example:8432"+target)
		assert.Equal(t, http.StatusForbidden, w.Code, path)
		assert.Contains(t, w.Body.String(), `"host_forbidden"`, path)
	}
	assert.Equal(t, http.StatusOK, as(t, h, "", http.MethodGet, "http://localhost:8432/status").Code)
	assert.Equal(t, http.StatusOK, as(t, h, "", http.MethodGet, "http://any.example/healthz").Code, "a probe may use any name")
	assert.Equal(t, http.StatusOK, as(t, samplePages(t, nil), "", http.MethodGet, "http://any.example/status").Code)
}

func TestCommandLineIsHidden(t *testing.T) {
	t.Parallel()
	w := as(t, samplePages(t, nil), "", http.MethodGet, "/debug/pprof/cmdline")
	assert.Equal(t, http.StatusOK, w.Code)
	assert.NotContains(t, w.Body.String(), "-test.", "this test has arguments")
	assert.Equal(t, filepath.Base(os.Args[0]), w.Body.String())
}

func TestRequestQuotaOnAdminPages(t *testing.T) {
	t.Parallel()
	token, err := access.NewToken()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "access.yaml")
	file := "identities:\n  - {name: eager, hash: \"" + access.HashOf(token) + "\", scopes: [read], quota: {requests_per_second: 0.001}}\n"
	require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
	guard, err := access.Open(access.Config{Path: path})
	require.NoError(t, err)
	h := samplePages(t, func(c *adminPages) { c.guard = guard })
	for range 2 { // any remainder is enough for one more
		assert.Equal(t, http.StatusOK, as(t, h, "Bearer "+token, "GET", "/metrics").Code)
	}
	w := as(t, h, "Bearer "+token, "GET", "/metrics")
	assert.Equal(t, http.StatusTooManyRequests, w.Code, w.Body)
	assert.Contains(t, w.Body.String(), "quota_requests")
	assert.NotEmpty(t, w.Header().Get("Retry-After"))

	all, err := access.Open(access.Config{Default: access.Quota{RequestsPerSecond: 0.001}})
	require.NoError(t, err)
	h = samplePages(t, func(c *adminPages) { c.guard = all })
	for range 3 {
		assert.Equal(t, http.StatusOK, as(t, h, "", "GET", "/metrics").Code, "senders and not operators are counted")
	}
}
