package promapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/read"
)

func TestQueriesLeaveProcessorsToReadingsThatArrive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		arrive := false
		s := &scheduler{arriving: func() bool { return arrive }}
		processors := machine.CPUs()
		for range 2 * processors {
			require.NoError(t, s.acquire(t.Context(), "a"))
		}
		arrive = true
		var order []string
		wait := func(ctx context.Context, name string) {
			go func() {
				if s.acquire(ctx, "a") == nil {
					order = append(order, name)
				}
			}()
			synctest.Wait()
		}
		leaving, leave := context.WithCancel(t.Context())
		wait(leaving, "gone")
		wait(t.Context(), "first")
		wait(t.Context(), "second")
		leave()
		for range 2*processors - max(1, processors/2) {
			s.release("a")
			synctest.Wait()
		}
		assert.Empty(t, order, "there are as many as there may be")
		s.release("a")
		synctest.Wait()
		s.release("a")
		synctest.Wait()
		assert.Equal(t, []string{"first", "second"}, order)
		for range max(1, processors/2) {
			s.release("a")
		}
		assert.Zero(t, s.taken)
		assert.Empty(t, s.waiting)
	})
}

// TestOneClientDoesNotTakeAllSlots, even if it holds its slots for long and asks for more.
func TestOneClientDoesNotTakeAllSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scheduler{arriving: func() bool { return false }}
		limit := s.limit()
		require.GreaterOrEqual(t, limit, 2)
		var order []string
		for range limit {
			require.NoError(t, s.acquire(t.Context(), "greedy"))
		}
		for _, client := range []string{"greedy", "greedy", "other", "third"} {
			go func() {
				if s.acquire(t.Context(), client) == nil {
					order = append(order, client)
				}
			}()
			synctest.Wait()
		}
		s.release("greedy")
		synctest.Wait()
		assert.Equal(t, []string{"other"}, order)
		s.release("other")
		synctest.Wait()
		assert.Equal(t, []string{"other", "third"}, order)
		s.release("third")
		synctest.Wait()
		assert.Equal(t, []string{"other", "third", "greedy"}, order)
		for range limit {
			s.release("greedy")
		}
		synctest.Wait()
		s.release("greedy")
		assert.Zero(t, s.taken)
		assert.Empty(t, s.held)
	})
}

// neverAsked is a source that must not be read.
type neverAsked struct{ read.Source }

// TestWaitingForATurnIsNotWaitingForMongoDB: other clients have all slots.
func TestWaitingForATurnIsNotWaitingForMongoDB(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logger := slog.New(slog.DiscardHandler)
		r, err := read.New(read.Config{DefaultStream: "readings", Problem: func(http.ResponseWriter, error) {}, Logger: logger})
		require.NoError(t, err)
		r.Open(read.Stored{Sources: map[string]read.Source{"readings": neverAsked{}}, Available: func(string) error { return nil }})
		api, err := New(Config{Reader: r, Logger: logger})
		require.NoError(t, err)
		for range api.scheduler.limit() {
			require.NoError(t, api.scheduler.acquire(t.Context(), "greedy"))
		}
		w := httptest.NewRecorder()
		api.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/prometheus/api/v1/query?query=1", http.NoBody))
		assert.Equal(t, http.StatusServiceUnavailable, w.Code)
		assert.Contains(t, w.Body.String(), `"errorType":"timeout"`)
		assert.NotContains(t, w.Body.String(), "MongoDB sent nothing")
	})
}

func TestQueriesPauseWhileReadingsArrive(t *testing.T) {
	t.Parallel()
	for _, arrive := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := &scheduler{arriving: func() bool { return arrive }}
			const long, each = time.Minute, 5 * time.Millisecond
			began, worked := time.Now(), time.Duration(0)
			for time.Since(began) < long {
				require.NoError(t, s.acquire(t.Context(), "a"))
				<-time.After(each)
				s.release("a")
				worked += each
			}
			if share := share(); arrive && share < 1 {
				assert.InDelta(t, share*long.Seconds()+burst.Seconds(), worked.Seconds(), 1)
				return
			}
			assert.Equal(t, long, worked, "one query after the other does not pause")
		})
	}
}

func TestQueriesHaveAnotherThread(t *testing.T) { //nolint:paralleltest // GOMAXPROCS is global
	if os.Getenv("GOMAXPROCS") != "" || machine.CPUs() != runtime.NumCPU() {
		t.Skip("the environment has GOMAXPROCS, or this process may not use all CPUs")
	}
	synctest.Test(t, func(t *testing.T) {
		s := &scheduler{arriving: func() bool { return true }}
		require.NoError(t, s.acquire(t.Context(), "a"))
		<-time.After(3 * threadTime / 2)
		assert.Equal(t, machine.CPUs()+1, runtime.GOMAXPROCS(0), "the query still runs")
		s.release("a")
		<-time.After(threadTime)
		assert.Equal(t, machine.CPUs(), runtime.GOMAXPROCS(0))
		require.NoError(t, s.acquire(t.Context(), "a"))
		synctest.Wait()
		assert.Equal(t, machine.CPUs()+1, runtime.GOMAXPROCS(0))
		s.release("a")
		<-time.After(threadTime)
	})
}

// TestPausesDoNotHideReadingsThatArrive: queries that run when readings begin to arrive cause a
// pause of seconds. Arrivals must be polled meanwhile, or they would not be noticed after it.
func TestPausesDoNotHideReadingsThatArrive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const long, each = time.Minute, 700 * time.Millisecond
		began, most := time.Now(), max(1, machine.CPUs()/2)
		asked := began
		s := &scheduler{arriving: func() bool {
			recently := time.Since(asked) < time.Second
			asked = time.Now()
			return recently && time.Since(began) > each
		}}
		var all sync.WaitGroup
		for range 2*machine.CPUs() + 1 {
			all.Go(func() {
				for time.Since(began) < long {
					if !assert.NoError(t, s.acquire(t.Context(), "a")) {
						return
					}
					s.mu.Lock()
					if time.Since(began) > 2*each {
						assert.LessOrEqual(t, s.taken, most)
					}
					s.mu.Unlock()
					<-time.After(each)
					s.release("a")
				}
			})
		}
		all.Wait()
	})
}
