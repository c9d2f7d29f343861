package journal

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// published is what cursors can follow: the end of the durable records, the newest batches, and
// arrival times.
type published struct {
	mu        sync.Mutex
	end       uint64
	taken     uint64 // readings
	grown     chan struct{}
	tail      deque[tailEntry]
	tailBytes int64
	maxTail   int64
	now       func() time.Time
	times     deque[arrival]
}

// tailEntry is a recent batch in memory.
type tailEntry struct {
	record batch.Record
	size   int64
}

// An arrival is when the record at a position arrived. It also stands for the records within
// arrivalStep after it, so hours of unstored readings take little memory.
type arrival struct {
	position uint64
	at       time.Time // by the monotonic clock
}

const arrivalStep = 250 * time.Millisecond

// add publishes the records of one commit.
func (p *published) add(entries []entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range entries {
		e := &entries[i]
		size := e.batch.MemorySize()
		p.tail.push(tailEntry{batch.Record{Batch: e.batch, Position: e.position, Next: e.next}, size})
		p.tailBytes += size
		p.taken += uint64(e.batch.Len())
		p.arrived(e.position, e.batch.Received)
		p.end = e.next
	}
	// The newest batch stays regardless of its size, since all lanes are about to read it.
	for p.tailBytes > p.maxTail && p.tail.n > 1 {
		p.tailBytes -= p.tail.first().size
		p.tail.drop()
	}
	if p.grown != nil {
		close(p.grown)
		p.grown = nil
	}
}

// arrived notes when the record at a position arrived. The wall clock tells how long ago that
// was, at least 0 because clocks may be set back; then the age grows by the monotonic clock. It
// adds an entry only if the time is at least arrivalStep after that of the last entry.
func (p *published) arrived(position uint64, received time.Time) {
	now := p.now()
	at := now.Add(-max(0, now.Sub(received)))
	if p.times.n > 0 && at.Before(p.times.last().at.Add(arrivalStep)) {
		return
	}
	p.times.push(arrival{position, at})
}

// forget drops the times before a position.
func (p *published) forget(position uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.times.n > 1 && p.times.at(p.times.base+1).position <= position {
		p.times.drop()
	}
}

// age returns how long ago the record at a position arrived; 0 if there is none yet.
func (p *published) age(position uint64) time.Duration {
	p.forget(position)
	p.mu.Lock()
	defer p.mu.Unlock()
	if position >= p.end || p.times.n == 0 {
		return 0
	}
	return max(0, p.now().Sub(p.times.first().at))
}

// find returns the record at a position if it is in memory, its number in the tail, and the
// published end. hint is the expected number in the tail.
func (p *published) find(position, hint uint64) (r batch.Record, number, end uint64, found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &p.tail
	if position >= p.end || t.n == 0 || position < t.first().record.Position {
		return batch.Record{}, 0, p.end, false
	}
	if hint < t.base || hint >= t.base+uint64(t.n) || t.at(hint).record.Position != position {
		i := sort.Search(t.n, func(i int) bool { return t.at(t.base+uint64(i)).record.Position >= position })
		hint = t.base + uint64(i)
		if i == t.n || t.at(hint).record.Position != position {
			return batch.Record{}, 0, p.end, false
		}
	}
	return t.at(hint).record, hint, p.end, true
}

func (p *published) reach() (end, taken uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end, p.taken
}

// Grown returns a channel that is closed when a record at or after the position can be followed.
func (j *Journal) Grown(position uint64) <-chan struct{} {
	p := &j.published
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end > position {
		done := make(chan struct{})
		close(done)
		return done
	}
	if p.grown == nil {
		p.grown = make(chan struct{})
	}
	return p.grown
}

// Follow returns a cursor at the position of a record that was not trimmed, or at End. From
// files it decodes only the rows of the part.
func (j *Journal) Follow(position uint64, part batch.Part) batch.Cursor {
	return &cursor{journal: j, part: part, position: position}
}

// A cursor iterates over the journal: in memory if it keeps up, otherwise in the files.
type cursor struct {
	journal  *Journal
	part     batch.Part
	position uint64
	hint     uint64   // number of the next record in the tail
	segment  *segment // current segment; nil: none
	end      uint64   // of the segment when it was entered
	window   window
}

// readAhead is how much a cursor reads from a file at a time.
const readAhead = 256 << 10

// Next implements batch.Cursor.
func (c *cursor) Next() (batch.Record, bool, error) {
	for {
		r, number, end, found := c.journal.published.find(c.position, c.hint)
		if found || c.position >= end {
			c.segment, c.window = nil, window{}
		}
		if found {
			c.position, c.hint = r.Next, number+1
			return r, true, nil
		}
		if c.position >= end {
			return batch.Record{}, false, nil
		}
		if s := lostAt(c.journal.lost, c.position); s != nil {
			c.position = s.To
			continue
		}
		skip, err := c.enterSegment(end)
		if err != nil {
			return batch.Record{}, false, err
		}
		if skip > c.position {
			c.position = skip
			continue
		}
		if r, err = c.decode(); err != nil {
			err = fmt.Errorf("read journal segment %s at position %d: %w", c.segment.name, c.position, err)
			c.segment, c.window = nil, window{} // the next attempt reads the file again
			return batch.Record{}, false, err
		}
		c.position = r.Next
		return r, true, nil
	}
}

// Position implements batch.Cursor.
func (c *cursor) Position() uint64 { return c.position }

// enterSegment finds the segment at the cursor. In memory, segments are deleted as soon as all
// their readings are stored; then it returns the position at which to continue.
func (c *cursor) enterSegment(end uint64) (skip uint64, err error) {
	if c.segment != nil && c.position >= c.segment.base && c.position < c.end {
		return 0, nil
	}
	j := c.journal
	j.segMu.RLock()
	i := sort.Search(len(j.segments), func(i int) bool { return j.segments[i].end > c.position })
	var s *segment
	next := end
	if i < len(j.segments) {
		if next = j.segments[i].base; next <= c.position {
			s = j.segments[i]
			c.end = s.end
		}
	}
	j.segMu.RUnlock()
	switch {
	case s == nil && j.cfg.Memory:
		return next, nil
	case s == nil:
		return 0, fmt.Errorf("read the journal at position %d: it was trimmed", c.position)
	}
	file, err := s.open(j.cfg.Files, j.cfg.Dir)
	if j.cfg.Memory && errors.Is(err, os.ErrNotExist) {
		return c.end, nil
	}
	if err != nil {
		return 0, fmt.Errorf("open journal segment: %w", err)
	}
	c.segment = s
	c.window = window{file: file, limit: s.offset(c.end), ahead: readAhead, buf: c.window.buf[:0]}
	return 0, nil
}

// decode decodes the record at the cursor in the current segment.
func (c *cursor) decode() (batch.Record, error) {
	j, s := c.journal, c.segment
	r, err := readRecord(&c.window, s, s.offset(c.position))
	if err != nil {
		return batch.Record{}, err
	}
	origin := batch.Origin{
		Session: s.settings.Session, FirstSeq: r.firstSeq, Recovered: !j.isOwn(s.settings.Session), Granularity: granularityOf(s.settings.Streams),
		Interner: j.cfg.Interner, Part: c.part,
	}
	b, err := batch.Decode(r.encoded, origin)
	c.window.shrink()
	if err != nil {
		return batch.Record{}, err
	}
	if w, ok := j.waiters.Load(r.position); ok {
		b.Tracker, _ = w.(*waiter)
	}
	return batch.Record{Batch: b, Position: r.position, Next: r.next()}, nil
}

// A waiter counts the rows of one batch that are not stored yet. It implements batch.Tracker.
type waiter struct {
	left  atomic.Int64
	done  chan struct{}
	calls []func() // called before done is closed

	mu      sync.Mutex
	refused []batch.Refused
}

func newWaiter(rows int) *waiter {
	w := &waiter{done: make(chan struct{})}
	w.left.Store(int64(rows))
	return w
}

// whenStored adds a function to call before done is closed. It must be called before the batch
// is published.
func (w *waiter) whenStored(call func()) { w.calls = append(w.calls, call) }

// Released implements batch.Tracker.
func (w *waiter) Released(n int) {
	if w.left.Add(-int64(n)) != 0 {
		return
	}
	for _, call := range w.calls {
		call()
	}
	close(w.done)
}

// Refused implements batch.Tracker.
func (w *waiter) Refused(row *batch.Row, why *telemetry.Refusal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = append(w.refused, batch.Refused{Index: int(row.Index), Refusal: *why})
}

// result returns the readings that were refused so far.
func (w *waiter) result() []batch.Refused {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

// never is a position that is never reached.
const never = math.MaxUint64

// storedPoll is how often a repeated request checks whether everything up to the first request
// is stored.
const storedPoll = 10 * time.Millisecond

// awaitStored waits until the rows of w are stored, or everything before the position is, or
// StoredTimeout has passed. It reports whether they are stored. w may be nil.
func (j *Journal) awaitStored(ctx context.Context, w *waiter, before uint64) bool {
	var done chan struct{}
	if w != nil {
		done = w.done
	} else if before != never {
		for to := j.flushTo.Load(); to < before && !j.flushTo.CompareAndSwap(to, before); {
			to = j.flushTo.Load()
		}
	}
	var poll <-chan time.Time
	if before != never {
		ticker := time.NewTicker(storedPoll)
		defer ticker.Stop()
		poll = ticker.C
	}
	timer := time.NewTimer(j.cfg.StoredTimeout)
	defer timer.Stop()
	for ended := false; j.applied.Load() < before; {
		select {
		case <-done:
			return true
		default:
		}
		if ended {
			return false
		}
		select {
		case <-done:
			return true
		case <-poll:
		case <-timer.C:
			ended = true
		case <-j.closed:
			ended = true
		case <-ctx.Done():
			ended = true
		}
	}
	return true
}
