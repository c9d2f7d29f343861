package read

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/brim-telemetry/brim/internal/access"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// slots are the slots of --max-queries. One identity has at most half of them, so that it
// cannot block all others. Unauthenticated clients have no such limit, because all clients
// behind a proxy or a dashboard have one address.
//
// Waiters get slots in the order of their deadlines, and those with equal deadlines in the
// order of their arrival.
type slots struct {
	all, half int

	mu      sync.Mutex
	taken   int
	of      map[string]int // by name of the identity
	waiting []*waiter      // by until
}

// A waiter waits for a slot.
type waiter struct {
	name  string
	until time.Time
	has   chan struct{} // closed when it has a slot
}

// slotWait is how long a request waits for a slot: a dashboard sends all its queries at
// once, and most answers take less time. At most waitersPerSlot requests wait for each slot.
const (
	slotWait       = time.Second
	waitersPerSlot = 16
)

func newSlots(all int) *slots {
	return &slots{all: all, half: (all + 1) / 2, of: make(map[string]int)}
}

// used returns how many slots are taken.
func (p *slots) used() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return float64(p.taken)
}

// enter takes a slot for an identity, and waits for one if necessary.
func (p *slots) enter(ctx context.Context, who *access.Identity, wait time.Duration) (leave func(), err error) {
	w := &waiter{name: who.Name, until: time.Now().Add(wait), has: make(chan struct{})}
	leave = func() { p.leave(w.name) }
	p.mu.Lock()
	err = p.refusal(w.name)
	if err == nil {
		p.take(w.name)
		p.mu.Unlock()
		return leave, nil
	}
	if len(p.waiting) == p.all*waitersPerSlot {
		p.mu.Unlock()
		return nil, err
	}
	at, _ := slices.BinarySearchFunc(p.waiting, w, func(a, b *waiter) int {
		if a.until.After(b.until) {
			return 1
		}
		return -1
	})
	p.waiting = slices.Insert(p.waiting, at, w)
	p.mu.Unlock()
	ctx, cancel := context.WithDeadline(ctx, w.until)
	defer cancel()
	select {
	case <-w.has:
		return leave, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := slices.Index(p.waiting, w); at >= 0 {
		p.waiting = slices.Delete(p.waiting, at, at+1)
		return nil, err
	}
	return leave, nil // it got one at the last moment
}

// refusal returns why there is no slot for an identity; nil: there is one. p is locked.
func (p *slots) refusal(name string) error {
	switch {
	case p.taken == p.all:
		return tooMany(fmt.Sprintf("%d queries are being answered, which is the limit (--max-queries)", p.all))
	case name != "" && p.of[name] == p.half:
		return tooMany(fmt.Sprintf("%d queries of %s are being answered, which is the limit for one identity (half of --max-queries)", p.half, name))
	}
	return nil
}

// take takes a slot; p is locked.
func (p *slots) take(name string) {
	if p.taken++; name != "" {
		p.of[name]++
	}
}

// leave returns a slot, and gives free slots to waiters.
func (p *slots) leave(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if name != "" {
		if p.of[name]--; p.of[name] == 0 {
			delete(p.of, name)
		}
	}
	p.waiting = slices.DeleteFunc(p.waiting, func(w *waiter) bool {
		if p.refusal(w.name) != nil {
			return false
		}
		p.take(w.name)
		close(w.has)
		return true
	})
}

func tooMany(message string) error {
	return &telemetry.Error{Kind: telemetry.Unavailable, Code: "queries_too_many", RetryAfter: time.Second, Message: message + "; ask again soon"}
}
