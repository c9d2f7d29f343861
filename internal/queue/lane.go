package queue

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A lane merges the readings of its share of a stream's sensors, and is the
// only one that writes their buckets.
type lane struct {
	queue  *Queue
	stream string
	number uint64 // among the lanes of its stream
	cfg    Stream
	budget int64         // bytes of rows that it may hold
	wake   chan struct{} // holds at most one wake-up

	rest    atomic.Uint64 // what this lane takes before this position is at rest
	hurryTo atomic.Uint64 // someone waits for all before this position
	active  atomic.Int64  // buckets remembered
	stuck   atomic.Int64  // of those, set aside
	held    atomic.Int64  // bytes of rows

	// The rest belongs to run.
	cursor    batch.Cursor
	readAgain time.Time // after a read of the journal that went wrong
	owned     []bool    // scratch: which series of a batch are this lane's
	parcels   parcels
	load      int // rows held
	buckets   map[bucketKey]*bucket
	pending   []*bucket // with rows to write, the oldest first
	rows      int       // in pending
	waiting   waiting   // buckets that back off
	rush      bool      // write all that is pending now, whatever its age
	lastOK    time.Time // when some bucket was last written well
	hurried   uint64    // up to which hurry was seen to
	swept     time.Time
	aside     aside
}

// Back-off between attempts of one bucket: short, since most causes (a race, a
// lagging majority) pass in milliseconds; bounded, so that a database that is
// back is used at once.
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// A bucket that was idle for this long is forgotten, and at once if the lane
// remembers very many: 50,000 of them take some 20 MB. The store finds out
// again what it knew.
const (
	forgetAfter   = 2 * time.Minute
	maxRemembered = 50_000
	// keptRows is how much room for rows an idle bucket may keep.
	keptRows = 64
)

// What is due within this part of the flush interval is written together.
const dueTogether = 8

func newLane(q *Queue, stream string, number int, cfg Stream) *lane {
	return &lane{
		queue: q, stream: stream, number: uint64(number), cfg: cfg, wake: make(chan struct{}, 1),
		buckets: make(map[bucketKey]*bucket), swept: time.Now(), aside: newAside(),
	}
}

// hurry makes the lane write what came before the position.
func (l *lane) hurry(before uint64) {
	for {
		to := l.hurryTo.Load()
		if before <= to || l.hurryTo.CompareAndSwap(to, before) {
			break
		}
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// obey makes the lane write what it holds while there are records to read that
// someone is in a hurry for, and once more when it has them all. What stays
// behind, in a bucket that cannot be written, hurries nobody.
func (l *lane) obey() {
	to := l.hurryTo.Load()
	if to <= l.hurried {
		return
	}
	l.rush = true
	if l.cursor.Position() >= to {
		l.hurried = to
	}
}

// run is the lane's life; ctx ends it, whatever it holds.
func (l *lane) run(ctx context.Context) {
	defer l.close()
	if l.cfg.Prepared != nil {
		select {
		case <-l.cfg.Prepared:
		case <-ctx.Done():
			return
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		now := time.Now()
		l.read(now)
		busy := l.catchUp(now)
		l.resume(now)
		l.sweep(now)
		l.obey()
		l.report()
		wait := l.untilDue(now)
		if wait <= 0 {
			l.flush(ctx)
			continue
		}
		if busy {
			continue
		}
		l.sleep(ctx, timer, wait)
	}
}

// sleep waits for a record to read, if there is room for it, at most for d.
func (l *lane) sleep(ctx context.Context, timer *time.Timer, d time.Duration) {
	var grown <-chan struct{}
	if l.hasRoom() && l.readAgain.IsZero() {
		grown = l.queue.cfg.Journal.Grown(l.cursor.Position())
	}
	timer.Reset(d)
	select {
	case <-ctx.Done():
	case <-grown:
	case <-l.wake:
	case <-timer.C:
	}
}

func (l *lane) close() {
	l.cursor.Close()
	l.aside.close()
}

// hasRoom reports whether the lane may hold more. A record is taken as a whole,
// so the last one may go beyond the budget.
func (l *lane) hasRoom() bool { return l.parcels.bytes < l.budget }

// read takes what has come, as much as there is room for.
func (l *lane) read(now time.Time) {
	if now.Before(l.readAgain) {
		return
	}
	l.readAgain = time.Time{}
	for l.hasRoom() {
		r, found, err := l.cursor.Next()
		if err != nil {
			l.unread(now, err)
			return
		}
		if !found {
			return
		}
		l.take(r, func(b *bucket, _ uint64) bool { return !b.aside })
	}
}

// unread puts off the reading of a journal that cannot be read.
func (l *lane) unread(now time.Time, err error) {
	l.readAgain = now.Add(time.Second)
	l.queue.metrics.readErrors.Inc()
	l.queue.cfg.Logger.Error("read the journal", "stream", l.stream, "position", l.cursor.Position(), "err", err)
}

// take adds the record's rows of this lane's sensors to those of their buckets
// that are wanted.
func (l *lane) take(r batch.Record, wanted func(b *bucket, seq uint64) bool) {
	if !l.own(r.Batch) {
		return
	}
	p := &parcel{lane: l, position: r.Position, waits: r.Batch.Tracker, left: 1} // one more, until it is complete
	p.view = r.Batch.View(p)
	l.parcels.insert(p)
	for i := range uint32(p.view.Len()) {
		row := p.view.Row(i)
		if !l.owned[p.view.SeriesNumber(row)] {
			continue
		}
		ref := batch.Ref{Batch: &p.view, Index: i}
		if b := l.bucketOf(p, row); wanted(b, ref.Seq()) {
			p.left++
			l.load++
			l.add(b, ref)
		}
	}
	p.size = parcelBytes + r.Batch.MemorySize()*int64(p.left-1)/int64(p.view.Len())
	l.parcels.bytes += p.size
	p.drop(1)
	l.rush = l.rush || p.waits != nil
}

// own notes which series of the batch belong to this lane, and reports whether
// any does.
func (l *lane) own(b *batch.Batch) bool {
	l.owned = l.owned[:0]
	some := false
	for i := range b.SeriesLen() {
		s := b.SeriesAt(i)
		own := s.Hash%uint64(l.queue.cfg.Lanes) == l.number && s.Stream == l.stream
		l.owned = append(l.owned, own)
		some = some || own
	}
	return some
}

// bucketOf returns the bucket that a row belongs to.
func (l *lane) bucketOf(p *parcel, row *batch.Row) *bucket {
	series := p.view.Series(row)
	key := bucketKey{sensor: series.Sensor, granularity: series.Granularity, session: p.view.Session}
	if key.granularity == 0 {
		key.granularity = l.cfg.Granularity
	}
	key.start = row.Time - row.Time%key.granularity.Milliseconds()
	b := l.buckets[key]
	if b == nil {
		// The batch's string may be part of a larger one, which must not outlive it.
		key.sensor = strings.Clone(key.sensor)
		b = &bucket{key: key, share: batch.Share{
			Stream: l.stream, Sensor: key.sensor, Start: key.start, Granularity: key.granularity,
			Session: key.session, Recovered: p.view.Recovered,
		}}
		l.buckets[key] = b
		l.active.Add(1)
	}
	return b
}

func (l *lane) add(b *bucket, r batch.Ref) {
	if r.Seq() <= b.lastSeq {
		l.outOfOrder(b, r)
		return
	}
	b.lastSeq = r.Seq()
	b.share.Rows = append(b.share.Rows, r)
	switch b.place {
	case idle:
		b.since = r.Batch.Received
		l.toPending(b)
	case pending:
		l.rows++
	case backoff:
	}
}

// outOfOrder refuses a reading that the guard would take for one that is
// stored already. It cannot happen while sequence and position are taken
// together; where someone was promised the reading, it is put aside.
func (l *lane) outOfOrder(b *bucket, r batch.Ref) {
	l.queue.metrics.outOfOrder.Inc()
	l.queue.cfg.Logger.Error("refuse a reading whose sequence does not rise", "stream", l.stream, "sequence", r.Seq(), "last", b.lastSeq)
	reason := fmt.Errorf("a defect in Brim: sequence %d came after %d", r.Seq(), b.lastSeq)
	if err := l.queue.cfg.DeadLetters.Put(l.letter(r, reason)); err != nil {
		l.queue.cfg.Logger.Error("put a reading aside", "err", err)
	}
	r.Batch.Tracker.Refused(r.Row(), telemetry.Refuse(telemetry.StoreRefused, "the reading was not stored because of a defect in Brim; send it again"))
	r.Batch.Tracker.Released(1)
}

func (l *lane) toPending(b *bucket) {
	b.place = pending
	l.pending = append(l.pending, b)
	l.rows += len(b.share.Rows)
}

// resume takes buckets back whose back-off is over.
func (l *lane) resume(now time.Time) {
	for len(l.waiting) > 0 && !l.waiting[0].notBefore.After(now) {
		b, _ := heap.Pop(&l.waiting).(*bucket)
		b.place = idle
		if b.aside && len(b.share.Rows) == 0 {
			l.probe(b, now)
			continue
		}
		l.toPending(b)
		l.rush = true
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
	if len(l.pending) == 0 {
		return max(wait, time.Millisecond)
	}
	if l.rush || l.rows >= maxFlushRows || !l.hasRoom() {
		return 0
	}
	return min(wait, l.dueAt(l.pending[0]).Sub(now))
}

func (l *lane) dueAt(b *bucket) time.Time { return b.since.Add(l.queue.cfg.FlushInterval) }

// flush writes the oldest of what is pending, as much as one command should
// carry. Without a hurry it leaves alone what is far from due, so that sensors
// keep their own phases and MongoDB sees a stream of writes instead of a burst
// each interval.
func (l *lane) flush(ctx context.Context) {
	n, rows := 0, 0
	soon := time.Now().Add(l.queue.cfg.FlushInterval / dueTogether)
	all := l.rush || l.rows >= maxFlushRows || !l.hasRoom()
	for n < len(l.pending) && n < maxFlushShares && rows < maxFlushRows && (all || !l.dueAt(l.pending[n]).After(soon)) {
		rows += len(l.pending[n].share.Rows)
		n++
	}
	flushed := l.pending[:n:n]
	l.pending = l.pending[n:]
	l.rows -= rows
	// What comes from here on is in no hurry, or under load the rush would never
	// end and nothing be merged any more.
	l.rush = l.rush && len(l.pending) > 0
	shares := make([]*batch.Share, n)
	for i, b := range flushed {
		shares[i] = &b.share
	}
	l.cfg.Store.Write(ctx, shares)
	now := time.Now()
	var again []*bucket
	for _, b := range flushed {
		if l.settle(b, now) {
			again = append(again, b)
		}
	}
	if len(again) > 0 {
		l.rush = true
		l.pending = append(again, l.pending...)
		for _, b := range again {
			b.place = pending
			l.rows += len(b.share.Rows)
		}
	}
}

// settle acts on the verdict of a written share, and reports whether the
// bucket is to be written again at once.
func (l *lane) settle(b *bucket, now time.Time) (again bool) {
	verdict := b.share.Verdict
	if verdict == batch.Poison && len(b.share.Rows) > 0 {
		if err := l.bury(b); err != nil {
			b.share.Err = err
			verdict = batch.Wait
		}
	}
	if verdict == batch.Wait && l.queue.cfg.Faults.Off(fault.Retry) {
		b.share.Drop(len(b.share.Rows))
	}
	switch {
	case len(b.share.Rows) == 0:
		b.place, b.notBefore = idle, now
		l.wentWell(b, now)
		if cap(b.share.Rows) > keptRows {
			b.share.Rows = nil
		}
		if b.aside {
			l.aside.join(b)
		} else if len(l.buckets) > maxRemembered {
			l.forget(b.key)
		}
		return false
	case verdict == batch.Wait:
		l.putOff(b, now)
		return false
	default:
		l.wentWell(b, now)
		b.since = b.share.Rows[0].Batch.Received
		return true
	}
}

func (l *lane) wentWell(b *bucket, now time.Time) {
	b.attempts, b.failing, l.lastOK = 0, time.Time{}, now
}

// putOff lets a bucket back off, with jitter so that those which failed
// together do not come back together.
func (l *lane) putOff(b *bucket, now time.Time) {
	l.queue.metrics.retries.Inc()
	if b.failing.IsZero() {
		b.failing = now
	}
	b.attempts++
	if l.isStuck(b) {
		l.setAside(b)
	}
	l.backOff(b, now)
	// A cancelled lane's errors are its own doing.
	if !errors.Is(b.share.Err, context.Canceled) {
		l.queue.warn(l.stream, b.attempts, b.share.Err)
	}
}

func (l *lane) backOff(b *bucket, now time.Time) {
	longest := maxBackoff
	if b.aside {
		longest = maxAsideBackoff
	}
	d := min(minBackoff<<min(max(b.attempts-1, 0), 10), longest)
	b.notBefore = now.Add(d/2 + rand.N(d))
	b.place = backoff
	heap.Push(&l.waiting, b)
}

// bury puts the share's first reading aside.
func (l *lane) bury(b *bucket) error {
	r := b.share.Rows[0]
	if err := l.queue.cfg.DeadLetters.Put(l.letter(r, b.share.Err)); err != nil {
		return err
	}
	l.queue.metrics.deadLetters.Inc()
	r.Batch.Tracker.Refused(r.Row(), telemetry.Refuse(telemetry.StoreRefused, "MongoDB refused the reading, which is kept as a dead letter: %v", b.share.Err))
	b.share.Drop(1)
	return nil
}

func (l *lane) letter(r batch.Ref, reason error) DeadLetter {
	return DeadLetter{
		ID: fmt.Sprintf("%s-%d", r.Batch.Session, r.Seq()), Stream: l.stream,
		Reading: r.Batch.Reading(r.Index), Reason: reason,
	}
}

// sweep forgets buckets that were idle for long.
func (l *lane) sweep(now time.Time) {
	if now.Sub(l.swept) < forgetAfter/2 {
		return
	}
	l.swept = now
	for key, b := range l.buckets {
		if b.place == idle && !b.aside && len(b.share.Rows) == 0 && now.Sub(b.notBefore) > forgetAfter {
			l.forget(key)
		}
	}
}

func (l *lane) forget(key bucketKey) {
	delete(l.buckets, key)
	l.active.Add(-1)
}

// report tells the queue how far everything of this lane is at rest.
func (l *lane) report() {
	l.held.Store(l.parcels.bytes)
	rest := min(l.cursor.Position(), l.aside.oldest())
	if p := l.parcels.first; p != nil {
		rest = min(rest, p.position)
	}
	if rest > l.rest.Load() {
		l.rest.Store(rest)
		l.queue.advance()
	}
}
