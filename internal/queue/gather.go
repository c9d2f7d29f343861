package queue

import (
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
)

// Rows refer to the batch of their request, which stays in memory as long as one of its
// rows does. That is cheapest if readings are written soon. Rows that wait longer are
// copied to a batch of their bucket, so that a reading takes only the memory of its
// values, whatever the size of its request.
const (
	gatherAfter = 5 * time.Second
	gatherAgain = 250 * time.Millisecond
)

// gather copies the rows of records that arrived long ago.
func (l *lane) gather(now time.Time) {
	if now.Sub(l.gatheredAt) < gatherAgain {
		return
	}
	l.gatheredAt = now
	for e := l.parcels.Front(); e != nil; {
		p := e.Value.(*parcel)
		if now.Sub(p.since) < gatherAfter {
			return
		}
		e = e.Next() // the parcel may be removed
		if p.waits == nil && l.own(&p.view) {
			l.gatherFrom(p)
		}
	}
}

func (l *lane) gatherFrom(p *parcel) {
	for i := range uint32(p.view.Len()) {
		row := p.view.Row(i)
		if !l.owned[p.view.SeriesNumber(row)] {
			continue
		}
		b := l.bucketOf(p, row, false)
		if b == nil || b.state != pending && b.state != backingOff {
			continue
		}
		// Rows are copied in order. If the store has changed the order of a bucket's rows,
		// the rest is not copied.
		at := 0
		if b.gathered != nil {
			at = b.gathered.left
		}
		r := batch.Ref{Batch: &p.view, Index: i}
		if at >= len(b.pending.Rows) || b.pending.Rows[at] != r {
			continue
		}
		if copied, ok := l.gathering(b, p).gather(r); ok {
			b.pending.Rows[at] = copied
			p.drop(1)
		}
	}
}

// gathering returns the parcel for rows that are copied to the bucket.
func (l *lane) gathering(b *bucket, from *parcel) *parcel {
	if b.gathered != nil && b.gathered.left > 0 {
		return b.gathered
	}
	p := &parcel{lane: l, position: from.position, arrived: from.arrived, since: from.since, granularity: from.granularity}
	p.view = from.view.Empty(p)
	l.gathered.insert(p)
	l.gathered.charge(p, parcelBytes, 0)
	b.gathered = p
	return p
}

// gather copies a row; ok is false if it does not fit.
func (p *parcel) gather(r batch.Ref) (copied batch.Ref, ok bool) {
	if !p.view.Append(r) {
		return r, false
	}
	p.left++
	before := p.size
	p.size = parcelBytes + p.view.MemorySize()
	p.list.bytes += p.size - before
	return batch.Ref{Batch: &p.view, Index: uint32(p.view.Len() - 1)}, true
}
