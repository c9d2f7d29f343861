package access_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestHostsAllowOwnNames(t *testing.T) {
	t.Parallel()
	hosts := access.NewHosts("Brim.test:8430")
	for host, allowed := range map[string]bool{
		"127.0.0.1:8430": true, "127.0.0.1": true, "[::1]:8430": true, "[::1]": true, "192.0.2.7:80": true, "[fe80::1%25eth0]:1": true,
		"localhost": true, "LocalHost:8430": true, "localhost.:8430": true, "brim.test": true, "BRIM.test.:8430": true, "": true,
		"evil.example": false, "evil.example:8430": false, "127.0.0.1.evil.example": false, "localhost.evil.example:8430": false,
		"evil.example:80:80": false, "2130706433": false, "0x7f.1": false, "localhost..": false, "brim.test.evil.example": false,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.Host = host
		err := hosts.Check(r)
		assert.Equal(t, allowed, err == nil, "%s: %v", host, err)
		assert.NoError(t, (*access.Hosts)(nil).Check(r), "all may")
		assert.NoError(t, hosts.CheckPage(r), "a sender may know it by any name")
		for _, header := range []string{"Origin", "Sec-Fetch-Site"} {
			r.Header = http.Header{header: {"same-origin"}}
			assert.Equal(t, allowed, hosts.CheckPage(r) == nil, "%s: a page", host)
		}
		if err != nil {
			assert.Equal(t, telemetry.Forbidden, telemetry.KindOf(err))
			assert.ErrorContains(t, err, "host_forbidden: ")
			assert.ErrorContains(t, err, "--access-file FILE")
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	r.Host = ":8430"
	assert.NoError(t, access.NewHosts("127.0.0.1:8430").Check(r))
}

func TestSameOriginRefusesOtherSites(t *testing.T) {
	t.Parallel()
	h := access.SameOrigin(func(w http.ResponseWriter, err error) { http.Error(w, err.Error(), http.StatusForbidden) },
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ask := func(method, header, value string) int {
		r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:8430/v1/readings", http.NoBody)
		r.Header.Set(header, value)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			assert.Contains(t, w.Body.String(), "cross_origin: "+method+" /v1/readings")
		}
		return w.Code
	}
	for _, method := range []string{http.MethodPost, http.MethodDelete} {
		assert.Equal(t, http.StatusForbidden, ask(method, "Sec-Fetch-Site", "cross-site"))
		assert.Equal(t, http.StatusForbidden, ask(method, "Origin", "http://evil.example"))
		assert.Equal(t, http.StatusForbidden, ask(method, "Origin", "null"))
		assert.Equal(t, http.StatusOK, ask(method, "Sec-Fetch-Site", "same-origin"))
		assert.Equal(t, http.StatusOK, ask(method, "Origin", "http://127.0.0.1:8430"))
		assert.Equal(t, http.StatusOK, ask(method, "User-Agent", "telegraf"))
	}
	assert.Equal(t, http.StatusOK, ask(http.MethodGet, "Sec-Fetch-Site", "cross-site"), "what is read stays with the browser")
}
