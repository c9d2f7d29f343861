package ingest

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// gRPC holds messages in memory before it hands them on, as many as a client has
// calls, on as many connections as there are. So the door looks at what goes over
// each connection:
//
//	client ─▶ callConn ─ where does a message begin? ─▶ gRPC ─▶ handler
//	              │  room for it, of all connections' together
//	client ◀── callConn ◀─ which one is answered? ─────────┘
//
// Where there is no room, the connection is not read on. It ends when there is
// none for long, when a part of a message comes and the rest does not, or when
// answers are not read: whoever is at its other end is broken, or means no good.
type callRoom struct {
	budget  *budget
	wait    time.Duration // for a token; see nameless.go
	pace    pace
	limit   int64                    // of a message that is decoded
	inflate func(length int64) int64 // the most that a compressed message may become
	ended   map[ending]func()        // counts
	asks    bool                     // who makes a call; see nameless.go
}

func (d *Door) newRoom() *callRoom {
	messages := d.config.messageInflation()
	r := &callRoom{
		budget: d.budget, wait: longestWait, pace: d.wire.pace, limit: d.config.MaxBodyBytes,
		inflate: messages.limit, ended: make(map[ending]func()), asks: d.config.Guard.Asks(),
	}
	for _, why := range endings() {
		r.ended[why] = d.metrics.ended.WithLabelValues(string(why)).Inc
	}
	return r
}

// callBytes is what a message takes besides its own bytes.
const callBytes = 512

// An ending is why the door ended a connection of gRPC.
type ending string

const (
	endHalfOpen ending = "half_open"  // the rest of a message did not come
	endUnread   ending = "unread"     // answers were not read
	endNoRoom   ending = "no_room"    // others' messages hold all the memory there is for them
	endSlow     ending = "slow"       // a message came slowly while others waited for its memory
	endTooMany  ending = "many_calls" // calls were begun faster than they could be refused
	endNameless ending = "nameless"   // nobody showed a token, and wanted more than to ask for the health
)

func endings() []ending {
	return []ending{endHalfOpen, endUnread, endNoRoom, endSlow, endTooMany, endNameless}
}

var errEnded = errors.New("the daemon ended the connection")

// Credentials returns credentials for NewGRPCServer that are those of inner, and
// look at what goes over the connection behind them.
func (d *Door) Credentials(inner credentials.TransportCredentials) credentials.TransportCredentials {
	return callCredentials{inner, d.room}
}

type callCredentials struct {
	credentials.TransportCredentials

	room *callRoom
}

// ServerHandshake implements credentials.TransportCredentials.
func (c callCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	return newCallConn(conn, c.room), info, nil
}

// Clone implements credentials.TransportCredentials.
func (c callCredentials) Clone() credentials.TransportCredentials {
	return callCredentials{c.TransportCredentials.Clone(), c.room}
}

// A callConn is a connection of gRPC, seen from the server.
type callConn struct {
	net.Conn

	room   *callRoom
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc
	in     frameWalker   // of who reads
	out    frameWalker   // of who writes
	err    error         // of who reads: why there is no more
	slow   atomic.Bool   // others wait for the memory of a message that is coming in
	known  atomic.Bool   // somebody may make calls here
	named  bool          // of who reads: it was known, and nothing is owed
	told   chan struct{} // that a call has ended, or that somebody is known

	mu       sync.Mutex
	calls    map[uint32]*callState
	newest   uint32    // call that was begun
	inside   int       // calls of which a part of a message has come
	deadline time.Time // that was set here
	over     bool
}

// A callState is what is under way of one call.
type callState struct {
	in, out    messageWalker
	began      time.Time // of the message that comes
	came       int64     // of that
	coming     *incoming // that message; nil while nothing is reserved for it
	reserved   lease     // for that
	unanswered []lease   // for messages that have come whole
	owed       int64     // what is to be reserved once it is known who sends
}

func newCallConn(conn net.Conn, room *callRoom) *callConn {
	c := &callConn{Conn: conn, room: room, calls: make(map[uint32]*callState), told: make(chan struct{}, 1)}
	c.known.Store(!room.asks)
	c.named = !room.asks
	c.in.skip = prefaceBytes
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.expect()
	return c
}

// A callAddr is the address of a client, by which the connection of a call is
// found.
type callAddr struct {
	net.Addr

	conn *callConn
}

// RemoteAddr implements net.Conn.
func (c *callConn) RemoteAddr() net.Addr { return callAddr{c.Conn.RemoteAddr(), c} }

// connOf returns the connection of a call; nil if it is not one of these.
func connOf(ctx context.Context) *callConn {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(callAddr); ok {
			return a.conn
		}
	}
	return nil
}

// end ends the connection.
func (c *callConn) end(why ending) {
	c.mu.Lock()
	over := c.over
	c.mu.Unlock()
	if !over {
		c.room.ended[why]()
		_ = c.Close() // what it held is given back in any case
	}
}

// Close implements net.Conn.
func (c *callConn) Close() error {
	c.mu.Lock()
	c.over = true
	for stream := range c.calls {
		c.forget(stream)
	}
	c.calls = nil
	c.mu.Unlock()
	c.cancel()
	return c.Conn.Close()
}

// Read implements net.Conn.
func (c *callConn) Read(p []byte) (int, error) {
	for {
		if !c.named && !c.awaitName() {
			return 0, errEnded
		}
		c.renew()
		if c.slow.Load() {
			c.end(endSlow)
			return 0, errEnded
		}
		n, err := c.Conn.Read(p)
		if n > 0 {
			c.in.walk(p[:n], (*callsIn)(c))
			c.watch(time.Now())
		}
		if c.err != nil {
			c.end(endTooMany) // if it is not ended yet
			return 0, c.err
		}
		var late net.Error
		if n > 0 || err == nil || !errors.As(err, &late) || !late.Timeout() {
			return n, err
		}
		if c.slow.Load() {
			continue
		}
		now := time.Now()
		if !c.isOurs(now) {
			return 0, err
		}
		if !c.watch(now) {
			c.end(endHalfOpen)
			return 0, errEnded
		}
	}
}

// giveUp ends the connection, because others wait for the memory of one of its
// messages that comes in slowly. Any goroutine may call it.
func (c *callConn) giveUp() {
	c.slow.Store(true)
	_ = c.SetReadDeadline(time.Unix(1, 0)) // as in watch
}

// isOurs reports whether the deadline that is over now was set here, and not by
// gRPC, which gives a new connection a while for its greeting.
func (c *callConn) isOurs(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.deadline.IsZero() && !now.Before(c.deadline)
}

// renew sets the deadline once more while a message comes, for gRPC takes away
// that of a new connection, of which more may have come than its greeting.
func (c *callConn) renew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inside > 0 && !c.deadline.IsZero() {
		_ = c.SetReadDeadline(c.deadline) // as in watch
	}
}

// Write implements net.Conn.
func (c *callConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.out.walk(p[:n], (*callsOut)(c))
	}
	return n, err
}

// watch sets the deadline of what must come next. It reports whether none is
// over. A deadline that is too early is left: when it is over, there is another.
func (c *callConn) watch(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var first time.Time
	if c.inside > 0 {
		for _, call := range c.calls {
			// While messages wait to be answered, the next one may wait as well.
			if !call.in.inside() || len(call.unanswered) > 0 {
				continue
			}
			if until := c.room.pace.until(call.began, call.came); first.IsZero() || until.Before(first) {
				first = until
			}
		}
	}
	if !first.IsZero() && !now.Before(first) {
		return false
	}
	if early := !c.deadline.IsZero() && now.Before(c.deadline); early && (first.IsZero() || !first.Before(c.deadline)) {
		return true
	}
	if !first.Equal(c.deadline) {
		c.deadline = first
		_ = c.SetReadDeadline(first) // a connection that is closed needs none
	}
	return true
}

// reserve takes a lease for a message. The time that it waits does not count
// against the other messages on this connection. Since these hold leases and wait
// as well, it counts as a holder that waits for more.
func (c *callConn) reserve(bytes int64) (lease, bool) {
	l := lease{of: c.room.budget}
	if l.tryReach(bytes) {
		return l, true
	}
	waited := time.Now()
	l.other = c.parts()
	err := l.reach(c.ctx, bytes)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.calls {
		call.began = call.began.Add(time.Since(waited))
	}
	return l, err == nil
}

// parts returns how much the leases of incomplete messages hold.
func (c *callConn) parts() (held int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.calls {
		held += call.reserved.size
	}
	return held
}

// needs returns how much memory the message that has just begun may take; decoded,
// it counts like a body over HTTP. A message above the limit is refused before it
// is decoded.
func (r *callRoom) needs(m *messageWalker) int64 {
	n := m.length()
	inflated := n
	if m.compressed() {
		inflated = r.inflate(n)
		n += inflated
	}
	return min(wireCost*n+decodedCost*min(inflated, r.limit)+callBytes, r.budget.most())
}
