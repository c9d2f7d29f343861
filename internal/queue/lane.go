package queue

import (
	"container/heap"
	"context"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
)

// A lane merges the readings of its share of a stream's sensors, and is the
// only one that writes their buckets.
type lane struct {
	queue  *Queue
	stream string
	part   batch.Part // of the stream's sensors
	cfg    Stream
	budget int64         // bytes of rows that it may hold
	wake   chan struct{} // holds at most one wake-up

	rest    atomic.Uint64 // what this lane takes before this position is at rest
	hurryTo atomic.Uint64 // someone waits for all before this position
	active  atomic.Int64  // buckets remembered
	stuck   atomic.Int64  // of those, set aside
	held    atomic.Int64  // bytes of rows
	gathers atomic.Int64  // how long readings gather at present, in ns
	// toldUntil is until when all arrivals were told of, in ns, see toldAll.
	toldUntil atomic.Int64

	// The rest belongs to run.
	cursor     batch.Cursor
	readAgain  time.Time // after a read of the journal that went wrong
	owned      []bool    // scratch: which series of a batch are this lane's
	parcels    parcels
	load       int // rows held
	buckets    map[bucketKey]*bucket
	remembered int                       // buckets at most
	latest     map[*batch.Series]*bucket // of buckets, by the series that came last
	pending    []*bucket                 // with rows to write, the oldest first
	rows       int                       // in pending
	waiting    waiting                   // buckets that back off
	rush       bool                      // write all that is pending now, whatever its age
	lastOK     time.Time                 // when some bucket was last written
	hurried    uint64                    // up to which hurry was seen to
	pace       pace
	swept      time.Time
	aside      aside
}

// Back-off between attempts of one bucket: short, since most causes (a race, a
// lagging majority) pass in milliseconds; bounded, so that a database that is
// back is used at once.
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// A bucket that was idle for this long is forgotten, and at once if the lane
// and the others remember very many: 50,000 of them, with their series, take some
// 75 MB. The store finds out again what it knew.
const (
	forgetAfter   = 2 * time.Minute
	maxRemembered = 50_000
	// keptRows is how much room for rows an idle bucket may keep.
	keptRows = 64
)

// What is due within this part of the flush interval is written together.
const dueTogether = 8

func newLane(q *Queue, stream string, number int, cfg Stream) *lane {
	l := &lane{
		queue: q, stream: stream, part: batch.Part{Stream: stream, Number: uint64(number), Of: uint64(q.cfg.Lanes)}, cfg: cfg, wake: make(chan struct{}, 1),
		buckets: make(map[bucketKey]*bucket), latest: make(map[*batch.Series]*bucket), swept: time.Now(), aside: newAside(), pace: newPace(q.cfg.FlushInterval),
	}
	l.gathers.Store(int64(l.pace.interval))
	return l
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
		if len(l.pending) == 0 {
			l.pace.rest(now)
		}
		l.read(now)
		busy := l.catchUp(now)
		l.resume(now)
		l.probeSome(now)
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
	l.toldAll()
	defer l.wakes()
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
	if len(l.aside.probing) > 0 {
		wait = min(wait, max(l.aside.probeAt.Sub(now), time.Millisecond))
	}
	if len(l.pending) == 0 {
		return max(wait, time.Millisecond)
	}
	if l.rush || !l.hasRoom() {
		return 0
	}
	return min(wait, l.dueAt(l.pending[0]).Sub(now))
}

func (l *lane) dueAt(b *bucket) time.Time { return b.since.Add(l.pace.interval) }

// flush writes the oldest of what is pending, as much as one command should
// carry. Without a hurry it leaves alone what is far from due, so that sensors
// keep their own phases and MongoDB sees a stream of writes instead of a burst
// each interval.
func (l *lane) flush(ctx context.Context) {
	n, rows := 0, 0
	soon := time.Now().Add(l.pace.interval / dueTogether)
	all := l.rush || !l.hasRoom()
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
		l.hears(b)
	}
	write := func() {
		begin := time.Now()
		l.cfg.Store.Write(ctx, shares)
		l.pace.wrote(begin, time.Now())
	}
	if all {
		write()
	} else {
		l.queue.inTurn(ctx, write)
	}
	now := time.Now()
	stored := 0 // the last of those that were; a store that gives up leaves none behind
	for i, s := range shares {
		if s.Verdict == batch.Stored {
			stored = i
		}
	}
	var again []*bucket
	for i, b := range flushed {
		if l.settle(b, now, i < stored) {
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

// sweep forgets buckets that were idle for long.
func (l *lane) sweep(now time.Time) {
	if now.Sub(l.swept) < forgetAfter/2 {
		return
	}
	l.swept = now
	for _, b := range l.buckets {
		if b.place == idle && !b.aside && len(b.share.Rows) == 0 && now.Sub(b.notBefore) > forgetAfter {
			l.forget(b)
		}
	}
}

func (l *lane) forget(b *bucket) {
	delete(l.buckets, b.key)
	if l.latest[b.series] == b {
		delete(l.latest, b.series)
	}
	l.active.Add(-1)
}

// report tells the queue how far everything of this lane is at rest.
func (l *lane) report() {
	l.held.Store(l.parcels.bytes)
	l.gathers.Store(int64(l.pace.interval))
	rest := min(l.cursor.Position(), l.aside.oldest())
	if p := l.parcels.first; p != nil {
		rest = min(rest, p.position)
	}
	if rest > l.rest.Load() {
		l.rest.Store(rest)
		l.queue.advance()
	}
}
