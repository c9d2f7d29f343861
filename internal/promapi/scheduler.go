package promapi

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// scheduler bounds how many goroutines work for queries at once: evaluate one, or read a sensor
// and wait for MongoDB meanwhile. While readings arrive, queries have half of the
// CPUs, because a goroutine that writes readings would otherwise wait behind theirs,
// each of which runs for up to 10 ms at a time. A turn goes to the client that has the fewest,
// and among those to the one that asked first.
//
// Many queries, one after the other, would use that half all the time, and MongoDB's work
// for them is added to it. So while readings arrive, there are pauses between turns once
// queries have worked for burst longer than their share of the time.
type scheduler struct {
	arriving func() bool // whether readings arrive

	mu      sync.Mutex
	taken   int
	held    map[string]int // of taken, by client
	waiting []*waiter
	since   time.Time     // when worked was updated
	worked  time.Duration // by all turns together, beyond their share
	pausing bool          // a timer will end the pause
}

// A waiter is a client that waits for a turn.
type waiter struct {
	client string
	ready  chan struct{} // closed when it has one
}

// burst is enough for a dashboard of twelve panels, of a day of a hundred sensors.
const burst = 400 * time.Millisecond

// share is how many turns there are in the long run while readings arrive: half of the
// CPUs but one.
func share() float64 { return max(0.25, float64(runtime.GOMAXPROCS(0)-1)/2) }

// limit is how many turns there are now.
func (t *scheduler) limit() int {
	processors, now := runtime.GOMAXPROCS(0), time.Now()
	t.worked = max(0, t.worked+time.Duration((float64(t.taken)-share())*float64(now.Sub(t.since))))
	t.since = now
	switch {
	case !t.arriving():
		t.worked = 0
		return 2 * processors
	case t.worked > burst:
		return 0
	}
	return max(1, processors/2)
}

// acquire waits until a client has a turn.
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
	if at < 0 { // it got one at the last moment
		t.release(client)
	}
	return ctx.Err()
}

// release ends a turn of a client.
func (t *scheduler) release(client string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limit() // counts what was worked
	t.taken--
	if t.held[client]--; t.held[client] == 0 {
		delete(t.held, client)
	}
	t.grant()
}

// grant gives turns to those who wait; t is locked.
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
		close(next.ready)
	}
	if t.worked > burst && len(t.waiting) > 0 && !t.pausing {
		t.pausing = true
		time.AfterFunc(time.Duration(float64(t.worked-burst)/share())+time.Millisecond, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.pausing = false
			t.grant()
		})
	}
}
