package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
)

// tokenOf creates an identity in an access file, and returns its token.
func tokenOf(t *testing.T, path, name string, flags ...string) string {
	t.Helper()
	got := runBrim(t, nil, append([]string{"token", "create", name, "--access-file", path}, flags...)...)
	require.NoError(t, got.err)
	return strings.TrimSpace(got.stdout)
}

func TestTokenIsPrintedOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "access.yaml")
	env := []string{"BRIM_ACCESS_FILE=" + path}
	got := runBrim(t, env, "token", "create", "north", "--scope", "ingest", "--scope", "read", "--sensor-prefix", "n-", "--expires", "90d", "--readings-per-second", "0.5")
	require.NoError(t, got.err)
	token := strings.TrimSuffix(got.stdout, "\n")
	assert.Regexp(t, `^brim_[\w-]{43}$`, token)
	assert.Contains(t, got.stderr, "It is shown only once")
	assert.Contains(t, got.stderr, "curl -H 'Authorization: Bearer TOKEN'")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.NotContains(t, string(content), token[5:])
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	got = runBrim(t, env, "token", "create", "edge", "--scope", "admin", "--certificate", "dns:edge", "--output", "json")
	require.NoError(t, got.err)
	var edge listedIdentity
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &edge))
	assert.Empty(t, edge.Token)
	assert.Equal(t, "dns:edge", edge.Certificate)
	got = runBrim(t, env, "token", "create", "json", "--scope", "read", "--output", "json", "--active-sensors", "7")
	require.NoError(t, got.err)
	var other listedIdentity
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &other))
	assert.NotEmpty(t, other.Token)
	assert.Equal(t, map[string]float64{"active_sensors": 7}, other.Quota)

	got = runBrim(t, env, "token", "list")
	require.NoError(t, got.err)
	assert.Regexp(t, `(?m)^north +token +ingest, read +n-… +\S+Z +\S+Z +- +0\.5 +- +-$`, got.stdout)
	assert.Regexp(t, `(?m)^edge +certificate dns:edge +admin +all +\S+Z +never +- +- +- +-$`, got.stdout)
	assert.NotContains(t, got.stdout, "sha256")
	got = runBrim(t, nil, "token", "list", "--config", writeConfig(t, "access-file: "+path+"\n"), "--output", "json")
	require.NoError(t, got.err)
	var list []listedIdentity
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &list))
	assert.Len(t, list, 3)
	assert.NotContains(t, got.stdout, "sha256")

	got = runBrim(t, env, "token", "revoke", "north")
	require.NoError(t, got.err)
	assert.Contains(t, got.stdout, "north is revoked")
	got = runBrim(t, env, "token", "list")
	assert.NotContains(t, got.stdout, "north")
	got = runBrim(t, env, "token", "revoke", "north")
	assert.Equal(t, exitFailed, got.code)
	assert.ErrorContains(t, got.err, `has no identity "north"`)
}

func TestExpiredIdentitiesAreListedAsSuch(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "access.yaml")
	require.NoError(t, os.WriteFile(path, []byte("identities:\n  - {name: old, certificate: x, scopes: [read], expires: 2020-01-01T00:00:00Z}\n"), 0o600))
	got := runBrim(t, nil, "token", "list", "--access-file", path)
	require.NoError(t, got.err)
	assert.Contains(t, got.stdout, "2020-01-01T00:00:00Z (expired)")
	got = runBrim(t, nil, "token", "list", "--access-file", path, "--output", "json")
	assert.Contains(t, got.stdout, `"expired": true`)
}

func TestTokenNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "access.yaml")
	tokenOf(t, path, "taken", "--scope", "read")
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"create a --scope reed", exitUsage, `--scope: unknown scope "reed"; allowed: ingest, read, admin`},
		{"create a", exitUsage, "--scope: at least one scope is needed"},
		{"create a --scope read --expires tomorrow", exitUsage, `--expires: "tomorrow" is neither a time like`},
		{"create a --scope read --expires 2020-01-01T00:00:00Z", exitUsage, "in the past"},
		{"create a --scope read --readings-per-second -1", exitUsage, `--readings-per-second: "-1" is not a number`},
		{"create a --scope read --active-sensors 1.5", exitUsage, `--active-sensors: "1.5" is not a whole number`},
		{"create a --scope read --certificate spiffe://x", exitFailed, "allowed kinds are cn, dns, uri and email"},
		{"create taken --scope read", exitFailed, `has an identity "taken" already`},
		{"create --scope read", exitUsage, "takes a NAME"},
		{"revoke", exitUsage, "takes a NAME"},
	} {
		got := runBrim(t, nil, append(append([]string{"token"}, strings.Fields(c.args)...), "--access-file", path)...)
		assert.Equal(t, c.code, got.code, c.args)
		assert.ErrorContains(t, got.err, c.want, c.args)
		assert.Empty(t, got.stdout, c.args)
	}
	got := runBrim(t, nil, "token", "list")
	assert.Equal(t, exitUsage, got.code)
	assert.ErrorContains(t, got.err, "--access-file FILE, BRIM_ACCESS_FILE, or --config FILE")
	got = runBrim(t, nil, "serve", "--access-file", filepath.Join(t.TempDir(), "none"))
	assert.Equal(t, exitUsage, got.code)
	assert.ErrorContains(t, got.err, "brim token create NAME")
}

// A daemon queried by a known identity, by none, and by one without the scope, while its file
// changes.
func TestScopesOfTokens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "access.yaml")
	north := tokenOf(t, path, "north", "--scope", "ingest", "--sensor-prefix", "n-", "--readings-per-second", "1000", "--active-sensors", "3")
	reader := tokenOf(t, path, "reader", "--scope", "read")
	b := startBrim(t, "--storage", "memory", "--data-dir", dir, "--access-file", path).awaitReady()
	reading := func(sensor string) []byte { return fmt.Appendf(nil, `{"sensorId":%q,"fields":{"t":1}}`, sensor) }
	send := func(token, sensor string) (int, string) {
		t.Helper()
		headers := []string{"Authorization", "Bearer " + token}
		if token == "" {
			headers = nil
		}
		code, answer, err := b.send("/v1/readings", reading(sensor), headers...)
		require.NoError(t, err)
		return code, answer
	}
	for _, c := range []struct {
		token, sensor string
		code          int
		want          string
	}{
		{"", "n-1", http.StatusUnauthorized, "token_missing"},
		{"brim_unknown", "n-1", http.StatusUnauthorized, "token_unknown"},
		{reader, "n-1", http.StatusForbidden, "scope_missing"},
		{north, "n-1", http.StatusOK, `"accepted":1`},
		{north, "s-1", http.StatusForbidden, "sensor_forbidden"},
		{north, "n-2", http.StatusOK, `"accepted":1`},
		{north, "n-3", http.StatusOK, `"accepted":1`},
		{north, "n-4", http.StatusTooManyRequests, "quota_active_sensors"},
		{north, "n-1", http.StatusOK, `"accepted":1`},
	} {
		code, answer := send(c.token, c.sensor)
		assert.Equal(t, c.code, code, "%s: %s", c.want, answer)
		assert.Contains(t, answer, c.want)
	}
	code, answer, err := b.send("/write?u=any&p="+north, []byte("n-1 t=1\n"))
	require.NoError(t, err)
	assert.Equal(t, http.StatusNoContent, code, answer)

	late := tokenOf(t, path, "late", "--scope", "ingest")
	b.eventually("the new token to be known", func() bool { code, _ := send(late, "x"); return code == http.StatusOK })
	require.NoError(t, runBrim(t, nil, "token", "revoke", "north", "--access-file", path).err)
	b.eventually("the revoked token to be refused", func() bool { code, _ := send(north, "n-1"); return code == http.StatusUnauthorized })
	require.NoError(t, os.WriteFile(path, []byte("identities: none\n"), 0o600))
	b.eventually("the broken file to be noticed", func() bool {
		code, metrics := ask(t, http.MethodGet, "http://"+b.Admin+"/metrics", reader)
		return code == http.StatusOK && strings.Contains(metrics, "\nbrim_access_file_ok 0\n")
	})
	failed := b.awaitLog("the access file is invalid, its previous content stays in force")
	assert.Contains(t, failed["err"], ":1: identities: expected a list")
	code, answer = send(late, "x")
	assert.Equal(t, http.StatusOK, code, answer)
	code, _ = ask(t, http.MethodPost, "http://"+b.Admin+"/flush", reader)
	assert.Equal(t, http.StatusForbidden, code)
	assert.Equal(t, exitDone, b.stop())
}

// ask sends a request with a token.
func ask(t *testing.T, method, url, token string) (code int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	code, answer, err = brimtest.CarryOut(r)
	require.NoError(t, err)
	return code, answer
}

func TestExampleMatchesTheScope(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "access.yaml")
	for scope, want := range map[string]string{
		"ingest": "-d '{\"sensorId\":\"n/s-1\",\"fields\":{\"t\":21.5}}' http://127.0.0.1:8430/v1/readings\n",
		"admin":  "http://127.0.0.1:8430/v1/readings\n",
		"read":   "Bearer TOKEN' http://127.0.0.1:8430/v1/sensors/n%2Fs-1/latest\n",
	} {
		got := runBrim(t, nil, "token", "create", "a-"+scope, "--scope", scope, "--sensor-prefix", "n/", "--access-file", path)
		require.NoError(t, got.err)
		assert.Contains(t, got.stderr, want, scope)
	}
	none := filepath.Join(t.TempDir(), "none.yaml")
	require.ErrorContains(t, runBrim(t, nil, "token", "revoke", "a-read", "--access-file", none).err, "there is no access file "+none)
}
