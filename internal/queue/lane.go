package queue

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A lane merges the readings of some of a stream's sensors per bucket. No other lane writes
// these buckets.
type lane struct {
	queue  *Queue
	stream string
	part   batch.Part // of the stream's sensors
	cfg    Stream
	budget int64         // bytes of rows that it may hold
	wake   chan struct{} // has capacity 1
	phase  time.Duration // differs for each lane, so that no two wake at the same time

	applied atomic.Uint64          // everything of this lane before this position is stored
	flushTo atomic.Uint64          // a flush waits for everything before this position
	active  atomic.Int64           // number of remembered buckets
	stuck   atomic.Int64           // number of those that lack rows
	held    atomic.Int64           // bytes of rows
	overdue atomic.Int64           // when the most overdue update was due, in ns; 0: none is late
	oldest  atomic.Int64           // when the oldest row in memory arrived, likewise
	wanted  atomic.Pointer[Policy] // the policy to change to; nil: no change
	// knownUntil is the time up to which Arrivals knows all arrivals, in ns, see KnownUntil.
	knownUntil atomic.Int64

	// The rest belongs to run, which holds mu except while it sleeps, writes or lets queries
	// in, so that queries see a consistent state, see Waiting.
	mu         sync.Mutex
	cursor     batch.Cursor
	readAgain  time.Time             // after a failed read of the journal
	owned      []bool                // scratch: which series of a batch are this lane's
	parcels    parcels               // of records that the cursor read
	packed     packedList            // buckets with packed rows
	reread     parcels               // of records read again for buckets that lack them
	buckets    map[bucketKey]*bucket // remembered, by key
	remembered int                   // maximum of len(buckets), except those with rows
	sensors    map[uint64]*bucket    // the latest bucket, by batch.SeriesHash; bucket.older links to the others
	lacking    map[*bucket]struct{}  // of buckets, those that lack rows
	schedule   schedule              // of buckets that are pending or catch-up pending
	waiting    waiting               // buckets that back off
	wrote      time.Time             // when rows of some bucket were last stored
	lastWrite  *lastWrite            // the last write of any lane of the stream
	full       time.Time             // since when it has no memory for more rows; zero: it has
	flushedTo  uint64                // flushes up to this position were served
	swept      time.Time
	assessed   time.Time // when overdue was computed
	gatheredAt time.Time // last call of gather
	aside      asides
	ahead      ahead
}

const (
	// The back-off between attempts of one bucket is short, since most causes (a race, a
	// lagging majority) pass in milliseconds, and bounded, so that writing resumes soon after
	// an outage.
	minBackoff = 20 * time.Millisecond
	maxBackoff = 2 * time.Second

	// A bucket is forgotten when it was idle for this long, or immediately if all lanes together
	// remember too many: 50,000 of them, with their series, take some 75 MB. The store can
	// restore its state.
	forgetAfter   = 2 * time.Minute
	maxRemembered = 50_000
	// keptRows is how much capacity for rows an idle bucket keeps.
	keptRows = 64

	// Buckets that are due within this fraction of the flush interval are written together.
	dueTogether = 8

	// The maximum size of one write, so that it takes MongoDB less than a second.
	maxFlushBuckets = 1000
	maxFlushRows    = 20_000
	maxFlushBytes   = 16 << 20 // of values that were packed
)

func newLane(q *Queue, stream string, number int, cfg Stream, last *lastWrite) *lane {
	all := len(q.cfg.Streams) * q.cfg.Lanes
	l := &lane{
		queue: q, stream: stream, part: batch.Part{Stream: stream, Number: uint64(number), Of: uint64(q.cfg.Lanes)}, cfg: cfg, wake: make(chan struct{}, 1),
		buckets: make(map[bucketKey]*bucket), sensors: make(map[uint64]*bucket), lacking: make(map[*bucket]struct{}),
		remembered: max(1, q.cfg.Remembered/all), budget: q.cfg.MaxBytes / int64(all), lastWrite: last,
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

// startFlush makes all buckets urgent while the lane still has to read records that a flush
// waits for, and once more when it has read them. Buckets that cannot be written do not cause
// further flushes.
func (l *lane) startFlush() {
	to := max(l.flushTo.Load(), l.queue.cfg.Journal.FlushTo())
	if to <= l.flushedTo {
		return
	}
	l.schedule.makeAllUrgent(byFlush, time.Now())
	if l.cursor.Position() >= to {
		l.flushedTo = to
	}
}

// flushSensor makes the lane write a sensor's rows, and reports whether the rows before the
// position are stored.
func (l *lane) flushSensor(sensor string, hash, before uint64) (stored bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	stored = l.cursor.Position() >= before
	for b := l.sensors[hash]; b != nil; b = b.older {
		if b.key.sensor != sensor {
			continue
		}
		stored = stored && !b.holds(before)
		if b.state == pending {
			l.schedule.makeUrgent(b, byFlush, time.Now())
			l.awake()
		}
	}
	return stored
}

// holds reports whether the bucket has or lacks rows of a record before the position.
func (b *bucket) holds(before uint64) bool {
	if b.state.lacks() {
		return b.lacks < before
	}
	return b.packed.Len() > 0 && b.packed.position < before ||
		slices.ContainsFunc(b.more, func(c chunk) bool { return c.position < before }) ||
		slices.ContainsFunc(b.rows, func(r batch.Ref) bool { return parcelOf(r).position < before })
}

// isStored reports whether the journal knows that the sensor's rows in the parcel's record are
// stored, even if older records are not.
func (l *lane) isStored(p *parcel, series *batch.Series) bool {
	return p.view.Recovered && l.queue.cfg.Journal.Trimmed(l.stream, series.Sensor, p.position)
}

// run is the lane's goroutine. It returns when ctx ends, even if it has rows.
func (l *lane) run(ctx context.Context) {
	defer l.close()
	if l.cfg.Prepared != nil && !l.awaitStore(ctx) {
		return
	}
	if l.phase > 0 && machine.Pause(ctx, l.phase) != nil {
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

// sleep waits for a record to read, if there is memory for it, at most for d.
func (l *lane) sleep(ctx context.Context, timer *time.Timer, d time.Duration) {
	var grown <-chan struct{}
	if l.hasRoom() && l.readAgain.IsZero() {
		grown = l.queue.cfg.Journal.Grown(l.cursor.Position())
	}
	timer.Reset(d + l.phase)
	// Without memory for more rows, the lane does not learn of new arrivals.
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

// asleep is a value of knownUntil that stands for the current time: until the lane wakes,
// Arrivals knows all arrivals.
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

// resume makes buckets pending after their back-off.
func (l *lane) resume(now time.Time) {
	for len(l.waiting) > 0 && !l.waiting[0].notBefore.After(now) {
		b, _ := heap.Pop(&l.waiting).(*bucket)
		l.move(b, due)
		l.schedule.makeUrgent(b, byRetry, now)
	}
}

// untilDue returns how long the lane may sleep; 0 or less: it must write now.
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

// short returns byMemory or byJournal if all buckets must be sent, regardless of how many
// readings they have, and byNothing otherwise.
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

// hasRoom reports whether the lane may take more rows. Usually all lanes have rows of the same
// batches, and each is charged for its part. But a lane with few rows of many batches may be
// the only one that keeps these batches in memory, so their total size is limited too. A
// record is taken as a whole, so the last one may exceed the budget.
func (l *lane) hasRoom() bool {
	return l.memory() < l.budget && l.parcels.pinned+l.reread.pinned < l.queue.cfg.MaxBytes
}

// memory returns the memory of the lane's rows.
func (l *lane) memory() int64 {
	return l.parcels.bytes + l.packed.bytes + l.reread.bytes + int64(l.schedule.waiting()+len(l.waiting))*bucketBytes
}

// read reads new records while there is memory for them.
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

// take calls visit with the record's rows of this lane's sensors, and adds a parcel with those
// that visit keeps to the list.
func (l *lane) take(r batch.Record, list *parcels, visit func(p *parcel, r batch.Ref) (keep bool)) {
	b := r.Batch
	if !l.own(b) {
		return
	}
	p := &parcel{lane: l, position: r.Position, waiter: b.Tracker, left: 1} // one more, until it is complete
	p.view = b.View(p)
	// The time by the monotonic clock. For a batch of an earlier process, the wall clock tells
	// its age, which is 0 if the clock was set back since.
	now := time.Now()
	p.arrived = now.Add(-max(0, now.Sub(b.Received)))
	p.since = p.arrived
	if b.Recovered { // otherwise all old rows would be written at once after a restart
		p.since = latest(p.arrived, now.Add(-spreadAfter(l.longest())))
	}
	p.granularity = l.granularityOf(b)
	list.insert(p)
	for i := range uint32(p.view.Len()) {
		if !l.owned[p.view.SeriesNumber(p.view.Row(i))] {
			continue
		}
		if visit(p, batch.Ref{Batch: &p.view, Index: i}) {
			p.left++
		}
	}
	rows := int64(p.left - 1)
	whole := b.MemorySize()
	list.charge(p, parcelBytes+rows*refBytes+whole*rows/int64(p.view.Len()), whole)
	p.drop(1)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// granularityOf returns the granularity of the windows that a batch's rows belong to.
func (l *lane) granularityOf(b *batch.Batch) time.Duration {
	return cmp.Or(b.Granularity(l.stream), l.cfg.Granularity)
}

// own sets l.owned, which says which series of the batch belong to this lane. It reports
// whether any does.
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

// takeNew adds a row from the lane's cursor to its bucket, and reports whether it did.
func (l *lane) takeNew(p *parcel, r batch.Ref) bool {
	if l.isStored(p, p.view.Series(r.Row())) {
		p.left++ // until it is released
		p.Released(1)
		return false
	}
	b := l.bucketOf(p, r.Row(), true)
	l.noteArrival(b, p)
	l.noteSeries(b, p, r.Row())
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
	if b.pendingCount() == 0 {
		if b.since = p.since; !b.state.lacks() {
			b.newest = r.Row().Time
		}
	}
	b.newest = max(b.newest, r.Row().Time)
	b.lastSeq = max(b.lastSeq, r.Seq())
	b.rows = append(b.rows, r)
	if b.state == pending {
		l.schedule.grew(b)
	} else {
		l.move(b, row)
	}
	if p.waiter != nil && b.state == pending {
		l.schedule.makeUrgent(b, byRequest, p.arrived)
	}
}

// outOfOrder refuses a reading that the guard would consider stored. It cannot happen as long as
// sequence and position are assigned together. The reading becomes a dead letter, since it may
// have been acknowledged.
func (l *lane) outOfOrder(b *bucket, r batch.Ref) {
	l.queue.metrics.outOfOrder.Inc()
	l.queue.cfg.Logger.Error("refuse a reading whose sequence does not rise", "stream", l.stream, "sequence", r.Seq(), "last", b.lastSeq)
	reason := fmt.Errorf("a defect in Brim: sequence %d came after %d", r.Seq(), b.lastSeq)
	if err := l.queue.cfg.DeadLetters.Put(l.letter(r, reason)); err != nil {
		l.queue.cfg.Logger.Error("write a dead letter", "err", err)
	}
	p := parcelOf(r)
	p.Refused(r.Row(), telemetry.Refuse(telemetry.StoreRefused, "the reading was not stored because of a defect in Brim; send it again"))
	// This does not remove the parcel, since it counts one more row until it is complete.
	p.left++
	p.Released(1)
}

// bucketOf returns the bucket of a row. If there is none, it returns nil or creates one.
//
// Usually a sensor is in the same window as before, so its latest bucket is compared first.
// Hashing a sensor id of hundreds of bytes would take longer than the rest of the lane's
// work.
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
		b = &bucket{key: key, state: idle, recovered: p.view.Recovered, maySent: p.view.Recovered}
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

// makeRoom forgets an idle bucket if the lane remembers too many: the one that has been idle
// for longest among a few that the map yields in random order.
func (l *lane) makeRoom() {
	if len(l.buckets) < l.remembered {
		return
	}
	var oldest *bucket
	tries := 8
	for _, b := range l.buckets {
		if b.state == idle && (oldest == nil || b.isOlder(oldest)) {
			oldest = b
		}
		if tries--; tries == 0 {
			break
		}
	}
	if oldest != nil {
		l.forget(oldest)
	}
}

// isOlder reports whether the bucket has been idle for longer than another.
func (b *bucket) isOlder(other *bucket) bool {
	return cmp.Or(b.since.Compare(other.since), cmp.Compare(b.key.sensor, other.key.sensor), cmp.Compare(b.key.start, other.key.start)) < 0
}

// sweep forgets buckets that were idle for forgetAfter.
func (l *lane) sweep(now time.Time) {
	if now.Sub(l.swept) < forgetAfter/2 {
		return
	}
	l.swept = now
	for _, b := range l.buckets {
		if b.state == idle && now.Sub(b.since) > forgetAfter {
			l.forget(b)
		}
	}
}

// forgetSurplus forgets a bucket that has become idle if the lane remembers too many.
func (l *lane) forgetSurplus(b *bucket) {
	if len(l.buckets) > l.remembered {
		l.forget(b)
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
	flights, writes := make([]flight, len(flushed)), make([]*batch.Pending, len(flushed))
	for i, b := range flushed {
		waited = waited || b.why == byRequest || b.why == byFlush || b.why == byMemory
		b.setDue(now)
		flights[i] = l.beginWrite(b)
		writes[i] = &flights[i].pending
		sent[b.why].updates++
		sent[b.why].readings += flights[i].sent
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
	lastStored := 0 // a failure after this one may be the store giving up, not the bucket
	updates, rows := 0, 0
	for i := range flights {
		f := &flights[i]
		if !f.wrote() {
			continue
		}
		updates++
		rows += f.sent - len(f.pending.Rows)
		if f.pending.Verdict == batch.Stored {
			lastStored = i
		}
	}
	l.schedule.spend(updates, rows)
	for i := range flights {
		l.settle(&flights[i], now, i < lastStored, full)
	}
}

// A flight is a write of one bucket.
type flight struct {
	bucket   *bucket
	pending  batch.Pending
	sent     int // rows
	unpacked bool
}

// beginWrite begins a write of a bucket's rows: all, or the first chunk.
func (l *lane) beginWrite(b *bucket) flight {
	f := flight{bucket: b, pending: l.pendingOf(b.key), unpacked: b.packedRows > 0}
	f.sent = l.unpack(b)
	f.pending.Rows, f.pending.State, f.pending.Recovered = b.rows[:f.sent:f.sent], b.store, b.maySent
	if b.failureState != nil {
		f.pending.Hung = b.hung
	}
	return f
}

// endWrite ends a write: the bucket keeps the rows that were not stored, and those after them.
func (f *flight) endWrite() {
	b, all := f.bucket, f.bucket.rows
	b.store = f.pending.State
	b.rows = append(append([]batch.Ref(nil), f.pending.Rows...), all[f.sent:]...) // they may be in the same array
	clear(all)
	if len(b.rows) == 0 && cap(all) <= keptRows && !f.unpacked {
		b.rows = all[:0]
	}
}

// stored reports whether some rows of the write are stored now.
func (f *flight) stored() bool { return f.sent > len(f.pending.Rows) }

// wrote reports whether the write stored rows that were not stored before.
func (f *flight) wrote() bool { return f.sent-len(f.pending.Rows) > f.pending.Found }

// noteArrival reports a row to the stream's Arrivals, unless a row of the same bucket that
// arrived less than noteAgain earlier was reported.
func (l *lane) noteArrival(b *bucket, p *parcel) {
	if at := l.sinceBegin(p.arrived); l.cfg.Arrivals != nil && (b.noted == 0 || at-b.noted >= noteAgain) {
		b.noted = cmp.Or(at, 1)
		l.cfg.Arrivals.Came(b.key.sensor, p.view.Received)
	}
}

// noteSeries reports a row to the stream's Catalog, unless it has the same series and shape as
// the previous one.
func (l *lane) noteSeries(b *bucket, p *parcel, row *batch.Row) {
	if l.cfg.Catalog == nil {
		return
	}
	series, shape := p.view.Series(row), p.view.Shape(row)
	if b.series == series && b.shape == shape || b.packedRows > 0 && b.packed.BeginsWith(series, shape) {
		return
	}
	b.series, b.shape = series, shape
	l.cfg.Catalog.Saw(series, shape, row.Time)
}

// noteAgain is the minimum time between two reported arrivals of a bucket. There may be hundreds
// of thousands of readings a second, and Arrivals has a resolution of seconds.
const noteAgain = time.Second

// settle processes the verdict of a write. others means that the same call stored a later
// bucket, and full that the lane had no memory for more rows when the write began.
func (l *lane) settle(f *flight, now time.Time, others, full bool) {
	b, w, wrote := f.bucket, &f.pending, f.wrote()
	if w.Verdict == batch.Poison && len(w.Rows) > 0 {
		if err := l.writeDeadLetter(w); err != nil {
			w.Err, w.Verdict = err, batch.Wait
		}
	}
	f.endWrite()
	l.nextChunk(b)
	switch verdict := w.Verdict; {
	case b.pendingCount() == 0:
		l.succeeded(b, now, wrote)
		b.since, b.due = now, 0
		l.move(b, stored)
		if b.state == catchingUp && l.walkIsDone() {
			l.caughtUp(b)
		}
		if b.state == idle {
			b.maySent, b.failureState = b.recovered, nil
			b.series, b.shape = nil, nil // the catalog may forget them
			l.forgetSurplus(b)
		}
	case verdict == batch.Wait || verdict == batch.Hangs:
		l.failed(f, now, others)
		l.backOff(f, now, full)
	case verdict == batch.Unsent:
		b.initFailureState()
		b.unsent++
		l.backOff(f, now, full)
	default:
		if f.stored() { // otherwise the store only learned how to continue
			l.succeeded(b, now, wrote)
		}
		if b.state == probing { // the walk will deliver the rest
			l.drop(b)
		} else {
			b.since = l.firstArrived(b)
		}
		l.move(b, partly)
		if b.state == pending {
			l.schedule.makeUrgent(b, byRetry, now)
		}
	}
	l.repack(b)
}

// firstArrived returns when the first row of a bucket began to gather, after a write.
func (l *lane) firstArrived(b *bucket) time.Time {
	if b.packedRows > 0 && b.unpacked == nil {
		return l.lastWrite.began.Add(b.packed.arrived)
	}
	return parcelOf(b.rows[0]).since
}

// sinceBegin returns a time as a duration since the queue began.
func (l *lane) sinceBegin(at time.Time) time.Duration { return at.Sub(l.lastWrite.began) }

func (l *lane) succeeded(b *bucket, now time.Time, wrote bool) {
	if b.state.lacks() {
		l.aside.probeAt = time.Time{} // what blocked this bucket may have blocked others
	}
	if b.failureState != nil {
		b.attempts, b.unsent, b.alone, b.hung = 0, 0, 0, 0
	}
	l.wrote = now
	if wrote {
		l.lastWrite.set(now)
	}
}

// failed counts a failed write.
func (l *lane) failed(f *flight, now time.Time, others bool) {
	b := f.bucket
	l.queue.metrics.retries.Inc()
	b.initFailureState()
	b.attempts++
	if f.pending.Verdict == batch.Hangs {
		b.hung++
	}
	// In an outage all buckets fail, and nothing is written between two failures of one.
	if others || !b.failed.IsZero() && l.lastWrite.after(b.failed) {
		b.alone++
	}
	b.failed = now
	if !errors.Is(f.pending.Err, context.Canceled) { // the lane itself cancels it when it ends
		l.queue.logFailure(l.stream, b.attempts, f.pending.Err)
	}
}

// backOff makes a bucket wait after a failed write, in memory or set aside. Jitter prevents
// buckets that failed together from being retried together.
func (l *lane) backOff(f *flight, now time.Time, full bool) {
	b, e := f.bucket, fails
	if l.isStuck(b, f.pending.Verdict, full) {
		e = stuck
	}
	switch {
	case b.state.lacks():
		l.drop(b)
	case e == stuck:
		l.drop(b)
		l.queue.logAside(l.stream, b, f.pending.Err)
	default:
		d := min(minBackoff<<max(0, min(b.attempts+b.unsent-1, 10)), maxBackoff)
		b.notBefore = now.Add(d/2 + b.jitter(d))
	}
	l.move(b, e)
}

// jitter returns a duration less than d that depends only on the bucket and the attempt.
func (b *bucket) jitter(d time.Duration) time.Duration {
	seed := rand.NewPCG(batch.SeriesHash(b.key.session, b.key.sensor), uint64(b.key.start)+uint64(b.attempts+b.unsent))
	return time.Duration(rand.New(seed).Int64N(int64(d)))
}

// writeDeadLetter turns the first pending reading into a dead letter.
func (l *lane) writeDeadLetter(pending *batch.Pending) error {
	r := pending.Rows[0]
	if err := l.queue.cfg.DeadLetters.Put(l.letter(r, pending.Err)); err != nil {
		return err
	}
	l.queue.metrics.deadLetters.Inc()
	r.Batch.Tracker.Refused(r.Row(), telemetry.Refuse(telemetry.StoreRefused, "MongoDB refused the reading, which is kept as a dead letter: %v", pending.Err))
	pending.Drop(1)
	return nil
}

func (l *lane) letter(r batch.Ref, reason error) DeadLetter {
	return DeadLetter{
		ID: fmt.Sprintf("%s-%d", r.Batch.Session, r.Seq()), Stream: l.stream,
		Reading: r.Batch.Reading(r.Index), Reason: reason,
	}
}

// report publishes how far the lane has stored everything, and what is late.
func (l *lane) report(now time.Time) {
	l.held.Store(l.memory())
	// Everything before this position is stored, except rows that buckets lack.
	settled := min(l.cursor.Position(), l.parcels.oldest(), l.packed.oldest())
	l.assess(now)
	if applied := min(settled, l.oldestLacked()); applied > l.applied.Load() {
		l.applied.Store(applied)
		l.queue.advance()
	}
}

// assessAgain is how often a lane computes what is late, which takes long if many buckets
// fail.
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
		late(timeOf(b.due))
	}
	for b := range l.lacking {
		late(timeOf(b.due))
	}
	late(l.full)
	l.overdue.Store(nanosOf(due))
	var oldest time.Time
	if first := l.parcels.Front(); first != nil {
		oldest = first.Value.(*parcel).arrived
	}
	if first := l.packed.first; first != nil {
		if at := l.lastWrite.began.Add(first.packed.arrived); oldest.IsZero() || at.Before(oldest) {
			oldest = at
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

// timeOf is the inverse of nanosOf.
func timeOf(ns int64) (t time.Time) {
	if ns != 0 {
		t = time.Unix(0, ns)
	}
	return t
}

// lastWrite is when any lane of a stream last wrote rows.
type lastWrite struct {
	began time.Time    // when the queue began
	at    atomic.Int64 // of the last write, in ns since began; 0: never
}

func (w *lastWrite) set(now time.Time)         { w.at.Store(int64(now.Sub(w.began))) }
func (w *lastWrite) after(then time.Time) bool { return w.at.Load() > int64(then.Sub(w.began)) }
