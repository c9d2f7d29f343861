package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	receipt, err := q.Append(t.Context(), request("a", 700), telemetry.Stored)
	require.NoError(t, err)
	assert.Equal(t, batch.Receipt{Ack: telemetry.Stored}, receipt)
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
		_, err := q.Append(t.Context(), request("a", 1), telemetry.Stored)
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
				_, err := q.Append(t.Context(), request(fmt.Sprintf("s%d", (c+i)%5), 3), telemetry.Stored)
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
		_, err := q.Append(t.Context(), request("a", 5), telemetry.Stored)
		require.NoError(t, err)
		assert.Equal(t, 5, store.count())
		assert.WithinDuration(t, back, time.Now(), maxBackoff*3/2)
		assert.Less(t, store.writes, 30, "attempts back off")
		q.Close(context.Background())
	})
}

func TestTimeoutMeansUnknownAndTheReadingsAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		back := time.Now().Add(time.Minute)
		store.verdict = func(*batch.Share) (batch.Verdict, error) {
			if time.Now().Before(back) {
				return batch.Wait, errAway
			}
			return batch.Stored, nil
		}
		q := start(t, store, Config{StoredTimeout: 3 * time.Second})
		begin := time.Now()
		_, err := q.Append(t.Context(), request("a", 5), telemetry.Stored)
		assert.Equal(t, telemetry.UnknownOutcome, telemetry.KindOf(err))
		assert.Equal(t, 3*time.Second, time.Since(begin))
		assert.Equal(t, 5, q.Status().Readings)
		require.NoError(t, q.Flush(t.Context()))
		assert.Equal(t, 5, store.count())
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
		q := start(t, store, Config{Lanes: 1, StoredTimeout: time.Second})
		_, err := q.Append(t.Context(), request("stuck", 1), telemetry.Stored)
		require.Error(t, err)
		for range 100 {
			begin := time.Now()
			_, err := q.Append(t.Context(), request("well", 1), telemetry.Stored)
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
	receipt, err := q.Append(t.Context(), request("a", 4), telemetry.Stored)
	require.NoError(t, err)
	require.Len(t, receipt.Refused, 1)
	assert.Equal(t, 0, receipt.Refused[0].Index)
	assert.Equal(t, telemetry.StoreRefused, receipt.Refused[0].Refusal.Code)
	assert.Contains(t, receipt.Refused[0].Refusal.Message, "cannot be stored")
	assert.Equal(t, 3, store.count())
	require.Len(t, letters.letters, 1)
	assert.Equal(t, base, letters.letters[0].Time)
	assert.InDelta(t, 1, testutil.ToFloat64(q.metrics.deadLetters), 0)
}

func TestPoisonWaitsWhileItCannotBePutAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		store.verdict = func(*batch.Share) (batch.Verdict, error) { return batch.Poison, errors.New("cannot be stored") }
		letters := &fakeLetters{err: errors.New("disk full")}
		q := start(t, store, Config{DeadLetters: letters, StoredTimeout: 5 * time.Second})
		_, err := q.Append(t.Context(), request("a", 1), telemetry.Stored)
		require.Error(t, err)
		letters.mu.Lock()
		letters.err = nil
		letters.mu.Unlock()
		require.NoError(t, q.Flush(t.Context()))
		assert.Len(t, letters.letters, 1)
		q.Close(context.Background())
	})
}

func TestNothingIsTakenWhenItCannotBe(t *testing.T) {
	t.Parallel()
	block := make(chan struct{})
	store := newFakeStore(t)
	store.before = func(ctx context.Context, _ []*batch.Share) {
		select {
		case <-block:
		case <-ctx.Done():
		}
	}
	var away error
	q := start(t, store, Config{MaxBytes: 1 << 20, Admit: func(string) error { return away }})
	refused := func(b *batch.Batch, ack telemetry.Ack, kind telemetry.ErrorKind, code string) {
		t.Helper()
		before := q.Status()
		_, err := q.Append(t.Context(), b, ack)
		var e *telemetry.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, kind, e.Kind)
		assert.Equal(t, code, e.Code)
		after := q.Status()
		assert.Equal(t, before.Readings, after.Readings)
		assert.Equal(t, before.Bytes, after.Bytes)
	}
	refused(request("a", 1), telemetry.Journaled, telemetry.Invalid, "ack_unavailable")
	away = errAway
	refused(request("a", 1), telemetry.Stored, telemetry.Unavailable, "mongodb_away")
	away = nil
	var group sync.WaitGroup
	group.Go(func() {
		_, err := q.Append(context.Background(), request("a", 40_000), telemetry.Stored)
		assert.NoError(t, err, "a request larger than the queue goes alone")
	})
	require.Eventually(t, func() bool { return q.Status().Readings == 40_000 }, 10*time.Second, time.Millisecond)
	refused(request("b", 1), telemetry.Stored, telemetry.Unavailable, "queue_full")
	close(block)
	group.Wait()
	q.Close(context.Background())
	refused(request("a", 1), telemetry.Stored, telemetry.Unavailable, "stopping")
	assert.Zero(t, q.Status().Bytes)
}

func TestUnknownStreamIsRefused(t *testing.T) {
	t.Parallel()
	q := start(t, newFakeStore(t), Config{})
	b := batch.NewBuilder(base)
	b.Begin("other", 0, telemetry.TimeRange{Newest: base.UnixMilli()})
	b.Sensor([]byte("a"))
	b.Int([]byte("v"), 1)
	require.Nil(t, b.End())
	_, err := q.Append(t.Context(), b.Batch(), telemetry.Stored)
	assert.Equal(t, telemetry.NotFound, telemetry.KindOf(err))
	assert.Zero(t, q.Status().Bytes)
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
			_, err := q.Append(context.Background(), request(fmt.Sprint("s", i), 10), telemetry.Stored)
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
		q := start(t, store, Config{StoredTimeout: time.Second})
		require.NoError(t, q.Flush(t.Context()), "an empty queue is flushed")
		_, err := q.Append(t.Context(), request("late", 1), telemetry.Stored)
		require.Error(t, err)
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
		_, err := q.Append(t.Context(), request("a", 1), telemetry.Stored)
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
		_, err := q.Append(t.Context(), b.Batch(), telemetry.Stored)
		require.NoError(t, err)
	}
	assert.Equal(t, sensors, store.count())
	require.Eventually(t, func() bool { return q.Status().Buckets <= maxRemembered }, 10*time.Second, time.Millisecond)
}

func TestStreamThatCanBeStoredIsNotRefusedForAnother(t *testing.T) {
	t.Parallel()
	store := newFakeStore(t)
	q, err := New(Config{
		Streams: map[string]Stream{stream: {Store: store, Granularity: time.Hour}, "other": {Store: store, Granularity: time.Hour}},
		Session: "s1", DeadLetters: &fakeLetters{}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		Admit: func(name string) error {
			if name == "other" {
				return errAway
			}
			return nil
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { q.Close(cancelled()) })
	of := func(names ...string) *batch.Batch {
		b := batch.NewBuilder(base)
		for i, name := range names {
			b.Begin(name, i, telemetry.TimeRange{Newest: base.UnixMilli()})
			b.Sensor([]byte("a"))
			b.Int([]byte("v"), 1)
			require.Nil(t, b.End())
		}
		return b.Batch()
	}
	_, err = q.Append(t.Context(), of(stream), telemetry.Stored)
	require.NoError(t, err)
	_, err = q.Append(t.Context(), of(stream, "other"), telemetry.Stored)
	assert.Equal(t, telemetry.Unavailable, telemetry.KindOf(err))
	assert.Equal(t, 1, store.count(), "of a request for both nothing is taken")
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	q := start(t, newFakeStore(t), Config{Registerer: reg})
	for range 3 {
		_, err := q.Append(t.Context(), request("a", 10), telemetry.Stored)
		require.NoError(t, err)
	}
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	assert.Empty(t, problems)
	assert.InDelta(t, 0, testutil.ToFloat64(q.metrics.readings), 0)
	families, err := reg.Gather()
	require.NoError(t, err)
	values := make(map[string]float64)
	for _, f := range families {
		m := f.GetMetric()[0]
		values[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	assert.Equal(t, map[string]float64{
		"brim_queue_readings": 0, "brim_queue_lag_seconds": 3, "brim_queue_retries_total": 0,
		"brim_queue_dead_letters_total": 0, "brim_queue_out_of_order_total": 0, "brim_store_active_buckets": 1,
	}, values)
}

func TestNewNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	good := func() Config {
		return Config{Streams: map[string]Stream{stream: {}}, Session: "s1", DeadLetters: &fakeLetters{}, Registerer: prometheus.NewRegistry()}
	}
	for want, spoil := range map[string]func(*Config){
		"stream":              func(c *Config) { c.Streams = nil },
		"session":             func(c *Config) { c.Session = "" },
		"dead letters":        func(c *Config) { c.DeadLetters = nil },
		"lanes 300":           func(c *Config) { c.Lanes = 300 },
		"flush-interval 2h":   func(c *Config) { c.FlushInterval = 2 * time.Hour },
		"queue-max-bytes 10":  func(c *Config) { c.MaxBytes = 10 },
		"stored-timeout -1ns": func(c *Config) { c.StoredTimeout = -1 },
	} {
		cfg := good()
		spoil(&cfg)
		_, err := New(cfg)
		require.ErrorContains(t, err, want)
	}
}
