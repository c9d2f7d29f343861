package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// settle acts on the verdict of a written share. others says that a later share
// was stored by the same write, full that the lane had no room for more when the
// write began.
func (l *lane) settle(b *bucket, now time.Time, others, full bool) {
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
		l.settleStored(b, now)
	case verdict == batch.Wait || verdict == batch.Hangs:
		l.settleFailed(b, now, others)
		l.leave(b, now, full)
	case verdict == batch.Unsent:
		b.unsent++
		l.leave(b, now, full)
	default:
		l.wentWell(b, now)
		if b.state == probing { // the walk will deliver the rest
			l.drop(b)
		} else {
			b.since = parcelOf(b.share.Rows[0]).arrived
			l.rush = true
		}
		l.move(b, partly)
	}
}

// settleStored notes that all the rows of a bucket are stored.
func (l *lane) settleStored(b *bucket, now time.Time) {
	b.notBefore = now
	l.wentWell(b, now)
	if cap(b.share.Rows) > keptRows {
		b.share.Rows = nil
	}
	l.move(b, stored)
	if b.state == catchingUp && l.walkIsDone() {
		l.caughtUp(b)
	}
	if b.state != idle {
		return
	}
	b.share.Recovered = b.recovered
	if len(l.buckets) > l.remembered {
		l.forget(b)
	}
}

func (l *lane) wentWell(b *bucket, now time.Time) {
	if b.state.lacks() {
		l.aside.probeAt = time.Time{} // what blocked the others may be gone, too
	}
	b.attempts, b.unsent, b.alone, b.share.Hung = 0, 0, 0, 0
	l.wrote = now
	l.lastWrite.set(now)
}

// settleFailed counts a failure.
func (l *lane) settleFailed(b *bucket, now time.Time, others bool) {
	l.queue.metrics.retries.Inc()
	b.attempts++
	if b.share.Verdict == batch.Hangs {
		b.share.Hung++
	}
	// Where everything fails the buckets fail together, and nothing is written
	// between two failures of one.
	if others || !b.failed.IsZero() && l.lastWrite.after(b.failed) {
		b.alone++
	}
	b.failed = now
	// A cancelled lane's errors are its own doing.
	if !errors.Is(b.share.Err, context.Canceled) {
		l.queue.warn(l.stream, b.attempts, b.share.Err)
	}
}

// leave makes a bucket whose write failed wait, in memory or aside. The jitter
// keeps buckets that failed together from being retried together.
func (l *lane) leave(b *bucket, now time.Time, full bool) {
	e := fails
	if l.isStuck(b, full) {
		e = stuck
	}
	switch {
	case b.state.lacks():
		l.drop(b)
	case e == stuck:
		l.drop(b)
		l.queue.toldAside(l.stream, b)
	default:
		d := min(minBackoff<<max(0, min(b.attempts+b.unsent-1, 10)), maxBackoff)
		b.notBefore = now.Add(d/2 + rand.N(d))
	}
	l.move(b, e)
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
