package promapi

import (
	"context"
	"runtime"
	"slices"
	"sync"
)

// turns bounds how many goroutines work for queries at once: evaluate one, or read a sensor
// and wait for MongoDB meanwhile. While readings arrive, queries have half of the
// CPUs, because a goroutine that writes readings would otherwise wait behind theirs,
// each of which runs for up to 10 ms at a time. A turn goes to the client that has the fewest,
// and among those to the one that asked first.
type turns struct {
	arriving func() bool // whether readings arrive

	mu      sync.Mutex
	taken   int
	held    map[string]int // of taken, by client
	waiting []*waiter
}

// A waiter is a client that waits for a turn.
type waiter struct {
	client string
	ready  chan struct{} // closed when it has one
}

// most is how many turns there are now.
func (t *turns) most() int {
	processors := runtime.GOMAXPROCS(0)
	if t.arriving() {
		return max(1, processors/2)
	}
	return 2 * processors
}

// take waits until a client has a turn.
func (t *turns) take(ctx context.Context, client string) error {
	t.mu.Lock()
	if len(t.waiting) == 0 && t.taken < t.most() {
		t.give(client)
		t.mu.Unlock()
		return nil
	}
	mine := &waiter{client, make(chan struct{})}
	t.waiting = append(t.waiting, mine)
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
		t.leave(client)
	}
	return ctx.Err()
}

// give counts a turn.
func (t *turns) give(client string) {
	if t.held == nil {
		t.held = make(map[string]int)
	}
	t.held[client]++
	t.taken++
}

// leave ends a turn of a client.
func (t *turns) leave(client string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken--
	if t.held[client]--; t.held[client] == 0 {
		delete(t.held, client)
	}
	for most := t.most(); len(t.waiting) > 0 && t.taken < most; {
		at := 0
		for i, w := range t.waiting {
			if t.held[w.client] < t.held[t.waiting[at].client] {
				at = i
			}
		}
		next := t.waiting[at]
		t.waiting = slices.Delete(t.waiting, at, at+1)
		t.give(next.client)
		close(next.ready)
	}
}
