package main

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/access/accesstest"
)

// newCaller returns the caller of a command with these flags and environment.
func newCaller(t *testing.T, env []string, args ...string) (*caller, error) {
	t.Helper()
	flags := pflag.NewFlagSet("command", pflag.ContinueOnError)
	find := clientFlags(flags)
	require.NoError(t, flags.Parse(args))
	return find(&process{env: env})
}

func TestTokenIsNotSentInTheClear(t *testing.T) {
	t.Parallel()
	c, err := newCaller(t, []string{"BRIM_TOKEN=brim_canary"})
	require.NoError(t, err)
	for _, url := range []string{"http://192.0.2.1:8430/", "http://brim.example.org/", "http://127.0.0.1.example.org:8430/"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("body"))
		require.NoError(t, err)
		_, err = c.client(time.Minute).Do(req)
		require.ErrorContains(t, err, "the token was not sent", url)
		err = explainCall(url, "--url", err)
		assert.Equal(t, exitUsage, exitCode(err))
		assert.NotContains(t, err.Error(), "canary")
	}
	for target, refused := range map[string]bool{
		"grpc://192.0.2.1:8431": true, "http://brim:8430": true, "grpcs://192.0.2.1:8431": false, "https://brim": false,
		"grpc://127.0.0.1:8431": false, "http://localhost:8430": false, "http://[::1]:8430": false,
	} {
		assert.Equal(t, refused, clearTo(t, c, target) != nil, target)
	}
	none, err := newCaller(t, nil)
	require.NoError(t, err)
	assert.NoError(t, clearTo(t, none, "grpc://192.0.2.1:8431"), "there is nothing to show")
}

func clearTo(t *testing.T, c *caller, target string) error {
	t.Helper()
	u, err := url.Parse(target)
	require.NoError(t, err)
	return c.checkCleartext(u)
}

func TestTokenDoesNotFollowRedirects(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.Fail(t, "a redirect was followed", r.Header)
	}))
	t.Cleanup(other.Close)
	var shown string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown = r.Header.Get("Authorization")
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(server.Close)
	c, err := newCaller(t, []string{"BRIM_TOKEN=brim_one"})
	require.NoError(t, err)
	client := c.client(time.Minute)
	t.Cleanup(client.CloseIdleConnections)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusTemporaryRedirect, resp.StatusCode)
	assert.Equal(t, "Bearer brim_one", shown)
	assert.Empty(t, req.Header.Get("Authorization"), "the request is the caller's")
}

func TestTokenSources(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := accesstest.File(t, dir, "token", []byte("brim_file\n"))
	other := accesstest.File(t, dir, "other", []byte("  brim_other  "))
	for want, row := range map[string]struct{ env, args []string }{
		"":           {},
		"brim_env":   {env: []string{"BRIM_TOKEN=brim_env", "BRIM_TOKEN_FILE=" + other}},
		"brim_other": {env: []string{"BRIM_TOKEN_FILE=" + other}},
		"brim_file":  {env: []string{"BRIM_TOKEN=brim_env"}, args: []string{"--token-file", file}},
	} {
		c, err := newCaller(t, row.env, row.args...)
		require.NoError(t, err)
		assert.Equal(t, want, c.token)
	}
	empty := accesstest.File(t, dir, "empty", []byte("\n"))
	two := accesstest.File(t, dir, "two", []byte("brim_canary\nbrim_canary\n"))
	for says, row := range map[string]struct{ env, args []string }{
		"no such file":                           {args: []string{"--token-file", dir + "/none"}},
		"it is empty":                            {args: []string{"--token-file", empty}},
		"two: this is not a token":               {args: []string{"--token-file", two}},
		"BRIM_TOKEN: the token is invalid":       {env: []string{"BRIM_TOKEN=brim_canary\r\nHost: x"}},
		"belong together; give both":             {args: []string{"--cert", file}},
		"no certificate in PEM":                  {args: []string{"--ca", file}},
		"--ca, --cert, --key: read certificate:": {args: []string{"--cert", file, "--key", file}},
	} {
		_, err := newCaller(t, row.env, row.args...)
		require.ErrorContains(t, err, says)
		assert.Equal(t, exitUsage, exitCode(err))
		assert.NotContains(t, err.Error(), "canary")
	}
}

func TestAdminListenersWithTLSAreNamedByTheirURL(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"127.0.0.1:8432": "http://127.0.0.1:8432", ":8432": "http://127.0.0.1:8432", "http://brim:8432/": "http://brim:8432",
		"https://brim:8432": "https://brim:8432", "https://:8432/": "https://127.0.0.1:8432",
	} {
		var at string
		require.NoError(t, adminAddress(&at)(given))
		assert.Equal(t, want, adminURL(at))
	}
	var at string
	require.Error(t, adminAddress(&at)("https://brim"))
	require.Error(t, adminAddress(&at)("ftp://brim:8432"))
}
