package queue

import "container/heap"

// A bucket is in one state at a time, and only lane.move changes it. The lists
// of a lane are indexes by state.
//
//	         rows taken by the lane's cursor
//	┌────────────────────────────────────────────────────┐
//	│ idle ──row──▶ pending ──send──▶ in flight ──stored──▶ idle
//	│                ▲  ▲               │ │ │            │
//	│                │  └─────partly────┘ │ └──fails──┐  │
//	│                └──────────due───── backing off ◀┘  │
//	└─────────────────────────────────────┼──────────────┘
//	                                    stuck
//	         rows in the journal only     ▼
//	┌────────────────────────────────────────────────────┐
//	│ aside ─probe──▶ probing ──stored, partly──▶ joining │
//	│   ▲                │                          │     │
//	│   └──fails─────────┘                        walk    │
//	│   ▲                                           ▼     │
//	│   │                         ┌──stored──▶ catching up ──caught up──▶ idle
//	│   │                         │               │row    │
//	│   └──fails── catch-up in flight ◀──send── catch-up pending
//	└────────────────────────────────────────────────────┘
type state uint8

const (
	impossible      state = iota // no bucket is ever in it
	idle                         // has no rows, lacks none
	pending                      // has rows, in lane.pending
	inFlight                     // the lane's write has its rows
	backingOff                   // has rows, in lane.waiting until the next attempt
	aside                        // has no rows; in aside.waiting until it is probed
	probing                      // a probe has the rows of its oldest record
	joining                      // has no rows; in aside.joining until the next walk begins
	catchingUp                   // has no rows, is served by the walk
	catchUpPending               // has rows of the walk, in lane.pending
	catchUpInFlight              // the lane's write has its rows, which are the walk's
	states
)

var stateNames = [states]string{
	"impossible", "idle", "pending", "in flight", "backing off", "aside", "probing", "joining", "catching up", "catch-up pending", "catch-up in flight",
}

// String returns the name that the tables use.
func (s state) String() string { return stateNames[s] }

// lacks reports whether rows of the bucket are in the journal only, so that the
// lane's cursor must not give it newer ones.
func (s state) lacks() bool { return s >= aside }

// event is what moves a bucket from one state to the next.
type event uint8

const (
	row      event = iota // it got a row
	send                  // its rows go to the store
	probed                // its oldest record is read, to be tried
	stored                // all of them are stored
	partly                // some are stored, or something was learned; the rest can be sent at once
	fails                 // nothing is known to be stored: try again later
	stuck                 // the same, and the bucket is at fault, not the database
	due                   // its back-off is over
	walk                  // a walk begins to serve it
	caughtUp              // the walk is where the lane's cursor is
	events
)

var eventNames = [events]string{"row", "send", "probe", "stored", "partly", "fails", "stuck", "due", "walk", "caught up"}

// String returns the name that the tables use.
func (e event) String() string { return eventNames[e] }

// transitions lists every transition; the test has the same table in words.
//
//	                    row            send            probe    stored       partly          fails        stuck  due      walk         caught up
//	idle                pending
//	pending             pending        in flight
//	in flight                                                   idle         pending         backing off  aside
//	backing off         backing off                                                                              pending
//	aside                                              probing
//	probing             probing                                 joining      joining         aside        aside
//	joining                                                                                                               catching up
//	catching up         c-up pending                                                                                                   idle
//	catch-up pending    c-up pending   c-up in flight
//	catch-up in flight                                          catching up  c-up pending    aside        aside
var transitions = [states][events]state{
	idle:            {row: pending},
	pending:         {row: pending, send: inFlight},
	inFlight:        {stored: idle, partly: pending, fails: backingOff, stuck: aside},
	backingOff:      {row: backingOff, due: pending},
	aside:           {probed: probing},
	probing:         {row: probing, stored: joining, partly: joining, fails: aside, stuck: aside},
	joining:         {walk: catchingUp},
	catchingUp:      {row: catchUpPending, caughtUp: idle},
	catchUpPending:  {row: catchUpPending, send: catchUpInFlight},
	catchUpInFlight: {stored: catchingUp, partly: catchUpPending, fails: aside, stuck: aside},
}

// move takes a bucket to its next state and adds it to the list of that state. The
// caller removes it from the list of the previous one.
func (l *lane) move(b *bucket, e event) {
	was, to := b.state, transitions[b.state][e]
	if to == impossible {
		l.queue.metrics.impossible.Inc()
		l.queue.cfg.Logger.Error("a defect in Brim: an event that cannot occur in this state", "stream", l.stream, "state", was, "event", e)
		return
	}
	if to == was {
		return
	}
	b.state = to
	switch to {
	case pending, catchUpPending:
		l.pending = append(l.pending, b)
	case backingOff:
		heap.Push(&l.waiting, b)
	case aside:
		l.aside.waiting = append(l.aside.waiting, b)
	case joining:
		l.aside.joining = append(l.aside.joining, b)
	}
	switch {
	case to.lacks() && !was.lacks():
		l.beginsToLack(b)
	case was.lacks() && !to.lacks():
		l.lacksNothing(b)
	}
	if was.lacks() || to.lacks() {
		l.aside.stale = true
	}
}
