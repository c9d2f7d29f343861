package queue

import (
	"cmp"
	"fmt"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// hasRoom reports whether the lane may hold more. Where all lanes hold the same
// batches each is charged its share of them; a lane that has few rows of many
// batches, which the others have done with, is the one that keeps them in
// memory. A record is taken as a whole, so the last one may go beyond.
func (l *lane) hasRoom() bool {
	return l.parcels.bytes+l.reread.bytes < l.budget && l.parcels.pinned+l.reread.pinned < l.queue.cfg.MaxBytes
}

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
		l.take(r, &l.parcels, l.takeNew)
	}
}

// unread puts off the reading of a journal that cannot be read.
func (l *lane) unread(now time.Time, err error) {
	l.readAgain = now.Add(time.Second)
	l.queue.metrics.readErrors.Inc()
	l.queue.cfg.Logger.Error("read the journal", "stream", l.stream, "position", l.cursor.Position(), "err", err)
}

// takeNew gives a row that comes for the first time to its bucket.
func (l *lane) takeNew(p *parcel, r batch.Ref) bool {
	b := l.bucketOf(p, r.Row())
	switch {
	case b.state.lacks():
		l.hearsAside(b, r)
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

// take offers the record's rows of this lane's sensors to give, and adds a parcel
// of those taken to the list.
func (l *lane) take(r batch.Record, list *parcels, give func(p *parcel, r batch.Ref) (taken bool)) {
	b := r.Batch
	if !l.own(b) {
		return
	}
	p := &parcel{lane: l, position: r.Position, waits: b.Tracker, left: 1} // one more, until it is complete
	p.view = b.View(p)
	p.arrived = arrival(b, time.Now())
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
	mine := whole * rows / int64(p.view.Len())
	list.charge(p, parcelBytes+rows*refBytes+mine, whole)
	p.drop(1)
	l.rush = l.rush || p.waits != nil
}

// granularityOf returns the granularity of the windows that a batch's rows belong
// to.
func (l *lane) granularityOf(b *batch.Batch) time.Duration {
	return cmp.Or(b.Granularity(l.stream), l.cfg.Granularity)
}

// arrival returns when a batch arrived, by the monotonic clock. For a batch of an
// earlier process, the wall clock tells how long ago that was; if the clock was
// set back since, that lies in the future and counts as now.
func arrival(b *batch.Batch, now time.Time) time.Time {
	return now.Add(-max(0, now.Sub(b.Received)))
}

// own notes which series of the batch belong to this lane, and reports whether
// any does.
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

// bucketOf returns the bucket that a row belongs to.
//
// A series is mostly in the window that it was in before, so the bucket is first
// looked for by the series' pointer: looking at a sensor id of hundreds of bytes
// would cost more than the rest of the lane's work.
func (l *lane) bucketOf(p *parcel, row *batch.Row) *bucket {
	series := p.view.Series(row)
	if b := l.recent(p, series, row); b != nil {
		return b
	}
	b := l.findBucket(p, series, row)
	if before := b.series; before != nil && l.latest[before] == b {
		delete(l.latest, before)
	}
	b.series, l.latest[series] = series, b
	return b
}

// findBucket returns the bucket of a row by its key, a new one if there is none.
func (l *lane) findBucket(p *parcel, series *batch.Series, row *batch.Row) *bucket {
	key := p.keyOf(series, row)
	b := l.buckets[key]
	if b == nil {
		l.makeRoom()
		b = &bucket{key: key, state: idle, share: p.shareOf(key), recovered: p.view.Recovered}
		l.buckets[key] = b
		l.active.Add(1)
	}
	return b
}

// makeRoom forgets an idle bucket if the lane remembers too many: one of a few
// that the map yields at random.
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

// keyOf returns the key of the bucket that a row of the parcel belongs to.
func (p *parcel) keyOf(series *batch.Series, row *batch.Row) bucketKey {
	return bucketKey{
		sensor: series.Sensor, start: row.Time - row.Time%p.granularity.Milliseconds(),
		granularity: p.granularity, session: p.view.Session,
	}
}

// shareOf returns a share without rows for a bucket of the parcel's.
func (p *parcel) shareOf(key bucketKey) batch.Share {
	return batch.Share{
		Stream: p.lane.stream, Sensor: key.sensor, Start: key.start, Granularity: key.granularity,
		Session: key.session, Recovered: p.view.Recovered,
	}
}

// known returns the bucket of a row, nil if the lane remembers none.
func (l *lane) known(p *parcel, row *batch.Row) *bucket {
	series := p.view.Series(row)
	if b := l.recent(p, series, row); b != nil {
		return b
	}
	return l.buckets[p.keyOf(series, row)]
}

// recent returns the bucket that the series was last in, if the row belongs to it.
func (l *lane) recent(p *parcel, series *batch.Series, row *batch.Row) *bucket {
	if b := l.latest[series]; b != nil && b.contains(row.Time) && b.key.granularity == p.granularity && b.key.session == p.view.Session {
		return b
	}
	return nil
}

func (l *lane) add(b *bucket, p *parcel, r batch.Ref) {
	if len(b.share.Rows) == 0 {
		b.since = p.arrived
	}
	b.lastSeq = max(b.lastSeq, r.Seq())
	b.share.Rows = append(b.share.Rows, r)
	if b.state != pending {
		l.move(b, row)
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
	p := parcelOf(r)
	p.Refused(r.Row(), telemetry.Refuse(telemetry.StoreRefused, "the reading was not stored because of a defect in Brim; send it again"))
	// It stays until the parcel is complete, which holds one row more.
	p.left++
	p.Released(1)
}
