package ingest

import "time"

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
