package ingest

import "time"

// Where callers are asked who they are, a connection is nobody's until the first
// call on it that may be made. All that is open to nobody is one small question,
// about the health. So nobody holds memory here: for a message no room is taken
// that others need, and reading waits when more than such a question is under way.
// The head of a call is with gRPC by then, so that who makes it is soon known.

// namelessCalls is how many calls nobody may have under way: probes have one.
const namelessCalls = 4

// namelessBytes is the longest message of nobody's that is waited for. The name of
// a service fits.
const namelessBytes = 4 << 10

// know says that somebody may make calls on the connection.
func (c *callConn) know() {
	if !c.known.Swap(true) {
		c.tell()
	}
}

// tell wakes who waits in awaitName.
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
	if call := c.calls[stream]; call != nil && (call.in.compressed() || call.in.length() > namelessBytes) {
		call.owed = needs
	}
	return true
}

// awaitName waits, before more is read of a connection of nobody's, until that is
// allowed: somebody is known, or what was too much has been refused. It reports
// whether reading goes on; if not, the connection has ended.
func (c *callConn) awaitName() bool {
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
			c.end(endNameless)
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
	return owed, len(owed) > 0 || len(c.calls) > namelessCalls
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
