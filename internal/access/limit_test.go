package access_test

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/access"
)

// A conn has an address and records that it was closed.
type conn struct {
	net.Conn

	from   net.Addr
	closed int
}

func (c *conn) RemoteAddr() net.Addr { return c.from }
func (c *conn) Close() error         { c.closed++; return nil }

// arrivals is a listener that accepts some connections in order, and then none.
type arrivals struct {
	net.Listener

	conns []*conn
}

func (a *arrivals) Accept() (net.Conn, error) {
	if len(a.conns) == 0 {
		return nil, io.EOF
	}
	c := a.conns[0]
	a.conns = a.conns[1:]
	return c, nil
}

func from(address string) *conn {
	return &conn{from: &net.TCPAddr{IP: net.ParseIP(address), Port: 4711}}
}

// A scene is a listener with limits and metrics.
type scene struct {
	arrivals *arrivals
	limited  net.Listener
	registry *prometheus.Registry
	log      bytes.Buffer
}

func newScene(most, perAddress int) *scene {
	s := &scene{arrivals: &arrivals{}, registry: prometheus.NewRegistry()}
	limits := access.NewLimits(s.registry, slog.New(slog.NewTextHandler(&s.log, nil)), "http", "grpc")
	s.limited = limits.Listener(s.arrivals, "http", most, perAddress)
	return s
}

// connect opens connections from these addresses, and returns the accepted ones.
func (s *scene) connect(t *testing.T, addresses ...string) (accepted []net.Conn, all []*conn) {
	t.Helper()
	for _, a := range addresses {
		all = append(all, from(a))
	}
	s.arrivals.conns = all
	for {
		c, err := s.limited.Accept()
		if err != nil {
			require.ErrorIs(t, err, io.EOF)
			return accepted, all
		}
		accepted = append(accepted, c)
	}
}

func (s *scene) metrics(t *testing.T, open, total, address string) {
	t.Helper()
	require.NoError(t, testutil.GatherAndCompare(s.registry, strings.NewReader(`
# HELP brim_connections Open connections of clients.
# TYPE brim_connections gauge
brim_connections{listener="grpc"} 0
brim_connections{listener="http"} `+open+`
# HELP brim_connections_refused_total Connections that were closed at once, because the listener (total) or the client's address (address) had the maximum.
# TYPE brim_connections_refused_total counter
brim_connections_refused_total{listener="grpc",reason="address"} 0
brim_connections_refused_total{listener="grpc",reason="total"} 0
brim_connections_refused_total{listener="http",reason="address"} `+address+`
brim_connections_refused_total{listener="http",reason="total"} `+total+`
`), "brim_connections", "brim_connections_refused_total"))
}

func repeat(address string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = address
	}
	return out
}

func TestConnectionsPerAddressAreLimited(t *testing.T) {
	t.Parallel()
	s := newScene(8, 0)
	s.metrics(t, "0", "0", "0")
	accepted, all := s.connect(t, repeat("192.0.2.1", 100)...)
	assert.Len(t, accepted, 6, "three quarters")
	assert.Zero(t, all[5].closed)
	assert.Equal(t, 1, all[6].closed, "it is closed at once")
	s.metrics(t, "6", "0", "94")
	others, _ := s.connect(t, "192.0.2.2", "192.0.2.3", "192.0.2.4")
	assert.Len(t, others, 2)
	s.metrics(t, "8", "1", "94")
	require.NoError(t, others[0].Close())
	_ = others[0].Close() // servers may close twice
	s.metrics(t, "7", "1", "94")
	next, _ := s.connect(t, "192.0.2.1", "192.0.2.5")
	require.Len(t, next, 1, "the first is one too many of its address")
	assert.Equal(t, "192.0.2.5:4711", next[0].RemoteAddr().String())
	assert.Equal(t, 1, strings.Count(s.log.String(), "level=WARN"), "a flood does not flood the log")
	problems, err := testutil.GatherAndLint(s.registry)
	require.NoError(t, err)
	assert.Empty(t, problems)
}

func TestIPv6AddressesCountByPrefix(t *testing.T) {
	t.Parallel()
	s := newScene(100, 1)
	accepted, _ := s.connect(t, "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "::ffff:192.0.2.1", "192.0.2.1", "192.0.2.2")
	var kept []string
	for _, c := range accepted {
		kept = append(kept, c.RemoteAddr().String())
	}
	assert.Equal(t, []string{"[2001:db8::1]:4711", "[2001:db8:0:1::1]:4711", "192.0.2.1:4711", "192.0.2.2:4711"}, kept)
}

// TestRefusedConnectionIsReset uses real connections.
func TestRefusedConnectionIsReset(t *testing.T) {
	t.Parallel()
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	limited := access.NewLimits(nil, nil, "http").Listener(inner, "http", 1, 1)
	accepted := make(chan net.Conn, 2)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := limited.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	t.Cleanup(func() { inner.Close(); <-done })
	dial := func() net.Conn {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", inner.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
		return c
	}
	first := dial()
	served := <-accepted
	// It may be reset before its dialer knows that it was established.
	refused, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", inner.Addr().String())
	if err == nil {
		defer refused.Close()
		require.NoError(t, refused.SetDeadline(time.Now().Add(time.Minute)))
		_, err = refused.Read(make([]byte, 1))
	}
	require.Error(t, err)
	var late net.Error
	assert.False(t, assert.ErrorAs(t, err, &late) && late.Timeout(), "it ends at once: %v", err)
	require.NoError(t, served.Close())
	_, err = first.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	dial()
	require.NoError(t, (<-accepted).Close(), "there is room again")
}
