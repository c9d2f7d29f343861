package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon/openapi"
)

// listeners are the three places where the daemon is reached.
type listeners struct{ http, grpc, admin net.Listener }

// A place is where a listener is to be.
type place struct {
	what, flag, address string
	place               *net.Listener
}

func (l *listeners) places(c *Settings) []place {
	return []place{
		{"HTTP", "--http-addr", c.HTTPAddr, &l.http},
		{"gRPC", "--grpc-addr", c.GRPCAddr, &l.grpc},
		{"the admin pages", "--admin-addr", c.AdminAddr, &l.admin},
	}
}

// bind takes all three, or none.
func (l *listeners) bind(ctx context.Context, c *Settings) error {
	for _, b := range l.places(c) {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", b.address)
		if err != nil {
			return errors.Join(fmt.Errorf("listen for %s (%s): %w", b.what, b.flag, err), l.close())
		}
		*b.place = listener
	}
	return nil
}

// close gives back what no server has taken over.
func (l *listeners) close() error {
	var errs []error
	for _, listener := range []net.Listener{l.http, l.grpc, l.admin} {
		if listener == nil {
			continue
		}
		if err := listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// reachable returns the address to call a listener by from this machine.
func reachable(l net.Listener) string {
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return l.Addr().String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// answerTimeout is how long a client may take from the head of its request to the
// end of the answer: the slowest body that is still taken comes in 5.5 minutes.
const answerTimeout = 6 * time.Minute

// newHTTPServer returns a server whose requests end with ctx.
func newHTTPServer(ctx context.Context, handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           closeAfterChunks(handler),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: handshakeTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		// 8 MiB at 64 KiB/s take two minutes.
		ReadTimeout: 5 * time.Minute,
		// Longer than the pause between two requests of any usual agent.
		IdleTimeout: 2 * time.Minute,
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelDebug), // clients that hang up, mostly
	}
}

// closeAfterChunks closes a connection of HTTP/1 behind each request with
// Transfer-Encoding. Such a request may have a Content-Length too, which net/http
// ignores; where a proxy goes by it, a sender could hide a second request in the body
// of the first. With the connection closed, nothing behind the body is a request
// (RFC 9112, 6.1).
func closeAfterChunks(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// openError says that a listener would be open to all, and what to do.
func openError(address, what string) error {
	return fmt.Errorf("%s would open %s beyond this machine without authentication: say who may do what with --access-file FILE (`brim token create` makes one), "+
		"stay on this machine with an address like 127.0.0.1:%s, or accept everyone with --allow-unauthenticated on", address, what, portOf(address))
}

// CheckOpen returns what serve would refuse to open, as far as the text of the
// addresses tells: where a name leads is not looked up.
func (c *Config) CheckOpen() []error {
	if c.AccessFile != "" || c.AllowUnauthenticated == On {
		return nil
	}
	var problems []error
	for _, p := range new(listeners).places(&c.Settings) {
		if !plainlyOpen(p.address) {
			continue
		}
		at := slices.IndexFunc(c.effective, func(e effective) bool { return "--"+e.Name == p.flag })
		problems = append(problems, c.effective[at].problem(c.effective[at].Name, openError(p.address, p.what)))
	}
	return problems
}

// plainlyOpen reports whether an address is plainly one that other machines
// reach; false of a name.
func plainlyOpen(address string) bool {
	host, _, _ := net.SplitHostPort(address) // it was checked when it was set
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && !ip.Unmap().IsLoopback()
}

// Names of the listeners in metrics.
const (
	listenerHTTP  = "http"
	listenerGRPC  = "grpc"
	listenerAdmin = "admin"
)

const (
	// adminConnections are for a few operators, probes and scrapers.
	adminConnections = 256
	// handshakeTimeout is how long a new connection may take to agree on TLS; over
	// HTTP it is the ReadHeaderTimeout.
	handshakeTimeout = 10 * time.Second
	// maxHeaderBytes is eight times what a usual request of a browser has.
	maxHeaderBytes = 32 << 10
)

// openTLS reads the certificate; nil where the listeners speak no TLS.
func (d *daemon) openTLS() (*access.TLS, error) {
	c := &d.cfg.listenerSettings
	if c.TLSCert == "" {
		return nil, nil //nolint:nilnil // it is no error to have none
	}
	return access.NewTLS(access.TLSConfig{
		CertFile: c.TLSCert, KeyFile: c.TLSKey, ClientCAFile: c.TLSClientCA, RequireClientCert: c.TLSRequireClientCert == On,
		Logger: d.log, Registerer: d.registry,
	})
}

// secureHTTP makes a server speak TLS, and HTTP/2 with it, where the daemon has
// a certificate.
func (d *daemon) secureHTTP(servers ...*http.Server) {
	if d.tls == nil {
		return
	}
	for _, s := range servers {
		s.TLSConfig = d.tls.Config("h2", "http/1.1")
	}
}

// newGRPCServer returns the gRPC server, which speaks TLS where the daemon has a certificate.
func (d *daemon) newGRPCServer() *http.Server {
	if d.tls == nil {
		return d.door.GRPCServer(nil)
	}
	return d.door.GRPCServer(d.tls.Config("h2"))
}

// serve serves all listeners, each within its limit of connections.
func (d *daemon) serve(serving *errgroup.Group, most, perAddress int) {
	l, limits := &d.listeners, d.limits
	l.http = limits.Listener(l.http, listenerHTTP, most, perAddress)
	l.grpc = limits.Listener(l.grpc, listenerGRPC, most, perAddress)
	l.admin = limits.Listener(l.admin, listenerAdmin, adminConnections, 0)
	if d.tls != nil {
		serving.Go(func() error { return served("gRPC", d.grpc.ServeTLS(l.grpc, "", "")) })
		serving.Go(func() error { return served("HTTP", d.http.ServeTLS(l.http, "", "")) })
		serving.Go(func() error { return served("the admin pages", d.admin.ServeTLS(l.admin, "", "")) })
		return
	}
	serving.Go(func() error { return served("gRPC", d.grpc.Serve(l.grpc)) })
	serving.Go(func() error { return served("HTTP", d.http.Serve(l.http)) })
	serving.Go(func() error { return served("the admin pages", d.admin.Serve(l.admin)) })
}

// otherFiles are what a daemon has open beside connections for readings: of its
// journal, of its pools to MongoDB, of logs and the admin listener.
const otherFiles = adminConnections + 512

// connectionLimits returns the limits of each listener for readings. They are
// lower if the system allows fewer open files, since the journal needs some, too;
// it is an error if that leaves none.
func (c *listenerSettings) connectionLimits(files uint64, log *slog.Logger) (most, perAddress int, err error) {
	const listeners, fewest = 2, 8
	most, perAddress = c.MaxConnections, c.MaxConnectionsPerAddress
	switch {
	case files == 0 || files >= uint64(listeners*most+otherFiles):
		return most, perAddress, nil
	case files < listeners*fewest+otherFiles:
		return 0, 0, fmt.Errorf("this process may open %d files; it needs at least %d, and %d for --max-connections %d: raise the limit (ulimit -n, LimitNOFILE)",
			files, listeners*fewest+otherFiles, listeners*most+otherFiles, most)
	}
	most = (int(files) - otherFiles) / listeners
	log.Warn("fewer connections are taken than --max-connections says, for this process may not open as many files: raise its limit (ulimit -n, LimitNOFILE)",
		"max_connections", most, "asked", c.MaxConnections, "open_files", files, "needed", listeners*c.MaxConnections+otherFiles)
	return most, min(perAddress, most), nil
}

// checkOpen refuses listeners that others can reach although nobody is asked who
// they are, and warns of tokens that travel where others can read them.
func (l *listeners) checkOpen(c *Settings, asks bool, log *slog.Logger) error {
	var errs []error
	for _, b := range l.places(c) {
		if isLoopback((*b.place).Addr()) {
			continue
		}
		switch {
		case !asks && c.AllowUnauthenticated != On:
			errs = append(errs, fmt.Errorf("%s %w", b.flag, openError(b.address, b.what)))
		case c.TLSCert == "" && asks:
			log.Warn("tokens travel in clear to this listener: give --tls-cert and --tls-key, unless what stands before it speaks TLS", "listener", b.what, "address", (*b.place).Addr().String())
		case !asks:
			log.Warn("this listener is open beyond this machine without authentication (--allow-unauthenticated)", "listener", b.what, "address", (*b.place).Addr().String())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return config.Usage(err)
	}
	return nil
}

// isLoopback reports whether what listens there is reached from this machine only.
func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address) // it was checked when it was set
	return cmp.Or(port, "0")
}

// asked is who is asked, for people.
func (d *daemon) asked() string {
	switch {
	case !d.guard.Asks():
		return "nobody"
	case d.cfg.TLSClientCA != "":
		return "token or client certificate"
	}
	return "token"
}

// warnOfUnnamed warns that client certificates are requested, but no access file maps them to identities.
func (d *daemon) warnOfUnnamed() {
	if d.cfg.TLSClientCA != "" && !d.guard.Asks() {
		d.log.Warn("client certificates are requested, but no --access-file says what they may do", "tls_client_ca", d.cfg.TLSClientCA,
			"required", d.cfg.TLSRequireClientCert)
	}
}

// scheme is that of the listeners' URLs.
func (d *daemon) scheme() string {
	if d.tls != nil {
		return "https"
	}
	return "http"
}

// hosts are the names by which a listener at the address may be called; nil:
// all, where everybody is asked who he is, or everybody is let in.
func (c *Settings) hosts(address string) *access.Hosts {
	if c.AccessFile != "" || c.AllowUnauthenticated == On {
		return nil
	}
	return access.NewHosts(address)
}

// sameSite keeps pages of other sites from the data listener, which a browser on
// this machine reaches for them: they change nothing, and those that made their
// own name lead here read nothing. The requests that the front answers need none
// of it, for what a browser sends has headers that no simple request has.
func (d *daemon) sameSite(next http.Handler) http.Handler {
	hosts := d.cfg.hosts(d.cfg.HTTPAddr)
	return access.SameOrigin(d.door.WriteProblem, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		switch {
		case r.Method == http.MethodPost: // to send readings
			err = hosts.CheckPage(r)
		case r.URL.Path == "/ping", r.URL.Path == "/health", r.URL.Path == openapi.Path: // tell nothing of readings
		default:
			err = hosts.Check(r)
		}
		if err != nil {
			d.door.WriteProblem(w, err)
			return
		}
		next.ServeHTTP(w, r)
	}))
}
