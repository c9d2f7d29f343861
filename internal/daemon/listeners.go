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
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon/openapi"
	"github.com/brim-telemetry/brim/internal/ingest"
)

// listeners are the three addresses of the daemon.
type listeners struct{ http, grpc, admin net.Listener }

// A binding is a listener with its setting.
type binding struct {
	what, flag, address string
	listener            *net.Listener
}

func (l *listeners) bindings(c *Settings) []binding {
	return []binding{
		{"HTTP", "--http-addr", c.HTTPAddr, &l.http},
		{"gRPC", "--grpc-addr", c.GRPCAddr, &l.grpc},
		{"the admin pages", "--admin-addr", c.AdminAddr, &l.admin},
	}
}

// bind binds all three, or none.
func (l *listeners) bind(ctx context.Context, c *Settings) error {
	for _, b := range l.bindings(c) {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", b.address)
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w; another program, perhaps another daemon, uses this port: stop it, or set %s to another address", err, strings.TrimPrefix(b.flag, "--"))
		}
		if err != nil {
			return errors.Join(fmt.Errorf("listen for %s (%s): %w", b.what, b.flag, err), l.close())
		}
		*b.listener = listener
	}
	return nil
}

// close closes the listeners that no server has taken over.
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

// reachable returns the address of a listener for clients on this machine.
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

// answerTimeout is the time from the headers of a request to the end of its answer, without
// --stored-timeout. The slowest body that is accepted takes 5.5 minutes.
const answerTimeout = 6 * time.Minute

// newHTTPServer returns a server whose requests end with ctx.
func newHTTPServer(ctx context.Context, handler http.Handler, log *slog.Logger) *http.Server {
	return access.Metered(&http.Server{
		Handler:           closeAfterChunks(handler),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: handshakeTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		// 8 MiB at 64 KiB/s take two minutes.
		ReadTimeout: 5 * time.Minute,
		// Longer than the interval at which common agents send.
		IdleTimeout: 2 * time.Minute,
		// As of gRPC. By default a connection keeps a buffer for frames of 1 MiB, and 1 MiB that
		// was not read yet.
		HTTP2:    &http.HTTP2Config{MaxReadFrameSize: 16 << 10, MaxReceiveBufferPerStream: 128 << 10, MaxReceiveBufferPerConnection: 256 << 10},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), // clients that hang up, mostly
	})
}

// closeAfterChunks closes an HTTP/1 connection after each request with
// Transfer-Encoding. Such a request may have a Content-Length too, which net/http
// ignores; if a proxy uses it, a sender could hide a second request in the body of the
// first. On a closed connection nothing after the body is a request (RFC 9112, 6.1).
func closeAfterChunks(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// openError says that a listener would be open to everyone, and what to do.
func openError(address, what string) error {
	return fmt.Errorf("%s would open %s beyond this machine without authentication: name an access file with --access-file FILE (`brim token create` makes one), "+
		"use an address of this machine like 127.0.0.1:%s, or accept everyone with --allow-unauthenticated on", address, what, portOf(address))
}

// CheckOpen returns an error for each listener that serve would refuse to open. It does not
// resolve host names.
func (c *Config) CheckOpen() []error {
	if c.AccessFile != "" || c.AllowUnauthenticated == On {
		return nil
	}
	var problems []error
	for _, p := range new(listeners).bindings(&c.Settings) {
		if !isPublic(p.address) {
			continue
		}
		e := named(c.effective, strings.TrimPrefix(p.flag, "--"))
		problems = append(problems, e.problem(e.Name, openError(p.address, p.what)))
	}
	return problems
}

// isPublic reports whether an address can be reached from other machines; false for a host
// name.
func isPublic(address string) bool {
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
	// maxHeaderBytes is eight times the headers of a usual browser request.
	maxHeaderBytes = 32 << 10
)

// openTLS reads the certificate; nil without TLS.
func (d *daemon) openTLS() (*access.TLS, error) {
	c := d.cfg
	if c.TLSCert == "" {
		return nil, nil //nolint:nilnil // nil is no TLS
	}
	return access.NewTLS(access.TLSConfig{
		CertFile: c.TLSCert, KeyFile: c.TLSKey, ClientCAFile: c.TLSClientCA, RequireClientCert: c.TLSRequireClientCert == On,
		Logger: d.log, Registerer: d.registry,
	})
}

// serve serves all listeners, each with its limit of connections.
func (d *daemon) serve(serving *errgroup.Group, most, perAddress int) {
	l, limits := &d.listeners, d.limits
	l.http = limits.Listener(l.http, listenerHTTP, most, perAddress)
	l.grpc = limits.Listener(l.grpc, listenerGRPC, most, perAddress)
	l.admin = limits.Listener(l.admin, listenerAdmin, adminConnections, 0)
	serve := func(what string, s *http.Server, l net.Listener) {
		serving.Go(func() error {
			var err error
			if d.tls == nil {
				err = s.Serve(l)
			} else {
				err = s.ServeTLS(l, "", "")
			}
			if errors.Is(err, http.ErrServerClosed) {
				return nil
			}
			return fmt.Errorf("serve %s: %w", what, err)
		})
	}
	d.http.TLSConfig = d.tls.Config("h2", "http/1.1")
	d.admin.TLSConfig = d.tls.Config("h2", "http/1.1")
	serve("gRPC", d.grpc, ingest.GRPCListener(l.grpc))
	serve("HTTP", d.http, l.http)
	serve("the admin pages", d.admin, l.admin)
}

// otherFiles is the number of open files other than connections for readings: the journal,
// connections to MongoDB, logs and the admin listener.
const otherFiles = adminConnections + 512

// connectionLimits returns the limits of each listener for readings. It reduces them if the
// system allows fewer open files, and returns an error if that leaves too few.
func (c *Settings) connectionLimits(files uint64, log *slog.Logger) (most, perAddress int, err error) {
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
	log.Warn("fewer connections are accepted than --max-connections, since this process may not open that many files: raise its limit (ulimit -n, LimitNOFILE)",
		"max_connections", most, "asked", c.MaxConnections, "open_files", files, "needed", listeners*c.MaxConnections+otherFiles)
	return most, min(perAddress, most), nil
}

// checkOpen refuses listeners that other machines can reach without authentication, and
// warns of tokens that are sent unencrypted.
func (l *listeners) checkOpen(c *Settings, authenticates bool, log *slog.Logger) error {
	var errs []error
	for _, b := range l.bindings(c) {
		if isLoopback((*b.listener).Addr()) {
			continue
		}
		switch {
		case !authenticates && c.AllowUnauthenticated != On:
			errs = append(errs, fmt.Errorf("%s %w", b.flag, openError(b.address, b.what)))
		case c.TLSCert == "" && authenticates:
			log.Warn("tokens travel in clear to this listener: give --tls-cert and --tls-key, unless a proxy before it terminates TLS", "listener", b.what, "address", (*b.listener).Addr().String())
		case !authenticates:
			log.Warn("this listener is open beyond this machine without authentication (--allow-unauthenticated)", "listener", b.what, "address", (*b.listener).Addr().String())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return config.Usage(err)
	}
	return nil
}

// isLoopback reports whether an address can be reached from this machine only.
func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address) // it was checked when it was set
	return cmp.Or(port, "0")
}

// authentication describes what clients must present.
func (d *daemon) authentication() string {
	switch {
	case !d.guard.Authenticates():
		return "none"
	case d.cfg.TLSClientCA != "":
		return "token or client certificate"
	}
	return "token"
}

// warnOfUnmappedCertificates warns if client certificates are requested, but no access
// file maps them to identities.
func (d *daemon) warnOfUnmappedCertificates() {
	if d.cfg.TLSClientCA != "" && !d.guard.Authenticates() {
		d.log.Warn("client certificates are requested, but no --access-file says what they may do", "tls_client_ca", d.cfg.TLSClientCA,
			"required", d.cfg.TLSRequireClientCert)
	}
}

// scheme is the scheme of the listeners' URLs.
func (d *daemon) scheme() string {
	if d.tls != nil {
		return "https"
	}
	return "http"
}

// hosts returns the host names that requests to the address may use. It is nil, which stands
// for all, with authentication, or if everyone is accepted.
func (c *Settings) hosts(address string) *access.Hosts {
	if c.AccessFile != "" || c.AllowUnauthenticated == On {
		return nil
	}
	return access.NewHosts(address)
}

// sameSite protects the data listener from pages of other sites in a browser on this machine:
// they cannot change anything, and pages that use DNS rebinding cannot read anything.
func (d *daemon) sameSite(next http.Handler) http.Handler {
	hosts := d.cfg.hosts(d.cfg.HTTPAddr)
	return access.SameOrigin(d.ingest.WriteProblem, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		switch {
		case r.Method == http.MethodPost: // to send readings
			err = hosts.CheckPage(r)
		case r.URL.Path == "/ping", r.URL.Path == "/health", r.URL.Path == openapi.Path: // reveal nothing about readings
		default:
			err = hosts.Check(r)
		}
		if err != nil {
			d.ingest.WriteProblem(w, err)
			return
		}
		next.ServeHTTP(w, r)
	}))
}
