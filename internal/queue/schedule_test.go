package queue

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// withPolicy configures a queue of one lane.
func withPolicy(p Policy) Config {
	return Config{Lanes: 1, MaxBytes: 64 << 20, Streams: map[string]Stream{stream: {Policy: p}}}
}

// written counts a store's updates in each second of the test.
type written struct {
	mu      sync.Mutex
	seconds map[int]int
	rows    []int
	waited  time.Duration // longest from a reading's receipt to its update
}

func watch(store *fakeStore) *written {
	w := &written{seconds: make(map[int]int)}
	began := time.Now()
	store.before = func(_ context.Context, writes []*batch.Pending) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, pending := range writes {
			w.seconds[int(time.Since(began)/time.Second)]++
			w.rows = append(w.rows, len(pending.Rows))
			for _, r := range pending.Rows {
				w.waited = max(w.waited, time.Since(parcelOf(r).arrived))
			}
		}
	}
	return w
}

func (w *written) most() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	most := 0
	for _, n := range w.seconds {
		most = max(most, n)
	}
	return most
}

// sent returns how many updates a trigger sent.
func sent(q *line, why trigger) int {
	return int(testutil.ToFloat64(q.metrics.updates.WithLabelValues(stream, why.String())))
}

func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint("s-", i)
	}
	return out
}

func TestFewSensorsAreWrittenWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		w := watch(store)
		q := start(t, store, Config{})
		for i := range 600 { // a hundred sensors, every five seconds, evenly
			for s := range 2 {
				q.add(mixed(i*50, fmt.Sprint("s-", (2*i+s)%100)), nil)
			}
			pass(100 * time.Millisecond)
		}
		pass(2 * time.Second)
		assert.LessOrEqual(t, w.waited, 2100*time.Millisecond)
		assert.Zero(t, q.Status().Readings)
		q.Close(cancelled())
	})
}

// Ten thousand sensors cost more than the budget, so their readings are merged, and updates
// flow steadily although all sensors send at the same moment.
func TestManySensorsAreMergedWithinTheBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		store.t = t
		w := watch(store)
		const sensors = 2000
		q := start(t, store, withPolicy(Policy{Budget: 0.004}))
		all := names(sensors)
		for i := range 240 {
			q.add(mixed(i*100, all...), nil)
			pass(5 * time.Second)
		}
		updates := len(w.rows)
		merged := 0
		for _, n := range w.rows {
			merged += n
		}
		assert.Greater(t, merged/updates, 25, "readings per update")
		assert.LessOrEqual(t, w.waited, 5*time.Minute+5*time.Second)
		assert.Less(t, w.most(), 150, "updates in a second")
		assert.Zero(t, q.Status().PastDue)
		assert.Positive(t, sent(q, byBudget))
		require.NoError(t, q.Flush(t.Context()))
		assert.Equal(t, 240*sensors, store.count())
		q.Close(context.Background())
	})
}

// Without a budget, readings wait as long as they may. The updates are spread over the last
// part of that time.
func TestReadingsWaitAtMostFlushMax(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		w := watch(store)
		const sensors = 1000
		q := start(t, store, withPolicy(Policy{Budget: -1, Max: time.Minute, Readings: 1000}))
		all := names(sensors)
		for i := range 120 {
			q.add(mixed(i*100, all...), nil)
			pass(5 * time.Second)
		}
		assert.LessOrEqual(t, w.waited, 61*time.Second)
		assert.Less(t, w.most(), sensors/6, "updates in a second")
		assert.Zero(t, sent(q, byBudget))
		slices.Sort(w.rows)
		assert.GreaterOrEqual(t, w.rows[len(w.rows)/2], 8, "readings in the median update; twelve a minute arrive")
		q.Close(cancelled())
	})
}

func TestLimitAgeHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		w := watch(store)
		cfg := withPolicy(Policy{Budget: -1})
		cfg.LimitAge = func() time.Duration { return 4 * time.Second }
		q := start(t, store, cfg)
		for i := range 60 {
			q.add(mixed(i, "a", "b"), nil)
			pass(time.Second)
		}
		assert.LessOrEqual(t, w.waited, 5*time.Second)
		q.Close(cancelled())
	})
}

func TestEnoughReadingsAreWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		w := watch(store)
		q := start(t, store, withPolicy(Policy{Budget: -1, Readings: 10}))
		for i := range 100 {
			q.add(mixed(i, "busy"), nil)
			pass(500 * time.Millisecond)
		}
		q.add(mixed(1, "slow"), nil)
		pass(10 * time.Second)
		assert.Equal(t, slices.Repeat([]int{10}, 10), w.rows)
		assert.Equal(t, 10, sent(q, byReadings))
		assert.Equal(t, 1, q.Status().Readings, "the slow one waits")
		q.Close(cancelled())
	})
}

// A request that waits until its reading is stored causes no update of other buckets.
func TestARequestHurriesItsBucketOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		q := start(t, store, withPolicy(Policy{Budget: -1}))
		q.add(mixed(1, names(1000)...), nil)
		pass(10 * time.Second)
		begin := time.Now()
		_, err := q.Append(t.Context(), mixed(2, "s-7"))
		require.NoError(t, err)
		assert.Zero(t, time.Since(begin))
		assert.Equal(t, 2, store.count(), "with what waited in its bucket")
		assert.Equal(t, 1, sent(q, byRequest))
		q.Close(cancelled())
	})
}

// Before a sensor is deleted, its readings are written, and no others.
func TestOneSensorIsFlushed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		q := start(t, store, withPolicy(Policy{Budget: -1}))
		q.add(mixed(1, names(1000)...), nil)
		q.add(mixed(400, "s-7"), nil) // in another window
		pass(10 * time.Second)
		durable, err := q.FlushSensor(t.Context(), stream, "s-7")
		require.NoError(t, err)
		assert.True(t, durable)
		assert.Len(t, store.stored["s-7"], 2)
		assert.Equal(t, 2, store.count())
		assert.True(t, q.Trimmed(stream, "s-7", 1))
		assert.False(t, q.Trimmed(stream, "s-7", 2))

		store.mu.Lock()
		store.verdict = func(*batch.Pending) (batch.Verdict, error) { return batch.Wait, errAway }
		store.mu.Unlock()
		q.add(mixed(2, "s-8"), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = q.FlushSensor(ctx, stream, "s-8")
		require.ErrorIs(t, err, context.DeadlineExceeded, "it cannot be stored")
		q.Close(cancelled())
	})
}

// A later process does not store what an earlier one stored ahead of other sensors.
func TestATrimmedSensorIsNotStoredAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		cfg := withPolicy(Policy{})
		j := newFakeJournal()
		for _, sensors := range [][]string{{"a", "b", "a"}, {"a"}} {
			b := mixed(1, sensors...)
			j.add(b, nil)
			b.Recovered = true
		}
		_, _ = j.TrimSensor(stream, "a", 1)
		q := startOn(t, j, store, cfg)
		pass(10 * time.Second)
		require.NoError(t, q.Flush(t.Context()))
		assert.Equal(t, map[string][]uint64{"a": {4}, "b": {2}}, store.stored)
		assert.Zero(t, q.Status().Readings, "those of a count as stored")
		assert.Equal(t, uint64(2), j.trimmed)
		q.Close(cancelled())
	})
}

func TestAShortJournalIsWrittenAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		q := start(t, store, withPolicy(Policy{Budget: -1}))
		q.add(mixed(1, names(100)...), nil)
		pass(10 * time.Second)
		assert.Zero(t, store.count())
		q.fakeJournal.mu.Lock()
		q.short = true
		q.fakeJournal.mu.Unlock()
		q.add(mixed(2, "s-1"), nil)
		pass(time.Second)
		assert.Equal(t, 101, store.count())
		assert.Equal(t, 100, sent(q, byJournal))
		q.Close(cancelled())
	})
}

func TestFullMemoryWritesTheOldestFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		cfg := withPolicy(Policy{Budget: -1})
		cfg.MaxBytes = 1 << 20
		q := start(t, store, cfg)
		for i := range 200 {
			q.add(mixed(i, names(5000)[i%50*100:][:100]...), nil)
			pass(100 * time.Millisecond)
		}
		assert.Positive(t, sent(q, byMemory))
		assert.Zero(t, sent(q, byAge))
		assert.LessOrEqual(t, q.Status().Bytes, int64(1<<20+1<<16))
		require.NoError(t, q.Flush(t.Context()))
		assert.Equal(t, 20_000, store.count())
		q.Close(context.Background())
	})
}

// Readings that an earlier process left are written at a limited pace.
func TestReplayIsPaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		w := watch(store)
		q := start(t, store, withPolicy(Policy{Budget: 0.01}))
		left := mixed(1, names(2000)...)
		left.Recovered, left.Received = true, time.Now().Add(-time.Hour)
		q.add(left, nil)
		pass(30 * time.Second)
		n := store.count()
		assert.Greater(t, n, 500, "a daemon that is killed again and again stores some")
		assert.Less(t, w.most(), 400, "updates in a second")
		assert.Zero(t, q.Status().PastDue)
		pass(5 * time.Minute)
		assert.Equal(t, 2000, store.count())
		q.Close(cancelled())
	})
}

// A bucket that becomes full after long is due then, and not since its first reading.
func TestABucketIsDueWhenItIsFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		q := start(t, store, withPolicy(Policy{Budget: -1, Readings: 3}))
		late := -1.
		store.before = func(context.Context, []*batch.Pending) { late = max(late, q.Status().PastDue) }
		for i := range 3 {
			q.add(mixed(i, "a"), nil)
			pass(99700 * time.Millisecond) // between two assessments
		}
		require.Equal(t, 1, sent(q, byReadings))
		assert.LessOrEqual(t, late, 1.)
		assert.Equal(t, 3, store.count())
		q.Close(cancelled())
	})
}

// Packed readings may take very much memory when they are unpacked, for a write or a query.
func TestUnpackedReadingsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		q := start(t, store, withPolicy(Policy{Budget: -1, Readings: 1000}))
		const n = 600
		for i := range n {
			b := batch.NewBuilder(time.Now())
			b.Begin(stream, 0, telemetry.TimeRange{Newest: math.MaxInt64})
			b.Sensor([]byte("s"))
			b.Time(base.UnixMilli() + int64(i))
			b.Text([]byte("v"), bytes.Repeat([]byte("x"), telemetry.MaxTextBytes))
			require.Nil(t, b.End())
			q.add(b.Batch(), nil)
		}
		pass(10 * time.Second)
		l := q.lanes[0]
		l.mu.Lock()
		for _, b := range l.buckets {
			assert.Equal(t, n, b.packedRows)
			assert.Len(t, b.more, n*telemetry.MaxTextBytes/chunkBytes)
			for _, c := range append([]chunk{b.packed}, b.more...) {
				assert.LessOrEqual(t, c.unpacked, chunkBytes+2*telemetry.MaxTextBytes)
			}
		}
		l.mu.Unlock()
		require.NoError(t, q.Flush(t.Context()))
		assert.Equal(t, n, store.count())
		assert.Zero(t, l.packed.bytes)
		q.Close(cancelled())
	})
}

// A restart does not reset the age of readings, so repeated restarts do not postpone an
// update. Readings that are almost due are written within the last quarter of Max.
func TestReplayKeepsTheAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		q := start(t, store, withPolicy(Policy{Budget: -1, Max: 4 * time.Minute}))
		for i, age := range []time.Duration{3*time.Minute + 50*time.Second, 2 * time.Minute} {
			left := mixed(1, names(2)[i])
			left.Recovered, left.Received = true, time.Now().Add(-age)
			q.add(left, nil)
		}
		pass(time.Minute + 5*time.Second)
		assert.Equal(t, 1, store.count())
		pass(time.Minute)
		assert.Equal(t, 2, store.count())
		q.Close(cancelled())
	})
}

// Readings that wait long are packed, so that they do not keep the rest of their
// request in memory. They must stay the same.
func TestGatheredReadingsAreTheSame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		var got []string
		packed := 0
		store.before = func(_ context.Context, writes []*batch.Pending) {
			for _, pending := range writes {
				for _, r := range pending.Rows {
					got = append(got, fmt.Sprint(r.Seq(), r.Batch.Reading(r.Index)))
					if r.Batch.Granularity(stream) == 5*time.Minute { // which queries need
						packed++
					}
				}
			}
		}
		q := start(t, store, withPolicy(Policy{Budget: -1, Max: time.Minute, Readings: 1000}))
		var want []string
		for i := range 40 {
			b := mixed(i, "a", "b", "a")
			q.add(b, nil)
			for k := range uint32(3) {
				want = append(want, fmt.Sprint(b.FirstSeq+uint64(k), b.Reading(k)))
			}
			pass(time.Second)
		}
		l := q.lanes[0]
		l.mu.Lock()
		assert.Equal(t, 2, l.packed.n, "buckets with packed readings")
		assert.Less(t, l.parcels.Len(), 10, "records")
		l.mu.Unlock()
		assert.Len(t, q.Waiting(stream, "a").Rows, 80)
		frozen := q.Waiting(stream, "b").Rows
		q.add(mixed(40, "b"), nil)
		pass(10 * time.Second)
		for i, r := range frozen {
			assert.Equal(t, base.Add(time.Duration(i)*time.Millisecond), r.Batch.Reading(r.Index).Time)
		}
		require.NoError(t, q.Flush(t.Context()))
		assert.Subset(t, got, want)
		assert.Len(t, got, 121)
		assert.Greater(t, packed, 100)
		assert.Zero(t, q.Status().Bytes)
		q.Close(context.Background())
	})
}

// Requests that wait until their readings are stored, even as many as MongoDB can store, do
// not delay readings for which no request waits.
func TestRequestsDoNotStarveOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		w := watch(store)
		inner := store.before
		store.before = func(ctx context.Context, writes []*batch.Pending) {
			inner(ctx, writes)
			time.Sleep(time.Duration(len(writes)) * time.Millisecond) //nolint:forbidigo // fake time
		}
		q := start(t, store, withPolicy(Policy{Budget: -1, Max: 10 * time.Second}))
		q.add(mixed(1, "patient"), nil)
		q.add(mixed(1, slices.Repeat([]string{"fast"}, 60)...), nil)
		for i := range 30 {
			for k := range 2 {
				b := mixed(i, names(2000)[1000*k:][:1000]...)
				q.add(b, &fakeTracker{done: make(chan struct{})})
			}
			pass(time.Second)
		}
		store.mu.Lock()
		assert.Len(t, store.stored["patient"], 1)
		assert.Len(t, store.stored["fast"], 60)
		store.mu.Unlock()
		require.NoError(t, q.Flush(t.Context()))
		assert.LessOrEqual(t, w.waited, time.Minute)
		q.Close(context.Background())
	})
}

func TestPolicyCanBeChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		q := start(t, store, withPolicy(Policy{Budget: -1}))
		q.add(mixed(1, names(10)...), nil)
		pass(10 * time.Second)
		assert.Zero(t, store.count())
		require.ErrorContains(t, q.SetPolicy(stream, Policy{Readings: -1}), "merge-readings -1")
		require.NoError(t, q.SetPolicy(stream, Policy{Budget: -1, Readings: 1}))
		pass(time.Second)
		assert.Equal(t, 10, store.count(), "with the readings that had gathered before")
		q.Close(cancelled())
	})
}

// Readings that wait because the store was never prepared are late from their arrival on.
func TestReadingsAreLateWhileTheStoreIsNotPrepared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		prepared := make(chan struct{})
		q := start(t, store, Config{Streams: map[string]Stream{stream: {Prepared: prepared}}})
		pass(time.Minute)
		assert.Zero(t, q.Status().PastDue, "nothing waits")
		q.add(request("a", 1), nil)
		pass(time.Minute)
		assert.InDelta(t, 60, q.Status().PastDue, 1)
		close(prepared)
		pass(10 * time.Second)
		assert.Equal(t, 1, store.count())
		assert.Zero(t, q.Status().PastDue)
		q.Close(cancelled())
	})
}

func TestAWriteThatHangsIsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		back := make(chan struct{})
		store.before = func(context.Context, []*batch.Pending) { <-back }
		q := start(t, store, Config{Lanes: 1})
		q.add(request("a", 1), nil)
		pass(31 * time.Second) // the first is for the interval
		assert.InDelta(t, 30, q.Status().PastDue, 1)
		close(back)
		pass(10 * time.Second)
		assert.Zero(t, q.Status().PastDue)
		q.Close(cancelled())
	})
}

// A client that repeats a request waits for the readings of its first attempt.
func TestWhatARepeatedRequestWaitsForIsWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		q := start(t, store, withPolicy(Policy{}))
		for i := range 5 { // beyond the budget
			q.add(mixed(i, names(2000)...), nil)
			pass(time.Second)
		}
		q.fakeJournal.mu.Lock()
		q.flushTo = 2
		q.fakeJournal.mu.Unlock()
		pass(3 * time.Second)
		assert.GreaterOrEqual(t, q.Status().Rest, uint64(2))
		q.Close(cancelled())
	})
}

// A bucket may have more readings than are unpacked at once. They are written in order, each
// once, however many writes fail in between, and queries see all of them.
func TestManyPackedReadingsOfABucket(t *testing.T) {
	t.Parallel()
	for name, verdict := range map[string]func(n int) batch.Verdict{
		"all succeed":   func(int) batch.Verdict { return batch.Stored },
		"most fail":     func(n int) batch.Verdict { return []batch.Verdict{batch.Wait, batch.Unsent, batch.Stored}[n%3] },
		"some at once":  func(n int) batch.Verdict { return []batch.Verdict{batch.Again, batch.Stored}[n%2] },
		"set aside":     func(n int) batch.Verdict { return map[bool]batch.Verdict{true: batch.Hangs}[n < 3] },
		"dead letters":  func(n int) batch.Verdict { return map[bool]batch.Verdict{true: batch.Poison}[n < 3] },
		"again, failed": func(n int) batch.Verdict { return []batch.Verdict{batch.Again, batch.Wait, batch.Stored}[n%3] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, letters := newFakeStore(t), &fakeLetters{}
				writes := 0
				store.verdict = func(pending *batch.Pending) (batch.Verdict, error) {
					v := verdict(writes)
					writes++
					if v == batch.Again {
						store.keepSome(pending, min(300, len(pending.Rows)))
					}
					if v == batch.Stored {
						return v, nil
					}
					return v, errAway
				}
				cfg := withPolicy(Policy{Budget: -1, Readings: MaxMerge})
				cfg.DeadLetters = letters
				q := start(t, store, cfg)
				const n = 3*chunkRows + 100
				for i := range n / 100 {
					q.add(mixed(i, slices.Repeat([]string{"a"}, 100)...), nil)
				}
				rest := n % 100
				q.add(mixed(n, slices.Repeat([]string{"a"}, rest)...), nil)
				pass(2 * gatherAfter)
				q.add(mixed(n, "a", "a"), nil)
				pass(time.Second)
				l := q.lanes[0]
				l.mu.Lock()
				assert.Len(t, l.packed.first.more, 3)
				l.mu.Unlock()
				assert.Len(t, q.Waiting(stream, "a").Rows, n+2)
				require.NoError(t, q.Flush(t.Context()))
				assert.Equal(t, n+2, store.count()+len(letters.letters))
				assert.True(t, slices.IsSorted(store.stored["a"]))
				pass(time.Second)
				assert.Zero(t, q.Status().Bytes)
				assert.Empty(t, q.Waiting(stream, "a").Rows)
				l.mu.Lock()
				assert.Zero(t, l.packed.n)
				assert.Nil(t, l.packed.first)
				l.mu.Unlock()
				q.Close(context.Background())
			})
		})
	}
}
