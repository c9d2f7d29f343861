package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/internal/config"
)

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

// grpcOptions are those of the gRPC server.
func (d *daemon) grpcOptions() []grpc.ServerOption {
	options := []grpc.ServerOption{grpc.ConnectionTimeout(handshakeTimeout)}
	if d.tls != nil {
		options = append(options, grpc.Creds(d.door.Credentials(credentials.NewTLS(d.tls.Config("h2")))))
	}
	return options
}

// serve serves all listeners, each within its limit of connections.
func (d *daemon) serve(serving *errgroup.Group, most, perAddress int) {
	l, limits := &d.listeners, d.limits
	l.http = limits.Listener(l.http, listenerHTTP, most, perAddress)
	l.grpc = limits.Listener(l.grpc, listenerGRPC, most, perAddress)
	l.admin = limits.Listener(l.admin, listenerAdmin, adminConnections, 0)
	serving.Go(func() error { return served("gRPC", d.grpc.Serve(l.grpc)) })
	if d.tls != nil {
		serving.Go(func() error { return served("HTTP", d.http.ServeTLS(l.http, "", "")) })
		serving.Go(func() error { return served("the admin pages", d.admin.ServeTLS(l.admin, "", "")) })
		return
	}
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
			log.Warn("this listener is open beyond this machine and asks nobody who they are (--allow-unauthenticated)", "listener", b.what, "address", (*b.place).Addr().String())
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

// warnOfUnnamed says that client certificates are asked for and name nobody.
func (d *daemon) warnOfUnnamed() {
	if d.cfg.TLSClientCA != "" && !d.guard.Asks() {
		d.log.Warn("client certificates name nobody: which may do what stands in the file of --access-file, and none is given", "tls_client_ca", d.cfg.TLSClientCA,
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
