package journal

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A waiter follows the rows of one batch until all are at rest.
type waiter struct {
	left   atomic.Int64
	done   chan struct{}
	atRest []func() // each is called once before done is closed

	mu      sync.Mutex
	refused []batch.Refused
}

func newWaiter(rows int) *waiter {
	w := &waiter{done: make(chan struct{})}
	w.left.Store(int64(rows))
	return w
}

// whenAtRest adds what is called before done is closed. The batch cannot be
// followed yet.
func (w *waiter) whenAtRest(call func()) { w.atRest = append(w.atRest, call) }

// Released implements batch.Tracker.
func (w *waiter) Released(n int) {
	if w.left.Add(-int64(n)) != 0 {
		return
	}
	for _, call := range w.atRest {
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

// patience is how long one waits for the store.
type patience struct {
	timeout time.Duration
	closed  <-chan struct{} // nobody will store anything any more
}

// wait reports whether done was closed in time.
func (p patience) wait(ctx context.Context, done <-chan struct{}) bool {
	return p.waitEither(ctx, done, nil)
}

// waitEither reports whether one of two was closed in time; either may be nil.
func (p patience) waitEither(ctx context.Context, one, other <-chan struct{}) bool {
	select {
	case <-one:
		return true
	case <-other:
		return true
	default:
	}
	timer := time.NewTimer(p.timeout)
	defer timer.Stop()
	select {
	case <-one:
		return true
	case <-other:
		return true
	case <-timer.C:
	case <-p.closed:
	case <-ctx.Done():
	}
	return false
}

// waiters finds the waiter of a record that is read again from the disk.
type waiters struct {
	mu sync.Mutex
	at map[uint64]*waiter
}

func (w *waiters) add(position uint64, one *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at == nil {
		w.at = make(map[uint64]*waiter)
	}
	w.at[position] = one
}

// remove takes one away; after a failed write its position may be another's.
func (w *waiters) remove(position uint64, one *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at[position] == one {
		delete(w.at, position)
	}
}

// tracker returns the waiter of a record as its batch needs it: nil where there
// is none.
func (w *waiters) tracker(position uint64) batch.Tracker {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.at[position]; one != nil {
		return one
	}
	return nil
}

// progress is how far everything is at rest.
type progress struct {
	applied atomic.Uint64

	mu      sync.Mutex
	waiting []trimWaiter
}

type trimWaiter struct {
	position uint64
	done     chan struct{}
}

// advance moves on to a position and wakes those who wait for it; false if it
// is there already.
func (p *progress) advance(position uint64) bool {
	for {
		old := p.applied.Load()
		if position <= old {
			return false
		}
		if p.applied.CompareAndSwap(old, position) {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	left := p.waiting[:0]
	for _, w := range p.waiting {
		if w.position > position {
			left = append(left, w)
			continue
		}
		close(w.done)
	}
	clear(p.waiting[len(left):])
	p.waiting = left
	return true
}

// passed returns a channel that is closed when everything before the position
// is at rest.
func (p *progress) passed(position uint64) <-chan struct{} {
	done := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.applied.Load() >= position {
		close(done)
		return done
	}
	p.waiting = append(p.waiting, trimWaiter{position, done})
	return done
}

// forget takes a channel back that nobody waits for any more.
func (p *progress) forget(done <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, w := range p.waiting {
		if w.done == done {
			p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
			return
		}
	}
}
