package ingest

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Front stands between the network and net/http. Requests of a single reading
// in JSON come in such numbers that most of what they cost is the server's own
// work on their heads, so a front answers the simplest of them itself:
//
//	connection ─ Front ─┬─ a simple request, whole ─→ intake ─ Journal ─→ answer
//	                    └─ anything else ─→ Accept ─→ net/http ─→ Handler
//
// What is simple is told by simpleRequest, and nothing is guessed: with the
// first request that is not, the connection goes to net/http, with what was
// read of it, and stays there. So a sender that is slow, an encoding, a missing
// token, a pipeline, and nearly all that is wrong in a request, are as if there
// were no front.
//
// A front is the listener of the server that it was made for. Closing it ends
// its connections: at once those that wait for a request, the others when they
// have their answer; Door.Wait returns when all have ended.
type Front struct {
	door     *Door
	listener net.Listener
	others   chan accepted // what is net/http's
	closed   chan struct{}
	ctx      context.Context // of the requests

	first, idle time.Duration // waits for a request: the first, and those behind it; 0: any time
	write       time.Duration // from a request to its answer's end; 0: any time

	mu      sync.Mutex
	conns   map[net.Conn]struct{} // nil once closed
	closing sync.Once
}

// accepted is what Accept returns.
type accepted struct {
	conn net.Conn
	err  error
}

// closeTime is how long the last answer may take to be written once the front
// is closed.
const closeTime = time.Second

// Front returns a listener for server, which serves d's Handler. It accepts from
// l, which it closes, and has the server's context and patience.
func (d *Door) Front(l net.Listener, server *http.Server) *Front {
	f := &Front{
		door: d, listener: l, others: make(chan accepted), closed: make(chan struct{}), ctx: context.Background(),
		first: cmp.Or(server.ReadHeaderTimeout, server.ReadTimeout), idle: cmp.Or(server.IdleTimeout, server.ReadTimeout), write: server.WriteTimeout,
		conns: make(map[net.Conn]struct{}),
	}
	if server.BaseContext != nil {
		f.ctx = server.BaseContext(l)
	}
	d.readers.Go(f.accept)
	return f
}

// Addr implements net.Listener.
func (f *Front) Addr() net.Addr { return f.listener.Addr() }

// Accept implements net.Listener. It returns connections that are not, or no
// longer, the front's.
func (f *Front) Accept() (net.Conn, error) {
	select {
	case a := <-f.others:
		return a.conn, a.err
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (f *Front) Close() error {
	err := net.ErrClosed
	f.closing.Do(func() {
		close(f.closed)
		err = f.listener.Close()
		f.mu.Lock()
		defer f.mu.Unlock()
		now := time.Now()
		for conn := range f.conns { // a connection that is closed already cannot be held up
			_ = conn.SetReadDeadline(now)
			_ = conn.SetWriteDeadline(now.Add(closeTime))
		}
		f.conns = nil
	})
	return err
}

func (f *Front) isClosed() bool {
	select {
	case <-f.closed:
		return true
	default:
		return false
	}
}

// accept takes connections until the front is closed. After an error it waits
// until the server, which knows when to try again, has it.
func (f *Front) accept() {
	for {
		conn, err := f.listener.Accept()
		switch {
		case err != nil && !f.hand(accepted{err: err}), errors.Is(err, net.ErrClosed):
			return
		case err == nil && f.keep(conn):
			f.door.readers.Go(func() { f.serve(conn) })
		case err == nil:
			_ = conn.Close() // nothing was read from it
		}
	}
}

// hand gives the server something; false if it does not listen any more.
func (f *Front) hand(a accepted) bool {
	select {
	case f.others <- a:
		return true
	case <-f.closed:
		return false
	}
}

// keep notes a connection as the front's; false if the front is closed.
func (f *Front) keep(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conns == nil {
		return false
	}
	f.conns[conn] = struct{}{}
	return true
}

// drop undoes keep; false if the front is closed.
func (f *Front) drop(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, conn)
	return f.conns != nil
}

// serve answers the simple requests of a connection until it ends, or one comes
// that is not.
func (f *Front) serve(conn net.Conn) {
	c := &frontConn{Conn: conn, front: f}
	begun := c.serve()
	open := f.drop(conn)
	if begun != nil && open && conn.SetReadDeadline(time.Time{}) == nil && f.hand(accepted{conn: &begunConn{Conn: conn, begun: begun}}) {
		return
	}
	_ = conn.Close() // all that was taken has been answered
}

// A begunConn is a connection of which something was read.
type begunConn struct {
	net.Conn

	begun []byte // of what is to be read
}

// Read implements net.Conn.
func (c *begunConn) Read(p []byte) (int, error) {
	if len(c.begun) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.begun)
	if c.begun = c.begun[n:]; len(c.begun) == 0 {
		c.begun = nil
	}
	return n, nil
}

// A frontConn is a connection of the front.
type frontConn struct {
	net.Conn

	front  *Front
	answer frontAnswer
	until  time.Time // when waiting for a request ends
	unread time.Time // when waiting for an answer to be read ends
}

// simpleBytes is how long a simple request may be, head and body together.
const simpleBytes = 4 << 10

// serve returns what was read of the first request that is not simple; nil if
// the connection ended before there was one.
func (c *frontConn) serve() (begun []byte) {
	defer func() {
		if defect := recover(); defect != nil { // of one request, not of all
			c.front.door.logger.Error("request failed", "protocol", protoHTTP, "panic", defect)
			begun = nil
		}
	}()
	buf := make([]byte, simpleBytes)
	for wait := c.front.first; ; wait = c.front.idle {
		if !c.wait(wait) {
			return nil
		}
		n, err := c.Read(buf)
		if n == 0 && err != nil {
			return nil
		}
		request, ok := parseSimple(buf[:n])
		if !ok || !c.front.door.answers(&request) || err != nil {
			return buf[:n]
		}
		if !c.take(&request) {
			return nil
		}
	}
}

// wait says how long the next request may be waited for; 0: any time. A deadline
// is moved only when it is of use, for that costs as much as to decode a reading.
// It reports whether the front is open.
func (c *frontConn) wait(most time.Duration) bool {
	if most > 0 {
		now := time.Now()
		if c.front.write > 0 && c.unread.Sub(now) < c.front.write {
			// What is waited for lies between these two, for the deadline is seldom moved.
			c.unread = now.Add(2 * c.front.write)
			if c.SetWriteDeadline(c.unread) != nil {
				return false
			}
		}
		if left := c.until.Sub(now); left < most-most/8 || left > most {
			c.until = now.Add(most)
			if c.SetReadDeadline(c.until) != nil {
				return false
			}
		}
	} else if !c.until.IsZero() {
		c.until = time.Time{}
		if c.SetReadDeadline(c.until) != nil {
			return false
		}
	}
	return !c.front.isClosed() // behind the deadline, which may have replaced that of Close
}

// answers reports whether the front can answer such a request: who waits for
// MongoDB may go away meanwhile, which net/http notices, and a body that is too
// large, or from somebody who does not say who he is, is the Handler's to refuse.
// A token that nobody asked for is not looked at here.
func (d *Door) answers(r *simpleRequest) bool {
	if int64(len(r.body)) > d.config.MaxBodyBytes || (r.authorization != nil) != d.config.Guard.Asks() {
		return false
	}
	want := d.config.Ack
	if r.journaled {
		want = telemetry.Journaled
	}
	if want != telemetry.Journaled {
		return false
	}
	_, err := d.ackOrError(want)
	return err == nil
}

// take takes the readings of a request and writes the answer; false if the
// connection is of no more use.
func (c *frontConn) take(r *simpleRequest) bool {
	c.answer.reset()
	c.front.door.takeSimple(c.front.ctx, &c.answer, r)
	closing := c.front.isClosed()
	if closing && c.SetWriteDeadline(time.Now().Add(closeTime)) != nil {
		return false
	}
	_, err := c.Write(c.answer.message(closing))
	return err == nil && !closing
}

// takeSimple is what the Handler does with the body of a simple request.
func (d *Door) takeSimple(ctx context.Context, w http.ResponseWriter, r *simpleRequest) {
	x := d.newExchange(protoHTTP, w, nil)
	defer x.over()
	if err := x.takeSimple(ctx, r); err != nil {
		x.refuse(ctx, err)
	}
}

func (x *exchange) takeSimple(ctx context.Context, r *simpleRequest) error {
	if x.door.stopping.Load() {
		return errStopping()
	}
	who, err := x.door.identifyHeader(r.authorization)
	if err != nil {
		return err
	}
	stream, err := x.door.stream("")
	if err != nil {
		return err
	}
	in, b := &x.in, &x.body
	in.open(x.door, stream, telemetry.Journaled)
	in.who = who
	in.build()
	x.content.Reset(r.body)
	*b = body{plain: &x.content, pools: &x.door.pools, ctx: ctx, inflated: x.door.config.bodyInflation("")}
	err = in.decodeJSON(b, formJSON)
	b.close()
	if err != nil {
		return err
	}
	result, err := in.append(ctx)
	if err != nil {
		return err
	}
	x.answer(result, in)
	return nil
}
