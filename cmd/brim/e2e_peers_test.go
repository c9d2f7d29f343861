package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/access/accesstest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// A fleet is daemons of one database that know each other.
type fleet struct {
	t     *testing.T
	flags []string // of each
	http  *http.Client
	token string
	began time.Time
}

// newFleet returns a fleet whose daemons keep readings waiting. With TLS they also have an
// access file.
func newFleet(t *testing.T, secure bool) *fleet {
	t.Helper()
	db := mongodtest.Database(t)
	f := &fleet{t: t, began: time.Now(), http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	f.flags = []string{"--mongo-uri", mongodtest.URI(t), "--database", db.Name(), "--flush-interval", "1h", "--advertise-addr", "127.0.0.1:0"}
	if !secure {
		return f
	}
	dir, authority := t.TempDir(), accesstest.NewAuthority(t, "test")
	ca := accesstest.File(t, dir, "ca.pem", authority.PEM)
	cert, key := authority.Server("brim", time.Now().Add(time.Hour)).Write(t, dir)
	token, err := access.NewToken()
	require.NoError(t, err)
	identities := accesstest.File(t, dir, "access.yaml", fmt.Appendf(nil, "identities:\n  - {name: operator, hash: %q, scopes: [admin]}\n", access.HashOf(token)))
	f.flags = append(f.flags, "--tls-cert", cert, "--tls-key", key, "--tls-peer-ca", ca, "--access-file", identities)
	f.token = token
	f.http.Transport = &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: authority.Pool(), MinVersion: tls.VersionTLS12}}
	return f
}

// start starts a daemon that can store.
func (f *fleet) start(dir string) *brimProcess {
	f.t.Helper()
	b := startBrim(f.t, append([]string{"--data-dir", dir}, f.flags...)...)
	b.awaitLog("ready")
	return b
}

// carryOut sends a request with the fleet's token.
func (f *fleet) carryOut(method, address, path, body string) (code int, incomplete, answer string) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	scheme := "http://"
	if f.token != "" {
		scheme = "https://"
	}
	req, err := http.NewRequestWithContext(ctx, method, scheme+address+path, strings.NewReader(body))
	require.NoError(f.t, err)
	if f.token != "" {
		req.Header.Set("Authorization", "Bearer "+f.token)
	}
	resp, err := f.http.Do(req)
	require.NoError(f.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(f.t, err)
	return resp.StatusCode, resp.Header.Get("Brim-Incomplete"), string(text)
}

// take sends a reading of sensor s to a daemon; larger values are newer readings.
func (f *fleet) take(b *brimProcess, value int) {
	f.t.Helper()
	code, _, answer := f.carryOut(http.MethodPost, b.HTTP, "/v1/readings", fmt.Sprintf(`{"sensorId":"s","ts":%d,"fields":{"v":%d}}`, f.began.Add(-time.Minute).UnixMilli()+int64(value), value))
	require.Equal(f.t, http.StatusOK, code, answer)
	require.Contains(f.t, answer, `"journaled"`)
}

// peers returns how many peers a daemon knows in a state.
func (f *fleet) peers(b *brimProcess, state string) (n int) {
	f.t.Helper()
	_, _, metrics := f.carryOut(http.MethodGet, b.Admin, "/metrics", "")
	_, count, found := strings.Cut(metrics, fmt.Sprintf("\nbrim_peers{state=%q} ", state))
	require.True(f.t, found)
	_, err := fmt.Sscan(count, &n)
	require.NoError(f.t, err)
	return n
}

// knows waits until a daemon knows a reachable peer.
func (f *fleet) knows(b *brimProcess) {
	f.t.Helper()
	b.eventually("the other daemon is known", func() bool { return f.peers(b, "reachable") == 1 })
}

// shows waits for an answer that contains the text and names no missing daemon; the text must
// never occur twice. On a busy machine a peer may answer late, or not be considered alive.
func (f *fleet) shows(b *brimProcess, path, text string) {
	f.t.Helper()
	b.eventually("an answer to "+path+" with "+text, func() bool {
		code, incomplete, body := f.carryOut(http.MethodGet, b.HTTP, path, "")
		require.LessOrEqual(f.t, strings.Count(body, text), 1, body)
		return code == http.StatusOK && incomplete == "" && strings.Contains(body, text)
	})
}

func TestWhatOneDaemonAcknowledgedIsReadAtAnother(t *testing.T) {
	t.Parallel()
	for name, secure := range map[string]bool{"plain": false, "with TLS and tokens": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, secure)
			dir := t.TempDir()
			a, b := f.start(t.TempDir()), f.start(dir)
			f.knows(a)
			f.knows(b)
			f.take(b, 7)
			f.take(a, 8)
			for _, one := range []*brimProcess{a, b} {
				f.shows(one, "/v1/sensors/s/readings", `"v":7`)
				f.shows(one, "/v1/sensors/s/readings", `"v":8`)
				f.shows(one, "/v1/sensors/s/latest", `"v":8`)
				f.shows(one, "/v1/sensors/s/summary", `"count":2`)
				f.shows(one, "/v1/sensors", `{"sensorId":"s"`)
			}
			code, _, answer := f.carryOut(http.MethodPost, b.Admin, "/flush?timeout=60s", "")
			require.Equal(t, http.StatusOK, code, answer)
			f.shows(a, "/v1/sensors/s/readings", `"v":7`) // stored, and seen once

			f.take(b, 9)
			f.shows(a, "/v1/sensors/s/readings", `"v":9`)
			b.Kill()
			b.wait()
			code, incomplete, answer := f.carryOut(http.MethodGet, a.HTTP, "/v1/sensors/s/readings", "")
			assert.Equal(t, http.StatusOK, code)
			assert.Contains(t, answer, `"v":7`)
			if f.peers(a, "unreachable") == 1 { // otherwise the end of the daemon is not known yet
				assert.Equal(t, b.HTTP, incomplete)
				assert.Contains(t, answer, fmt.Sprintf(`"incomplete":[%q]`, b.HTTP))
			}
			again := f.start(dir)
			f.knows(a)
			f.shows(a, "/v1/sensors/s/readings", `"v":9`) // from the daemon's journal, or stored
			assert.Zero(t, again.stop())
			f.shows(a, "/v1/sensors/s/readings", `"v":9`)
		})
	}
}

// TestReplayIsNotAskedForReadings: it has a daemon's settings but no listeners.
func TestReplayIsNotAskedForReadings(t *testing.T) {
	t.Parallel()
	f := newFleet(t, false)
	dir := t.TempDir()
	a, b := f.start(t.TempDir()), f.start(dir)
	f.take(b, 7)
	b.Kill()
	b.wait()
	got := runBrim(t, nil, append([]string{"journal", "replay", "--data-dir", dir}, f.flags[:4]...)...)
	require.NoError(t, got.err, got.stderr)
	f.shows(a, "/v1/sensors/s/readings", `"v":7`)
}

func TestQueryNamesDaemonsThatWereNotAsked(t *testing.T) {
	t.Parallel()
	f := newFleet(t, false)
	a, b := f.start(t.TempDir()), f.start(t.TempDir())
	f.knows(a)
	f.take(a, 7)
	b.signal(os.Kill)
	b.wait()
	got := runBrim(t, nil, "query", "--url", "http://"+a.HTTP, "s")
	require.NoError(t, got.err, got.stderr)
	if f.peers(a, "unreachable") == 1 { // otherwise the end of the daemon is not known yet
		assert.Contains(t, got.stderr, "may be missing: "+b.HTTP+" could not be asked")
	}
	got = runBrim(t, nil, "query", "--url", "http://"+a.HTTP, "s", "--unstored", "off")
	require.NoError(t, got.err, got.stderr)
	assert.NotContains(t, got.stderr, "could not be asked")
}

// A deleted sensor does not return: neither from another daemon's unstored readings, nor from
// the journal of a killed daemon.
func TestADeletedSensorStaysDeleted(t *testing.T) {
	t.Parallel()
	f := newFleet(t, false)
	dirA, dirB := t.TempDir(), t.TempDir()
	a, b := f.start(dirA), f.start(dirB)
	f.knows(a)
	f.knows(b)
	for i, one := range []*brimProcess{a, b} {
		code, _, answer := f.carryOut(http.MethodPost, one.HTTP, "/v1/readings", fmt.Sprintf(`{"sensorId":"kept-%d","fields":{"v":1}}`, i))
		require.Equal(t, http.StatusOK, code, answer)
		f.take(one, i)
	}
	f.shows(a, "/v1/sensors/s/summary", `"count":2`)
	code, _, answer := f.carryOut(http.MethodDelete, a.HTTP, "/v1/sensors/s", "")
	require.Equal(t, http.StatusOK, code, answer)
	assert.JSONEq(t, `{"deleted":2}`, answer)
	for _, one := range []*brimProcess{a, b} {
		one.Kill()
		one.wait()
	}
	b = f.start(dirB)
	a = f.start(dirA)
	f.knows(a)
	f.knows(b)
	for _, one := range []*brimProcess{a, b} {
		code, _, answer = f.carryOut(http.MethodPost, one.Admin, "/flush?timeout=60s", "")
		require.Equal(t, http.StatusOK, code, answer)
		f.shows(one, "/v1/sensors", `"kept-0"`)
		f.shows(one, "/v1/sensors", `"kept-1"`)
		code, _, answer = f.carryOut(http.MethodGet, one.HTTP, "/v1/sensors/s/latest", "")
		assert.Equal(t, http.StatusNotFound, code, answer)
	}
}
