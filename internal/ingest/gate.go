package ingest

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// How much requests may inflate before they have to wait for each other. What
// is inflated is decoded at once and costs about its own size until the journal
// takes it over, so that at most 32 MiB + one large body are held here, besides
// the small ones.
const (
	smallBody   = 64 << 10 // never waits
	mediumBody  = 2 << 20  // 5,000 lines of ten fields
	mediumSlots = 16
	largeSlots  = 1
	zstdSlots   = 4 // of up to two windows each

	longestWait = 10 * time.Second
)

// A gate bounds the memory that requests hold while they are decoded. A request
// takes each kind of slot at most once, in the order zstd, medium, large, so
// that none waits for itself.
type gate struct {
	zstd, medium, large *semaphore.Weighted
	wait                time.Duration
}

func newGate(wait time.Duration) *gate {
	return &gate{
		zstd:   semaphore.NewWeighted(zstdSlots),
		medium: semaphore.NewWeighted(mediumSlots),
		large:  semaphore.NewWeighted(largeSlots),
		wait:   wait,
	}
}

// A pass is one request's way through the gate.
type pass struct {
	gate  *gate
	room  int64 // bytes that may be inflated before the next slot is needed
	taken [3]*semaphore.Weighted
	n     int
}

func (g *gate) enter() *pass { return &pass{gate: g, room: smallBody} }

// leave gives the slots back.
func (p *pass) leave() {
	for _, s := range p.taken[:p.n] {
		s.Release(1)
	}
	p.n = 0
}

// hold waits until this many inflated bytes may be held.
func (p *pass) hold(ctx context.Context, inflated int64) error {
	for inflated > p.room {
		slot, room := p.gate.medium, int64(mediumBody)
		if p.room >= mediumBody {
			slot, room = p.gate.large, 1<<62
		}
		if err := p.take(ctx, slot); err != nil {
			return err
		}
		p.room = room
	}
	return nil
}

// inflateZstd waits until one more zstd decoder may be in use.
func (p *pass) inflateZstd(ctx context.Context) error { return p.take(ctx, p.gate.zstd) }

func (p *pass) take(ctx context.Context, slot *semaphore.Weighted) error {
	if err := acquire(ctx, slot, 1, p.gate.wait); err != nil {
		return err
	}
	p.taken[p.n] = slot
	p.n++
	return nil
}

// acquire takes n of what is scarce, for which it waits so long at most.
func acquire(ctx context.Context, scarce *semaphore.Weighted, n int64, wait time.Duration) error {
	if scarce.TryAcquire(n) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if err := scarce.Acquire(ctx, n); err != nil {
		return &telemetry.Error{
			Kind: telemetry.Unavailable, Code: codeBusy, RetryAfter: retryAfter, Err: err,
			Message: "too many large requests at once; nothing was taken, send it again or send smaller ones",
		}
	}
	return nil
}
