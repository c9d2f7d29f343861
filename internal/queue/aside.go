package queue

import (
	"math"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
)

// A bucket whose writes fail while others succeed is stuck: its document is
// refused, or its collection. What comes for it would fill the lane and stop
// the others. So it is set aside: its rows are dropped from memory, for they
// are in the journal, and nothing newer is taken for it.
//
//	stuck ─▶ set aside ─▶ probe: its oldest record is read and tried ─┬─ fails ─▶ back off, probe again
//	                                                                  └─ stored ─▶ catch up with the lane's cursor
//
// Buckets that catch up are served together by one walk along the journal,
// from the oldest of what they lack to where the lane is.
type aside struct {
	buckets map[*bucket]struct{} // all that are set aside
	low     uint64               // before which none of them lacks anything
	stale   bool                 // low is to be found out again
	probing []*bucket            // wait for their next probe, the first the longest
	probeAt time.Time            // of the next probes
	joining []*bucket            // will be served by the next walk
	served  map[*bucket]struct{} // by the present walk
	cursor  batch.Cursor         // of the present walk; nil: there is none
}

const (
	// There may be very many such buckets, and each probe reads the journal. So a
	// lane makes a few at a time and pauses, unless one of them was stored.
	probesAtOnce = 16
	probePause   = 200 * time.Millisecond
	// stuckAfter is how often in a row a write fails before the bucket is set
	// aside, so that races and failovers do not do it.
	stuckAfter = 4
	// stepRecords bounds what a walk reads before the lane looks after its other
	// work.
	stepRecords = 64
)

func newAside() aside {
	return aside{buckets: make(map[*bucket]struct{}), served: make(map[*bucket]struct{}), low: math.MaxUint64}
}

func (a *aside) close() {
	if a.cursor != nil {
		a.cursor.Close()
	}
}

// oldest returns the position before which no bucket lacks anything.
func (a *aside) oldest() uint64 {
	if a.stale {
		a.low, a.stale = math.MaxUint64, false
		for b := range a.buckets {
			if _, served := a.served[b]; !served {
				a.low = min(a.low, b.from)
			}
		}
	}
	if a.cursor != nil {
		return min(a.low, a.cursor.Position())
	}
	return a.low
}

// join lets a bucket whose probe was stored catch up.
func (a *aside) join(b *bucket) {
	if _, already := a.served[b]; !already {
		a.joining = append(a.joining, b)
		a.probeAt = time.Time{} // what was in the others' way may be gone, too
	}
}

// isStuck decides whether the bucket is at fault rather than the database: it
// fails again and again while others are written, or what it holds leaves no
// room for any other.
func (l *lane) isStuck(b *bucket) bool {
	if l.queue.cfg.Faults.Off(fault.SetAside) {
		return false
	}
	if _, catchesUp := l.aside.served[b]; b.aside && !catchesUp {
		return true // a probe
	}
	return b.alone >= stuckAfter || b.attempts >= stuckAfter && !l.hasRoom() && 2*len(b.share.Rows) > l.load
}

// setAside drops the bucket's rows.
func (l *lane) setAside(b *bucket) {
	b.from = math.MaxUint64
	for _, r := range b.share.Rows {
		p := parcelOf(r)
		b.from = min(b.from, p.position)
		b.dropped = append(b.dropped, r.Seq())
		p.forget()
	}
	slices.Sort(b.dropped) // a store may have changed the order
	b.share.Rows = nil
	b.place = idle
	a := &l.aside
	delete(a.served, b)
	a.stale = true
	if !b.aside {
		b.aside = true
		a.buckets[b] = struct{}{}
		l.stuck.Add(1)
		l.queue.toldAside(l.stream, b)
	}
	a.probing = append(a.probing, b)
}

// probeSome tries the buckets that have waited longest.
func (l *lane) probeSome(now time.Time) {
	a := &l.aside
	if len(a.probing) == 0 || now.Before(a.probeAt) {
		return
	}
	a.probeAt = now.Add(probePause)
	for range min(probesAtOnce, len(a.probing)) {
		b := a.probing[0]
		a.probing[0] = nil
		a.probing = a.probing[1:]
		l.probe(b, now)
	}
}

// probe reads the oldest record that a bucket lacks, to be tried.
func (l *lane) probe(b *bucket, now time.Time) {
	cursor := l.queue.cfg.Journal.Follow(b.from, l.part)
	defer cursor.Close()
	r, found, err := cursor.Next()
	if err != nil {
		l.unread(now, err)
	}
	if !found || err != nil {
		l.aside.probing = append(l.aside.probing, b)
		return
	}
	l.serve(r, func(other *bucket) bool { return other == b })
	b.from, l.aside.stale = r.Next, true
	if len(b.share.Rows) == 0 { // all of this record's was stored before
		l.aside.join(b)
	}
	l.rush = true
}

// serve takes a record's rows for buckets that are set aside. Some of them may
// have been sent before.
func (l *lane) serve(r batch.Record, wanted func(*bucket) bool) {
	l.take(r, func(b *bucket, r batch.Ref) bool {
		if !wanted(b) || !b.lacks(r.Seq()) {
			return false
		}
		b.share.Recovered, b.share.State = true, nil
		l.add(b, r)
		return true
	})
}

// lacks reports whether the bucket is to have the row of this sequence, the
// next one in the journal's order.
func (b *bucket) lacks(seq uint64) bool {
	if seq > b.lastSeq {
		return true
	}
	if len(b.dropped) == 0 || b.dropped[0] != seq {
		return false
	}
	b.dropped = b.dropped[1:]
	return true
}

// catchUp goes on with the walk along the journal, and reports whether there is
// more to do at once.
func (l *lane) catchUp(now time.Time) (busy bool) {
	a := &l.aside
	if a.cursor == nil && !l.beginWalk() {
		return false
	}
	for range stepRecords {
		if a.cursor.Position() >= l.cursor.Position() {
			l.endWalk()
			return len(a.joining) > 0
		}
		if !l.hasRoom() {
			return false
		}
		r, found, err := a.cursor.Next()
		if err != nil {
			l.unread(now, err)
		}
		if err != nil || !found {
			return false
		}
		l.serve(r, func(b *bucket) bool {
			_, served := a.served[b]
			return served
		})
	}
	return true
}

func (l *lane) beginWalk() bool {
	a := &l.aside
	from := uint64(math.MaxUint64)
	for _, b := range a.joining {
		a.served[b] = struct{}{}
		from = min(from, b.from)
	}
	a.joining, a.stale = a.joining[:0], true
	if len(a.served) == 0 {
		return false
	}
	a.cursor = l.queue.cfg.Journal.Follow(from, l.part)
	return true
}

// endWalk takes the buckets back that lack nothing any more.
func (l *lane) endWalk() {
	a := &l.aside
	for b := range a.served {
		b.aside = false
		delete(a.buckets, b)
		l.stuck.Add(-1)
	}
	clear(a.served)
	a.cursor.Close()
	a.cursor, a.stale = nil, true
}
