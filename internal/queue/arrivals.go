package queue

import (
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
)

// Arrivals hears which sensors readings come from. Came is called by several
// lanes at once, for each update of a bucket with the arrival of its newest
// reading, and does not wait.
type Arrivals interface {
	Came(sensor string, at time.Time)
}

// hears tells of the newest of a bucket's rows before they are written: that
// they came is true whatever becomes of them.
func (l *lane) hears(b *bucket) {
	if rows := b.share.Rows; l.cfg.Arrivals != nil && len(rows) > 0 {
		l.cfg.Arrivals.Came(b.key.sensor, rows[len(rows)-1].Batch.Received)
	}
}

// hearsAside tells of a row whose bucket is set aside, so that it stays in the
// journal.
func (l *lane) hearsAside(b *bucket, r batch.Ref) {
	if l.cfg.Arrivals != nil {
		l.cfg.Arrivals.Came(b.key.sensor, r.Batch.Received)
	}
}

// toldAll notes, where the lane is about to sleep, until when it has told of all
// arrivals. Without room for more it does not know what came meanwhile.
func (l *lane) toldAll() {
	switch {
	case !l.hasRoom() || !l.readAgain.IsZero():
	case len(l.pending) > 0:
		l.toldUntil.Store(l.pending[0].since.UnixNano())
	default:
		l.toldUntil.Store(asleep)
	}
}

// asleep stands for now: until it is woken the lane has told of everything.
const asleep = 0

// wakes notes that from here on something may have come that was not told of.
func (l *lane) wakes() {
	if l.toldUntil.Load() == asleep {
		l.toldUntil.Store(time.Now().UnixNano())
	}
}

// ToldUntil returns the time until which all arrivals in a stream were told to
// its Arrivals. It lies back as long as readings wait in the journal.
func (q *Queue) ToldUntil(stream string) time.Time {
	until := time.Now()
	for _, l := range q.lanes {
		if at := l.toldUntil.Load(); l.stream == stream && at != asleep && at < until.UnixNano() {
			until = time.Unix(0, at)
		}
	}
	return until
}
