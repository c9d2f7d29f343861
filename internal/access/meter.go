package access

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// A connection may send this much that belongs to no request, such as frames of HTTP/2, before
// it is read at freeRate only. Otherwise a client without a token could keep the CPUs busy: net/http
// answers pings and settings as fast as they arrive, and a goroutine that always has something
// to read gives others the CPU only every 10 ms.
const (
	freeBytes = 512 << 10
	freeRate  = 16 << 10 // bytes a second
	// readCost is spent by each read in addition to its bytes. net/http reads each frame twice.
	readCost = 64
	// headBytes are free with each request: its headers, and frames about its answer.
	headBytes = 8 << 10
	// bodyFactor is how many times what is read from a body is free: there are also the heads of
	// frames, messages and TLS records, and bodies come in small pieces.
	bodyFactor = 6
)

// A meter is what a connection may still send that belongs to no request.
type meter struct {
	left   atomic.Int64
	filled time.Time // used by Read only
	slowed func()    // counts the connection
	closed chan struct{}
}

func (m *meter) begin(slowed func()) {
	m.left.Store(freeBytes)
	m.filled, m.slowed, m.closed = time.Now(), slowed, make(chan struct{})
}

// spend waits until a read of n bytes is free, or the connection is closed.
func (m *meter) spend(n int) {
	left := m.left.Add(-int64(n) - readCost)
	if left >= 0 {
		return
	}
	now := time.Now()
	free := int64(min(now.Sub(m.filled), freeBytes*time.Second/freeRate).Seconds() * freeRate)
	if left += free; left < 0 {
		m.slowed()
		wait := time.Duration(-left) * time.Second / freeRate
		select {
		case <-time.After(wait):
		case <-m.closed:
		}
		now, free = now.Add(wait), free-left
	}
	m.filled = now
	m.left.Add(free)
}

// give makes n more bytes free.
func (m *meter) give(n int64) {
	if m.left.Add(n) > freeBytes {
		m.left.Store(freeBytes)
	}
}

// Metered makes a server slow down connections from Limits.Listener that send much outside of
// requests. It must be called after the server's Handler is set.
func Metered(s *http.Server) *http.Server {
	s.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		for {
			switch c := conn.(type) {
			case *counted:
				return context.WithValue(ctx, meterKey{}, &c.meter)
			case interface{ NetConn() net.Conn }:
				conn = c.NetConn()
			default:
				return ctx
			}
		}
	}
	next := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m, ok := r.Context().Value(meterKey{}).(*meter); ok {
			m.give(headBytes)
			if r.ContentLength < 0 || r.ContentLength > headBytes/2 {
				r.Body = meteredBody{r.Body, m}
			}
		}
		next.ServeHTTP(w, r)
	})
	return s
}

type meterKey struct{}

// A meteredBody is the body of a request: what is read from it is free.
type meteredBody struct {
	io.ReadCloser

	meter *meter
}

// Read implements io.Reader.
func (b meteredBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.meter.give(bodyFactor * int64(n))
	return n, err
}
