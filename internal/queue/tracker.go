package queue

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// tracker follows one batch until its last reading is at rest.
type tracker struct {
	queue *Queue
	batch *batch.Batch
	size  int64
	left  atomic.Int64
	done  chan struct{}

	element *list.Element // in outstanding, under its lock

	mu      sync.Mutex
	refused []batch.Refused // may be read once done is closed
}

// Released implements batch.Tracker.
func (t *tracker) Released(n int) {
	q := t.queue
	q.metrics.readings.Sub(float64(n))
	if t.left.Add(-int64(n)) > 0 {
		return
	}
	q.metrics.lag.Observe(time.Since(t.batch.Received).Seconds())
	q.bytes.Add(-t.size)
	q.outstanding.remove(t)
	close(t.done)
}

// refuse notes that a reading will not be stored; its release follows.
func (t *tracker) refuse(row *batch.Row, why *telemetry.Refusal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused = append(t.refused, batch.Refused{Index: int(row.Index), Refusal: *why})
}

// outstanding holds the batches that have readings not yet at rest, in the
// order of their sequences.
type outstanding struct {
	mu      sync.Mutex
	batches list.List
	waiters []waiter
}

// waiter waits for all sequences before one of them.
type waiter struct {
	before uint64
	passed chan struct{}
}

func (o *outstanding) init() { o.batches.Init() }

func (o *outstanding) add(t *tracker) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t.element = o.batches.PushBack(t)
}

func (o *outstanding) remove(t *tracker) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.batches.Remove(t.element)
	oldest, some := o.oldest()
	waiting := o.waiters[:0]
	for _, w := range o.waiters {
		if some && oldest < w.before {
			waiting = append(waiting, w)
			continue
		}
		close(w.passed)
	}
	o.waiters = waiting
}

// oldest returns the first sequence of the oldest batch.
func (o *outstanding) oldest() (seq uint64, some bool) {
	front := o.batches.Front()
	if front == nil {
		return 0, false
	}
	return trackerOf(front).batch.FirstSeq, true
}

// passed returns a channel that is closed when no batch is left that began
// before the sequence.
func (o *outstanding) passed(before uint64) <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	ch := make(chan struct{})
	if oldest, some := o.oldest(); !some || oldest >= before {
		close(ch)
		return ch
	}
	o.waiters = append(o.waiters, waiter{before, ch})
	return ch
}

// readings counts what is not yet at rest.
func (o *outstanding) readings() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	var n int64
	for e := o.batches.Front(); e != nil; e = e.Next() {
		n += trackerOf(e).left.Load()
	}
	return int(n)
}

// age returns how long ago the oldest batch arrived, 0 if there is none.
func (o *outstanding) age(now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	front := o.batches.Front()
	if front == nil {
		return 0
	}
	return now.Sub(trackerOf(front).batch.Received)
}

// trackerOf returns the value of a list element; nothing else is in the list.
func trackerOf(e *list.Element) *tracker {
	t, _ := e.Value.(*tracker)
	return t
}
