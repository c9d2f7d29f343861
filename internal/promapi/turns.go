package promapi

import (
	"context"
	"runtime"
	"slices"
	"sync"
)

// turns bounds how many goroutines work for queries at once: evaluate one, or read a sensor
// and wait for MongoDB meanwhile. While readings arrive, queries have half of the
// processors, because a goroutine that writes readings would otherwise wait behind theirs,
// each of which runs for up to 10 ms at a time. Turns are given in the order in which they
// are asked for.
type turns struct {
	arriving func() bool // whether readings arrive

	mu      sync.Mutex
	taken   int
	waiting []chan struct{} // closed when it has a turn
}

// most is how many turns there are now.
func (t *turns) most() int {
	processors := runtime.GOMAXPROCS(0)
	if t.arriving() {
		return max(1, processors/2)
	}
	return 2 * processors
}

// take waits for a turn.
func (t *turns) take(ctx context.Context) error {
	t.mu.Lock()
	if len(t.waiting) == 0 && t.taken < t.most() {
		t.taken++
		t.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	t.waiting = append(t.waiting, mine)
	t.mu.Unlock()
	select {
	case <-mine:
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
		t.leave()
	}
	return ctx.Err()
}

// leave ends a turn.
func (t *turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken--
	for most := t.most(); len(t.waiting) > 0 && t.taken < most; t.taken++ {
		close(t.waiting[0])
		t.waiting = t.waiting[1:]
	}
}
