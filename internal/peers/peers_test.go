package peers

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/store/claim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A registry is a list of live daemons.
type registry struct {
	mu   sync.Mutex
	live []claim.Other
	err  error
}

func (r *registry) list(context.Context) ([]claim.Other, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]claim.Other(nil), r.live...), r.err
}

// daemons returns daemons that reach all others.
func daemons(all ...claim.Holder) (out []claim.Other) {
	for _, h := range all {
		out = append(out, claim.Other{Holder: h})
	}
	return out
}

// newPeers returns peers with a timeout long enough for a busy machine.
func newPeers(t *testing.T, r *registry, change ...func(*Config)) *Peers {
	t.Helper()
	c := Config{Address: "me:8430", Streams: []string{"readings"}, Live: r.list, Timeout: brimtest.Patience, Logger: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&c)
	}
	p := New(c)
	t.Cleanup(p.client.CloseIdleConnections)
	return p
}

// serve starts a daemon that answers everything except probes with the function.
func serve(t *testing.T, name string, answer http.HandlerFunc) claim.Other {
	t.Helper()
	s := httptest.NewServer(daemonNamed(name, answer))
	t.Cleanup(s.Close)
	return claim.Other{Holder: claim.Holder{Daemon: name, Address: s.Listener.Addr().String(), Streams: []string{"readings"}}}
}

func daemonNamed(name string, answer http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(DaemonHeader, name)
		if r.URL.Path == ProbePath {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		answer(w, r)
	})
}

func say(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

// all asks all peers, and returns the bodies and the addresses of those that failed.
func all(t *testing.T, p *Peers) (bodies, failed []string) {
	t.Helper()
	failed = p.Ask(t.Context(), http.MethodGet, "readings", "/v1/sensors?x=1", "Bearer t")(func(body []byte) error {
		bodies = append(bodies, string(body))
		if bytes.HasPrefix(body, []byte("wrong")) {
			return errors.New("wrong")
		}
		return nil
	})
	return bodies, failed
}

func (p *Peers) outcomes(reason string) float64 {
	return testutil.ToFloat64(p.asked.WithLabelValues(reason))
}

func TestPeersAreAskedWithTheClientsCredentials(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []string
	one := serve(t, "one", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization"))
		fmt.Fprint(w, "1")
	})
	two := serve(t, "two", say(http.StatusNotFound, "no readings of this sensor wait"))
	other := serve(t, "other", func(http.ResponseWriter, *http.Request) { t.Error("it does not store this stream") })
	other.Streams = []string{"others"}
	p := newPeers(t, &registry{live: append(daemons(claim.Holder{Daemon: "silent", Streams: []string{"readings"}}, claim.Holder{Since: time.Now()}), one, two, other)})
	p.refresh(t.Context())
	bodies, failed := all(t, p)
	assert.Equal(t, []string{"1"}, bodies)
	assert.Empty(t, failed)
	assert.Equal(t, []string{"GET /v1/sensors?x=1 Bearer t"}, asked)
	assert.Equal(t, 2.0, p.outcomes(answered))
	assert.Equal(t, []float64{3, 0, 2}, []float64{p.count(stateReachable), p.count(stateUnreachable), p.count(stateUnregistered)})
	assert.Empty(t, p.Unreachable())
}

// A stream that this daemon does not store in the database is not that of others.
func TestStreamsOfThisDaemonAloneAreNotAskedFor(t *testing.T) {
	t.Parallel()
	one := serve(t, "one", func(http.ResponseWriter, *http.Request) { t.Error("it is asked") })
	p := newPeers(t, &registry{live: []claim.Other{one}}, func(c *Config) { c.Streams = []string{"other"} })
	p.refresh(t.Context())
	bodies, failed := all(t, p)
	assert.Empty(t, bodies)
	assert.Empty(t, failed)
}

func TestFailuresAreNamedAndCounted(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(nil)
	gone.Close()
	imposter := serve(t, "imposter", say(200, "1"))
	imposter.Daemon = "one"
	silent := httptest.NewServer(say(200, "1")) // no daemon
	t.Cleanup(silent.Close)
	for name, c := range map[string]struct {
		peer   claim.Other
		reason string
		down   bool // it is not asked again
		held   bool // Unreachable names it
	}{
		"gone":            {claim.Other{Holder: claim.Holder{Daemon: "one", Address: gone.Listener.Addr().String()}}, unreachable, true, true},
		"another daemon":  {imposter, unreachable, true, true},
		"no daemon":       {claim.Other{Holder: claim.Holder{Daemon: "one", Address: silent.Listener.Addr().String()}}, unreachable, true, true},
		"unknown token":   {serve(t, "one", say(http.StatusUnauthorized, "")), refused, false, true},
		"moved elsewhere": {serve(t, "one", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusFound) }), refused, false, true},
		"too busy":        {serve(t, "one", say(http.StatusServiceUnavailable, "")), busy, false, false},
		"over its quota":  {serve(t, "one", say(http.StatusTooManyRequests, "")), busy, false, false},
		"malformed":       {serve(t, "one", say(http.StatusOK, "wrong")), malformed, false, true},
		"too long":        {serve(t, "one", say(http.StatusOK, strings.Repeat("x", maxAnswers+1))), malformed, false, true},
		"cut off": {serve(t, "one", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			fmt.Fprint(w, "1")
		}), unreachable, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			good := serve(t, "good", say(http.StatusOK, "good"))
			p := newPeers(t, &registry{})
			p.update([]claim.Other{c.peer, good})
			bodies, failed := all(t, p)
			assert.Contains(t, bodies, "good")
			assert.Equal(t, []string{c.peer.Address}, failed)
			assert.Equal(t, 1.0, p.outcomes(c.reason))
			assert.Equal(t, c.held, len(p.Unreachable()) == 1, "%v", p.Unreachable())
			_, failed = all(t, p)
			assert.Equal(t, []string{c.peer.Address}, failed)
			assert.Equal(t, c.down, p.outcomes(skipped) == 1)
		})
	}
}

func TestHangingPeerIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for name, hang := range map[string]func(w http.ResponseWriter){
		"before the head": func(http.ResponseWriter) {},
		"in the body": func(w http.ResponseWriter) {
			fmt.Fprint(w, "1")
			_ = http.NewResponseController(w).Flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked, end := make(chan struct{}, 1), make(chan struct{})
			one := serve(t, "one", func(w http.ResponseWriter, _ *http.Request) {
				hang(w)
				asked <- struct{}{}
				<-end
			})
			defer close(end)
			p := newPeers(t, &registry{live: []claim.Other{one}}, func(c *Config) { c.Timeout = 100 * time.Millisecond })
			p.update([]claim.Other{one})
			bodies, failed := all(t, p) // ends although the peer does not
			assert.Empty(t, bodies)
			assert.Equal(t, []string{one.Address}, failed)
			assert.Equal(t, 1.0, p.outcomes(timedOut))
			_, failed = all(t, p)
			assert.Equal(t, []string{one.Address}, failed)
			assert.Equal(t, 1.0, p.outcomes(skipped), "one query waited; the next ones do not")
			assert.LessOrEqual(t, len(asked), 1)
			assert.Equal(t, []string{one.Address}, p.Unreachable())
		})
	}
}

func TestPeerIsAskedAgainOnceAProbeFindsIt(t *testing.T) {
	t.Parallel()
	one := serve(t, "one", say(http.StatusOK, "1"))
	r := &registry{live: []claim.Other{one}}
	var log bytes.Buffer
	p := newPeers(t, r, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	p.update(r.live)
	p.known[0].down = true
	_, failed := all(t, p)
	assert.Len(t, failed, 1)
	p.refresh(t.Context())
	bodies, failed := all(t, p)
	assert.Equal(t, []string{"1"}, bodies)
	assert.Empty(t, failed)
	assert.Contains(t, log.String(), "can be reached again")

	r.err = assert.AnError // the last list is kept
	p.refresh(t.Context())
	bodies, _ = all(t, p)
	assert.Equal(t, []string{"1"}, bodies)
	r.live, r.err = nil, nil
	p.refresh(t.Context())
	bodies, failed = all(t, p)
	assert.Empty(t, bodies)
	assert.Empty(t, failed, "it has ended")
}

func TestProbeFindsWhatCannotBeReached(t *testing.T) {
	t.Parallel()
	one := serve(t, "one", say(http.StatusOK, "1"))
	one.Daemon = "two"
	var log bytes.Buffer
	p := newPeers(t, &registry{live: []claim.Other{one}}, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 3 {
		p.refresh(t.Context())
	}
	assert.Equal(t, []string{one.Address}, p.Unreachable(), "before the first query")
	assert.Equal(t, 1, strings.Count(log.String(), "\n"), "once: %s", log.String())
	assert.Contains(t, log.String(), "rather than to the daemon")
}

func TestRestartedDaemonReplacesItself(t *testing.T) {
	t.Parallel()
	one := serve(t, "again", say(http.StatusOK, "1"))
	killed := one
	killed.Daemon, one.Since = "killed", time.Now()
	p := newPeers(t, &registry{live: []claim.Other{killed, one}})
	p.refresh(t.Context())
	bodies, failed := all(t, p)
	assert.Equal(t, []string{"1"}, bodies)
	assert.Empty(t, failed)
}

func TestQuestionEndsWithItsClient(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	one := serve(t, "one", func(http.ResponseWriter, *http.Request) { <-end })
	defer close(end)
	p := newPeers(t, &registry{})
	p.update([]claim.Other{one})
	ctx, cancel := context.WithCancel(t.Context())
	collect := p.Ask(ctx, http.MethodGet, "readings", "/", "")
	cancel()
	collect(func([]byte) error { return nil })
	assert.Empty(t, p.Unreachable(), "the peer does not count as unreachable")
	assert.False(t, p.known[0].down)
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s := httptest.NewTLSServer(daemonNamed("one", say(http.StatusOK, "1")))
	t.Cleanup(s.Close)
	trusts := x509.NewCertPool()
	trusts.AddCert(s.Certificate())
	secure := claim.Other{Holder: claim.Holder{Daemon: "one", Address: s.Listener.Addr().String(), TLS: true}}
	plain := serve(t, "clear", say(http.StatusOK, "clear"))
	for name, c := range map[string]struct {
		roots  *x509.CertPool
		peer   claim.Other
		bodies []string
	}{
		"trusted":  {trusts, secure, []string{"1"}},
		"unknown":  {x509.NewCertPool(), secure, nil},
		"in clear": {trusts, plain, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPeers(t, &registry{}, func(cfg *Config) {
				cfg.RequireTLS, cfg.TLS = true, &tls.Config{RootCAs: c.roots, MinVersion: tls.VersionTLS12}
			})
			p.update([]claim.Other{c.peer})
			bodies, failed := all(t, p)
			assert.Equal(t, c.bodies, bodies)
			assert.Equal(t, c.bodies == nil, len(failed) == 1)
		})
	}
}

func TestAgeIsLimitedWhereOthersCannotAsk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		other := claim.Other{Holder: claim.Holder{Daemon: "one", Address: "one:8430", Streams: []string{"readings", "more"}}}
		p := newPeers(t, &registry{})
		mute := newPeers(t, &registry{}, func(c *Config) { c.Address = "" })
		assert.Zero(t, p.LimitAge(), "there is no other daemon")
		assert.Zero(t, mute.LimitAge())
		p.update([]claim.Other{other})
		assert.Equal(t, 4*time.Second, p.LimitAge(), "others may not know it yet")
		time.Sleep(startupPeriod) //nolint:forbidigo // fake time
		assert.Zero(t, p.LimitAge())
		mute.update([]claim.Other{other})
		assert.Equal(t, 4*time.Second, mute.LimitAge())
		mute.update(daemons(claim.Holder{Daemon: "one", Streams: []string{"more"}}))
		assert.Zero(t, mute.LimitAge(), "no stream in common")
		mute.update(daemons(claim.Holder{}))
		assert.Equal(t, 4*time.Second, mute.LimitAge(), "an earlier release does not say which streams it has")
		other.Unreachable = []string{"x:1", "me:8430"}
		p.update([]claim.Other{other})
		assert.Equal(t, 4*time.Second, p.LimitAge(), "one of them could not reach it")

		p.known[0].failed = time.Now()
		time.Sleep(failureWindow - time.Second) //nolint:forbidigo // likewise
		assert.Equal(t, []string{"one:8430"}, p.Unreachable())
		time.Sleep(time.Second) //nolint:forbidigo // likewise
		assert.Empty(t, p.Unreachable())
	})
	var none *Peers
	assert.Zero(t, none.LimitAge())
	assert.Empty(t, none.Unreachable())
	assert.Empty(t, none.Ask(t.Context(), http.MethodGet, "readings", "/", "")(nil))
}

func TestMetricsAreThereFromTheStart(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	p := newPeers(t, &registry{}, func(c *Config) { c.Address, c.Registerer = "", r })
	p.update(daemons(claim.Holder{}, claim.Holder{Daemon: "x", Address: "x:1"}))
	require.NoError(t, testutil.GatherAndCompare(r, strings.NewReader(`
# HELP brim_peer_age_limit_seconds Age at which readings must be sent to MongoDB because other daemons cannot ask this one for them; 0: no such limit.
# TYPE brim_peer_age_limit_seconds gauge
brim_peer_age_limit_seconds 4
# HELP brim_peers Other live daemons of the database; unregistered: without --advertise-addr.
# TYPE brim_peers gauge
brim_peers{state="reachable"} 1
brim_peers{state="unreachable"} 0
brim_peers{state="unregistered"} 1
`), "brim_peer_age_limit_seconds", "brim_peers"))
	n, err := testutil.GatherAndCount(r, "brim_peer_requests_total")
	require.NoError(t, err)
	assert.Equal(t, 7, n)
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"brim-1:8430", "10.0.0.1:8430", "[::1]:8430", "host.example.org:0"} {
		assert.NoError(t, CheckAddress(good))
	}
	for _, bad := range []string{"", "host", ":8430", "0.0.0.0:8430", "[::]:8430", "a b:1", "http://host:8430", "host:http", "user@host:1", "host:70000"} {
		assert.ErrorContains(t, CheckAddress(bad), "is not a HOST:PORT", bad)
	}
}
