// Package framing refuses HTTP/1 requests whose end can be told in two ways.
//
// A request with both Content-Length and Transfer-Encoding ends at one place for
// who goes by the one, and at another for who goes by the other. Where a proxy
// and a server differ, a sender can hide a request in the body of another one, past
// all that the proxy checks. RFC 9112, 6.1, has the server refuse such a request, or
// at least close the connection behind it. net/http does neither: it takes the
// Content-Length away before a handler sees the request. So the heads are looked
// at as they come.
//
//	connection ─▶ Listener: looks for such heads ─▶ net/http ─▶ Protect: 400, and close
package framing

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Protect makes a server refuse such requests on connections of a Listener, with
// what problem writes for an error. Over TLS, where nothing can stand between the
// connection and net/http, it closes each connection of HTTP/1 behind a request
// with Transfer-Encoding, so that nothing is taken for a next one.
func Protect(server *http.Server, problem func(http.ResponseWriter, error)) {
	next := server.Handler
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if watched, ok := c.(*conn); ok {
			return context.WithValue(ctx, key{}, watched)
		}
		return ctx
	}
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		watched, ok := r.Context().Value(key{}).(*conn)
		switch {
		case ok && watched.ambiguous.Load():
			w.Header().Set("Connection", "close")
			problem(w, telemetry.Errorf(telemetry.Invalid, "framing_ambiguous",
				"a request has both Content-Length and Transfer-Encoding, so that its end can be told in two ways; send one of them"))
			return
		case !ok && r.ProtoMajor == 1 && len(r.TransferEncoding) > 0:
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// key is that of a connection in the context of its requests.
type key struct{}

// Listener returns a listener for a protected server, which accepts from inner.
func Listener(inner net.Listener) net.Listener { return listener{inner} }

type listener struct{ net.Listener }

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c}, nil
}

// A conn looks at what is read from it.
type conn struct {
	net.Conn

	heads heads
	// ambiguous is set with the first such head, and stays: what stands behind it
	// is nobody's. A handler may ask while the next request is read.
	ambiguous atomic.Bool
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.heads.see(p[:n]) {
		c.ambiguous.Store(true)
	}
	return n, err
}

// The names of what tells a request's end.
const (
	nameLength   = "content-length:"
	nameEncoding = "transfer-encoding:"
)

// Heads look for both names in one run of lines without an empty one, as a head
// is. Where heads begin and bodies end they do not know: a body with such lines is
// taken for a head, and no readings are written so.
type heads struct {
	line  [len(nameEncoding)]byte // how the line at hand begins
	begun int                     // bytes of line

	length, encoding bool // seen since the last empty line
}

// see reports whether a head that ends in, or goes on behind, p has both.
func (h *heads) see(p []byte) (both bool) {
	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			h.begun += copy(h.line[h.begun:], p)
			return both
		}
		line := p[:i]
		if h.begun > 0 {
			h.begun += copy(h.line[h.begun:], line)
			line = h.line[:h.begun]
			h.begun = 0
		}
		h.seeLine(line)
		both = both || h.length && h.encoding
		p = p[i+1:]
	}
}

func (h *heads) seeLine(line []byte) {
	if len(line) == 0 {
		h.length, h.encoding = false, false
		return
	}
	switch line[0] {
	case '\r':
		if len(line) == 1 {
			h.length, h.encoding = false, false
		}
	case 'C', 'c':
		h.length = h.length || begins(line, nameLength)
	case 'T', 't':
		h.encoding = h.encoding || begins(line, nameEncoding)
	}
}

// begins reports whether a line begins with a name, in whatever case.
func begins(line []byte, name string) bool {
	return len(line) >= len(name) && bytes.EqualFold(line[:len(name)], []byte(name))
}
