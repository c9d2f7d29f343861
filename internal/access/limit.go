package access

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Limits bound the connections of listeners, before anything is read from
// them: who holds thousands without a token is refused nowhere else.
type Limits struct {
	logger *slog.Logger
	open   *prometheus.GaugeVec
	closed *prometheus.CounterVec
	all    atomic.Int64 // connections of all listeners
}

// Open is how many connections there are now.
func (l *Limits) Open() int64 { return l.all.Load() }

// Why a connection was closed at once.
const (
	refusedTotal   = "total"   // all that may be are there
	refusedAddress = "address" // all that its address may have are there
)

// NewLimits registers metrics. Listeners are their names, as Listener is called
// with them. A nil registerer or logger is none.
func NewLimits(r prometheus.Registerer, logger *slog.Logger, listeners ...string) *Limits {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	factory := promauto.With(r)
	l := &Limits{
		logger: logger,
		open:   factory.NewGaugeVec(prometheus.GaugeOpts{Name: "brim_connections", Help: "Open connections of clients."}, []string{"listener"}),
		closed: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "brim_connections_refused_total", Help: "Connections that were closed at once: total, as many as may be were there; address, as many as one address may have.",
		}, []string{"listener", "reason"}),
	}
	for _, name := range listeners {
		l.open.WithLabelValues(name)
		for _, reason := range []string{refusedTotal, refusedAddress} {
			l.closed.WithLabelValues(name, reason)
		}
	}
	return l
}

// Listener returns a listener that accepts from inner, and has at most so many
// connections at once. Of one address there are at most perAddress; 0: three
// quarters of all, so that no single place can have them all, and a balancer, from
// which all come, has enough. Addresses of IPv6 count by their /64, since a machine
// has as many of those as it likes.
func (l *Limits) Listener(inner net.Listener, name string, most, perAddress int) net.Listener {
	if perAddress == 0 {
		perAddress = max(1, most-most/4)
	}
	return &limited{
		Listener: inner, name: name, most: most, perAddress: perAddress, logger: l.logger, all: &l.all, of: make(map[netip.Prefix]int),
		open: l.open.WithLabelValues(name), total: l.closed.WithLabelValues(name, refusedTotal), address: l.closed.WithLabelValues(name, refusedAddress),
	}
}

type limited struct {
	net.Listener

	name             string
	most, perAddress int
	logger           *slog.Logger
	open             prometheus.Gauge
	total, address   prometheus.Counter
	all              *atomic.Int64

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
		refused := l.enter(from)
		if refused == nil {
			return &counted{Conn: conn, leave: sync.OnceFunc(func() { l.leave(from) })}, nil
		}
		refused.Inc()
		// A reset: what is closed in good order would wait for the other side.
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close() // nothing was read from it
	}
}

// enter counts a connection, or returns the counter of why it is refused.
func (l *limited) enter(from netip.Prefix) prometheus.Counter {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.count >= l.most:
		if l.mayWarn() {
			l.logger.Warn("connections are refused: there are as many as may be", "listener", l.name, "max", l.most)
		}
		return l.total
	case l.of[from] >= l.perAddress:
		if l.mayWarn() {
			l.logger.Warn("connections are refused: one address has as many as it may", "listener", l.name, "max", l.perAddress, "address", from.String())
		}
		return l.address
	}
	l.count++
	l.of[from]++
	l.open.Inc()
	l.all.Add(1)
	return nil
}

// mayWarn reports true once a minute: whoever floods us must not flood the log.
func (l *limited) mayWarn() bool {
	now := time.Now()
	if now.Sub(l.warned) < time.Minute {
		return false
	}
	l.warned = now
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
	l.all.Add(-1)
}

// prefixOf returns the place that an address is counted by; the zero prefix
// where it is no IP address.
func prefixOf(a net.Addr) netip.Prefix {
	const siteBits = 64 // of an IPv6 address, the rest is a machine's own choice
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = siteBits
	}
	prefix, _ := ip.Prefix(bits) // fails for no number of bits that an address has
	return prefix
}

// A counted connection is counted until it is closed.
type counted struct {
	net.Conn

	leave func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	err := c.Conn.Close()
	c.leave()
	return err
}
