package queue

import (
	"cmp"
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A lane merges the readings of some of a stream's sensors per bucket, and is the
// only one that writes these buckets.
type lane struct {
	queue  *Queue
	stream string
	part   batch.Part // of the stream's sensors
	cfg    Stream
	budget int64         // bytes of rows that it may hold
	wake   chan struct{} // holds at most one wake-up
	phase  time.Duration // differs for each lane, so that no two wake at one instant and their writes have an order

	applied atomic.Uint64          // everything of this lane before this position is stored
	flushTo atomic.Uint64          // a flush waits for everything before this position
	active  atomic.Int64           // buckets remembered
	stuck   atomic.Int64           // of those, the ones that lack rows
	held    atomic.Int64           // bytes of rows
	overdue atomic.Int64           // when the most overdue update was due, in ns; 0: none is late
	oldest  atomic.Int64           // when the oldest row in memory arrived, likewise
	wanted  atomic.Pointer[Policy] // the policy to use from the next turn on; nil: no change
	// knownUntil is the time until which Arrivals knows all arrivals, in ns, see KnownUntil.
	knownUntil atomic.Int64

	// The rest belongs to run, which holds mu except while it sleeps, writes or lets
	// queries in. So queries see a consistent state, see Waiting.
	mu         sync.Mutex
	cursor     batch.Cursor
	readAgain  time.Time             // after a failed read of the journal
	owned      []bool                // scratch: which series of a batch are this lane's
	parcels    parcels               // of records that the cursor read
	gathered   parcels               // of buckets, with rows copied from those
	reread     parcels               // of records read again for buckets that lack them
	buckets    map[bucketKey]*bucket // remembered, by key
	remembered int                   // buckets at most
	sensors    map[uint64]*bucket    // the latest bucket, by batch.SeriesHash; bucket.older links to the others
	lacking    map[*bucket]struct{}  // of buckets, those that lack rows
	schedule   schedule              // of buckets that are pending or catch-up pending
	waiting    waiting               // buckets that back off
	wrote      time.Time             // when rows of some bucket were last stored
	lastWrite  *lastWrite            // the last write of any lane of the stream
	full       time.Time             // since when it has no room for more; zero: it has
	flushedTo  uint64                // flushes up to here have been served
	swept      time.Time
	assessed   time.Time // when overdue was computed
	gatheredAt time.Time // when rows were last copied
	aside      asides
	ahead      ahead
}

const (
	// The back-off between attempts of one bucket is short, since most causes (a race,
	// a lagging majority) pass in milliseconds, and bounded, so that a database that
	// is back is used at once.
	minBackoff = 20 * time.Millisecond
	maxBackoff = 2 * time.Second

	// A bucket is forgotten when it was idle for this long, or at once if all lanes
	// remember very many: 50,000 of them, with their series, take some 75 MB. The
	// store finds out again what it knew.
	forgetAfter   = 2 * time.Minute
	maxRemembered = 50_000
	// keptRows is how much capacity for rows an idle bucket keeps.
	keptRows = 64

	// What is due within this fraction of the flush interval is written together.
	dueTogether = 8

	// A flush ends when its buckets or their rows reach these numbers, so that one
	// write of the store stays within a second of the server's work.
	maxFlushBuckets = 1000
	maxFlushRows    = 20_000
)

func newLane(q *Queue, stream string, number int, cfg Stream, last *lastWrite) *lane {
	all := len(q.cfg.Streams) * q.cfg.Lanes
	l := &lane{
		queue: q, stream: stream, part: batch.Part{Stream: stream, Number: uint64(number), Of: uint64(q.cfg.Lanes)}, cfg: cfg, wake: make(chan struct{}, 1),
		buckets: make(map[bucketKey]*bucket), sensors: make(map[uint64]*bucket), lacking: make(map[*bucket]struct{}),
		remembered: maxRemembered / all, budget: q.cfg.MaxBytes / int64(all), lastWrite: last,
		swept: time.Now(), aside: asides{stale: true}, schedule: newSchedule(cfg.Policy, q.cfg.Lanes),
	}
	return l
}

// follow makes the lane begin at a position of the journal.
func (l *lane) follow(from uint64) {
	l.knownUntil.Store(l.lastWrite.began.UnixNano())
	l.applied.Store(from)
	l.cursor = l.queue.cfg.Journal.Follow(from, l.part)
}

// requestFlush makes the lane write everything before the position.
func (l *lane) requestFlush(before uint64) {
	for {
		to := l.flushTo.Load()
		if before <= to || l.flushTo.CompareAndSwap(to, before) {
			break
		}
	}
	l.awake()
}

func (l *lane) awake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// startFlush makes the lane write its rows while it still has to read records that a flush
// waits for, and once more when it has read them all. Rows left in a bucket that cannot be
// written cause no flush.
func (l *lane) startFlush() {
	to := max(l.flushTo.Load(), l.queue.cfg.Journal.Hurried())
	if to <= l.flushedTo {
		return
	}
	if l.queue.cfg.Faults.Off(fault.FlushAll) {
		l.forgetRows()
	}
	l.schedule.hurryAll(byFlush, time.Now())
	if l.cursor.Position() >= to {
		l.flushedTo = to
	}
}

// forgetRows drops the rows of a gathering bucket, to sabotage a flush in a test.
func (l *lane) forgetRows() {
	if b := l.schedule.gathering.last; b != nil {
		b.leave()
		l.move(b, send)
		b.pending.Drop(len(b.pending.Rows))
		l.move(b, stored)
	}
}

// run is the lane's goroutine; ctx ends it, whatever it holds.
func (l *lane) run(ctx context.Context) {
	defer l.close()
	if l.cfg.Prepared != nil && !l.awaitStore(ctx) {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for ctx.Err() == nil {
		now := time.Now()
		if p := l.wanted.Swap(nil); p != nil {
			l.schedule.change(*p, l.queue.cfg.Lanes)
		}
		if l.schedule.waiting() == 0 {
			l.schedule.pace.rest(now)
		}
		l.read(now)
		l.probeSome(ctx, now)
		busy := l.catchUp(now)
		l.resume(now)
		l.lookAhead(ctx, now)
		l.gather(now)
		l.sweep(now)
		l.startFlush()
		l.report(now)
		wait := l.untilDue(now)
		switch {
		case wait <= 0:
			l.flush(ctx, now)
		case !busy:
			l.sleep(ctx, timer, wait)
		}
	}
}

// awaitStore returns true when the store can be written to. Readings that arrive before
// count as late.
func (l *lane) awaitStore(ctx context.Context) bool {
	select {
	case <-l.cfg.Prepared:
		return true
	case <-ctx.Done():
		return false
	case <-l.queue.cfg.Journal.Grown(l.cursor.Position()):
	}
	l.overdue.Store(nanosOf(time.Now()))
	select {
	case <-l.cfg.Prepared:
		return true
	case <-ctx.Done():
		return false
	}
}

// sleep waits for a record to read, if there is room for it, at most for d.
func (l *lane) sleep(ctx context.Context, timer *time.Timer, d time.Duration) {
	var grown <-chan struct{}
	if l.hasRoom() && l.readAgain.IsZero() {
		grown = l.queue.cfg.Journal.Grown(l.cursor.Position())
	}
	timer.Reset(d + l.phase)
	// Without room for more the lane does not know what comes meanwhile.
	if l.hasRoom() && l.readAgain.IsZero() {
		l.knownUntil.Store(asleep)
	}
	l.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-grown:
	case <-l.wake:
	case <-timer.C:
	}
	l.mu.Lock()
	if l.knownUntil.Load() == asleep { // a record may have arrived
		l.knownUntil.Store(time.Now().UnixNano())
	}
}

// asleep stands for now: until the lane wakes, Arrivals knows all arrivals.
const asleep = 0

func (l *lane) close() {
	if p := l.aside.probe; p != nil {
		<-p.done
		l.mu.Lock()
		defer l.mu.Unlock()
		l.endProbe(time.Now())
		l.report(time.Now())
	}
}

// resume takes back the buckets whose back-off is over.
func (l *lane) resume(now time.Time) {
	for len(l.waiting) > 0 && !l.waiting[0].notBefore.After(now) {
		b, _ := heap.Pop(&l.waiting).(*bucket)
		l.move(b, due)
		l.schedule.hurry(b, byRetry, now)
	}
}

// untilDue returns how long the lane may sleep, 0 or less if it is to write.
func (l *lane) untilDue(now time.Time) time.Duration {
	wait := forgetAfter
	if len(l.waiting) > 0 {
		wait = min(wait, l.waiting[0].notBefore.Sub(now))
	}
	if !l.readAgain.IsZero() {
		wait = min(wait, l.readAgain.Sub(now))
	}
	if len(l.aside.waiting) > 0 && l.aside.probe == nil {
		wait = min(wait, max(l.aside.probeAt.Sub(now), time.Millisecond))
	}
	if !l.full.IsZero() {
		wait = min(wait, max(l.looksAheadAt().Sub(now), time.Millisecond))
	}
	return min(max(wait, time.Millisecond), l.schedule.untilDue(now, l.short()))
}

// short returns byMemory or byJournal if all buckets must be sent, however few readings
// they have; else byNothing.
func (l *lane) short() trigger {
	switch {
	case !l.hasRoom():
		return byMemory
	case l.queue.cfg.Journal.Short():
		return byJournal
	}
	return byNothing
}

// longest returns the longest time that readings of the stream may gather now.
func (l *lane) longest() time.Duration {
	most := l.schedule.policy.Max
	if l.cfg.Granularity > 0 {
		most = min(most, l.cfg.Granularity)
	}
	if l.queue.cfg.LimitAge != nil {
		if limit := l.queue.cfg.LimitAge(); limit > 0 {
			most = min(most, limit)
		}
	}
	return most
}

// hasRoom reports whether the lane may hold more. If all lanes hold the same
// batches, each is charged its part; a lane with few rows of many batches
// that the others are done with is the one that keeps them in memory. A record is
// taken as a whole, so the last one may exceed the budget.
func (l *lane) hasRoom() bool {
	held := l.parcels.bytes + l.gathered.bytes + l.reread.bytes + int64(l.schedule.waiting())*bucketBytes
	return held < l.budget && l.parcels.pinned+l.reread.pinned < l.queue.cfg.MaxBytes
}

// read takes the records that have come, as many as there is room for.
func (l *lane) read(now time.Time) {
	if now.Before(l.readAgain) {
		return
	}
	l.readAgain = time.Time{}
	for l.hasRoom() {
		l.mu.Unlock() // for queries
		l.mu.Lock()
		r, found, err := l.cursor.Next()
		if err != nil {
			l.readFailed(now, err)
			return
		}
		if !found {
			return
		}
		l.take(r, &l.parcels, l.takeNew)
	}
}

// readFailed postpones the next read of the journal.
func (l *lane) readFailed(now time.Time, err error) {
	l.readAgain = now.Add(time.Second)
	l.queue.metrics.readErrors.Inc()
	l.queue.cfg.Logger.Error("read the journal", "stream", l.stream, "position", l.cursor.Position(), "err", err)
}

// take calls give with the record's rows of this lane's sensors, and adds a parcel of
// those that it keeps to the list.
func (l *lane) take(r batch.Record, list *parcels, give func(p *parcel, r batch.Ref) (keep bool)) {
	b := r.Batch
	if !l.own(b) {
		return
	}
	p := &parcel{lane: l, position: r.Position, waits: b.Tracker, left: 1} // one more, until it is complete
	p.view = b.View(p)
	// By the monotonic clock. For a batch of an earlier process the wall clock tells
	// how long ago it arrived; if the clock was set back since, that counts as now.
	now := time.Now()
	p.arrived = now.Add(-max(0, now.Sub(b.Received)))
	p.since = p.arrived
	if b.Recovered { // their time starts again, or a restart would write everything at once
		p.since = now
	}
	p.granularity = l.granularityOf(b)
	list.insert(p)
	for i := range uint32(p.view.Len()) {
		if !l.owned[p.view.SeriesNumber(p.view.Row(i))] {
			continue
		}
		if give(p, batch.Ref{Batch: &p.view, Index: i}) {
			p.left++
		}
	}
	rows := int64(p.left - 1)
	whole := b.MemorySize()
	list.charge(p, parcelBytes+rows*refBytes+whole*rows/int64(p.view.Len()), whole)
	p.drop(1)
}

// granularityOf returns the granularity of the windows that a batch's rows belong to.
func (l *lane) granularityOf(b *batch.Batch) time.Duration {
	return cmp.Or(b.Granularity(l.stream), l.cfg.Granularity)
}

// own notes which series of the batch belong to this lane, and reports whether any
// does.
func (l *lane) own(b *batch.Batch) bool {
	l.owned = l.owned[:0]
	some := false
	for i := range b.SeriesLen() {
		own := l.part.Has(b.HashAt(i)) && b.SeriesAt(i).Stream == l.part.Stream
		l.owned = append(l.owned, own)
		some = some || own
	}
	return some
}

// takeNew gives a row that comes for the first time to its bucket.
func (l *lane) takeNew(p *parcel, r batch.Ref) bool {
	b := l.bucketOf(p, r.Row(), true)
	l.noteArrival(b, p)
	switch {
	case b.state.lacks(): // the row stays in the journal
		b.newest = max(b.newest, r.Row().Time)
		return false
	case r.Seq() <= b.lastSeq:
		l.outOfOrder(b, r)
		return false
	}
	if p.position < l.ahead.reached {
		b.mayHaveSent()
	}
	l.add(b, p, r)
	return true
}

func (l *lane) add(b *bucket, p *parcel, r batch.Ref) {
	switch {
	case len(b.pending.Rows) == 0:
		b.since, b.newest = p.since, r.Row().Time
	case l.queue.cfg.Faults.Off(fault.Age):
		b.since = p.since
	}
	b.newest = max(b.newest, r.Row().Time)
	b.lastSeq = max(b.lastSeq, r.Seq())
	b.pending.Rows = append(b.pending.Rows, r)
	if b.state == pending {
		l.schedule.grew(b)
	} else {
		l.move(b, row)
	}
	if p.waits != nil && b.state == pending {
		l.schedule.hurry(b, byRequest, p.arrived)
	}
}

// outOfOrder refuses a reading that the guard would take for one that is stored. It
// cannot happen while sequence and position are drawn together. A reading that was
// acknowledged becomes a dead letter.
func (l *lane) outOfOrder(b *bucket, r batch.Ref) {
	l.queue.metrics.outOfOrder.Inc()
	l.queue.cfg.Logger.Error("refuse a reading whose sequence does not rise", "stream", l.stream, "sequence", r.Seq(), "last", b.lastSeq)
	reason := fmt.Errorf("a defect in Brim: sequence %d came after %d", r.Seq(), b.lastSeq)
	if err := l.queue.cfg.DeadLetters.Put(l.letter(r, reason)); err != nil {
		l.queue.cfg.Logger.Error("write a dead letter", "err", err)
	}
	p := parcelOf(r)
	p.Refused(r.Row(), telemetry.Refuse(telemetry.StoreRefused, "the reading was not stored because of a defect in Brim; send it again"))
	// The parcel stays until it is complete, since it counts one row more.
	p.left++
	p.Released(1)
}

// bucketOf returns the bucket of a row. If there is none, it returns nil or creates one.
//
// Usually a sensor is in the same window as before, so its latest bucket is compared
// first: hashing a sensor id of hundreds of bytes would cost more than the rest of the
// lane's work.
func (l *lane) bucketOf(p *parcel, row *batch.Row, create bool) *bucket {
	series := p.view.Series(row)
	latest := l.sensors[series.Hash]
	if latest != nil && latest.contains(row.Time) && latest.key.granularity == p.granularity && latest.key.session == p.view.Session && latest.key.sensor == series.Sensor {
		return latest
	}
	key := p.keyOf(series, row)
	b := l.buckets[key]
	switch {
	case b == nil && !create:
		return nil
	case b == nil:
		l.makeRoom()
		b = &bucket{key: key, state: idle, pending: p.pendingOf(key), recovered: p.view.Recovered}
		l.buckets[key] = b
		l.active.Add(1)
	default:
		l.unlink(b, series.Hash)
	}
	if b.older = l.sensors[series.Hash]; b.older != nil {
		b.older.newer = b
	}
	l.sensors[series.Hash] = b
	return b
}

// unlink removes a bucket from the list of its sensor's buckets.
func (l *lane) unlink(b *bucket, hash uint64) {
	switch {
	case b.newer != nil:
		b.newer.older = b.older
	case b.older != nil:
		l.sensors[hash] = b.older
	default:
		delete(l.sensors, hash)
	}
	if b.older != nil {
		b.older.newer = b.newer
	}
	b.newer, b.older = nil, nil
}

// makeRoom forgets an idle bucket if the lane remembers too many: one of a few that
// the map yields at random.
func (l *lane) makeRoom() {
	if len(l.buckets) < l.remembered {
		return
	}
	tries := 8
	for _, b := range l.buckets {
		if b.state == idle {
			l.forget(b)
			return
		}
		if tries--; tries == 0 {
			return
		}
	}
}

// sweep forgets buckets that were idle for long.
func (l *lane) sweep(now time.Time) {
	if now.Sub(l.swept) < forgetAfter/2 {
		return
	}
	l.swept = now
	for _, b := range l.buckets {
		if b.state == idle && now.Sub(b.notBefore) > forgetAfter {
			l.forget(b)
		}
	}
}

func (l *lane) forget(b *bucket) {
	delete(l.buckets, b.key)
	l.unlink(b, batch.SeriesHash(l.stream, b.key.sensor))
	l.active.Add(-1)
}

// flush writes what the schedule chooses.
func (l *lane) flush(ctx context.Context, now time.Time) {
	full := !l.hasRoom()
	flushed := l.schedule.choose(now, l.short(), l.longest())
	if len(flushed) == 0 {
		return
	}
	waited := false
	var sent [triggers]struct{ updates, readings int }
	writes := make([]*batch.Pending, len(flushed))
	for i, b := range flushed {
		waited = waited || b.why == byRequest || b.why == byFlush || b.why == byMemory
		writes[i] = &b.pending
		b.isDue(now)
		b.sending()
		sent[b.why].updates++
		sent[b.why].readings += b.sent
		l.move(b, send)
	}
	for why, n := range sent {
		if n.updates > 0 {
			l.queue.metrics.sent(l.stream, trigger(why), n.updates, n.readings)
		}
	}
	if due := l.overdue.Load(); due == 0 || now.UnixNano() < due {
		l.overdue.Store(now.UnixNano()) // if the write hangs
	}
	l.assessed = time.Time{}
	write := func() {
		begin := time.Now()
		l.cfg.Store.Write(ctx, writes)
		l.schedule.pace.wrote(begin, time.Now())
	}
	l.mu.Unlock()
	if waited {
		write()
	} else {
		l.queue.inTurn(ctx, write)
	}
	l.mu.Lock()
	now = time.Now()
	lastStored := 0 // a store that gives up stores none behind the one that failed
	updates, rows := 0, 0
	for i, b := range flushed {
		b.landed()
		if !b.wrote() {
			continue
		}
		updates++
		rows += b.sent - len(b.pending.Rows)
		if b.pending.Verdict == batch.Stored {
			lastStored = i
		}
	}
	l.schedule.spend(updates, rows)
	for i, b := range flushed {
		l.settle(b, now, i < lastStored, full)
	}
}

// sending notes how many rows a write has.
func (b *bucket) sending() {
	b.sent, b.pending.Found = len(b.pending.Rows), 0
	b.flight = b.pending.Rows
}

// landed ends a write: it keeps only the rows that the write left.
func (b *bucket) landed() {
	b.pending.Rows = append([]batch.Ref(nil), b.pending.Rows...) // they may be the end of the same array
	clear(b.flight)
	if len(b.pending.Rows) == 0 && cap(b.flight) <= keptRows {
		b.pending.Rows = b.flight[:0]
	}
	b.flight = nil
}

// wrote reports whether the last write stored rows, beside those that it found
// stored.
func (b *bucket) wrote() bool { return b.sent-len(b.pending.Rows) > b.pending.Found }

// noteArrival reports a row to the stream's Arrivals, unless a row of the same bucket that
// arrived less than noteAgain earlier was reported.
func (l *lane) noteArrival(b *bucket, p *parcel) {
	if l.cfg.Arrivals != nil && p.arrived.Sub(b.noted) >= noteAgain {
		b.noted = p.arrived
		l.cfg.Arrivals.Came(b.key.sensor, p.view.Received)
	}
}

// noteAgain is the least time between two reported arrivals of a bucket. There may be
// hundreds of thousands of readings a second, and arrivals are counted in seconds.
const noteAgain = time.Second

// settle acts on the verdict of a write. others means that the same write stored a later
// bucket, full that the lane had no room for more when the write began.
func (l *lane) settle(b *bucket, now time.Time, others, full bool) {
	wrote := b.wrote()
	verdict := b.pending.Verdict
	if verdict == batch.Poison && len(b.pending.Rows) > 0 {
		if err := l.bury(b); err != nil {
			b.pending.Err = err
			verdict = batch.Wait
		}
	}
	if verdict == batch.Wait && l.queue.cfg.Faults.Off(fault.Retry) {
		b.pending.Drop(len(b.pending.Rows))
	}
	switch {
	case len(b.pending.Rows) == 0:
		l.succeeded(b, now, wrote)
		b.notBefore, b.due, b.gathered = now, time.Time{}, nil
		l.move(b, stored)
		if b.state == catchingUp && l.walkIsDone() {
			l.caughtUp(b)
		}
		if b.state == idle {
			b.pending.Recovered = b.recovered
			if len(l.buckets) > l.remembered {
				l.forget(b)
			}
		}
	case verdict == batch.Wait || verdict == batch.Hangs:
		l.failed(b, now, others)
		l.backOff(b, now, full)
	case verdict == batch.Unsent:
		b.unsent++
		l.backOff(b, now, full)
	default:
		l.succeeded(b, now, wrote)
		if b.state == probing { // the walk will deliver the rest
			l.drop(b)
		} else {
			b.since = parcelOf(b.pending.Rows[0]).since
		}
		l.move(b, partly)
		if b.state == pending {
			l.schedule.hurry(b, byRetry, now)
		}
	}
}

func (l *lane) succeeded(b *bucket, now time.Time, wrote bool) {
	if b.state.lacks() {
		l.aside.probeAt = time.Time{} // what blocked the others may be gone, too
	}
	b.attempts, b.unsent, b.alone, b.pending.Hung = 0, 0, 0, 0
	l.wrote = now
	if wrote {
		l.lastWrite.set(now)
	}
}

// failed counts a failed write.
func (l *lane) failed(b *bucket, now time.Time, others bool) {
	l.queue.metrics.retries.Inc()
	b.attempts++
	if b.pending.Verdict == batch.Hangs {
		b.pending.Hung++
	}
	// If everything fails the buckets fail together, and nothing is written between
	// two failures of one.
	if others || !b.failed.IsZero() && l.lastWrite.after(b.failed) {
		b.alone++
	}
	b.failed = now
	if !errors.Is(b.pending.Err, context.Canceled) { // the lane itself cancels it when it ends
		l.queue.logFailure(l.stream, b.attempts, b.pending.Err)
	}
}

// backOff makes a bucket whose write failed wait, in memory or aside. The jitter
// keeps buckets that failed together from being retried together.
func (l *lane) backOff(b *bucket, now time.Time, full bool) {
	e := fails
	if l.isStuck(b, full) {
		e = stuck
	}
	switch {
	case b.state.lacks():
		l.drop(b)
	case e == stuck:
		l.drop(b)
		l.queue.logAside(l.stream, b)
	default:
		d := min(minBackoff<<max(0, min(b.attempts+b.unsent-1, 10)), maxBackoff)
		b.notBefore = now.Add(d/2 + b.jitter(d))
	}
	l.move(b, e)
}

// jitter returns less than d, different for each bucket and attempt.
func (b *bucket) jitter(d time.Duration) time.Duration {
	var attempt [16]byte
	binary.BigEndian.PutUint64(attempt[:], uint64(b.key.start))
	binary.BigEndian.PutUint64(attempt[8:], uint64(b.attempts+b.unsent))
	h := xxhash.New()
	_, _ = h.WriteString(b.key.session + b.key.sensor) // never fails, nor does Write
	_, _ = h.Write(attempt[:])
	return time.Duration(h.Sum64() % uint64(d))
}

// bury turns the first pending reading into a dead letter.
func (l *lane) bury(b *bucket) error {
	r := b.pending.Rows[0]
	if err := l.queue.cfg.DeadLetters.Put(l.letter(r, b.pending.Err)); err != nil {
		return err
	}
	l.queue.metrics.deadLetters.Inc()
	r.Batch.Tracker.Refused(r.Row(), telemetry.Refuse(telemetry.StoreRefused, "MongoDB refused the reading, which is kept as a dead letter: %v", b.pending.Err))
	b.pending.Drop(1)
	return nil
}

func (l *lane) letter(r batch.Ref, reason error) DeadLetter {
	return DeadLetter{
		ID: fmt.Sprintf("%s-%d", r.Batch.Session, r.Seq()), Stream: l.stream,
		Reading: r.Batch.Reading(r.Index), Reason: reason,
	}
}

// report publishes how far everything in this lane is stored, and what is late.
func (l *lane) report(now time.Time) {
	l.held.Store(l.parcels.bytes + l.gathered.bytes + l.reread.bytes)
	settled := l.cursor.Position() // everything before is stored, except what buckets lack
	if !l.queue.cfg.Faults.Off(fault.Gathering) {
		settled = min(settled, l.parcels.oldest(), l.gathered.oldest())
	}
	l.assess(now)
	if applied := min(settled, l.oldestLacked()); applied > l.applied.Load() {
		l.applied.Store(applied)
		l.queue.advance()
	}
}

// assessAgain is how often a lane computes what is late, which takes long if very many
// buckets fail.
const assessAgain = 250 * time.Millisecond

// assess publishes when the most overdue update was due, and when the oldest row arrived.
func (l *lane) assess(now time.Time) {
	if now.Sub(l.assessed) < assessAgain && l.schedule.waiting() > 0 {
		return
	}
	l.assessed = now
	due := l.schedule.overdue(l.longest())
	late := func(at time.Time) {
		if !at.IsZero() && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	for _, b := range l.waiting {
		late(b.due)
	}
	for b := range l.lacking {
		late(b.due)
	}
	late(l.full)
	l.overdue.Store(nanosOf(due))
	var oldest time.Time
	for _, list := range []*parcels{&l.gathered, &l.parcels} {
		if first := list.Front(); first != nil && (oldest.IsZero() || first.Value.(*parcel).arrived.Before(oldest)) {
			oldest = first.Value.(*parcel).arrived
		}
	}
	l.oldest.Store(nanosOf(oldest))
}

// nanosOf returns a time in ns since the epoch, 0 for none.
func nanosOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// lastWrite is when any lane of a stream last wrote rows.
type lastWrite struct {
	began time.Time    // of the queue
	at    atomic.Int64 // ns since; 0: never
}

func (w *lastWrite) set(now time.Time)         { w.at.Store(int64(now.Sub(w.began))) }
func (w *lastWrite) after(then time.Time) bool { return w.at.Load() > int64(then.Sub(w.began)) }
