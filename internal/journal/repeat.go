package journal

import (
	"context"

	"github.com/brim-telemetry/brim/internal/batch"
)

// mostLeft is how many waiters are kept whose first request gave up waiting, so
// that a repetition need not wait for all that was journaled before it.
const mostLeft = 4096

// stored says that all readings of a request came to rest.
func (k *keys) stored(id keyID, end uint64, w *waiter) {
	refused := w.result()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.waiters[id] == w {
		delete(k.waiters, id)
	}
	n, ok := k.index[id]
	if !ok || k.entries.at(n).end != end {
		return // it expired
	}
	k.entries.at(n).stored = true
	if len(refused) > 0 {
		k.refused[id] = refused
		k.bytes += refusedSize(refused)
		k.expire()
	}
}

// refusedSize is about what refusals take in memory.
func refusedSize(refused []batch.Refused) int64 {
	n := int64(len(refused)) * 40
	for i := range refused {
		n += int64(len(refused[i].Refusal.Message))
	}
	return n
}

// left says that a request no longer waits for its readings.
func (k *keys) left(f *flight) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f.left = true
	if k.waiters[f.id] == f.waiter && len(k.waiters) > mostLeft {
		delete(k.waiters, f.id)
	}
}

// progressOf tells whether the readings of a known request are at rest, and which
// were refused; if they are not, w follows them, or is nil.
func (k *keys) progressOf(known *keyEntry) (stored bool, refused []batch.Refused, w *waiter) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, ok := k.index[known.id]
	if !ok || k.entries.at(n).end != known.end {
		return false, nil, nil
	}
	return k.entries.at(n).stored, k.refused[known.id], k.waiters[known.id]
}

// A repetition waits for the readings of the request that it repeats.
type repetition struct {
	keys     *keys
	progress *progress
	patience patience
}

// wait reports whether they came to rest in time, and which were refused. Where
// nobody follows them, they are at rest when all before them are, too.
func (r repetition) wait(ctx context.Context, known *keyEntry) (refused []batch.Refused, stored bool) {
	stored, refused, w := r.keys.progressOf(known)
	if stored {
		return refused, true
	}
	var rest <-chan struct{}
	if w != nil {
		rest = w.done
	}
	passed := r.progress.passed(known.end)
	stored = r.patience.waitEither(ctx, rest, passed)
	r.progress.forget(passed)
	if w != nil {
		refused = w.result()
	}
	return refused, stored
}
