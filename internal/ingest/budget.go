package ingest

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A budget bounds the memory that requests hold from their first bytes until the
// journal has their readings, over HTTP and gRPC together:
//
//	first bytes ─ lease ─ receive ─ inflate ─ decode ─ journal ─ release
//
// A request takes its lease before its body is read: for as much as it may come
// to where its length is told, and for the longest body there may be where it is
// not. Leases that small requests take have a share of their own, so that none of
// them waits behind large ones; within a share the order is that of arrival.
//
// A request may need more than was foreseen, as a body does that inflates far.
// Requests that hold a part and wait for another could wait for each other for
// ever, hence:
//
//   - one lease at a time waits for more, in front of those that hold nothing;
//   - the next one that would have to wait is refused at once, and gives back
//     what it holds;
//   - none may have more than the share.
//
// So whatever the one waits for is held by requests that do not wait, and comes.
//
// Connections take their part before large requests do. They wait for nothing, and
// thousands of them leave a small budget to one large request at a time.
type budget struct {
	small, large share
	wait         time.Duration
	growing      *semaphore.Weighted // the one lease that waits for more
	moving       *semaphore.Weighted // bytes of small leases that wait to become large ones
	refused      func(busyReason)

	mu     sync.Mutex
	coming map[*incoming]struct{}
}

const (
	// smallLease is the greatest lease of the share for small requests: what a body
	// of a chunk costs.
	smallLease = (wireCost + decodedCost) * chunkBytes
	// smallShare is the part of the budget that is theirs.
	smallShare = 8
	// MinBudget is the least budget: two of the greatest bodies by default.
	MinBudget = 64 << 20

	// connectionBytes is what a connection takes on which a body is begun and does not
	// come: buffers of net/http and its goroutine's stack.
	connectionBytes = 24 << 10

	longestWait = 10 * time.Second
)

// A body costs what came of it, and twice what it inflates to: first it is there
// beside its readings, which take about as much as the text, then the readings
// beside their record in the journal and the commit that holds it.
const (
	wireCost    = 1
	decodedCost = 2
	batchCost   = 3 // of readings that are decoded
	// zstdCost is a window of the greatest size, and what it is made from. gzip has
	// 32 KiB.
	zstdCost = 2 * maxWindow
	// usualRatio is what bodies inflate to, as far as can be foreseen: readings in
	// JSON inflate 6 to 30 times. What goes beyond is taken when it comes.
	usualRatio = 16
)

// LeastBudget is the smallest budget with which bodies of this length are taken.
func LeastBudget(maxBodyBytes int64) int64 {
	return max(MinBudget, bodyCost(maxBodyBytes, maxBodyBytes)/(smallShare-1)*smallShare+smallShare)
}

// bodyCost is what a body takes of which so much came, and which inflates to so
// much. The smallest cost nothing until their readings go to the journal: a connection
// over HTTP/1 has one at a time, over HTTP/2 250.
func bodyCost(wire, inflated int64) int64 {
	if wire <= firstBytes && inflated <= firstBytes {
		return 0
	}
	return wireCost*wire + decodedCost*inflated
}

var errBusy = errors.New("another request waits for more memory than was foreseen")

// busyReason is why a request found no memory.
type busyReason string

const (
	busyWait  busyReason = "wait"      // it waited in vain
	busyGrow  busyReason = "grow"      // it needed more than was foreseen, while another one waited for that
	busyShare busyReason = "too_large" // it needs more than one request may have
	busySlow  busyReason = "slow"      // its body came slowly while others waited
)

func busyReasons() []busyReason { return []busyReason{busyWait, busyGrow, busyShare, busySlow} }

func newBudget(bytes int64, wait time.Duration, refused func(busyReason)) *budget {
	small := bytes / smallShare
	b := &budget{
		wait: wait, refused: refused, coming: make(map[*incoming]struct{}),
		growing: semaphore.NewWeighted(1), moving: semaphore.NewWeighted(small / 2),
	}
	b.small.size, b.large.size = small, bytes-small
	b.small.free, b.large.free = b.small.size, b.large.size
	return b
}

// most is the greatest lease.
func (b *budget) most() int64 { return b.large.size }

// share returns the share that a lease of this size is part of.
func (b *budget) share(n int64) *share {
	if n <= smallLease {
		return &b.small
	}
	return &b.large
}

// held returns how much is leased.
func (b *budget) held() int64 { return b.small.held() + b.large.held() }

// A lease is what one request holds of a budget, at first nothing. It is for one
// goroutine at a time.
type lease struct {
	of   *budget
	size int64
}

// reach waits until the lease has at least this size. An error is the request's.
func (l *lease) reach(ctx context.Context, size int64) error {
	if size <= l.size {
		return nil
	}
	b := l.of
	if size > b.most() {
		b.refused(busyShare)
		return telemetry.Errorf(telemetry.TooLarge, codeBudget,
			"the request takes more than %d bytes of memory, the most that one may take (--ingest-max-bytes); nothing was accepted, send smaller requests", b.most())
	}
	from, to := b.share(l.size), b.share(size)
	more := size
	if from == to {
		more -= l.size
	}
	if why, err := b.take(ctx, to, more, l.size, l.size > 0 && from == to); err != nil {
		b.refused(why)
		return &telemetry.Error{
			Kind: telemetry.Unavailable, Code: codeBusy, RetryAfter: retryAfter, Err: err,
			Message: "too many requests at once (--ingest-max-bytes); nothing was accepted, send it again or send smaller ones",
		}
	}
	if from != to {
		from.give(l.size)
	}
	l.size = size
	return nil
}

// tryReach is reach without waiting. It does not extend a lease.
func (l *lease) tryReach(size int64) bool {
	if l.size >= size {
		return true
	}
	if l.size > 0 {
		return false
	}
	if !l.of.share(size).try(size, false) {
		return false
	}
	l.size = size
	return true
}

// take takes n bytes of a share for a lease that has some already, or none.
func (b *budget) take(ctx context.Context, p *share, n, has int64, grows bool) (busyReason, error) {
	if p.try(n, grows) {
		return "", nil
	}
	only := b.moving
	if grows {
		only, has = b.growing, 1
	}
	if has > 0 {
		if !only.TryAcquire(has) {
			return busyGrow, errBusy
		}
		defer only.Release(has)
	}
	return busyWait, b.await(ctx, p, n, grows)
}

// await waits in the queue of the share. Those that come slowly and hold what it waits
// for do so for a second at most.
func (b *budget) await(ctx context.Context, p *share, n int64, grows bool) error {
	ctx, cancel := context.WithTimeout(ctx, b.wait)
	defer cancel()
	w := p.enqueue(n, grows)
	tick := time.NewTicker(slowTick)
	defer tick.Stop()
	for {
		select {
		case <-w.granted:
			return nil
		case <-tick.C:
			if p.next(w) {
				b.endSlow(p, n)
			}
		case <-ctx.Done():
			if p.leave(w) {
				return ctx.Err()
			}
			return nil // it was granted meanwhile
		}
	}
}

// keep gives back what the lease has beyond this size.
func (l *lease) keep(size int64) {
	if size >= l.size {
		return
	}
	if from, to := l.of.share(l.size), l.of.share(size); from == to || size == 0 {
		from.give(l.size - size)
		l.size = size
	} else if to.try(size, true) {
		from.give(l.size)
		l.size = size
	}
}

// Release gives back all.
func (l *lease) Release() {
	if l.size > 0 {
		l.of.share(l.size).give(l.size)
		l.size = 0
	}
}

// ReleaseAfter gives back all when done is closed; the lease itself is free at once.
func (l *lease) ReleaseAfter(done <-chan struct{}) {
	left := *l
	l.size = 0
	go func() {
		<-done
		left.Release()
	}()
}

// A share is memory that leases share, and those who wait for it. What is given
// back is there until the garbage collector has run, which the process's memory
// limit makes it do in time.
type share struct {
	mu      sync.Mutex
	size    int64
	free    int64
	beside  func() int64 // held by others than leases, which cannot wait; nil: none
	waiting list.List    // of *waiter, in the order in which they came, but for the one that grows, which is first
}

type waiter struct {
	n       int64
	grows   bool
	granted chan struct{}
	place   *list.Element
}

// try takes n bytes if that needs no wait: no other lease waits for them, except in
// front of those that hold nothing.
func (p *share) try(n int64, grows bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.fits(n, grows) || !grows && p.waiting.Len() > 0 {
		return false
	}
	p.free -= n
	return true
}

// fits reports whether n bytes can be leased. What is held beside leases is not
// waited for by the only lease, nor by one that grows: it may never come.
func (p *share) fits(n int64, grows bool) bool {
	if grows || p.free == p.size || p.beside == nil {
		return p.free >= n
	}
	return p.free-p.beside() >= n
}

func (p *share) give(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free += n
	p.serve()
}

// serve grants what can be granted. It is called under the mutex.
func (p *share) serve() {
	for w := p.first(); w != nil && p.fits(w.n, w.grows); w = p.first() {
		p.waiting.Remove(w.place)
		p.free -= w.n
		close(w.granted)
	}
}

// first returns who is served next, nil if none waits.
func (p *share) first() *waiter {
	if front := p.waiting.Front(); front != nil {
		return front.Value.(*waiter) //nolint:forcetypeassert // there is nothing else
	}
	return nil
}

func (p *share) enqueue(n int64, grows bool) *waiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &waiter{n: n, grows: grows, granted: make(chan struct{})}
	if grows {
		w.place = p.waiting.PushFront(w) // there is one at a time
	} else {
		w.place = p.waiting.PushBack(w)
	}
	p.serve()
	return w
}

// leave ends a wait; false if it was granted.
func (p *share) leave(w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-w.granted:
		return false
	default:
	}
	p.waiting.Remove(w.place)
	p.serve() // those behind it
	return true
}

// next reports whether a waiter is the next to be served, after serving what can be:
// connections may have ended.
func (p *share) next(w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serve()
	return p.first() == w
}

func (p *share) held() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := p.size - p.free
	if p.beside != nil {
		held = min(p.size, held+p.beside())
	}
	return held
}

// Bodies that come slowly keep their lease for minutes. While others wait they
// must come slowRate fast, once they have had slowGrace: the slowest of those that
// do not are ended, as many as it takes.
const (
	slowRate  = 256 << 10 // bytes a second
	slowGrace = time.Second
	slowTick  = 250 * time.Millisecond
)

// An incoming is a body, or a message, that holds a lease and has not come whole.
type incoming struct {
	size  int64 // of its lease
	since time.Time
	came  atomic.Int64 // bytes until now
	end   func()       // ends its coming; it must not call the budget
}

// comes notes that a body comes; gone, that it has come, or never will: then its
// end is not called any more.
func (b *budget) comes(a *incoming) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.coming[a] = struct{}{}
}

func (b *budget) gone(a *incoming) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.coming, a)
}

// endSlow ends the slowest bodies that hold n bytes of a share between them.
func (b *budget) endSlow(p *share, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	type slow struct {
		*incoming

		rate float64
	}
	var all []slow
	for a := range b.coming {
		if age := time.Since(a.since); b.share(a.size) == p && age >= slowGrace {
			if rate := float64(a.came.Load()) / age.Seconds(); rate < slowRate {
				all = append(all, slow{a, rate})
			}
		}
	}
	slices.SortFunc(all, func(x, y slow) int { return cmp.Compare(x.rate, y.rate) })
	for _, s := range all {
		if n <= 0 {
			return
		}
		n -= s.size
		delete(b.coming, s.incoming)
		b.refused(busySlow)
		s.end()
	}
}
