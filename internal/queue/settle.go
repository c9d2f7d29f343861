package queue

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// settle acts on the verdict of a written share, and reports whether the
// bucket is to be written again at once. others says that some share behind it
// was stored by the same write.
func (l *lane) settle(b *bucket, now time.Time, others bool) (again bool) {
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
			return false
		}
		b.share.Recovered = b.recovered
		if len(l.buckets) > l.remembered {
			l.forget(b)
		}
		return false
	case verdict == batch.Unsent:
		l.leave(b, now)
		return false
	case verdict == batch.Wait:
		l.putOff(b, now, others)
		return false
	default:
		l.wentWell(b, now)
		b.since = b.share.Rows[0].Batch.Received
		return true
	}
}

func (l *lane) wentWell(b *bucket, now time.Time) {
	b.attempts, b.alone, l.lastOK = 0, 0, now
}

// putOff lets a bucket back off, with jitter so that those which failed
// together do not come back together.
func (l *lane) putOff(b *bucket, now time.Time, others bool) {
	l.queue.metrics.retries.Inc()
	b.attempts++
	// Where everything fails the buckets fail together, and nothing is written
	// between two failures of one.
	if others || l.lastOK.After(b.failed) && !b.failed.IsZero() {
		b.alone++
	}
	b.failed = now
	l.leave(b, now)
	// A cancelled lane's errors are its own doing.
	if !errors.Is(b.share.Err, context.Canceled) {
		l.queue.warn(l.stream, b.attempts, b.share.Err)
	}
}

// leave lets a bucket wait: in memory, or aside.
func (l *lane) leave(b *bucket, now time.Time) {
	if l.isStuck(b) {
		l.setAside(b)
	} else {
		l.backOff(b, now)
	}
}

func (l *lane) backOff(b *bucket, now time.Time) {
	d := min(minBackoff<<max(0, min(b.attempts-1, 10)), maxBackoff)
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
