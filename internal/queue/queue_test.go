package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestMain(m *testing.M) { mongodtest.Main(m, mongodtest.NoLeaks()) }

func TestAppendAnswersWhenAllIsStored(t *testing.T) {
	t.Parallel()
	store := newFakeStore(t)
	q := start(t, store, Config{})
	refused, err := q.Append(t.Context(), request("a", 700))
	require.NoError(t, err)
	assert.Empty(t, refused)
	assert.Equal(t, 700, store.count())
}

func TestReadingsOfManyRequestsShareAnUpdate(t *testing.T) {
	t.Parallel()
	store := newFakeStore(t)
	entered, release := make(chan struct{}, 1), make(chan struct{})
	store.before = func(context.Context, []*batch.Share) {
		entered <- struct{}{}
		<-release
	}
	q := start(t, store, Config{})
	var group sync.WaitGroup
	appendOne := func() {
		_, err := q.Append(t.Context(), request("a", 1))
		assert.NoError(t, err)
	}
	group.Go(appendOne)
	<-entered // the first is under way; the others gather behind it
	for range 50 {
		group.Go(appendOne)
	}
	require.Eventually(t, func() bool { return q.Status().Readings == 51 }, 10*time.Second, time.Millisecond)
	close(release)
	<-entered
	group.Wait()
	assert.Equal(t, 51, store.count())
	assert.Equal(t, 2, store.updates, "what gathered during the first update went with the second")
}

func TestOneOperationOfABucketIsInFlight(t *testing.T) {
	t.Parallel()
	store := newFakeStore(t)
	q := start(t, store, Config{Lanes: 8})
	var group sync.WaitGroup
	for c := range 16 {
		group.Go(func() {
			for i := range 50 {
				_, err := q.Append(t.Context(), request(fmt.Sprintf("s%d", (c+i)%5), 3))
				assert.NoError(t, err)
			}
		})
	}
	group.Wait()
	assert.Equal(t, 16*50*3, store.count())
}

func TestFailedWritesAreDoneAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		back := time.Now().Add(7 * time.Second)
		store.verdict = func(*batch.Share) (batch.Verdict, error) {
			if time.Now().Before(back) {
				return batch.Wait, errAway
			}
			return batch.Stored, nil
		}
		q := start(t, store, Config{})
		_, err := q.Append(t.Context(), request("a", 5))
		require.NoError(t, err)
		assert.Equal(t, 5, store.count())
		assert.WithinDuration(t, back, time.Now(), maxBackoff*3/2)
		assert.Less(t, store.writes, 30, "attempts back off")
		q.Close(context.Background())
	})
}

func TestOneStuckBucketStopsNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		store.verdict = func(share *batch.Share) (batch.Verdict, error) {
			if share.Sensor == "stuck" {
				return batch.Wait, errAway
			}
			return batch.Stored, nil
		}
		q := start(t, store, Config{Lanes: 1})
		q.add(request("stuck", 1), nil)
		for range 100 {
			begin := time.Now()
			_, err := q.Append(t.Context(), request("well", 1))
			require.NoError(t, err)
			assert.Zero(t, time.Since(begin), "nothing in the lane waits for the stuck bucket")
		}
		assert.Equal(t, 1, q.Close(cancelled()), "the stuck reading is counted as dropped")
	})
}

func TestPoisonIsPutAsideAndNamed(t *testing.T) {
	t.Parallel()
	store := newFakeStore(t)
	store.verdict = func(share *batch.Share) (batch.Verdict, error) {
		if share.Rows[0].Row().Index == 0 {
			return batch.Poison, errors.New("cannot be stored")
		}
		return batch.Stored, nil
	}
	letters := &fakeLetters{}
	q := start(t, store, Config{DeadLetters: letters})
	refused, err := q.Append(t.Context(), request("a", 4))
	require.NoError(t, err)
	require.Len(t, refused, 1)
	assert.Equal(t, 0, refused[0].Index)
	assert.Equal(t, telemetry.StoreRefused, refused[0].Refusal.Code)
	assert.Contains(t, refused[0].Refusal.Message, "cannot be stored")
	assert.Equal(t, 3, store.count())
	require.Len(t, letters.letters, 1)
	assert.Equal(t, base, letters.letters[0].Reading.Time)
	assert.InDelta(t, 1, testutil.ToFloat64(q.metrics.deadLetters), 0)
}

func TestPoisonWaitsWhileItCannotBePutAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		store.verdict = func(*batch.Share) (batch.Verdict, error) { return batch.Poison, errors.New("cannot be stored") }
		letters := &fakeLetters{err: errors.New("disk full")}
		q := start(t, store, Config{DeadLetters: letters})
		q.add(request("a", 1), nil)
		time.Sleep(5 * time.Second) //nolint:forbidigo // fake time
		letters.mu.Lock()
		letters.err = nil
		letters.mu.Unlock()
		require.NoError(t, q.Flush(t.Context()))
		assert.Len(t, letters.letters, 1)
		q.Close(context.Background())
	})
}

func TestCloseStoresWhatIsHeld(t *testing.T) {
	t.Parallel()
	store := newFakeStore(t)
	release := make(chan struct{})
	store.before = func(context.Context, []*batch.Share) { <-release }
	q := start(t, store, Config{})
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			_, err := q.Append(context.Background(), request(fmt.Sprint("s", i), 10))
			assert.NoError(t, err)
		})
	}
	require.Eventually(t, func() bool { return q.Status().Readings == 200 }, 10*time.Second, time.Millisecond)
	group.Go(func() { assert.Zero(t, q.Close(context.Background())) })
	close(release)
	group.Wait()
	assert.Equal(t, 200, store.count())
}

func TestFlushWaitsForWhatCameBeforeOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		late := false
		store.verdict = func(share *batch.Share) (batch.Verdict, error) {
			if share.Sensor == "late" && !late {
				return batch.Wait, errAway
			}
			return batch.Stored, nil
		}
		q := start(t, store, Config{})
		require.NoError(t, q.Flush(t.Context()), "an empty queue is flushed")
		q.add(request("late", 1), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, q.Flush(ctx), context.DeadlineExceeded)
		store.mu.Lock()
		late = true
		store.mu.Unlock()
		require.NoError(t, q.Flush(t.Context()))
		q.Close(context.Background())
	})
}

func TestIdleBucketsAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := start(t, newFakeStore(t), Config{})
		_, err := q.Append(t.Context(), request("a", 1))
		require.NoError(t, err)
		assert.Equal(t, 1, q.Status().Buckets)
		time.Sleep(3 * forgetAfter) //nolint:forbidigo // fake time
		synctest.Wait()
		assert.Zero(t, q.Status().Buckets)
		q.Close(context.Background())
	})
}

func TestLaneDoesNotRememberEndlesslyMany(t *testing.T) {
	t.Parallel()
	store := newFakeStore(t)
	q := start(t, store, Config{Lanes: 1})
	const sensors = maxRemembered + 5000
	for from := 0; from < sensors; from += 5000 {
		b := batch.NewBuilder(time.Now())
		for i := range 5000 {
			b.Begin(stream, i, telemetry.TimeRange{Newest: base.UnixMilli()})
			b.Sensor(fmt.Append(nil, "s", from+i))
			b.Time(base.UnixMilli())
			b.Int([]byte("v"), 1)
			require.Nil(t, b.End())
		}
		_, err := q.Append(t.Context(), b.Batch())
		require.NoError(t, err)
	}
	assert.Equal(t, sensors, store.count())
	require.Eventually(t, func() bool { return q.Status().Buckets <= maxRemembered }, 10*time.Second, time.Millisecond)
}

// scraped is scraped at each metric that it is given.
type scraped struct {
	*prometheus.Registry

	t *testing.T
}

func (s scraped) Register(c prometheus.Collector) error {
	require.NoError(s.t, s.Registry.Register(c))
	families, err := s.Gather()
	require.NoError(s.t, err)
	for _, f := range families {
		if f.GetName() == "brim_queue_flush_interval_seconds" {
			assert.InDelta(s.t, 0.25, f.GetMetric()[0].GetGauge().GetValue(), 0)
		}
	}
	return nil
}

func TestAScrapeFindsTheLanes(t *testing.T) {
	t.Parallel()
	start(t, newFakeStore(t), Config{Registerer: scraped{prometheus.NewRegistry(), t}, FlushInterval: 250 * time.Millisecond})
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	q := start(t, newFakeStore(t), Config{Registerer: reg})
	for range 3 {
		_, err := q.Append(t.Context(), request("a", 10))
		require.NoError(t, err)
	}
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	assert.Empty(t, problems)
	families, err := reg.Gather()
	require.NoError(t, err)
	values := make(map[string]float64)
	for _, f := range families {
		m := f.GetMetric()[0]
		values[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	assert.Equal(t, map[string]float64{
		"brim_queue_readings": 0, "brim_queue_lag_seconds": 3, "brim_queue_retries_total": 0,
		"brim_queue_dead_letters_total": 0, "brim_queue_out_of_order_total": 0, "brim_queue_impossible_total": 0, "brim_queue_read_errors_total": 0,
		"brim_queue_set_aside_buckets": 0, "brim_store_active_buckets": 1, "brim_queue_flush_interval_seconds": 1,
	}, values)
}

func TestNewNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	good := func() Config {
		return Config{
			Journal: newFakeJournal(), Streams: map[string]Stream{stream: {}}, DeadLetters: &fakeLetters{}, Registerer: prometheus.NewRegistry(),
		}
	}
	for want, spoil := range map[string]func(*Config){
		"stream":             func(c *Config) { c.Streams = nil },
		"journal":            func(c *Config) { c.Journal = nil },
		"dead letters":       func(c *Config) { c.DeadLetters = nil },
		"lanes 300":          func(c *Config) { c.Lanes = 300 },
		"flush-interval 2h":  func(c *Config) { c.FlushInterval = 2 * time.Hour },
		"queue-max-bytes 10": func(c *Config) { c.MaxBytes = 10 },
	} {
		cfg := good()
		spoil(&cfg)
		_, err := New(cfg)
		require.ErrorContains(t, err, want)
	}
}

// TestOneInAHurryDoesNotHurryTheRest has a reading every 10 ms, which are
// merged by the flush interval, before and after one that somebody waits for.
func TestOneInAHurryDoesNotHurryTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		store.before = func(context.Context, []*batch.Share) { time.Sleep(25 * time.Millisecond) } //nolint:forbidigo // fake time
		q := start(t, store, Config{Lanes: 1})
		feed := func() {
			for i := range 1000 {
				q.add(mixed(i, fmt.Sprint("s-", i%3)), nil)
				time.Sleep(10 * time.Millisecond) //nolint:forbidigo // fake time
			}
		}
		feed()
		store.mu.Lock()
		before := store.updates
		store.mu.Unlock()
		q.add(mixed(1, "s-0"), &fakeTracker{done: make(chan struct{})})
		feed()
		require.NoError(t, q.Flush(t.Context()))
		assert.Equal(t, 2001, store.count())
		assert.Less(t, before, 100, "readings of a second are merged")
		assert.InDelta(t, before, store.updates-before, 10)
		q.Close(context.Background())
	})
}
