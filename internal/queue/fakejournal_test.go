package queue

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// fakeJournal keeps records in memory and fsyncs nothing. Positions count
// records.
type fakeJournal struct {
	mu      sync.Mutex
	records []*batch.Batch
	trimmed uint64
	taken   uint64
	grown   chan struct{}
	readErr error // of every cursor
	follows int   // cursors that were made
	reads   int   // of records, by all of them
}

func newFakeJournal() *fakeJournal { return &fakeJournal{grown: make(chan struct{})} }

// fakeTracker waits for the rows of one batch.
type fakeTracker struct {
	left    atomic.Int64
	done    chan struct{}
	mu      sync.Mutex
	refused []batch.Refused
}

func (w *fakeTracker) Released(n int) {
	if w.left.Add(-int64(n)) == 0 {
		close(w.done)
	}
}

func (w *fakeTracker) Refused(row *batch.Row, why *telemetry.Refusal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = append(w.refused, batch.Refused{Index: int(row.Index), Refusal: *why})
}

// add journals a batch. Someone waits for it if tracker is not nil.
func (j *fakeJournal) add(b *batch.Batch, tracker batch.Tracker) {
	j.mu.Lock()
	defer j.mu.Unlock()
	b.Session, b.FirstSeq, b.Tracker = "s1", j.taken+1, tracker
	j.taken += uint64(b.Len())
	j.records = append(j.records, b)
	close(j.grown)
	j.grown = make(chan struct{})
}

// Append takes readings, and waits until they are stored.
func (j *fakeJournal) Append(ctx context.Context, b *batch.Batch) ([]batch.Refused, error) {
	w := &fakeTracker{done: make(chan struct{})}
	w.left.Store(int64(b.Len()))
	j.add(b, w)
	select {
	case <-w.done:
		return w.refused, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (j *fakeJournal) Oldest() uint64 { return 0 }

func (j *fakeJournal) End() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return uint64(len(j.records))
}

func (j *fakeJournal) Taken() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.taken
}

func (j *fakeJournal) Grown(position uint64) <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if position < uint64(len(j.records)) {
		ch := make(chan struct{})
		close(ch)
		return ch
	}
	return j.grown
}

func (j *fakeJournal) Trim(position uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.trimmed = max(j.trimmed, position)
}

func (j *fakeJournal) Follow(position uint64, _ batch.Part) batch.Cursor {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.follows++
	return &fakeCursor{j, position}
}

type fakeCursor struct {
	journal *fakeJournal
	at      uint64
}

func (c *fakeCursor) Next() (r batch.Record, found bool, err error) {
	j := c.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	if c.at < j.trimmed {
		panic("a record is asked for that was trimmed")
	}
	if j.readErr != nil || c.at >= uint64(len(j.records)) {
		return r, false, j.readErr
	}
	r = batch.Record{Batch: j.records[c.at], Position: c.at, Next: c.at + 1}
	c.at++
	j.reads++
	return r, true, nil
}

func (c *fakeCursor) Position() uint64 { return c.at }
func (c *fakeCursor) Close()           {}
