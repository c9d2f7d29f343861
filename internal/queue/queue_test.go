package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

func TestMain(m *testing.M) { mongodtest.Main(m) }

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
	store.before = func(context.Context, []*batch.Pending) {
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

func TestFailedWritesAreRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		back := time.Now().Add(7 * time.Second)
		store.verdict = func(*batch.Pending) (batch.Verdict, error) {
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

func TestStuckBucketDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		store.verdict = func(pending *batch.Pending) (batch.Verdict, error) {
			if pending.Sensor == "stuck" {
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

func TestPoisonBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	store := newFakeStore(t)
	store.verdict = func(pending *batch.Pending) (batch.Verdict, error) {
		if pending.Rows[0].Row().Index == 0 {
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

func TestPoisonWaitsUntilItsDeadLetterIsWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		store.verdict = func(*batch.Pending) (batch.Verdict, error) { return batch.Poison, errors.New("cannot be stored") }
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

func TestCloseStoresPendingReadings(t *testing.T) {
	t.Parallel()
	store := newFakeStore(t)
	release := make(chan struct{})
	store.before = func(context.Context, []*batch.Pending) { <-release }
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

func TestFlushWaitsOnlyForEarlierReadings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		late := false
		store.verdict = func(pending *batch.Pending) (batch.Verdict, error) {
			if pending.Sensor == "late" && !late {
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

func TestLaneRemembersALimitedNumberOfBuckets(t *testing.T) {
	t.Parallel()
	store := newFakeStore(t)
	q := start(t, store, Config{Lanes: 1})
	const most, step = 2000, 500
	assert.Equal(t, maxRemembered, q.lanes[0].remembered)
	q.lanes[0].remembered = most
	const sensors = most + 3*step
	for from := 0; from < sensors; from += step {
		b := batch.NewBuilder(time.Now())
		for i := range step {
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
	require.Eventually(t, func() bool { return q.Status().Buckets <= most }, 10*time.Second, time.Millisecond)
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
		if f.GetName() == "brim_queue_past_due_seconds" {
			assert.Zero(s.t, f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	return nil
}

func TestScrapeDuringRegistration(t *testing.T) {
	t.Parallel()
	start(t, newFakeStore(t), Config{Registerer: scraped{prometheus.NewRegistry(), t}})
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
		"brim_queue_set_aside_buckets": 0, "brim_store_active_buckets": 1, "brim_queue_past_due_seconds": 0,
		"brim_queue_updates_total": 0, "brim_queue_updated_readings_total": 0, "brim_queue_oldest_seconds": 0,
	}, values)
}

func TestNewNamesInvalidSettings(t *testing.T) {
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
		"flush-interval 2h":  func(c *Config) { c.Streams[stream] = Stream{Policy: Policy{Interval: 2 * time.Hour}} },
		"flush-max 2h":       func(c *Config) { c.Streams[stream] = Stream{Policy: Policy{Max: 2 * time.Hour}} },
		"merge-readings -1":  func(c *Config) { c.Streams[stream] = Stream{Policy: Policy{Readings: -1}} },
		"queue-max-bytes 10": func(c *Config) { c.MaxBytes = 10 },
	} {
		cfg := good()
		spoil(&cfg)
		_, err := New(cfg)
		require.ErrorContains(t, err, want)
	}
}

// TestOneWaitingRequestDoesNotEndMerging has a reading every 10 ms, which are
// merged by the flush interval, before and after one that a request waits for.
func TestOneWaitingRequestDoesNotEndMerging(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		store.before = func(context.Context, []*batch.Pending) { time.Sleep(25 * time.Millisecond) } //nolint:forbidigo // fake time
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

func TestArrivalsAreReportedOncePerUpdate(t *testing.T) {
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
		assert.Equal(t, time.Now().Add(-noteAgain), q.KnownUntil(stream), "a sleeping lane has reported all arrivals")
		q.Close(cancelled())
	})
}

func TestKnownUntilLagsWhileMongoDBIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		back := make(chan struct{})
		store.before = func(ctx context.Context, _ []*batch.Pending) {
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
		assert.Less(t, q.KnownUntil(stream).Sub(began), 10*time.Second, "b arrived, and Arrivals was not called")
		close(back)
		pass(time.Minute)
		assert.Equal(t, began.Add(time.Minute), heard.of("b"))
		assert.Equal(t, time.Now().Add(-noteAgain), q.KnownUntil(stream))
		q.Close(cancelled())
	})
}

func TestArrivalsIncludeSetAsideBuckets(t *testing.T) {
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

// play lets a lane write so long of each 100 ms, for a minute, and returns when
// the last write ended.
func play(p *pace, write time.Duration) time.Time {
	begin := p.last.Add(100*time.Millisecond - write)
	for range 600 {
		p.wrote(begin, begin.Add(write))
		begin = begin.Add(100 * time.Millisecond)
	}
	return p.last
}

func TestIntervalGrowsWithTheTimeSpentWriting(t *testing.T) {
	t.Parallel()
	p := newPace(time.Second)
	play(&p, 5*time.Millisecond)
	assert.Equal(t, time.Second, p.interval, "with time to spare")
	play(&p, 40*time.Millisecond)
	assert.Equal(t, 4*time.Second, p.interval, "it stops at four times the flush interval")
	play(&p, 20*time.Millisecond)
	assert.Equal(t, 4*time.Second, p.interval, "between the two bounds nothing changes")
	play(&p, 5*time.Millisecond)
	assert.Equal(t, time.Second, p.interval, "and it shrinks again")
}

func TestOneLongWriteHardlyChangesTheInterval(t *testing.T) {
	t.Parallel()
	p := newPace(time.Second)
	now := time.Now()
	p.wrote(now, now.Add(10*time.Second))
	assert.Equal(t, 1500*time.Millisecond, p.interval)
	play(&p, time.Millisecond)
	assert.Equal(t, time.Second, p.interval)
}

func TestLargestInterval(t *testing.T) {
	t.Parallel()
	for interval, most := range map[time.Duration]time.Duration{
		100 * time.Millisecond: 400 * time.Millisecond, 2 * time.Second: 4 * time.Second, 30 * time.Second: 30 * time.Second,
	} {
		p := newPace(interval)
		play(&p, 40*time.Millisecond)
		play(&p, 40*time.Millisecond)
		assert.Equal(t, most, p.interval)
	}
}

func TestPauseResetsTheInterval(t *testing.T) {
	t.Parallel()
	p := newPace(time.Second)
	last := play(&p, 40*time.Millisecond)
	p.rest(last.Add(3 * time.Second))
	assert.Equal(t, 4*time.Second, p.interval)
	p.rest(last.Add(5 * time.Second))
	assert.Equal(t, time.Second, p.interval)
}

// TestEverythingIsStoredOnce lets buckets fail, recover, be stored by halves
// and hold poison at random, with memory for a fraction of it: in the end each
// reading is stored or put aside once, in the order of its bucket (the fake store
// and the fake letters see to the order).
func TestEverythingIsStoredOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { randomRun(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func randomRun(t *testing.T, random *rand.Rand) {
	store, letters := newFakeStore(t), &fakeLetters{}
	failing := make(map[string]bool)
	healed := false
	isPoison := func(r batch.Ref) bool { return r.Seq()%97 == 0 }
	lanes := rand.New(rand.NewPCG(random.Uint64(), 2)) // under the store's lock
	store.verdict = func(pending *batch.Pending) (batch.Verdict, error) {
		good := 0 // leading rows that can be stored
		for good < len(pending.Rows) && !isPoison(pending.Rows[good]) {
			good++
		}
		switch {
		case good == 0:
			return batch.Poison, errAway
		case !healed && (failing[pending.Sensor] || lanes.IntN(10) == 0):
			return batch.Wait, errAway
		case good == len(pending.Rows) && (healed || lanes.IntN(10) > 0):
			return batch.Stored, nil
		}
		// A part is stored, the rest can be sent at once.
		store.keepSome(pending, max(1, min(good, len(pending.Rows)/2)))
		return batch.Again, nil
	}
	q := start(t, store, Config{Lanes: 1 + random.IntN(4), MaxBytes: 1 << 20, DeadLetters: letters})
	taken, poison := 0, 0
	for range 300 {
		var sensors []string
		for range 1 + random.IntN(60) {
			sensors = append(sensors, fmt.Sprint("s-", random.IntN(12)))
		}
		for i := range sensors {
			if (taken+i+1)%97 == 0 {
				poison++
			}
		}
		q.add(mixed(random.IntN(900_000), sensors...), nil)
		taken += len(sensors)
		if random.IntN(10) == 0 {
			store.mu.Lock()
			failing[fmt.Sprint("s-", random.IntN(12))] = random.IntN(3) > 0
			store.mu.Unlock()
		}
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond) //nolint:forbidigo // fake time
	}
	store.mu.Lock()
	healed = true
	store.mu.Unlock()
	require.NoError(t, q.Flush(t.Context()))
	s := q.Status()
	assert.Zero(t, s.Readings)
	assert.Zero(t, s.Bytes)
	assert.Zero(t, s.SetAside)
	assert.Equal(t, uint64(300), s.Rest)
	assert.Len(t, letters.letters, poison)
	assert.Equal(t, taken-poison, store.count())
	assert.Zero(t, q.Close(context.Background()))
}
