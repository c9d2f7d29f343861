package access

import (
	"cmp"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Limits bound the connections of listeners before anything is read from them. Otherwise a
// client without a token could open thousands.
type Limits struct {
	logger *slog.Logger
	open   *prometheus.GaugeVec
	closed *prometheus.CounterVec
	slowed *prometheus.CounterVec
	all    atomic.Int64 // connections of all listeners
}

// Open is the current number of connections.
func (l *Limits) Open() int64 { return l.all.Load() }

// Reasons why a connection was closed immediately.
const (
	refusedTotal   = "total"   // the listener has the maximum
	refusedAddress = "address" // the client's address has the maximum
)

// NewLimits registers metrics for the named listeners. The registerer and the logger
// may be nil.
func NewLimits(r prometheus.Registerer, logger *slog.Logger, listeners ...string) *Limits {
	factory := promauto.With(r)
	l := &Limits{
		logger: cmp.Or(logger, slog.New(slog.DiscardHandler)),
		open:   factory.NewGaugeVec(prometheus.GaugeOpts{Name: "brim_connections", Help: "Open connections of clients."}, []string{"listener"}),
		closed: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "brim_connections_refused_total", Help: "Connections that were closed at once, because the listener (total) or the client's address (address) had the maximum.",
		}, []string{"listener", "reason"}),
		slowed: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "brim_connections_slowed_total", Help: "Connections that were slowed down because they sent much outside of requests, such as floods of HTTP/2 pings.",
		}, []string{"listener"}),
	}
	for _, name := range listeners {
		l.open.WithLabelValues(name)
		l.slowed.WithLabelValues(name)
		l.closed.WithLabelValues(name, refusedTotal)
		l.closed.WithLabelValues(name, refusedAddress)
	}
	return l
}

// Listener returns a listener that accepts at most limit concurrent connections from inner,
// and at most perAddress from one address. 0 means three quarters of limit: a single client
// cannot use up all connections, and a load balancer in front of all clients has enough.
// IPv6 addresses are counted by their /64, because a machine can use any address in it.
func (l *Limits) Listener(inner net.Listener, name string, limit, perAddress int) net.Listener {
	if perAddress == 0 {
		perAddress = max(1, limit-limit/4)
	}
	return &limited{
		Listener: inner, limits: l, name: name, limit: limit, perAddress: perAddress, of: make(map[netip.Prefix]int),
		open: l.open.WithLabelValues(name), slowed: l.slowed.WithLabelValues(name),
	}
}

type limited struct {
	net.Listener

	limits            *Limits
	name              string
	limit, perAddress int
	open              prometheus.Gauge
	slowed            prometheus.Counter

	mu     sync.Mutex
	count  int
	of     map[netip.Prefix]int
	warned time.Time
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := prefixOf(conn.RemoteAddr())
		if l.enter(from) {
			c := &counted{Conn: conn}
			c.meter.begin(sync.OnceFunc(l.slowed.Inc))
			c.leave = sync.OnceFunc(func() {
				l.leave(from)
				close(c.meter.closed)
			})
			return c, nil
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset; an orderly close would wait for the other side
		}
		_ = conn.Close()
	}
}

// enter counts a connection, or the refusal of one.
func (l *limited) enter(from netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	reason, limit := "", l.limit
	switch {
	case l.count >= l.limit:
		reason = refusedTotal
	case l.of[from] >= l.perAddress:
		reason, limit = refusedAddress, l.perAddress
	}
	if reason != "" {
		l.limits.closed.WithLabelValues(l.name, reason).Inc()
		if now := time.Now(); now.Sub(l.warned) >= time.Minute { // a flood of connections must not flood the log
			l.warned = now
			l.limits.logger.Warn("connections are refused: the maximum is reached", "listener", l.name, "of", reason, "max", limit, "address", from.String())
		}
		return false
	}
	l.count++
	l.of[from]++
	l.open.Inc()
	l.limits.all.Add(1)
	return true
}

func (l *limited) leave(from netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count--
	if l.of[from]--; l.of[from] == 0 {
		delete(l.of, from)
	}
	l.open.Dec()
	l.limits.all.Add(-1)
}

// prefixOf returns the prefix by which an address is counted; the zero prefix if it is not an
// IP address.
func prefixOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	prefix, _ := ip.Prefix(bits) // fails only for too many bits
	return prefix
}

// A counted connection is counted until it is closed.
type counted struct {
	net.Conn

	leave func()
	meter meter
}

// Read implements net.Conn.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.meter.spend(n)
	return n, err
}

// Close implements net.Conn.
func (c *counted) Close() error {
	err := c.Conn.Close()
	c.leave()
	return err
}

// Codes for requests that a page of another site may have made a browser send.
const (
	codeHost        = "host_forbidden"
	codeCrossOrigin = "cross_origin"
)

// Hosts are the names of a listener without authentication, which is safe because only
// this machine can reach it. Browsers on this machine run pages of any site. A page
// can read the answers of another site only if it makes that the same site, by
// pointing its own name to 127.0.0.1 (DNS rebinding). Its requests still have that
// name, so requests for other names are refused. Nil Hosts allow all.
type Hosts struct{ own string }

// NewHosts returns the hosts of a listener at an address HOST:PORT: every IP address,
// localhost, and HOST.
func NewHosts(address string) *Hosts { return &Hosts{own: hostOf(address)} }

// Check returns a *telemetry.Error of kind Forbidden if a request is for another name.
func (h *Hosts) Check(r *http.Request) error {
	if h == nil {
		return nil
	}
	host := hostOf(r.Host)
	if host == "" || host == "localhost" || host == h.own { // a browser always sends the name
		return nil
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	return telemetry.Errorf(telemetry.Forbidden, codeHost,
		"the request is for the host %s, as one from a page of another site could be: without authentication, use the listener's IP address, localhost or the name in its address, "+
			"or start the daemon with --access-file FILE, or with --allow-unauthenticated on", excerpt(host))
}

// CheckPage is Check for requests that send readings. It checks those of browsers
// only: other clients may know this machine by any name.
func (h *Hosts) CheckPage(r *http.Request) error {
	if len(r.Header["Origin"]) == 0 && len(r.Header["Sec-Fetch-Site"]) == 0 {
		return nil
	}
	return h.Check(r)
}

// hostOf returns the host of HOST or HOST:PORT in lower case, without brackets and a
// final dot.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// SameOrigin wraps a handler so that pages of other sites cannot change anything: a
// browser sends their forms, and adds the password that was entered for this site.
// problem writes a refusal.
func SameOrigin(problem func(http.ResponseWriter, error), next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		problem(w, telemetry.Errorf(telemetry.Forbidden, codeCrossOrigin,
			"%s %s was sent by a page of another site; send it without a browser, or from a page of this listener", excerpt(r.Method), excerpt(r.URL.Path)))
	}))
	return protection.Handler(next)
}
