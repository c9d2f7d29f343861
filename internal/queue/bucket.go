package queue

import (
	"container/heap"
	"container/list"
	"math"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A bucket is in one state at a time, and only lane.move changes it. A lane has lists of the
// buckets in some of the states.
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
	impossible      state = iota // no bucket is in it
	idle                         // has no rows, lacks none
	pending                      // has rows, in lane.schedule
	inFlight                     // has rows in the lane's write
	backingOff                   // has rows, in lane.waiting until the next attempt
	aside                        // has no rows; in aside.waiting until it is probed
	probing                      // a probe has the rows of its oldest record
	joining                      // has no rows; in aside.joining until the next walk begins
	catchingUp                   // has no rows, is served by the walk
	catchUpPending               // has rows of the walk, in lane.schedule
	catchUpInFlight              // has rows of the walk in the lane's write
	states
)

var stateNames = [states]string{
	"impossible", "idle", "pending", "in flight", "backing off", "aside", "probing", "joining", "catching up", "catch-up pending", "catch-up in flight",
}

// String returns the name that the tables use.
func (s state) String() string { return stateNames[s] }

// lacks reports whether rows of the bucket are only in the journal. Then newer rows must not be
// added from the lane's cursor.
func (s state) lacks() bool { return s >= aside }

// event is what moves a bucket from one state to the next.
type event uint8

const (
	row      event = iota // it got a row
	send                  // its rows go to the store
	probed                // its oldest record was read for a probe
	stored                // all its rows are stored
	partly                // some are stored, or the store learned something; the rest can be sent immediately
	fails                 // nothing is known to be stored: try again later
	stuck                 // likewise, because of the bucket, not the database
	due                   // its back-off is over
	walk                  // a walk begins to serve it
	caughtUp              // the walk has reached the lane's cursor
	events
)

var eventNames = [events]string{"row", "send", "probe", "stored", "partly", "fails", "stuck", "due", "walk", "caught up"}

// String returns the name that the tables use.
func (e event) String() string { return eventNames[e] }

// transitions lists every transition. The test has the same table as text.
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
		l.schedule.makeUrgent(b, byRetry, time.Now())
	case backingOff:
		heap.Push(&l.waiting, b)
	case aside:
		l.aside.waiting = append(l.aside.waiting, b)
	case joining:
		l.aside.joining = append(l.aside.joining, b)
	}
	switch {
	case to.lacks() && !was.lacks():
		l.startLacking(b)
	case was.lacks() && !to.lacks():
		l.stopLacking(b)
	}
	if was.lacks() || to.lacks() {
		l.aside.stale = true
	}
}

// bucketKey identifies rows that may be merged. The guard of a session covers only its own
// sequences, and readings of an earlier process stay in the windows for which they were
// journaled.
type bucketKey struct {
	sensor      string
	start       int64 // of the window, milliseconds since the epoch
	granularity time.Duration
	session     string
}

// bucket is the state of a bucket in a lane. There are very many, so it is small: the state of
// a write is in flight, and the state after failed writes is in failureState.
type bucket struct {
	key bucketKey

	// The pending rows are, in this order: unpacked ones, packed ones, and those in rows.
	// A write takes the first of them. Unpacked rows are also in rows.
	unpacked   *parcel // nil: none
	packed     chunk
	more       []chunk // in a bucket with very many rows
	rows       []batch.Ref
	packedRows int     // number of packed rows
	packedPrev *bucket // in lane.packed
	packedNext *bucket // likewise

	store         any   // the store's State
	recovered     bool  // see batch.Batch
	maySent       bool  // the rows may have been sent before
	state         state // changed by lane.move
	why           trigger
	since         time.Time     // when it began to gather; if it is idle, when it became idle
	due           int64         // when it was or will be due to be stored, in ns since the epoch; 0: it is not due
	newest        int64         // time of its newest row that is not stored
	noted         time.Duration // the last reported arrival, since the queue began
	series        *batch.Series // last one reported to Catalog; nil if rows were packed since
	shape         *batch.Shape  // likewise
	lastSeq       uint64        // of the newest row ever added
	*failureState               // nil: its last write did not fail

	in           *fifo // of the schedule
	prev, next   *bucket
	newer, older *bucket // of the same sensor, see bucketOf
}

// failureState is the state of a bucket after failed writes.
type failureState struct {
	attempts  int       // failed writes in a row
	unsent    int       // writes in a row that never took place; they only count for the back-off
	hung      int       // writes in a row with the verdict batch.Hangs
	alone     int       // how many of attempts failed while other buckets were written
	failed    time.Time // time of the last failure
	notBefore time.Time // of the next write

	// The rows that the bucket lacks are only in the journal, from this position on: those
	// with sequences in dropped, in ascending order, and all after lastSeq. Others are stored;
	// a store may leave gaps.
	from    uint64
	lacks   uint64 // the lowest value of from since the bucket was set aside
	dropped []uint64
}

// initFailureState sets failureState if it is nil.
func (b *bucket) initFailureState() {
	if b.failureState == nil {
		b.failureState = &failureState{}
	}
}

// bucketBytes is the memory that a bucket takes in addition to its rows, with its entries
// in maps.
const bucketBytes = 512

// pendingCount returns the number of pending rows.
func (b *bucket) pendingCount() int { return b.packedRows + len(b.rows) }

// ready returns how many of them a write takes.
func (b *bucket) ready() int {
	if len(b.more) > 0 {
		return b.packed.Len()
	}
	return b.pendingCount()
}

// contains reports whether a time lies in the bucket's window.
func (b *bucket) contains(ms int64) bool {
	return ms >= b.key.start && ms-b.key.start < b.key.granularity.Milliseconds()
}

// mayHaveSent notes that the next row may have been sent before. It resets the store's state,
// unless there are rows: the store has looked those up, or will, and may be searching for one
// that MongoDB refuses.
func (b *bucket) mayHaveSent() {
	b.maySent = true
	if b.pendingCount() == 0 {
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

// waiting is a heap of buckets by notBefore.
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

// A parcel has the rows of one record that are in a lane's memory, until the last of them is
// stored or packed. Rows that were unpacked for a write have a parcel, too. Only the lane's
// goroutine uses it.
type parcel struct {
	lane        *lane
	view        batch.Batch   // the batch of the rows, with the parcel as tracker
	waiter      batch.Tracker // of a request that waits for the rows; nil: none
	position    uint64        // of the record
	arrived     time.Time     // when the record did, by the monotonic clock
	since       time.Time     // when its rows began to gather
	granularity time.Duration // of the windows that its rows belong to
	size        int64         // cost of the rows in the lane's budget
	pins        int64         // size of the batch, which stays in memory as long as one row does
	left        int           // rows that are not stored

	// During a probe, the rows that it stores are counted here, since the lane keeps running.
	inProbe       bool
	probeReleased int

	list    *parcels // nil: the rows were unpacked
	element *list.Element
	bucket  *bucket // of unpacked rows
}

// The memory of a parcel without its rows, and of a row without its batch: a reference in its
// bucket, with the spare capacity of a growing slice.
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
	if p.inProbe {
		p.probeReleased += n
		return
	}
	p.lane.queue.released.Add(uint64(n))
	if p.drop(n) {
		p.lane.queue.metrics.lag.Observe(time.Since(p.arrived).Seconds())
	}
	if p.waiter != nil {
		p.waiter.Released(n)
	}
}

// Refused implements batch.Tracker.
func (p *parcel) Refused(row *batch.Row, why *telemetry.Refusal) {
	if p.waiter != nil {
		p.waiter.Refused(row, why)
	}
}

// probeEnded notes that the probe has ended.
func (p *parcel) probeEnded() {
	released := p.probeReleased
	p.inProbe, p.probeReleased = false, 0
	if released > 0 {
		p.Released(released)
	}
}

// drop removes n rows, and reports whether they were the last.
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

// parcels is a list in the order of positions, with the sums of sizes and pins.
type parcels struct {
	list.List
	bytes  int64
	pinned int64
}

// charge sets the cost of a listed parcel.
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

// insert inserts p in the order of positions, searching from the end.
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
