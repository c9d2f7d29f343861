package ingest

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
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
	refused      func(string)

	mu        sync.Mutex
	transfers map[*payload]struct{} // that are being received and hold a lease
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

// Why a request got no memory, see brim_ingest_busy_total.
const (
	busyWait  = "wait"      // it waited too long
	busyGrow  = "grow"      // it needed more than was estimated, and another request was waiting for more
	busyShare = "too_large" // it needs more than one request may have
	busySlow  = "slow"      // its body arrived slowly while others waited
)

func newBudget(bytes int64, wait time.Duration, refused func(string)) *budget {
	small := bytes / smallShare
	b := &budget{
		wait: wait, refused: refused, transfers: make(map[*payload]struct{}),
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
	b := l.of
	if size > b.most() {
		b.refused(busyShare)
		return telemetry.Errorf(telemetry.TooLarge, codeBudget,
			"the request takes more than %d bytes of memory, the most that one may take (--ingest-max-bytes); nothing was accepted, send smaller requests", b.most())
	}
	if l.try(size) {
		return nil
	}
	if why, err := l.await(ctx, size); err != nil {
		b.refused(why)
		return &telemetry.Error{
			Kind: telemetry.Unavailable, Code: codeBusy, RetryAfter: retryAfter, Err: err,
			Message: "too many requests at once (--ingest-max-bytes); nothing was accepted, send it again or send smaller ones",
		}
	}
	return nil
}

// try is reach without waiting.
func (l *lease) try(size int64) bool {
	if size <= l.size {
		return true
	}
	p, n, grows := l.step(size)
	if !p.try(n, grows) {
		return false
	}
	l.move(size, n)
	return true
}

// step returns how many bytes of which share the lease must take to have this size. grows is
// true if the bytes that it has already are in the same share.
func (l *lease) step(size int64) (p *share, n int64, grows bool) {
	p = l.of.share(size)
	if l.size == 0 || l.of.share(l.size) != p {
		return p, size, false
	}
	return p, size - l.size, true
}

// move sets the size of the lease, which has taken n bytes for it.
func (l *lease) move(size, n int64) {
	if n == size {
		l.Release()
	}
	l.size = size
}

// await waits in the queue of the share until the lease has this size. When it is first in the
// queue, it aborts slow transfers that hold the memory.
func (l *lease) await(ctx context.Context, size int64) (reason string, err error) {
	b := l.of
	p, n, grows := l.step(size)
	only, has := b.moving, l.size
	if grows {
		only, has = b.growing, 1
	}
	if !only.TryAcquire(has) {
		return busyGrow, errBusy
	}
	defer only.Release(has)
	ctx, cancel := context.WithTimeout(ctx, b.wait)
	defer cancel()
	w := p.enqueue(n, grows)
	tick := time.NewTicker(slowTick)
	defer tick.Stop()
	for {
		select {
		case <-w.granted:
			l.move(size, n)
			return "", nil
		case <-tick.C:
			if p.next(w) {
				b.abortSlow(p, n)
			}
		case <-ctx.Done():
			if p.leave(w) {
				return busyWait, ctx.Err()
			}
			l.move(size, n) // it was granted meanwhile
			return "", nil
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
	waiting []*waiter    // in the order of arrival, except that one that grows is first
}

type waiter struct {
	n       int64
	grows   bool
	granted chan struct{}
}

// try takes n bytes if they are free and, unless the lease grows, no other request waits.
func (p *share) try(n int64, grows bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.fits(n, grows) || !grows && len(p.waiting) > 0 {
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
	for len(p.waiting) > 0 && p.fits(p.waiting[0].n, p.waiting[0].grows) {
		p.free -= p.waiting[0].n
		close(p.waiting[0].granted)
		p.waiting = slices.Delete(p.waiting, 0, 1)
	}
}

func (p *share) enqueue(n int64, grows bool) *waiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &waiter{n: n, grows: grows, granted: make(chan struct{})}
	at := len(p.waiting)
	if grows {
		at = 0 // there is one at a time
	}
	p.waiting = slices.Insert(p.waiting, at, w)
	p.serve()
	return w
}

// leave ends a wait. It returns false if the lease was granted.
func (p *share) leave(w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.Index(p.waiting, w)
	if at < 0 {
		return false
	}
	p.waiting = slices.Delete(p.waiting, at, at+1)
	p.serve() // waiters behind it
	return true
}

// next reports whether a waiter is the next to be served. It serves waiters first, because
// connections may have been closed.
func (p *share) next(w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serve()
	return len(p.waiting) > 0 && p.waiting[0] == w
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
// at slowRate after slowGrace. Of those that do not, the slowest are aborted, as many
// as necessary.
const (
	slowRate  = 256 << 10 // bytes a second
	slowGrace = time.Second
	slowTick  = 250 * time.Millisecond
)

// abortSlow aborts the slowest bodies that together hold n bytes of a share.
func (b *budget) abortSlow(p *share, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rates := make(map[*payload]float64)
	for t := range b.transfers {
		age := time.Since(t.since)
		if rate := float64(t.received.Load()) / age.Seconds(); b.share(t.lease.size) == p && age >= slowGrace && rate < slowRate {
			rates[t] = rate
		}
	}
	for _, t := range slices.SortedFunc(maps.Keys(rates), func(x, y *payload) int { return cmp.Compare(rates[x], rates[y]) }) {
		if n <= 0 {
			return
		}
		n -= t.lease.size
		delete(b.transfers, t)
		b.refused(busySlow)
		t.pacer.abort()
	}
}
