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

	rest    atomic.Uint64 // what this lane takes before this position is stored
	settled atomic.Uint64 // the same, except for what buckets set aside lack
	hurryTo atomic.Uint64 // someone waits for all before this position
	active  atomic.Int64  // buckets remembered
	stuck   atomic.Int64  // of those, the ones that lack rows
	lacks   sensorsBehind // their sensors
	held    atomic.Int64  // bytes of rows
	gathers atomic.Int64  // how long readings gather at present, in ns
	// toldUntil is until when all arrivals were told of, in ns, see toldAll.
	toldUntil atomic.Int64

	// The rest belongs to run.
	cursor     batch.Cursor
	readAgain  time.Time                 // after a read of the journal that went wrong
	owned      []bool                    // scratch: which series of a batch are this lane's
	parcels    parcels                   // of records that the cursor read
	reread     parcels                   // of records read again for buckets that lack them
	buckets    map[bucketKey]*bucket     // remembered, by key
	remembered int                       // buckets at most
	latest     map[*batch.Series]*bucket // of buckets, by the series that came last
	lacking    map[*bucket]struct{}      // of buckets, those that lack rows
	pending    []*bucket                 // in that state or catch-up pending, the oldest first
	waiting    waiting                   // buckets that back off
	rush       bool                      // write all that is pending now, whatever its age
	wrote      time.Time                 // when some bucket was last written
	lastWrite  *lastWrite                // the same of all lanes of the stream
	full       time.Time                 // since when it has no room for more; zero: it has
	hurried    uint64                    // up to which hurry was seen to
	pace       pace
	swept      time.Time
	aside      asides
	ahead      ahead
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
		buckets: make(map[bucketKey]*bucket), latest: make(map[*batch.Series]*bucket), lacking: make(map[*bucket]struct{}),
		swept: time.Now(), aside: asides{stale: true}, pace: newPace(q.cfg.FlushInterval),
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
	l.awake()
}

// awake wakes the lane.
func (l *lane) awake() {
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
		l.probeSome(ctx, now)
		busy := l.catchUp(now)
		l.resume(now)
		l.lookAhead(ctx, now)
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
	if p := l.aside.probe; p != nil {
		<-p.done
		l.endProbe(time.Now())
		l.report()
	}
	l.cursor.Close()
	l.aside.close()
	l.ahead.close()
}

// resume takes buckets back whose back-off is over.
func (l *lane) resume(now time.Time) {
	for len(l.waiting) > 0 && !l.waiting[0].notBefore.After(now) {
		b, _ := heap.Pop(&l.waiting).(*bucket)
		l.move(b, due)
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
	if len(l.aside.waiting) > 0 && l.aside.probe == nil {
		wait = min(wait, max(l.aside.probeAt.Sub(now), time.Millisecond))
	}
	if !l.full.IsZero() {
		wait = min(wait, max(l.looksAheadAt().Sub(now), time.Millisecond))
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
	flushed, left := l.pending[:n:n], l.pending[n:]
	// What comes from here on is in no hurry, or under load the rush would never
	// end and nothing be merged any more.
	l.rush = l.rush && len(left) > 0
	full := !l.hasRoom()
	shares := make([]*batch.Share, n)
	for i, b := range flushed {
		shares[i] = &b.share
		l.hears(b)
		l.move(b, send)
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
	l.pending = nil
	for i, b := range flushed {
		l.settle(b, now, i < stored, full)
	}
	if len(l.pending) == 0 {
		l.pending = left
	} else { // what can be sent at once goes first
		l.pending = append(l.pending, left...)
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
	if l.latest[b.series] == b {
		delete(l.latest, b.series)
	}
	l.active.Add(-1)
}

// report publishes how far everything in this lane is stored, and, for queries of
// one sensor, how far everything is except what buckets lack.
func (l *lane) report() {
	l.held.Store(l.parcels.bytes + l.reread.bytes)
	l.gathers.Store(int64(l.pace.interval))
	settled := l.cursor.Position()
	if p := l.parcels.first; p != nil {
		settled = min(settled, p.position)
	}
	l.settled.Store(settled)
	if rest := min(settled, l.oldestLacked()); rest > l.rest.Load() {
		l.rest.Store(rest)
		l.queue.advance()
	}
}
