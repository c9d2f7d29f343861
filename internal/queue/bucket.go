package queue

import (
	"container/heap"
	"container/list"
	"math"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A bucket is in one state at a time, and only lane.move changes it. The lists
// of a lane are indexes by state.
//
//	         rows come from the lane's cursor
//	┌────────────────────────────────────────────────────┐
//	│ idle ──row──▶ pending ──send──▶ in flight ──stored──▶ idle
//	│                ▲  ▲               │ │ │            │
//	│                │  └─────partly────┘ │ └──fails──┐  │
//	│                └──────────due───── backing off ◀┘  │
//	└─────────────────────────────────────┼──────────────┘
//	                                    stuck
//	         rows are in the journal only ▼
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
	pending                      // has rows, in lane.schedule
	inFlight                     // the lane's write has its rows
	backingOff                   // has rows, in lane.waiting until the next attempt
	aside                        // has no rows; in aside.waiting until it is probed
	probing                      // a probe has the rows of its oldest record
	joining                      // has no rows; in aside.joining until the next walk begins
	catchingUp                   // has no rows, is served by the walk
	catchUpPending               // has rows of the walk, in lane.schedule
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
	probed                // its oldest record was read, to be tried
	stored                // all of them are stored
	partly                // some are stored, or something was learned; the rest can be sent at once
	fails                 // nothing is known to be stored: try again later
	stuck                 // the same, and the bucket is at fault, not the database
	due                   // its back-off is over
	walk                  // a walk begins to serve it
	caughtUp              // the walk has reached the lane's cursor
	events
)

var eventNames = [events]string{"row", "send", "probe", "stored", "partly", "fails", "stuck", "due", "walk", "caught up"}

// String returns the name that the tables use.
func (e event) String() string { return eventNames[e] }

// transitions lists every transition; the test has the same table in words.
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
	case pending:
		l.schedule.add(b)
	case catchUpPending:
		l.schedule.hurry(b, byRetry, time.Now())
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

// bucketKey separates what must not be merged: the guard of a session covers only
// its own sequences, and readings of an earlier process stay in the windows that
// they were journaled for.
type bucketKey struct {
	sensor      string
	start       int64 // of the window, milliseconds since the epoch
	granularity time.Duration
	session     string
}

// bucket is what a lane remembers of a bucket. There are very many, so it is small: what
// matters only while its rows are written is in flight, and what matters only while its
// writes fail is in trouble.
type bucket struct {
	key bucketKey

	// The pending rows are, in this order: unpacked ones, packed ones, and those in rows.
	// A write takes the first of them. Unpacked rows are also in rows.
	unpacked *parcel // nil: none
	packed   chunk
	more     []chunk // in a bucket with very many rows
	rows     []batch.Ref
	packs    int     // number of packed rows
	before   *bucket // in lane.packed
	behind   *bucket // likewise

	store     any   // the store's State
	recovered bool  // as the rows came
	maySent   bool  // the rows may have been sent before
	state     state // changed by lane.move
	why       trigger
	since     time.Time     // when it began to gather; if it is idle, when it became idle
	due       int64         // when it was due to be stored, in ns since the epoch; 0: it is not due
	newest    int64         // time of its newest row that is not stored
	noted     time.Duration // arrival that was last reported, since the queue began
	series    *batch.Series // that Catalog saw last; nil if rows were packed since
	shape     *batch.Shape  // likewise
	lastSeq   uint64        // of the newest row ever added
	*trouble                // nil: its last write did not fail

	in           *fifo // of the schedule
	prev, next   *bucket
	newer, older *bucket // of the same sensor, see bucketOf
}

// trouble is what a lane remembers of a bucket whose writes fail.
type trouble struct {
	attempts  int       // failed writes in a row
	unsent    int       // writes in a row that never took place; they only count for the back-off
	hung      int       // writes in a row with the verdict batch.Hangs
	alone     int       // how many of attempts failed while other buckets were written
	failed    time.Time // when the last one did
	notBefore time.Time // of the next write

	// The rows that a bucket lacks are in the journal only, from this position on:
	// those whose sequences were dropped, in ascending order, and all after lastSeq.
	// Those in between are stored; a store may leave gaps.
	from    uint64
	lacks   uint64 // the lowest value of from since the bucket was set aside
	dropped []uint64
}

// inTrouble sets trouble if it is nil.
func (b *bucket) inTrouble() {
	if b.trouble == nil {
		b.trouble = &trouble{}
	}
}

// bucketBytes is the memory that a bucket takes in addition to its rows, with its entries
// in maps.
const bucketBytes = 512

// waits returns the number of pending rows.
func (b *bucket) waits() int { return b.packs + len(b.rows) }

// ready returns how many of them a write takes.
func (b *bucket) ready() int {
	if len(b.more) > 0 {
		return b.packed.Len()
	}
	return b.waits()
}

// contains reports whether a time lies in the bucket's window.
func (b *bucket) contains(ms int64) bool {
	return ms >= b.key.start && ms-b.key.start < b.key.granularity.Milliseconds()
}

// mayHaveSent notes that the next row may have been sent before. If there are rows,
// the store keeps its state: it has looked those up, or will, and may be searching
// for one that MongoDB refuses.
func (b *bucket) mayHaveSent() {
	b.maySent = true
	if b.waits() == 0 {
		b.store = nil
	}
}

// isMissing reports whether the bucket lacks the row with this sequence, the next
// one in the journal's order.
func (b *bucket) isMissing(seq uint64) bool {
	if seq > b.lastSeq {
		return true
	}
	if len(b.dropped) == 0 || b.dropped[0] != seq {
		return false
	}
	b.dropped = b.dropped[1:]
	return true
}

// waiting is a heap of buckets, the soonest first.
type waiting []*bucket

func (w waiting) Len() int           { return len(w) }
func (w waiting) Less(i, j int) bool { return w[i].notBefore.Before(w[j].notBefore) }
func (w waiting) Swap(i, j int)      { w[i], w[j] = w[j], w[i] }

// Push implements heap.Interface.
func (w *waiting) Push(x any) {
	if b, ok := x.(*bucket); ok {
		*w = append(*w, b)
	}
}

// Pop implements heap.Interface.
func (w *waiting) Pop() any {
	old := *w
	b := old[len(old)-1]
	old[len(old)-1] = nil
	*w = old[:len(old)-1]
	return b
}

// A parcel is what a lane holds of one record: the rows of its sensors, until the
// last of them is stored or packed. Rows that were unpacked for a write have one, too. It
// belongs to its lane's goroutine.
type parcel struct {
	lane        *lane
	view        batch.Batch   // what the rows refer to, with the parcel as tracker
	waits       batch.Tracker // of a request that waits for the rows; nil: none does
	position    uint64        // of the record
	arrived     time.Time     // when the record did, by the monotonic clock
	since       time.Time     // when its rows began to gather
	granularity time.Duration // of the windows that its rows belong to
	size        int64         // that the rows cost the lane's budget
	pins        int64         // bytes of the batch, which stays in memory as long as one row does
	left        int           // rows that are not stored

	// While a probe has the rows, those it stores are counted here, since the lane
	// keeps running meanwhile.
	away bool
	gone int

	list    *parcels // that it is in; nil: unpacked
	element *list.Element
	bucket  *bucket // whose rows were unpacked
}

// What a parcel costs besides its rows, and a row besides its batch: a reference in
// its bucket, with the spare capacity of a growing slice.
const (
	parcelBytes = 320
	refBytes    = 24
)

// keyOf returns the key of the bucket that a row of the parcel belongs to.
func (p *parcel) keyOf(series *batch.Series, row *batch.Row) bucketKey {
	return bucketKey{
		sensor: series.Sensor, start: row.Time - row.Time%p.granularity.Milliseconds(),
		granularity: p.granularity, session: p.view.Session,
	}
}

// pendingOf returns an empty Pending for a bucket.
func (l *lane) pendingOf(key bucketKey) batch.Pending {
	return batch.Pending{Stream: l.stream, Sensor: key.sensor, Start: key.start, Granularity: key.granularity, Session: key.session}
}

// Released implements batch.Tracker.
func (p *parcel) Released(n int) {
	if p.away {
		p.gone += n
		return
	}
	p.lane.queue.released.Add(uint64(n))
	if p.drop(n) {
		p.lane.queue.metrics.lag.Observe(time.Since(p.arrived).Seconds())
	}
	if p.waits != nil {
		p.waits.Released(n)
	}
}

// Refused implements batch.Tracker.
func (p *parcel) Refused(row *batch.Row, why *telemetry.Refusal) {
	if p.waits != nil {
		p.waits.Refused(row, why)
	}
}

// back notes that the probe that had the rows has ended.
func (p *parcel) back() {
	gone := p.gone
	p.away, p.gone = false, 0
	if gone > 0 {
		p.Released(gone)
	}
}

// drop takes n rows out; it reports whether they were the last.
func (p *parcel) drop(n int) bool {
	if p.left -= n; p.left > 0 {
		return false
	}
	if p.list == nil {
		p.lane.unpackedAreGone(p.bucket)
		return true
	}
	p.list.remove(p)
	return true
}

// parcelOf returns the parcel that a row came in.
func parcelOf(r batch.Ref) *parcel {
	p, _ := r.Batch.Tracker.(*parcel) // nothing else is in a lane
	return p
}

// parcels is a list in the order of positions, with the sums of what they cost.
type parcels struct {
	list.List
	bytes  int64
	pinned int64
}

// charge sets what a listed parcel costs.
func (l *parcels) charge(p *parcel, size, pins int64) {
	p.size, p.pins = size, pins
	l.bytes += size
	l.pinned += pins
}

// oldest returns the position of the first parcel.
func (l *parcels) oldest() uint64 {
	if first := l.Front(); first != nil {
		return first.Value.(*parcel).position
	}
	return math.MaxUint64
}

// insert puts p where its position belongs, searching from the end.
func (l *parcels) insert(p *parcel) {
	p.list = l
	at := l.Back()
	for at != nil && at.Value.(*parcel).position > p.position {
		at = at.Prev()
	}
	if at == nil {
		p.element = l.PushFront(p)
	} else {
		p.element = l.InsertAfter(p, at)
	}
}

func (l *parcels) remove(p *parcel) {
	l.bytes -= p.size
	l.pinned -= p.pins
	l.Remove(p.element)
}
