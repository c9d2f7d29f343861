package queue

import (
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A parcel is what a lane holds of one record: the rows of its sensors, until
// the last of them is at rest. It belongs to its lane's goroutine.
type parcel struct {
	lane        *lane
	view        batch.Batch   // what the rows refer to, with the parcel as tracker
	waits       batch.Tracker // of someone who waits for the rows; nil: nobody
	position    uint64        // of the record
	arrived     time.Time     // when the record did, by the monotonic clock
	granularity time.Duration // of the windows that its rows belong to
	size        int64         // that the rows cost the lane's budget
	pins        int64         // bytes of the batch, which stays in memory as long as one row does
	left        int           // rows that are not stored

	// While a probe has the rows, those it stores are counted here, since the lane
	// keeps running meanwhile.
	away bool
	gone int

	list          *parcels // that it is in
	before, after *parcel  // in the order of positions
}

// What a parcel costs besides its rows, and a row besides its batch: a reference
// in its bucket's share, with the room that a growing slice has to spare.
const (
	parcelBytes = 320
	refBytes    = 24
)

// Released implements batch.Tracker.
func (p *parcel) Released(n int) {
	if p.away {
		p.gone += n
		return
	}
	p.lane.queue.released.Add(uint64(n))
	if p.drop(n) {
		p.lane.queue.metrics.lag.Observe(time.Since(p.arrived).Seconds())
	}
	if p.waits != nil {
		p.waits.Released(n)
	}
}

// Refused implements batch.Tracker.
func (p *parcel) Refused(row *batch.Row, why *telemetry.Refusal) {
	if p.waits != nil {
		p.waits.Refused(row, why)
	}
}

// back says that the probe that had the rows has ended.
func (p *parcel) back() {
	gone := p.gone
	p.away, p.gone = false, 0
	if gone > 0 {
		p.Released(gone)
	}
}

// drop reports whether those n were the last.
func (p *parcel) drop(n int) bool {
	if p.left -= n; p.left > 0 {
		return false
	}
	p.list.remove(p)
	return true
}

// parcelOf returns the parcel that a row came in.
func parcelOf(r batch.Ref) *parcel {
	p, _ := r.Batch.Tracker.(*parcel) // nothing else is in a lane
	return p
}

// parcels is a list in the order of positions, with the sums of what they cost.
type parcels struct {
	first, last *parcel
	bytes       int64
	pinned      int64
}

// charge says what a listed parcel costs.
func (l *parcels) charge(p *parcel, size, pins int64) {
	p.size, p.pins = size, pins
	l.bytes += size
	l.pinned += pins
}

// insert puts p where its position belongs, looking from the end.
func (l *parcels) insert(p *parcel) {
	p.list = l
	at := l.last
	for at != nil && at.position > p.position {
		at = at.before
	}
	p.before = at
	if at == nil {
		p.after, l.first = l.first, p
	} else {
		p.after, at.after = at.after, p
	}
	if p.after == nil {
		l.last = p
	} else {
		p.after.before = p
	}
}

func (l *parcels) remove(p *parcel) {
	l.bytes -= p.size
	l.pinned -= p.pins
	if p.before == nil {
		l.first = p.after
	} else {
		p.before.after = p.after
	}
	if p.after == nil {
		l.last = p.before
	} else {
		p.after.before = p.before
	}
	p.before, p.after = nil, nil
}
