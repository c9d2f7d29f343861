package ingest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// testBudget is one of 64 MiB; refused tells how often it refused for a reason.
func testBudget() (b *budget, refused func(string) int) {
	counts := map[string]int{}
	var mu sync.Mutex
	b = newBudget(MinBudget, longestWait, func(why string) {
		mu.Lock()
		defer mu.Unlock()
		counts[why]++
	})
	return b, func(why string) int {
		mu.Lock()
		defer mu.Unlock()
		return counts[why]
	}
}

// leased is a lease of this size, which must not wait.
func leased(t *testing.T, b *budget, size int64) *lease {
	t.Helper()
	l := &lease{of: b}
	assert.NoError(t, l.reach(t.Context(), size))
	return l
}

func TestSmallRequestsDoNotWaitForLargeOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, refused := testBudget()
		large := leased(t, b, b.most())
		start := time.Now()
		go func() {
			err := (&lease{of: b}).reach(t.Context(), 1<<20)
			assert.ErrorContains(t, err, "busy: too many requests at once")
			assert.Equal(t, telemetry.Unavailable, telemetry.KindOf(err))
			assert.Equal(t, longestWait, time.Since(start), "it waits so long")
		}()
		synctest.Wait()
		small := leased(t, b, smallLease)
		synctest.Wait()
		assert.Zero(t, time.Since(start))
		<-time.After(longestWait)
		synctest.Wait()
		assert.Equal(t, 1, refused(busyWait))
		small.Release()
		large.Release()
		leased(t, b, b.most()).Release()
		assert.Zero(t, b.held(), "everything was given back")
	})
}

func TestRequestsAreServedInTheOrderOfTheirArrival(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, _ := testBudget()
		first := leased(t, b, b.most()-1<<20)
		var order []int64
		for _, size := range []int64{b.most(), 1 << 20} {
			go func() {
				l := leased(t, b, size)
				order = append(order, size)
				l.Release()
			}()
			synctest.Wait()
		}
		assert.Empty(t, order, "the one that would fit does not go first")
		first.Release()
		synctest.Wait()
		assert.Equal(t, []int64{b.most(), 1 << 20}, order)
	})
}

// Two that hold a half each and need more would wait for each other for ever.
func TestOneRequestAtATimeWaitsForMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, refused := testBudget()
		half := b.most() / 2
		one, other := leased(t, b, half), leased(t, b, half)
		newcomer := make(chan struct{})
		go func() {
			leased(t, b, 1<<20).Release()
			close(newcomer)
		}()
		synctest.Wait()
		start, done := time.Now(), make(chan error)
		go func() { done <- one.reach(t.Context(), b.most()) }()
		synctest.Wait()
		assert.ErrorContains(t, other.reach(t.Context(), half+1), "busy")
		assert.Equal(t, 1, refused(busyGrow))
		other.Release()
		require.NoError(t, <-done, "it goes in front of the newcomer")
		one.Release()
		<-newcomer
		assert.Zero(t, time.Since(start), "none waited for a timeout")
	})
}

func TestNoRequestMayHaveMoreThanTheShare(t *testing.T) {
	t.Parallel()
	b, refused := testBudget()
	l := leased(t, b, 1<<20)
	err := l.reach(t.Context(), b.most()+1)
	assert.Equal(t, telemetry.TooLarge, telemetry.KindOf(err))
	assert.ErrorContains(t, err, "(--ingest-max-bytes)")
	assert.Equal(t, 1, refused(busyShare))
}

func TestWaitingForMemoryEndsWithTheRequest(t *testing.T) {
	t.Parallel()
	b, _ := testBudget()
	all := leased(t, b, b.most())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, (&lease{of: b}).reach(ctx, b.most()))
	all.Release()
	leased(t, b, b.most()).Release()
}

// Thousands of connections leave room for one large request at a time, of any size.
func TestConnectionsTakeTheirPartOfTheBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, _ := testBudget()
		var connections atomic.Int64
		connections.Store(4096)
		b.large.beside = func() int64 { return connectionBytes * connections.Load() }
		assert.Equal(t, b.most(), b.held())
		l := leased(t, b, 1<<20)
		require.NoError(t, l.reach(t.Context(), b.most()), "one that grows does not wait for connections to end")
		l.Release()
		l = leased(t, b, 1<<20)
		start := time.Now()
		next := make(chan time.Duration)
		go func() {
			leased(t, b, b.most()-1<<20).Release()
			next <- time.Since(start)
		}()
		<-time.After(5 * time.Second)
		connections.Store(0)
		assert.InDelta(t, 5*time.Second, <-next, float64(slowTick), "the second one waits until they have ended")
		l.Release()
		assert.Zero(t, b.held())
	})
}

// Bodies that reserve much and dribble give way to others.
func TestSlowBodiesAreCutOffWhileOthersWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, refused := testBudget()
		d, _ := newTestServer(t)
		d.budget = b
		var clients sync.WaitGroup
		for range 100 {
			read, write := io.Pipe()
			clients.Go(func() { // 16 KiB a second, and never more than 8 MiB of it
				defer write.Close()
				for {
					if _, err := io.WriteString(write, strings.Repeat("x", 16<<10)); err != nil {
						return
					}
					<-time.After(time.Second)
				}
			})
			clients.Go(func() {
				// The last ones are not cut off for others.
				x, _ := received(d, read, func(r *http.Request) { r.ContentLength = 8 << 20 })
				x.end()
				read.Close()
			})
		}
		synctest.Wait()
		start := time.Now()
		for range 5 { // one after the other, as a sender that repeats does
			for {
				x, err := received(d, strings.NewReader(strings.Repeat("x", 8<<20)))
				x.end()
				if err == nil {
					break
				}
			}
		}
		assert.Less(t, time.Since(start), 2*time.Minute)
		assert.Positive(t, refused(busySlow))
		clients.Wait()
		assert.Zero(t, b.held())
	})
}

// TestSmallRequestsAreBusyWhileTheJournalHangs: their bodies cost nothing, their readings
// do.
func TestSmallRequestsAreBusyWhileTheJournalHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, j := newTestServer(t)
		d.budget = newBudget(64<<10, longestWait, d.metrics.isBusy)
		const requests = 30
		disk := j.waits()
		answers := make(chan *httptest.ResponseRecorder, requests)
		start := time.Now()
		for range requests {
			go func() { answers <- post(t, d, "/v1/readings", "application/json", singleReading) }()
		}
		synctest.Wait()
		inside := len(j.entered)
		require.Positive(t, inside)
		require.Less(t, inside, cap(j.entered), "the budget stops them, and not this test's channel")
		assert.Empty(t, answers)
		for range requests - inside {
			w := <-answers
			assert.Equal(t, http.StatusServiceUnavailable, w.Code)
			assert.Contains(t, w.Body.String(), `"busy"`)
			assert.NotEmpty(t, w.Header().Get("Retry-After"))
		}
		assert.Equal(t, longestWait, time.Since(start))
		close(disk)
		for range inside {
			assert.Equal(t, http.StatusOK, (<-answers).Code)
		}
		assert.Zero(t, d.budget.held())
	})
}

func TestLeaseOutlivesItsRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, _ := testBudget()
		l := leased(t, b, 100)
		done := make(chan struct{})
		l.ReleaseAfter(done)
		l.Release()
		synctest.Wait()
		assert.EqualValues(t, 100, b.held())
		close(done)
		synctest.Wait()
		assert.Zero(t, b.held())
	})
}
