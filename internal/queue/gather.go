package queue

import (
	"math"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
)

// Rows refer to the batch of their request, which stays in memory as long as one of its rows
// does. That is efficient if readings are written soon. Rows that wait longer are packed,
// bucket by bucket, and unpacked for a write or a query.
const (
	gatherAfter = 5 * time.Second
	gatherAgain = 250 * time.Millisecond
)

// gather packs rows that have waited for gatherAfter.
func (l *lane) gather(now time.Time) {
	if now.Sub(l.gatheredAt) < gatherAgain && l.hasRoom() {
		return
	}
	l.gatheredAt = now
	for e := l.parcels.Front(); e != nil; {
		p := e.Value.(*parcel)
		if now.Sub(p.since) < gatherAfter {
			return
		}
		e = e.Next() // the parcel may be removed
		if p.waiter == nil && l.own(&p.view) {
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
		// Rows are packed in order. They are not packed if the store has changed their order.
		r := batch.Ref{Batch: &p.view, Index: i}
		if len(b.rows) == 0 || b.rows[0] != r || b.unpacked != nil {
			continue
		}
		if l.pack(b, p, r) {
			b.dropFirst(1)
			p.drop(1)
		}
	}
}

// A chunk has packed rows that a write unpacks together.
type chunk struct {
	batch.Packed

	position uint64        // of the record of the first row
	arrived  time.Duration // when that record arrived, since the queue began
	unpacked int           // size of the rows' values when unpacked
}

// The maximum size of a chunk, since unpacked rows take much more memory.
const (
	chunkRows  = 1024
	chunkBytes = 256 << 10
)

// pack packs the first row of a bucket; false if it does not fit.
func (l *lane) pack(b *bucket, p *parcel, r batch.Ref) bool {
	to := &b.packed
	if to.Len() > 0 && len(b.more) > 0 {
		to = &b.more[len(b.more)-1]
	}
	if to.Len() == chunkRows || to.unpacked >= chunkBytes {
		b.more = append(b.more, chunk{})
		to = &b.more[len(b.more)-1]
	}
	before := to.MemorySize()
	if !to.Append(r) {
		return false
	}
	l.packed.bytes += to.MemorySize() - before
	to.unpacked += int(r.Row().Size)
	b.packedRows++
	b.series, b.shape = nil, nil // packed rows take less memory
	if to.Len() > 1 {
		return true
	}
	to.position, to.arrived = p.position, l.sinceBegin(p.arrived)
	if b.packedRows == 1 {
		b.key.sensor = p.view.Series(b.rows[0].Row()).Sensor // an equal string, which the packed rows keep in memory anyway
		l.buckets[b.key] = b                                 // replaces the string in the key, too
		l.packed.insert(b)
	}
	return true
}

// dropFirst removes the first n rows, so that nothing refers to their batches.
func (b *bucket) dropFirst(n int) {
	if n == len(b.rows) {
		b.rows = nil
		return
	}
	clear(b.rows[:n])
	b.rows = b.rows[n:]
}

// unpack unpacks the first chunk of a bucket for a write. It returns how many of b.rows the
// write may include; if there are more chunks, the rows after them have to wait.
func (l *lane) unpack(b *bucket) int {
	if n := b.packed.Len(); n > 0 {
		p := &parcel{
			lane: l, bucket: b, position: b.packed.position, arrived: l.lastWrite.began.Add(b.packed.arrived), since: b.since,
			granularity: b.key.granularity, size: b.packed.MemorySize(), left: n, view: b.unpackedRows(&b.packed),
		}
		p.view.Tracker = p
		rows := appendAll(make([]batch.Ref, 0, n+len(b.rows)), &p.view)
		b.rows, b.unpacked = append(rows, b.rows...), p
		b.packed.Packed, b.packed.unpacked = batch.Packed{}, 0
		b.packedRows -= n
	}
	if len(b.more) > 0 {
		return b.unpacked.left
	}
	return len(b.rows)
}

// repack packs the rows again that a write did not store, unless the store has changed their
// order.
func (l *lane) repack(b *bucket) {
	p := b.unpacked
	if p == nil || p.left > len(b.rows) {
		return
	}
	var packed batch.Packed
	for _, r := range b.rows[:p.left] {
		if r.Batch != &p.view || !packed.Append(r) {
			return
		}
	}
	for _, r := range b.rows[:p.left] {
		b.packed.unpacked += int(r.Row().Size)
	}
	b.dropFirst(p.left)
	b.packed.Packed, b.unpacked = packed, nil
	b.packedRows += packed.Len()
	l.packed.bytes += packed.MemorySize() - p.size
}

// unpackedAreGone notes that all unpacked rows are stored.
func (l *lane) unpackedAreGone(b *bucket) {
	l.packed.bytes -= b.unpacked.size
	l.packed.remove(b)
	b.unpacked = nil
}

// nextChunk moves to the next chunk if the first one is stored.
func (l *lane) nextChunk(b *bucket) {
	if len(b.more) > 0 && b.packed.Len() == 0 && b.unpacked == nil {
		b.packed, b.more[0] = b.more[0], chunk{}
		b.more = b.more[1:]
		l.packed.insert(b)
	}
}

// dropPacked drops the packed rows, and calls drop for each.
func (l *lane) dropPacked(b *bucket, drop func(position uint64, r batch.Ref)) {
	if b.packedRows == 0 {
		return
	}
	for _, c := range append([]chunk{b.packed}, b.more...) {
		rows := b.unpackedRows(&c)
		for _, r := range appendAll(nil, &rows) {
			drop(c.position, r)
		}
		l.packed.bytes -= c.MemorySize()
	}
	l.packed.remove(b)
	b.packed, b.more, b.packedRows = chunk{}, nil, 0
}

// unpackedRows returns the rows of a chunk.
func (b *bucket) unpackedRows(c *chunk) batch.Batch {
	rows, granularity := c.Unpack(), b.key.granularity
	rows.Session, rows.Recovered = b.key.session, b.recovered
	rows.SetGranularity(func(string) time.Duration { return granularity })
	return rows
}

func appendAll(to []batch.Ref, rows *batch.Batch) []batch.Ref {
	for i := range uint32(rows.Len()) {
		to = append(to, batch.Ref{Batch: rows, Index: i})
	}
	return to
}

// packedList lists the buckets with packed or unpacked rows in the order of positions.
type packedList struct {
	first, last *bucket
	n           int
	bytes       int64 // size of the packed rows
}

// oldest returns the position of the first bucket.
func (l *packedList) oldest() uint64 {
	if l.first != nil {
		return l.first.packed.position
	}
	return math.MaxUint64
}

// insert inserts b in the order of positions, searching from the end.
func (l *packedList) insert(b *bucket) {
	at := l.last
	for at != nil && at.packed.position > b.packed.position {
		at = at.packedPrev
	}
	b.packedPrev = at
	if at == nil {
		b.packedNext, l.first = l.first, b
	} else {
		b.packedNext, at.packedNext = at.packedNext, b
	}
	if b.packedNext == nil {
		l.last = b
	} else {
		b.packedNext.packedPrev = b
	}
	l.n++
}

// remove removes a bucket if it is listed.
func (l *packedList) remove(b *bucket) {
	if b.packedPrev == nil && l.first != b {
		return
	}
	if b.packedPrev == nil {
		l.first = b.packedNext
	} else {
		b.packedPrev.packedNext = b.packedNext
	}
	if b.packedNext == nil {
		l.last = b.packedPrev
	} else {
		b.packedNext.packedPrev = b.packedPrev
	}
	b.packedPrev, b.packedNext = nil, nil
	l.n--
}
