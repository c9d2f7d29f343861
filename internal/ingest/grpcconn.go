package ingest

import (
	"context"
	"encoding/binary"
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
	wait    time.Duration // for a token
	pace    pace
	limit   int64                    // of a message that is decoded
	inflate func(length int64) int64 // the most that a compressed message may become
	ended   map[ending]func()        // counts
	asks    bool                     // who makes a call
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
	endHalfOpen        ending = "half_open"       // the rest of a message did not come
	endUnread          ending = "unread"          // answers were not read
	endNoRoom          ending = "no_room"         // others' messages hold all the memory there is for them
	endSlow            ending = "slow"            // a message came slowly while others waited for its memory
	endTooMany         ending = "many_calls"      // calls were begun faster than they could be refused
	endUnauthenticated ending = "unauthenticated" // nobody showed a token, and wanted more than to ask for the health
)

func endings() []ending {
	return []ending{endHalfOpen, endUnread, endNoRoom, endSlow, endTooMany, endUnauthenticated}
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
		if !c.named && !c.awaitIdentity() {
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

// callsIn is a callConn as it sees what the client sends.
type callsIn callConn

// frame implements frameTaker.
func (i *callsIn) frame(kind, _ byte, stream uint32) {
	c := (*callConn)(i)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.over:
	case kind == frameReset:
		c.forget(stream)
	case kind == frameHeaders && stream > c.newest:
		c.newest = stream
		c.calls[stream] = &callState{}
		if len(c.calls) > 4*maxStreams && c.err == nil {
			c.err = errEnded
		}
	}
}

// data implements frameTaker.
func (i *callsIn) data(stream uint32, part []byte) {
	c := (*callConn)(i)
	for len(part) > 0 && c.err == nil {
		var needs int64
		if part, needs = c.message(stream, part); needs == 0 || c.owes(stream, needs) {
			continue
		}
		l, ok := c.reserve(needs)
		if !ok {
			c.err = errEnded
			c.end(endNoRoom)
			return
		}
		c.hold(stream, l, len(part))
	}
}

// message takes the part of a call's message that data begins with. It returns
// what is behind it, and what must be reserved before that is looked at.
func (c *callConn) message(stream uint32, data []byte) (rest []byte, needs int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call := c.calls[stream]
	if call == nil {
		return nil, 0
	}
	if !call.in.inside() {
		call.began, call.came = time.Now(), 0
		c.inside++
	}
	rest, began, ended := call.in.walk(data)
	call.came += int64(len(data) - len(rest))
	if call.coming != nil {
		call.coming.came.Store(call.came)
	}
	if began && call.in.left == 0 { // an empty one needs nothing
		call.in.have, ended = 0, true
	} else if began {
		needs = c.room.needs(&call.in)
	}
	if ended {
		c.inside--
		c.whole(call)
		call.unanswered = append(call.unanswered, call.reserved)
		call.reserved, call.owed = lease{}, 0
	}
	return rest, needs
}

// forget gives back what a call holds.
func (c *callConn) forget(stream uint32) {
	call := c.calls[stream]
	if call == nil {
		return
	}
	delete(c.calls, stream)
	c.tell()
	if call.in.inside() {
		c.inside--
	}
	c.whole(call)
	call.reserved.release()
	for i := range call.unanswered {
		call.unanswered[i].release()
	}
}

// whole notes that a call's message is complete, or no longer expected.
func (c *callConn) whole(call *callState) {
	if call.coming != nil {
		c.room.budget.gone(call.coming)
		call.coming = nil
	}
}

// callsOut is a callConn as it sees what the server sends, under its mutex.
type callsOut callConn

// frame implements frameTaker.
func (o *callsOut) frame(kind, flags byte, stream uint32) {
	if kind == frameReset || flags&flagEndStream != 0 && (kind == frameHeaders || kind == frameData) {
		(*callConn)(o).forget(stream)
	}
}

// data implements frameTaker.
func (o *callsOut) data(stream uint32, part []byte) {
	c := (*callConn)(o)
	call := c.calls[stream]
	for call != nil && len(part) > 0 {
		var began bool
		if part, began, _ = call.out.walk(part); !began {
			continue
		}
		if call.out.left == 0 {
			call.out.have = 0
		}
		if len(call.unanswered) == 0 {
			continue // of a service that answers without being asked
		}
		call.unanswered[0].release()
		if call.unanswered = call.unanswered[1:]; len(call.unanswered) == 0 && call.in.inside() {
			call.began, call.came = time.Now(), 0 // nothing of ours holds it up any more
			if until := c.room.pace.until(call.began, 0); c.deadline.IsZero() || until.Before(c.deadline) {
				c.deadline = until
				_ = c.SetReadDeadline(until) // as in watch
			}
		}
	}
}

// A frameWalker follows the frames of HTTP/2 that go over a connection in one
// direction, as far as it must to see where messages of gRPC begin and end. What
// is wrong with them is the business of the server of gRPC, which sees the same
// bytes.
type frameWalker struct {
	skip int // bytes of the preface, which a client sends first
	head [frameHead]byte
	have int // bytes of head

	left    int // bytes of the payload
	padding int // of these, how many at its end mean nothing
	padded  bool
}

const (
	frameHead    = 9
	prefaceBytes = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

	frameData    = 0
	frameHeaders = 1
	frameReset   = 3

	flagEndStream = 1
	flagPadded    = 8
)

// A frameTaker is told what a frameWalker meets.
type frameTaker interface {
	// frame is called for each frame when its head has come.
	frame(kind, flags byte, stream uint32)
	// data is called for the content of frames of data, part by part.
	data(stream uint32, part []byte)
}

func (w *frameWalker) stream() uint32 { return binary.BigEndian.Uint32(w.head[5:]) &^ (1 << 31) }

// walk takes the next bytes.
func (w *frameWalker) walk(p []byte, to frameTaker) {
	if n := min(w.skip, len(p)); n > 0 {
		w.skip -= n
		p = p[n:]
	}
	for len(p) > 0 {
		if w.have < frameHead {
			n := copy(w.head[w.have:], p)
			w.have += n
			p = p[n:]
			if w.have < frameHead {
				return
			}
			w.left = int(w.head[0])<<16 | int(w.head[1])<<8 | int(w.head[2])
			w.padding, w.padded = 0, w.head[3] == frameData && w.head[4]&flagPadded != 0
			to.frame(w.head[3], w.head[4], w.stream())
		}
		p = w.payload(p, to)
		if w.left == 0 {
			w.have = 0
		}
	}
}

// payload takes what is there of the payload, and returns what is behind it.
func (w *frameWalker) payload(p []byte, to frameTaker) (rest []byte) {
	if w.padded && w.left > 0 && len(p) > 0 {
		w.padding, w.padded = int(p[0]), false
		w.left--
		p = p[1:]
	}
	n := min(w.left, len(p))
	if content := min(n, w.left-w.padding); w.head[3] == frameData && content > 0 {
		to.data(w.stream(), p[:content])
	}
	w.left -= n
	return p[n:]
}

// messagePrefix is what stands in front of each message: a flag that says whether
// it is compressed, and its length.
const messagePrefix = 5

// A messageWalker follows the messages in the data of one stream.
type messageWalker struct {
	prefix [messagePrefix]byte
	have   int
	left   int64
}

// walk takes bytes of the data, and returns those behind the first message that
// begins or ends in them; began says that its length is known now, and ended that
// it is whole.
func (w *messageWalker) walk(p []byte) (rest []byte, began, ended bool) {
	if w.have < messagePrefix {
		n := copy(w.prefix[w.have:], p)
		w.have += n
		if w.have < messagePrefix {
			return nil, false, false
		}
		w.left = w.length()
		return p[n:], true, false
	}
	n := min(w.left, int64(len(p)))
	w.left -= n
	if w.left == 0 {
		w.have = 0
		return p[n:], false, true
	}
	return p[n:], false, false
}

func (w *messageWalker) length() int64    { return int64(binary.BigEndian.Uint32(w.prefix[1:])) }
func (w *messageWalker) compressed() bool { return w.prefix[0]&1 != 0 }

// inside reports whether a part of a message has come and another has not.
func (w *messageWalker) inside() bool { return w.have > 0 }

// Where callers are asked who they are, a connection is nobody's until the first
// call on it that may be made. All that is open to nobody is one small question,
// about the health. So nobody holds memory here: for a message no room is taken
// that others need, and reading waits when more than such a question is under way.
// The head of a call is with gRPC by then, so that who makes it is soon known.

// unauthenticatedCalls is how many calls nobody may have under way: probes have one.
const unauthenticatedCalls = 4

// unauthenticatedBytes is the longest message of nobody's that is waited for. The name of
// a service fits.
const unauthenticatedBytes = 4 << 10

// know says that somebody may make calls on the connection.
func (c *callConn) know() {
	if !c.known.Swap(true) {
		c.tell()
	}
}

// tell wakes who waits in awaitIdentity.
func (c *callConn) tell() {
	select {
	case c.told <- struct{}{}:
	default:
	}
}

// owes notes what a message needs that has begun on a connection of nobody's. It
// reports whether nothing is to be reserved now.
func (c *callConn) owes(stream uint32, needs int64) bool {
	if c.known.Load() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if call := c.calls[stream]; call != nil && (call.in.compressed() || call.in.length() > unauthenticatedBytes) {
		call.owed = needs
	}
	return true
}

// awaitIdentity waits, before more is read of a connection of nobody's, until that is
// allowed: somebody is known, or what was too much has been refused. It reports
// whether reading goes on; if not, the connection has ended.
func (c *callConn) awaitIdentity() bool {
	waited := time.Now()
	timer := time.NewTimer(c.room.wait)
	defer timer.Stop()
	for {
		known := c.known.Load()
		owed, much := c.owing(known)
		switch {
		case known:
			return c.settle(owed, waited)
		case !much:
			return true
		}
		select {
		case <-c.told:
		case <-c.ctx.Done():
			return false
		case <-timer.C:
			c.end(endUnauthenticated)
			return false
		}
	}
}

// owing returns what is to be reserved of each call, and whether more is under way
// than nobody may have. What is returned is not owed any more if it is known who
// sends.
func (c *callConn) owing(known bool) (owed map[uint32]int64, much bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for stream, call := range c.calls {
		if call.owed == 0 {
			continue
		}
		if owed == nil {
			owed = make(map[uint32]int64)
		}
		owed[stream] = call.owed
		if known {
			call.owed = 0
		}
	}
	return owed, len(owed) > 0 || len(c.calls) > unauthenticatedCalls
}

// settle reserves what was owed until somebody was known. Messages are not late
// for having waited with it.
func (c *callConn) settle(owed map[uint32]int64, since time.Time) bool {
	for stream, needs := range owed {
		l, ok := c.reserve(needs)
		if !ok {
			c.err = errEnded
			c.end(endNoRoom)
			return false
		}
		c.hold(stream, l, 0)
	}
	c.named = true
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.calls {
		if call.in.inside() {
			call.began = call.began.Add(time.Since(since))
		}
	}
	return true
}

// hold gives a call the lease of its message, of which this many bytes have
// arrived, unless the call has ended meanwhile.
func (c *callConn) hold(stream uint32, l lease, here int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call := c.calls[stream]
	if call == nil {
		l.release()
		return
	}
	call.reserved = l
	if call.in.left > int64(here) {
		call.coming = &incoming{size: l.size, since: time.Now(), end: c.giveUp}
		c.room.budget.comes(call.coming)
	}
}

// unauthenticatedTime is how long a connection may last on which nobody has made a call
// that he may make, as probes of the health that keep theirs do: they come again.
// Other connections end when no call has been open for idleTime.
const (
	unauthenticatedTime = 5 * time.Minute
	idleTime            = 15 * time.Minute
)

// expect ends the connection if it is a stranger's when that time is over.
func (c *callConn) expect() {
	timer := time.AfterFunc(unauthenticatedTime, func() {
		c.mu.Lock()
		unauthenticated := c.newest == 0 || !c.known.Load()
		c.mu.Unlock()
		if unauthenticated {
			c.end(endUnauthenticated)
		}
	})
	context.AfterFunc(c.ctx, func() { timer.Stop() })
}
