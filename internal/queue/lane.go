package queue

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A lane merges the readings of its share of a stream's sensors, and is the
// only one that writes their buckets.
type lane struct {
	queue  *Queue
	stream string
	cfg    Stream
	wake   chan struct{} // holds at most one wake-up
	active atomic.Int64  // buckets remembered

	mu     sync.Mutex
	inbox  []parcel
	urgent bool // someone waits for what the lane holds

	// The rest belongs to run.
	buckets map[bucketKey]*bucket
	pending []*bucket // with rows to write, the oldest first
	rows    int       // in pending
	waiting waiting   // buckets that back off
	rush    bool      // write pending now, whatever its age
	swept   time.Time
}

// parcel is what the lane gets of one batch: the given rows, or all.
type parcel struct {
	batch *batch.Batch
	rows  []uint32
}

type bucketKey struct {
	sensor string
	start  int64
}

// bucket is what a lane remembers of a bucket: its share, with whatever the
// store keeps in it, and when to write next.
type bucket struct {
	share     batch.Share
	place     place
	since     time.Time // arrival of the oldest row
	lastSeq   uint64    // of the newest row ever added
	attempts  int       // writes in a row that had to be put off
	notBefore time.Time
}

// place is where a lane keeps a bucket.
type place uint8

const (
	idle    place = iota // no rows
	pending              // rows, in the list of that name
	backoff              // rows, waiting
)

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

func newLane(q *Queue, stream string, cfg Stream) *lane {
	return &lane{
		queue: q, stream: stream, cfg: cfg, wake: make(chan struct{}, 1),
		buckets: make(map[bucketKey]*bucket), swept: time.Now(),
	}
}

// push adds to the inbox, under the queue's place lock.
func (l *lane) push(rows []uint32, b *batch.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inbox = append(l.inbox, parcel{b, rows})
	l.urgent = true // whoever appends waits for the store
}

// hurry makes the lane write what it holds.
func (l *lane) hurry() {
	l.mu.Lock()
	l.urgent = true
	l.mu.Unlock()
	l.wakeUp()
}

func (l *lane) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run is the lane's life; ctx ends it, whatever it holds.
func (l *lane) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		now := time.Now()
		l.gather()
		l.resume(now)
		l.sweep(now)
		wait := l.untilDue(now)
		if wait <= 0 {
			l.flush(ctx)
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-timer.C:
		}
	}
}

// gather sorts the inbox into buckets.
func (l *lane) gather() {
	l.mu.Lock()
	inbox, urgent := l.inbox, l.urgent
	l.inbox, l.urgent = nil, false
	l.mu.Unlock()
	for _, p := range inbox {
		if p.rows == nil {
			for i := range uint32(p.batch.Len()) {
				l.add(batch.Ref{Batch: p.batch, Index: i})
			}
			continue
		}
		for _, i := range p.rows {
			l.add(batch.Ref{Batch: p.batch, Index: i})
		}
	}
	l.rush = l.rush || urgent
}

func (l *lane) add(r batch.Ref) {
	row := r.Row()
	series := r.Batch.Series(row)
	key := bucketKey{series.Sensor, row.Time - row.Time%l.cfg.Granularity.Milliseconds()}
	b := l.buckets[key]
	if b == nil {
		// The batch's string is part of a larger one, which must not outlive it.
		key.sensor = strings.Clone(key.sensor)
		b = &bucket{share: batch.Share{
			Stream: l.stream, Sensor: key.sensor, Start: key.start, Granularity: l.cfg.Granularity, Session: r.Batch.Session,
		}}
		l.buckets[key] = b
		l.active.Add(1)
	}
	if r.Seq() <= b.lastSeq {
		l.outOfOrder(r, b)
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
// stored already. It cannot happen while sequence and lane position are taken
// together.
func (l *lane) outOfOrder(r batch.Ref, b *bucket) {
	l.queue.metrics.outOfOrder.Inc()
	l.queue.cfg.Logger.Error("refuse a reading whose sequence does not rise", "stream", l.stream, "sequence", r.Seq(), "last", b.lastSeq)
	if t, ok := r.Batch.Tracker.(*tracker); ok {
		t.refuse(r.Row(), telemetry.Refuse(telemetry.StoreRefused, "the reading was not stored because of a defect in Brim; send it again"))
		t.Released(1)
	}
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
	if len(l.pending) == 0 {
		l.rush = false
		return wait
	}
	if l.rush || l.rows >= maxFlushRows {
		return 0
	}
	return min(wait, l.pending[0].since.Add(l.queue.cfg.FlushInterval).Sub(now))
}

// flush writes the oldest of what is pending, as much as one command should
// carry.
func (l *lane) flush(ctx context.Context) {
	n, rows := 0, 0
	for n < len(l.pending) && n < maxFlushShares && rows < maxFlushRows {
		rows += len(l.pending[n].share.Rows)
		n++
	}
	flushed := l.pending[:n:n]
	l.pending = l.pending[n:]
	l.rows -= rows
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
	switch {
	case len(b.share.Rows) == 0:
		b.place, b.attempts = idle, 0
		b.notBefore = now // since when it is idle
		if cap(b.share.Rows) > keptRows {
			b.share.Rows = nil
		}
		if len(l.buckets) > maxRemembered {
			l.forget(bucketKey{b.share.Sensor, b.share.Start})
		}
		return false
	case verdict == batch.Wait:
		l.putOff(b, now)
		return false
	default:
		b.attempts = 0
		b.since = b.share.Rows[0].Batch.Received
		return true
	}
}

// putOff lets a bucket back off, with jitter so that those which failed
// together do not come back together.
func (l *lane) putOff(b *bucket, now time.Time) {
	l.queue.metrics.retries.Inc()
	d := min(minBackoff<<min(b.attempts, 10), maxBackoff)
	b.attempts++
	b.notBefore = now.Add(d/2 + rand.N(d))
	b.place = backoff
	heap.Push(&l.waiting, b)
	// A cancelled lane's errors are its own doing.
	if !errors.Is(b.share.Err, context.Canceled) {
		l.queue.warn(l.stream, b.attempts, b.share.Err)
	}
}

// bury puts the share's first reading aside.
func (l *lane) bury(b *bucket) error {
	r := b.share.Rows[0]
	if err := l.queue.cfg.DeadLetters.Put(l.stream, r.Batch.Reading(r.Index), b.share.Err); err != nil {
		return err
	}
	l.queue.metrics.deadLetters.Inc()
	if t, ok := r.Batch.Tracker.(*tracker); ok {
		t.refuse(r.Row(), telemetry.Refuse(telemetry.StoreRefused, "MongoDB refused the reading, which is kept as a dead letter: %v", b.share.Err))
	}
	b.share.Drop(1)
	return nil
}

// sweep forgets buckets that were idle for long.
func (l *lane) sweep(now time.Time) {
	if now.Sub(l.swept) < forgetAfter/2 {
		return
	}
	l.swept = now
	for key, b := range l.buckets {
		if b.place == idle && now.Sub(b.notBefore) > forgetAfter {
			l.forget(key)
		}
	}
}

func (l *lane) forget(key bucketKey) {
	delete(l.buckets, key)
	l.active.Add(-1)
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
