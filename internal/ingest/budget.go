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
// A request takes its lease before its body is read. The size of the lease is estimated from
// the length of the body, or from the longest allowed body if the length is unknown. Small
// leases have their own share of the budget, so that they never wait behind large ones;
// within a share, requests wait in the order of their arrival.
//
// A request may need more than was estimated, for example if its body has a high compression
// ratio. Requests that hold a lease while they wait for more could deadlock. Therefore:
//
//   - one lease at a time waits for more, ahead of requests that hold nothing;
//   - the next one that would have to wait is refused immediately, and releases its lease;
//   - no lease may be larger than the share.
//
// So all memory that the one waits for is held by requests that do not wait, and will be
// released.
//
// The memory of connections is subtracted before large requests are served. Connections
// never wait; thousands of them leave a small budget for only one large request at a time.
type budget struct {
	small, large share
	wait         time.Duration
	growing      *semaphore.Weighted // the one lease that waits for more
	moving       *semaphore.Weighted // bytes of small leases that wait to become large ones
	refused      func(busyReason)

	mu        sync.Mutex
	transfers map[*transfer]struct{}
}

const (
	// smallLease is the largest lease in the share for small requests: the cost of a body of
	// one chunk.
	smallLease = (wireCost + decodedCost) * chunkBytes
	// smallShare: small requests have one eighth of the budget.
	smallShare = 8
	// MinBudget is the smallest budget: two bodies of the default maximum size.
	MinBudget = 64 << 20

	// connectionBytes is the memory of a connection whose body does not arrive: buffers of
	// net/http and the stack of its goroutine.
	connectionBytes = 24 << 10

	longestWait = 10 * time.Second
)

// A body costs its received length, plus twice its inflated length: at first the text and its
// readings, which take about as much, then the readings, their journal record, and the commit
// that holds the record.
const (
	wireCost    = 1
	decodedCost = 2
	batchCost   = 3 // of decoded readings
	// zstdCost is the largest window and its input. gzip takes 32 KiB.
	zstdCost = 2 * maxWindow
	// usualRatio is the estimated compression ratio: readings in JSON inflate 6 to 30 times.
	// The lease is extended for bodies that inflate more.
	usualRatio = 16
)

// LeastBudget is the smallest budget that accepts bodies of this length.
func LeastBudget(maxBodyBytes int64) int64 {
	return max(MinBudget, bodyCost(maxBodyBytes, maxBodyBytes)/(smallShare-1)*smallShare+smallShare)
}

// bodyCost is the memory of a body with this length on the wire and inflated. The smallest
// bodies cost nothing until their readings go to the journal: an HTTP/1 connection has one
// at a time, and an HTTP/2 connection at most 250.
func bodyCost(wire, inflated int64) int64 {
	if wire <= firstBytes && inflated <= firstBytes {
		return 0
	}
	return wireCost*wire + decodedCost*inflated
}

var errBusy = errors.New("another request waits for more memory than was foreseen")

// busyReason is why a request got no memory.
type busyReason string

const (
	busyWait  busyReason = "wait"      // it waited too long
	busyGrow  busyReason = "grow"      // it needed more than was estimated, and another request was waiting for more
	busyShare busyReason = "too_large" // it needs more than one request may have
	busySlow  busyReason = "slow"      // its body arrived slowly while others waited
)

func busyReasons() []busyReason { return []busyReason{busyWait, busyGrow, busyShare, busySlow} }

func newBudget(bytes int64, wait time.Duration, refused func(busyReason)) *budget {
	small := bytes / smallShare
	b := &budget{
		wait: wait, refused: refused, transfers: make(map[*transfer]struct{}),
		growing: semaphore.NewWeighted(1), moving: semaphore.NewWeighted(small / 2),
	}
	b.small.size, b.large.size = small, bytes-small
	b.small.free, b.large.free = b.small.size, b.large.size
	return b
}

// most returns the largest possible lease.
func (b *budget) most() int64 { return b.large.size }

// share returns the share for a lease of this size.
func (b *budget) share(n int64) *share {
	if n <= smallLease {
		return &b.small
	}
	return &b.large
}

// held returns how much is leased.
func (b *budget) held() int64 { return b.small.held() + b.large.held() }

// A lease is the part of a budget that one request holds, initially nothing. Only one
// goroutine may use it at a time.
type lease struct {
	of   *budget
	size int64
}

// reach waits until the lease has at least this size. The error is for the client.
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

// tryReach is reach without waiting. It does not extend an existing lease.
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

// take takes n bytes of a share. has is how many bytes the lease has already; grows is true
// if they are in the same share.
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

// await waits in the queue of the share. When it is first in the queue, it aborts slow
// transfers that hold the memory.
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
				b.abortSlow(p, n)
			}
		case <-ctx.Done():
			if p.leave(w) {
				return ctx.Err()
			}
			return nil // it was granted meanwhile
		}
	}
}

// keep reduces the lease to this size.
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

// Release releases the whole lease.
func (l *lease) Release() {
	if l.size > 0 {
		l.of.share(l.size).give(l.size)
		l.size = 0
	}
}

// ReleaseAfter releases the memory when done is closed. The lease itself is empty, and can be
// reused, when ReleaseAfter returns.
func (l *lease) ReleaseAfter(done <-chan struct{}) {
	left := *l
	l.size = 0
	go func() {
		<-done
		left.Release()
	}()
}

// A share is a part of the budget, with the queue of requests that wait for it. Released
// memory is in use until the garbage collector has run; the memory limit of the process
// makes it run in time.
type share struct {
	mu      sync.Mutex
	size    int64
	free    int64
	beside  func() int64 // bytes held by connections, which cannot wait; nil: none
	waiting list.List    // of *waiter, in the order of arrival, except that one that grows is first
}

type waiter struct {
	n       int64
	grows   bool
	granted chan struct{}
	place   *list.Element
}

// try takes n bytes if they are free and, unless the lease grows, no other request waits.
func (p *share) try(n int64, grows bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.fits(n, grows) || !grows && p.waiting.Len() > 0 {
		return false
	}
	p.free -= n
	return true
}

// fits reports whether n bytes can be leased. The only lease, and one that grows, ignore the
// memory of connections, which may never be released.
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

// serve grants leases to waiters as far as there is memory. The mutex must be held.
func (p *share) serve() {
	for w := p.first(); w != nil && p.fits(w.n, w.grows); w = p.first() {
		p.waiting.Remove(w.place)
		p.free -= w.n
		close(w.granted)
	}
}

// first returns the waiter that is served next; nil: none.
func (p *share) first() *waiter {
	if front := p.waiting.Front(); front != nil {
		return front.Value.(*waiter) //nolint:forcetypeassert // the list has no other type
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

// leave ends a wait. It returns false if the lease was granted.
func (p *share) leave(w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-w.granted:
		return false
	default:
	}
	p.waiting.Remove(w.place)
	p.serve() // waiters behind it
	return true
}

// next reports whether a waiter is the next to be served. It serves waiters first, because
// connections may have been closed.
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

// Bodies that arrive slowly keep their lease for minutes. While others wait, they must arrive
// at slowRate after slowGrace. Of those that do not, the slowest are aborted, as many as
// necessary.
const (
	slowRate  = 256 << 10 // bytes a second
	slowGrace = time.Second
	slowTick  = 250 * time.Millisecond
)

// A transfer is a body, or a message, that is being received and holds a lease.
type transfer struct {
	size     int64 // of its lease
	since    time.Time
	received atomic.Int64 // bytes
	abort    func()       // must not call the budget
}

// addTransfer notes that a body is being received.
func (b *budget) addTransfer(a *transfer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.transfers[a] = struct{}{}
}

// removeTransfer notes that it is not any more. Its abort is not called from now on.
func (b *budget) removeTransfer(a *transfer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.transfers, a)
}

// abortSlow aborts the slowest bodies that together hold n bytes of a share.
func (b *budget) abortSlow(p *share, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	type slow struct {
		*transfer

		rate float64
	}
	var all []slow
	for a := range b.transfers {
		if age := time.Since(a.since); b.share(a.size) == p && age >= slowGrace {
			if rate := float64(a.received.Load()) / age.Seconds(); rate < slowRate {
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
		delete(b.transfers, s.transfer)
		b.refused(busySlow)
		s.abort()
	}
}
