package queue

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
)

// A bucket is stuck if its writes fail while those of others succeed, for example because its
// document is refused or locked. Its rows would fill the lane and block other buckets. So it
// is set aside: its rows are dropped from memory, since they are in the journal, and it gets
// no newer ones. From time to time a probe reads its oldest record and tries to write it,
// concurrently with the lane's other work. When that is stored, the bucket catches up,
// together with others, in one walk along the journal from the oldest row that they lack to
// the lane's position.
type asides struct {
	low     uint64    // no bucket lacks anything before this position, except those of the walk
	stale   bool      // low must be computed again
	waiting []*bucket // in state aside, in the order in which they are probed
	probe   *probe    // nil: none is running
	probeAt time.Time // of the next one
	joining []*bucket // in state joining
	walkers []*bucket // buckets of the current walk; some may be aside again
	cursor  batch.Cursor
}

// A probe is one write of the oldest records of some buckets.
type probe struct {
	flights []*flight
	parcels []*parcel     // of each flight
	done    chan struct{} // closed when all flights have verdicts
}

const (
	// There may be many such buckets, and probing one reads the journal. So a lane probes a
	// few at a time and pauses, unless one of them was stored.
	probesAtOnce = 16
	probePause   = 200 * time.Millisecond
	// stuckAfter is how many writes in a row fail before the bucket is set aside. A race or a
	// failover causes fewer failures.
	stuckAfter = 4
	// stepRecords bounds how many records a walk reads before the lane does other work.
	stepRecords = 64
)

// startLacking notes that a bucket is set aside: its rows are in the journal from
// b.from on.
func (l *lane) startLacking(b *bucket) {
	b.initFailureState()
	l.lacking[b] = struct{}{}
	l.stuck.Add(1)
	b.lacks = b.from
}

// stopLacking notes that all the rows of a bucket are stored again.
func (l *lane) stopLacking(b *bucket) {
	delete(l.lacking, b)
	l.stuck.Add(-1)
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
	low := min(a.low, l.reread.oldest())
	if a.cursor != nil {
		low = min(low, a.cursor.Position())
	}
	return low
}

// isStuck decides whether the bucket is the cause of a failed write, rather than the database:
// it keeps failing while others are written. One such failure is enough if the lane is full,
// because then the bucket blocks others.
func (l *lane) isStuck(b *bucket, verdict batch.Verdict, full bool) bool {
	switch verdict {
	case batch.Hangs:
		return true
	case batch.Unsent:
		return false
	}
	return b.alone >= stuckAfter || full && b.alone > 0 && b.attempts >= stuckAfter
}

// drop removes the bucket's rows from memory; the journal has them.
func (l *lane) drop(b *bucket) {
	b.initFailureState()
	b.from = math.MaxUint64
	drop := func(position uint64, r batch.Ref) {
		b.from = min(b.from, position)
		b.dropped = append(b.dropped, r.Seq())
	}
	l.dropPacked(b, drop)
	for _, r := range b.rows {
		p := parcelOf(r)
		drop(p.position, r)
		p.drop(1)
	}
	slices.Sort(b.dropped) // a store may have changed the order
	b.rows = nil
}

// probeSome probes the buckets that have waited longest.
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
	var writes []*batch.Pending
	for _, b := range some {
		l.move(b, probed)
		switch {
		case !l.readOldest(b, now):
			l.move(b, fails)
		case len(b.rows) == 0: // all rows of this record were already stored
			l.move(b, stored)
		default:
			rows := parcelOf(b.rows[0])
			rows.inProbe = true
			f := l.beginWrite(b)
			p.flights, p.parcels, writes = append(p.flights, &f), append(p.parcels, rows), append(writes, &f.pending)
		}
	}
	if len(writes) == 0 {
		return
	}
	a.probe = p
	l.queue.running.Go(func() {
		l.cfg.Store.Write(ctx, writes)
		close(p.done)
		l.awake()
	})
}

// endProbe processes the verdicts of a probe.
func (l *lane) endProbe(now time.Time) {
	p := l.aside.probe
	l.aside.probe = nil
	for i, f := range p.flights {
		p.parcels[i].probeEnded()
		l.settle(f, now, false, false)
	}
}

// readOldest reads the oldest record that a bucket lacks.
func (l *lane) readOldest(b *bucket, now time.Time) bool {
	cursor := l.queue.cfg.Journal.Follow(b.from, l.part)
	r, found, err := cursor.Next()
	if err != nil {
		l.readFailed(now, err)
	}
	if !found || err != nil {
		return false
	}
	l.serve(r, func(other *bucket) bool { return other == b })
	b.from, l.aside.stale = r.Next, true
	return true
}

// serve adds a record's rows to buckets that lack them. Some may have been sent before.
func (l *lane) serve(r batch.Record, wanted func(*bucket) bool) {
	l.take(r, &l.reread, func(p *parcel, r batch.Ref) bool {
		b := l.bucketOf(p, r.Row(), false)
		if b == nil || !wanted(b) || l.isStored(p, p.view.Series(r.Row())) || !b.isMissing(r.Seq()) {
			return false
		}
		b.mayHaveSent()
		l.add(b, p, r)
		return true
	})
}

// catchUp continues the walk along the journal, and reports whether there is more to do
// immediately.
func (l *lane) catchUp(now time.Time) (busy bool) {
	a := &l.aside
	switch {
	case a.cursor == nil && !l.beginWalk():
		return false
	case l.endWalk(): // all its buckets have failed again
		return len(a.joining) > 0
	}
	for range stepRecords {
		if l.walkIsDone() {
			// Buckets with rows of the walk follow when those are written.
			for _, b := range a.walkers {
				if b.state == catchingUp {
					l.caughtUp(b)
					l.forgetSurplus(b)
				}
			}
			return l.endWalk() && len(a.joining) > 0
		}
		if !l.hasRoom() {
			return false
		}
		r, found, err := a.cursor.Next()
		if err != nil {
			l.readFailed(now, err)
		}
		if err != nil || !found {
			return false
		}
		if r.Position >= l.cursor.Position() { // a.cursor skipped stored records; this one is for the lane's cursor
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

// walkIsDone reports whether the walk has reached the lane's cursor.
func (l *lane) walkIsDone() bool {
	return l.aside.cursor != nil && l.aside.cursor.Position() >= l.cursor.Position()
}

// endWalk ends the walk if no bucket needs it any more.
func (l *lane) endWalk() (ended bool) {
	a := &l.aside
	a.walkers = slices.DeleteFunc(a.walkers, func(b *bucket) bool { return b.state != catchingUp && b.state != catchUpPending })
	if len(a.walkers) > 0 {
		return false
	}
	a.cursor, a.stale = nil, true
	return true
}

// caughtUp makes a bucket idle. The walk has delivered all dropped rows.
func (l *lane) caughtUp(b *bucket) {
	if len(b.dropped) > 0 {
		l.queue.metrics.impossible.Inc()
		l.queue.cfg.Logger.Error("a defect in Brim: the journal did not have rows that were left to it", "stream", l.stream, "rows", len(b.dropped), "first", b.dropped[0])
	}
	l.move(b, caughtUp)
	b.failureState = nil
}

// A lane that is full and writes nothing cannot tell whether MongoDB is down or its buckets
// are stuck: rows of other buckets would show that, but they are later in the journal, and the
// lane has no memory for them. So it looks ahead: it sends the oldest rows of a few other
// buckets without keeping them. If one is written, MongoDB is up, and buckets that then fail
// once more are set aside. Otherwise none is set aside, and all rows are written from memory
// when MongoDB is back. The lane's cursor later delivers these rows again, as rows that may
// have been sent before.
type ahead struct {
	cursor       batch.Cursor           // nil: nothing was read ahead since the lane last had room
	seen         map[bucketKey]struct{} // since the cursor began; only the first rows of a bucket may be sent
	at           time.Time              // of the next step
	pause        time.Duration          // before it
	reached      uint64                 // rows before this position may have been sent
	restartAt    time.Time              // when to read the journal again from the lane's position; zero: its end was not reached
	restartPause time.Duration          // from reaching the end to restartAt
}

const (
	// stalledAfter is how long a lane is full and writes nothing before it looks ahead. In
	// that time every bucket is retried a few times.
	stalledAfter = time.Second
	// readPause is the pause after a step that found nothing to try.
	readPause = 10 * time.Millisecond
	// maxSeen is how many buckets one look ahead may remember; after that it ends.
	maxSeen = 10_000
	// maxRestartPause is the maximum of ahead.restartPause.
	maxRestartPause = 30 * time.Second
)

func (a *ahead) close() {
	a.cursor, a.seen, a.pause, a.restartAt = nil, nil, 0, time.Time{}
}

// end notes that the end of the journal was reached. New records are tried as they arrive.
// Those that were tried before are tried again when the journal is read again, with twice the
// pause each time.
func (a *ahead) end(now time.Time) {
	if a.restartAt.IsZero() {
		a.restartPause = min(max(2*a.restartPause, maxBackoff), maxRestartPause)
		a.restartAt = now.Add(a.restartPause)
	}
}

// looksAheadAt returns when a full lane looks ahead, unless it writes something before.
func (l *lane) looksAheadAt() time.Time {
	stalled := l.full.Add(stalledAfter)
	for _, at := range []time.Time{l.wrote.Add(stalledAfter), l.ahead.at} {
		if at.After(stalled) {
			stalled = at
		}
	}
	return stalled
}

// lookAhead tries to write some buckets for which the lane has no memory.
func (l *lane) lookAhead(ctx context.Context, now time.Time) {
	a := &l.ahead
	switch {
	case l.hasRoom():
		l.full, a.restartPause = time.Time{}, 0
		a.close()
		return
	case l.full.IsZero():
		l.full = now
	}
	if now.Before(l.looksAheadAt()) {
		return
	}
	writes, more := l.others(now)
	if len(writes) == 0 {
		a.at = now.Add(readPause)
		if !more {
			a.at = now.Add(maxBackoff)
		}
		return
	}
	written, found := 0, 0
	for _, s := range writes {
		written += len(s.Rows)
	}
	l.mu.Unlock()
	l.cfg.Store.Write(ctx, writes)
	l.mu.Lock()
	for _, s := range writes {
		written -= len(s.Rows) + s.Found
		found += s.Found
	}
	now = time.Now()
	switch {
	case written > 0:
		a.pause, a.restartPause = 0, 0
		l.lastWrite.set(now)
		for _, b := range l.waiting { // if they fail again, they are stuck
			b.notBefore = now
		}
	case found > 0: // an earlier look ahead stored them: continue with later rows
		a.at = now.Add(readPause)
		return
	}
	a.pause = min(max(2*a.pause, probePause), maxBackoff)
	a.at = now.Add(a.pause)
}

// others reads ahead, and returns the first rows of idle buckets, which have no rows in memory
// and lack none. The lane does not keep these rows. more reports whether there is more to
// read.
func (l *lane) others(now time.Time) (writes []*batch.Pending, more bool) {
	a := &l.ahead
	if a.cursor == nil || a.cursor.Position() < l.cursor.Position() || !a.restartAt.IsZero() && !now.Before(a.restartAt) {
		a.close()
		a.cursor, a.seen = l.queue.cfg.Journal.Follow(l.cursor.Position(), l.part), make(map[bucketKey]struct{})
	}
	for range stepRecords {
		if len(writes) >= probesAtOnce {
			break
		}
		if len(a.seen) > maxSeen {
			a.end(now)
			return writes, false
		}
		r, found, err := a.cursor.Next()
		switch {
		case err != nil:
			l.readFailed(now, err)
			a.close() // from the beginning, next time
			return writes, false
		case !found:
			a.end(now)
			return writes, false
		}
		writes = append(writes, l.othersOf(r)...)
		a.reached = max(a.reached, r.Next)
	}
	return writes, true
}

// othersOf returns a record's rows of idle buckets.
func (l *lane) othersOf(r batch.Record) []*batch.Pending {
	if !l.own(r.Batch) {
		return nil
	}
	p := &parcel{lane: l, position: r.Position, view: r.Batch.View(nil), granularity: l.granularityOf(r.Batch)}
	found := make(map[bucketKey]*batch.Pending)
	var writes []*batch.Pending
	for i := range uint32(p.view.Len()) {
		row := p.view.Row(i)
		if !l.owned[p.view.SeriesNumber(row)] {
			continue
		}
		if l.isStored(p, p.view.Series(row)) {
			continue
		}
		key := p.keyOf(p.view.Series(row), row)
		s := found[key]
		if s == nil {
			_, seen := l.ahead.seen[key]
			l.ahead.seen[key] = struct{}{}
			if b := l.buckets[key]; seen || b != nil && b.state != idle {
				continue
			}
			one := l.pendingOf(key)
			one.Recovered = true
			s = &one
			found[key] = s
			writes = append(writes, s)
		}
		s.Rows = append(s.Rows, batch.Ref{Batch: &p.view, Index: i})
	}
	return writes
}
