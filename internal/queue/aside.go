package queue

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
)

// A bucket whose writes fail while others succeed is stuck: its document is
// refused, or locked. Rows for it would fill the lane and block the others. So it
// is set aside: its rows are dropped from memory, since they are in the journal,
// and it gets no newer ones. Now and then a probe reads its oldest record and
// tries to write it, alongside the lane's other work. Once that is stored, the
// bucket catches up, together with others, in one walk along the journal from the
// oldest row that they lack to the lane's position.
type asides struct {
	low     uint64    // before which no bucket lacks anything, except those of the walk
	stale   bool      // low must be computed again
	waiting []*bucket // in state aside, the longest first
	probe   *probe    // nil: none is under way
	probeAt time.Time // of the next one
	joining []*bucket // in state joining
	walkers []*bucket // that the current walk began with; some may be aside again
	cursor  batch.Cursor
}

// A probe is one write of the oldest records of some buckets.
type probe struct {
	buckets []*bucket
	parcels []*parcel     // one for each of them
	done    chan struct{} // closed when the verdicts are there
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

func (a *asides) close() {
	if a.cursor != nil {
		a.cursor.Close()
	}
}

// oldestLacked returns the position before which no bucket lacks anything.
func (l *lane) oldestLacked() uint64 {
	a := &l.aside
	if a.stale {
		a.low, a.stale = math.MaxUint64, false
		for b := range l.lacking {
			if b.state < catchingUp {
				a.low = min(a.low, b.from)
			}
		}
	}
	low := a.low
	if a.cursor != nil {
		low = min(low, a.cursor.Position())
	}
	if p := l.reread.first; p != nil {
		low = min(low, p.position)
	}
	return low
}

// isStuck decides whether a bucket whose write failed is at fault rather than the
// database: it goes on failing while others are written. In a full lane, where it
// blocks them, one such failure is enough.
func (l *lane) isStuck(b *bucket, full bool) bool {
	switch {
	case l.queue.cfg.Faults.Off(fault.SetAside):
		return false
	case b.share.Verdict == batch.Hangs:
		return true
	case b.share.Verdict == batch.Unsent:
		return false
	}
	return b.alone >= stuckAfter || full && b.alone > 0 && b.attempts >= stuckAfter
}

// drop removes the bucket's rows from memory; the journal has them.
func (l *lane) drop(b *bucket) {
	b.from = math.MaxUint64
	for _, r := range b.share.Rows {
		p := parcelOf(r)
		b.from = min(b.from, p.position)
		b.dropped = append(b.dropped, r.Seq())
		p.drop(1)
	}
	slices.Sort(b.dropped) // a store may have changed the order
	b.share.Rows = nil
}

// probeSome tries the buckets that have waited longest.
func (l *lane) probeSome(ctx context.Context, now time.Time) {
	a := &l.aside
	if a.probe != nil {
		select {
		case <-a.probe.done:
			l.endProbe(now)
		default:
			return
		}
	}
	if len(a.waiting) == 0 || now.Before(a.probeAt) {
		return
	}
	a.probeAt = now.Add(probePause)
	some := a.waiting[:min(probesAtOnce, len(a.waiting))]
	a.waiting = a.waiting[len(some):]
	p := &probe{done: make(chan struct{})}
	var shares []*batch.Share
	for _, b := range some {
		l.move(b, probed)
		switch {
		case !l.readOldest(b, now):
			l.move(b, fails)
		case len(b.share.Rows) == 0: // all of this record's rows were stored before
			l.move(b, stored)
		default:
			rows := parcelOf(b.share.Rows[0])
			rows.away = true
			p.buckets, p.parcels, shares = append(p.buckets, b), append(p.parcels, rows), append(shares, &b.share)
		}
	}
	if len(shares) == 0 {
		return
	}
	a.probe = p
	l.queue.running.Go(func() {
		l.cfg.Store.Write(ctx, shares)
		close(p.done)
		l.awake()
	})
}

// endProbe settles the outcome of a probe.
func (l *lane) endProbe(now time.Time) {
	p := l.aside.probe
	l.aside.probe = nil
	for i, b := range p.buckets {
		p.parcels[i].back()
		l.settle(b, now, false, false)
	}
}

// readOldest reads the oldest record that a bucket lacks.
func (l *lane) readOldest(b *bucket, now time.Time) bool {
	cursor := l.queue.cfg.Journal.Follow(b.from, l.part)
	defer cursor.Close()
	r, found, err := cursor.Next()
	if err != nil {
		l.unread(now, err)
	}
	if !found || err != nil {
		return false
	}
	l.serve(r, func(other *bucket) bool { return other == b })
	b.from, l.aside.stale = r.Next, true
	return true
}

// serve takes a record's rows for buckets that lack them. Some of them may have
// been sent before.
func (l *lane) serve(r batch.Record, wanted func(*bucket) bool) {
	l.take(r, &l.reread, func(p *parcel, r batch.Ref) bool {
		b := l.known(p, r.Row())
		if b == nil || !wanted(b) || !b.lacks(r.Seq()) {
			return false
		}
		b.mayHaveSent()
		l.add(b, p, r)
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
	switch {
	case a.cursor == nil && !l.beginWalk():
		return false
	case l.endWalk(): // they have all failed again
		return len(a.joining) > 0
	}
	for range stepRecords {
		if l.walkIsDone() {
			l.releaseWalkers()
			return l.endWalk() && len(a.joining) > 0
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
		if r.Position >= l.cursor.Position() { // the cursor skipped what is stored; this record is the lane's to take
			a.cursor.Close()
			a.cursor = l.queue.cfg.Journal.Follow(l.cursor.Position(), l.part)
			continue
		}
		l.serve(r, func(b *bucket) bool { return b.state == catchingUp || b.state == catchUpPending })
	}
	return true
}

func (l *lane) beginWalk() bool {
	a := &l.aside
	if len(a.joining) == 0 {
		return false
	}
	from := uint64(math.MaxUint64)
	for _, b := range a.joining {
		l.move(b, walk)
		from = min(from, b.from)
	}
	a.walkers, a.joining = a.joining, a.walkers[:0]
	a.cursor = l.queue.cfg.Journal.Follow(from, l.part)
	return true
}

// walkIsDone reports whether the walk is where the lane's cursor is.
func (l *lane) walkIsDone() bool {
	return l.aside.cursor != nil && l.aside.cursor.Position() >= l.cursor.Position()
}

// releaseWalkers releases the buckets that no longer lack anything. Those with
// rows of the walk still to be written follow once these are.
func (l *lane) releaseWalkers() {
	for _, b := range l.aside.walkers {
		if b.state == catchingUp {
			l.caughtUp(b)
		}
	}
}

// caughtUp takes a bucket back. The walk has served all that was dropped.
func (l *lane) caughtUp(b *bucket) {
	if len(b.dropped) > 0 {
		l.queue.metrics.impossible.Inc()
		l.queue.cfg.Logger.Error("a defect in Brim: the journal did not have rows that were left to it", "stream", l.stream, "rows", len(b.dropped), "first", b.dropped[0])
		b.dropped = nil
	}
	l.move(b, caughtUp)
}

// endWalk ends a walk that serves no bucket any more.
func (l *lane) endWalk() (ended bool) {
	a := &l.aside
	a.walkers = slices.DeleteFunc(a.walkers, func(b *bucket) bool { return b.state != catchingUp && b.state != catchUpPending })
	if len(a.walkers) > 0 {
		return false
	}
	a.cursor.Close()
	a.cursor, a.stale = nil, true
	return true
}
