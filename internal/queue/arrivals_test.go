package queue

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
)

// arrivals remembers what it hears.
type arrivals struct {
	mu     sync.Mutex
	newest map[string]time.Time
	times  int
}

func (a *arrivals) Came(sensor string, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.newest == nil {
		a.newest = make(map[string]time.Time)
	}
	a.newest[sensor] = at
	a.times++
}

func (a *arrivals) of(sensor string) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.newest[sensor]
}

func TestArrivalsAreToldOncePerUpdate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		heard, q := &store.heard, start(t, store, Config{})
		for range 20 {
			_, err := q.Append(t.Context(), request("a", 100))
			require.NoError(t, err)
		}
		assert.WithinDuration(t, time.Now(), heard.of("a"), 10*time.Second)
		assert.LessOrEqual(t, heard.times, 100, "not for each of 2,000 readings")
		pass(time.Hour)
		assert.Equal(t, time.Now(), q.ToldUntil(stream), "who sleeps has told of everything")
		q.Close(cancelled())
	})
}

func TestWhileMongoDBIsAwayItIsNotKnownWhatComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		back := make(chan struct{})
		store.before = func(ctx context.Context, _ []*batch.Share) {
			select {
			case <-back:
			case <-ctx.Done():
			}
		}
		heard, q := &store.heard, start(t, store, Config{Lanes: 1})
		began := time.Now()
		q.add(request("a", 1), nil)
		pass(time.Minute) // the write of this one hangs
		assert.Equal(t, began, heard.of("a"))
		q.add(request("b", 1), nil)
		pass(time.Minute)
		assert.Less(t, q.ToldUntil(stream).Sub(began), 10*time.Second, "b came, and nobody was told")
		close(back)
		pass(time.Minute)
		assert.Equal(t, began.Add(time.Minute), heard.of("b"))
		assert.Equal(t, time.Now(), q.ToldUntil(stream))
		q.Close(cancelled())
	})
}

func TestASensorIsHeardWhoseBucketIsSetAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, q, heal := stuckLane(t, Config{})
		feed(t, q, 800)
		require.Equal(t, 1, q.Status().SetAside)
		pass(10 * time.Second)
		q.add(mixed(1000, "stuck"), nil)
		synctest.Wait()
		assert.Equal(t, time.Now(), store.heard.of("stuck"))
		heal()
		pass(time.Minute)
		q.Close(cancelled())
	})
}

// pass lets time pass, in a bubble, and what it brings about.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
