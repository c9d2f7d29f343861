package queue

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/brim-telemetry/brim/internal/batch"
)

// halvingStore refuses one reading: it halves what it sends until that reading
// stands alone, and remembers the limit in State.
type halvingStore struct {
	mu     sync.Mutex
	hangs  bool
	poison uint64
}

func (h *halvingStore) Write(_ context.Context, shares []*batch.Share) {
	time.Sleep(8 * time.Millisecond) //nolint:forbidigo // fake time
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range shares {
		limit, ok := s.State.(*int)
		if !ok {
			limit = new(int)
			s.State = limit
		}
		n := len(s.Rows)
		if *limit > 0 {
			n = min(n, *limit)
		}
		bad := false
		for _, r := range s.Rows[:n] {
			bad = bad || r.Seq() == h.poison
		}
		switch s.Verdict, s.Err = batch.Again, errAway; {
		case h.hangs:
			s.Verdict = batch.Hangs
		case bad && n > 1:
			*limit = n / 2
		case bad:
			*limit, s.Verdict = 1, batch.Poison
		default:
			*limit *= 2
			if s.Drop(n); len(s.Rows) == 0 {
				s.Verdict, s.Err = batch.Stored, nil
			}
		}
	}
}

// A reading that MongoDB refuses is found in a bucket that catches up, too, while
// the walk brings more rows for it all the time.
func TestPoisonIsFoundInABucketThatCatchesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, letters := &halvingStore{hangs: true, poison: 1500}, &fakeLetters{}
		q := start(t, store, Config{Lanes: 1, DeadLetters: letters})
		add := func(requests int) {
			for i := range requests {
				q.add(mixed(i, "hot", "hot", "hot", "hot", "hot"), nil)
				pass(10 * time.Millisecond)
			}
		}
		add(500)
		assert.Equal(t, 1, q.Status().SetAside)
		store.mu.Lock()
		store.hangs = false
		store.mu.Unlock()
		add(500)
		letters.mu.Lock()
		assert.Len(t, letters.letters, 1)
		letters.mu.Unlock()
		q.Close(cancelled())
	})
}
