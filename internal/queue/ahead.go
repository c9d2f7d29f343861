package queue

import (
	"context"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
)

// A lane that is full and writes nothing cannot tell whether MongoDB is down or
// its buckets are stuck: the rows of other buckets, which would show it, come
// later in the journal, and there is no room for them. So it looks ahead: it sends
// the oldest rows of a few other buckets without keeping them. If one is stored,
// MongoDB is up, and buckets that then fail once more are set aside; otherwise
// none is, and all rows are written from memory when MongoDB is back. The lane's
// cursor delivers the rows sent ahead again, as rows that may have been sent
// before.
type ahead struct {
	cursor  batch.Cursor           // nil: nothing was read ahead since the lane last had room
	seen    map[bucketKey]struct{} // since the cursor began; only the first rows of a bucket may be sent
	at      time.Time              // of the next step
	pause   time.Duration          // before it
	reached uint64                 // rows before this position may have been sent
	anew    time.Time              // when the journal is read once more from the lane's position; zero: its end is not reached
	round   time.Duration          // how long after that was reached
}

const (
	// stalledAfter is how long a lane is full and writes nothing before it looks
	// ahead. Every bucket is retried a few times meanwhile.
	stalledAfter = time.Second
	// readPause is the pause after a step that found nothing to try.
	readPause = 10 * time.Millisecond
	// maxSeen bounds what is remembered of a look ahead, which ends there.
	maxSeen = 10_000
	// longestRound bounds how rarely a journal is read again whose end was reached.
	longestRound = 30 * time.Second
)

func (a *ahead) close() {
	if a.cursor != nil {
		a.cursor.Close()
	}
	a.cursor, a.seen, a.pause, a.anew = nil, nil, 0, time.Time{}
}

// end ends a look ahead that found no more. What comes later is tried as it comes;
// what was tried, when the journal is read again, each time twice as late.
func (a *ahead) end(now time.Time) {
	if a.anew.IsZero() {
		a.round = min(max(2*a.round, maxBackoff), longestRound)
		a.anew = now.Add(a.round)
	}
}

// looksAheadAt returns when a full lane looks ahead unless something is written
// before.
func (l *lane) looksAheadAt() time.Time {
	stalled := l.full.Add(stalledAfter)
	for _, at := range []time.Time{l.wrote.Add(stalledAfter), l.ahead.at} {
		if at.After(stalled) {
			stalled = at
		}
	}
	return stalled
}

// lookAhead tries some buckets that the lane has no room for.
func (l *lane) lookAhead(ctx context.Context, now time.Time) {
	a := &l.ahead
	switch {
	case l.hasRoom():
		l.full, a.round = time.Time{}, 0
		a.close()
		return
	case l.full.IsZero():
		l.full = now
	}
	if now.Before(l.looksAheadAt()) || l.queue.cfg.Faults.Off(fault.LookAhead) || l.queue.cfg.Faults.Off(fault.SetAside) {
		return
	}
	shares, more := l.others(now)
	if len(shares) == 0 {
		a.at = now.Add(readPause)
		if !more {
			a.at = now.Add(maxBackoff)
		}
		return
	}
	sent := 0
	for _, s := range shares {
		sent += len(s.Rows)
	}
	l.cfg.Store.Write(ctx, shares)
	for _, s := range shares {
		sent -= len(s.Rows)
	}
	if sent > 0 {
		l.someAreStored(time.Now())
	}
	a.pause = min(max(2*a.pause, probePause), maxBackoff)
	a.at = time.Now().Add(a.pause)
}

// others reads on for buckets that hold no rows and lack none, and returns
// shares with the first rows of each, and whether there is more to read. Nothing of
// it is the lane's.
func (l *lane) others(now time.Time) (shares []*batch.Share, more bool) {
	a := &l.ahead
	if a.cursor == nil || a.cursor.Position() < l.cursor.Position() || !a.anew.IsZero() && !now.Before(a.anew) {
		a.close()
		a.cursor, a.seen = l.queue.cfg.Journal.Follow(l.cursor.Position(), l.part), make(map[bucketKey]struct{})
	}
	for range stepRecords {
		if len(shares) >= probesAtOnce {
			break
		}
		if len(a.seen) > maxSeen {
			a.end(now)
			return shares, false
		}
		r, found, err := a.cursor.Next()
		switch {
		case err != nil:
			l.unread(now, err)
			a.close() // from the beginning, next time
			return shares, false
		case !found:
			a.end(now)
			return shares, false
		}
		shares = append(shares, l.othersOf(r)...)
		a.reached = max(a.reached, r.Next)
	}
	return shares, true
}

// othersOf returns shares with a record's rows of such buckets.
func (l *lane) othersOf(r batch.Record) []*batch.Share {
	if !l.own(r.Batch) {
		return nil
	}
	p := &parcel{lane: l, view: r.Batch.View(nil), granularity: l.granularityOf(r.Batch)}
	found := make(map[bucketKey]*batch.Share)
	var shares []*batch.Share
	for i := range uint32(p.view.Len()) {
		row := p.view.Row(i)
		if !l.owned[p.view.SeriesNumber(row)] {
			continue
		}
		key := p.keyOf(p.view.Series(row), row)
		s := found[key]
		if s == nil {
			_, seen := l.ahead.seen[key]
			l.ahead.seen[key] = struct{}{}
			if b := l.buckets[key]; seen || b != nil && b.state != idle {
				continue
			}
			one := p.shareOf(key)
			one.Recovered = true
			s = &one
			found[key] = s
			shares = append(shares, s)
		}
		s.Rows = append(s.Rows, batch.Ref{Batch: &p.view, Index: i})
	}
	return shares
}

// someAreStored makes all buckets that back off due now: those that fail again are
// at fault.
func (l *lane) someAreStored(now time.Time) {
	l.ahead.pause, l.ahead.round = 0, 0
	l.lastWrite.set(now)
	for _, b := range l.waiting {
		b.notBefore = now
	}
}
