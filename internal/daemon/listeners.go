package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
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
