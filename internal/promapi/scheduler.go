package promapi

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/brim-telemetry/brim/internal/machine"
)

// scheduler bounds how many goroutines work for queries at once, by evaluating one or reading a
// sensor. While readings arrive, queries may use half of the CPUs. Otherwise a goroutine that
// writes readings would wait behind those of queries, which run for up to 10 ms at a time. A slot
// goes to the client that holds the fewest, and among those to the one that has waited longest.
//
// Many queries in sequence would use that half all the time, in addition to MongoDB's work for
// them. So while readings arrive, there are pauses once queries have used burst more than their
// share of the time. And Go may run one thread more while there are queries.
type scheduler struct {
	arriving func() bool // whether readings arrive

	mu      sync.Mutex
	taken   int
	held    map[string]int // slots taken, by client
	waiting []*waiter
	since   time.Time     // when worked was updated
	worked  time.Duration // by all slots together, beyond their share
	timed   bool          // a timer will grant slots
	// threadTimer ends the additional thread of machine.AddThread; nil: there is none.
	threadTimer *time.Timer
}

// A waiter is a client that waits for a slot.
type waiter struct {
	client string
	ready  chan struct{} // closed when it gets one
}

// burst is enough for a dashboard with twelve panels that show a day of a hundred sensors.
const burst = 400 * time.Millisecond

// threadTime is how often it is checked whether the additional thread is still needed.
const threadTime = 10 * time.Second

// checkThread removes the additional thread if no slot is in use. Adding and removing it waits for
// garbage collections, so t.mu is not held. Should the two overtake each other, the next check or
// query corrects that.
func (t *scheduler) checkThread() {
	t.mu.Lock()
	needed := t.taken > 0
	if needed {
		t.threadTimer.Reset(threadTime)
	} else {
		t.threadTimer = nil
	}
	t.mu.Unlock()
	if !needed {
		machine.RemoveThread()
	}
}

// askEvery is how often arriving is called while clients wait. It notices readings that arrived within
// the last second, and only if it was called within that second.
const askEvery = 500 * time.Millisecond

// share is the average number of slots in use while readings arrive: a quarter of one CPU, and
// half of each beyond the second.
func share() float64 { return 0.25 + float64(max(0, machine.CPUs()-2))/2 }

// limit returns the current number of slots; t.mu must be held.
func (t *scheduler) limit() int {
	cpus, now := machine.CPUs(), time.Now()
	t.worked = max(0, t.worked+time.Duration((float64(t.taken)-share())*float64(now.Sub(t.since))))
	t.since = now
	switch {
	case !t.arriving():
		t.worked = 0
		return 2 * cpus
	case t.worked > burst:
		return 0
	}
	return max(1, cpus/2)
}

// acquire waits for a slot.
func (t *scheduler) acquire(ctx context.Context, client string) error {
	t.mu.Lock()
	mine := &waiter{client, make(chan struct{})}
	t.waiting = append(t.waiting, mine)
	t.grant()
	t.mu.Unlock()
	select {
	case <-mine.ready:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	at := slices.Index(t.waiting, mine)
	if at >= 0 {
		t.waiting = slices.Delete(t.waiting, at, at+1)
	}
	t.mu.Unlock()
	if at < 0 { // it got a slot just before
		t.release(client)
	}
	return ctx.Err()
}

// release releases a slot of a client.
func (t *scheduler) release(client string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limit() // updates worked
	t.taken--
	if t.held[client]--; t.held[client] == 0 {
		delete(t.held, client)
	}
	t.grant()
}

// grant gives free slots to waiters; t.mu must be held.
func (t *scheduler) grant() {
	for limit := t.limit(); len(t.waiting) > 0 && t.taken < limit; {
		at := 0
		for i, w := range t.waiting {
			if t.held[w.client] < t.held[t.waiting[at].client] {
				at = i
			}
		}
		next := t.waiting[at]
		t.waiting = slices.Delete(t.waiting, at, at+1)
		if t.held == nil {
			t.held = make(map[string]int)
		}
		t.held[next.client]++
		t.taken++
		if t.threadTimer == nil {
			t.threadTimer = time.AfterFunc(threadTime, t.checkThread)
			go machine.AddThread()
		}
		close(next.ready)
	}
	if len(t.waiting) > 0 && !t.timed {
		t.timed = true
		next := askEvery
		if t.worked > burst { // until the end of the pause
			next = min(next, time.Duration(float64(t.worked-burst)/share())+time.Millisecond)
		}
		time.AfterFunc(next, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.timed = false
			t.grant()
		})
	}
}
