package queue

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// mixed makes a batch with one reading of each sensor.
func mixed(at int, sensors ...string) *batch.Batch {
	b := batch.NewBuilder(time.Now())
	for i, sensor := range sensors {
		b.Begin(stream, i, telemetry.TimeRange{Newest: math.MaxInt64})
		b.Sensor([]byte(sensor))
		b.Time(base.Add(time.Duration(at) * time.Millisecond).UnixMilli())
		b.Int([]byte("v"), int64(at))
		if refusal := b.End(); refusal != nil {
			panic(refusal)
		}
	}
	return b.Batch()
}

// stuckLane is a queue of one lane with little memory, one of whose buckets
// cannot be written until heal is called.
func stuckLane(t *testing.T, cfg Config) (store *fakeStore, q *line, heal func()) {
	t.Helper()
	store = newFakeStore(t)
	stuck := true
	store.verdict = func(share *batch.Share) (batch.Verdict, error) {
		if stuck && share.Sensor == "stuck" {
			return batch.Wait, errAway
		}
		return batch.Stored, nil
	}
	cfg.Lanes, cfg.MaxBytes = 1, 1<<20
	q = start(t, store, cfg)
	return store, q, func() {
		store.mu.Lock()
		defer store.mu.Unlock()
		stuck = false
	}
}

// feed appends records of a stuck and a good sensor, and returns how long the
// good one's readings took at most.
func feed(t *testing.T, q *line, records int) (slowest time.Duration) {
	t.Helper()
	for i := range records {
		begin := time.Now()
		good := make(chan time.Duration, 1)
		go func() {
			_, err := q.Append(t.Context(), mixed(i, "well"))
			assert.NoError(t, err)
			good <- time.Since(begin)
		}()
		q.add(mixed(i, slices.Repeat([]string{"stuck"}, 50)...), nil)
		slowest = max(slowest, <-good)
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // fake time
	}
	return slowest
}

func TestStuckBucketWaitsInTheJournal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, q, heal := stuckLane(t, Config{})
		// What the stuck bucket gets is several times the lane's memory.
		slowest := feed(t, q, 2000)
		assert.Less(t, slowest, 100*time.Millisecond, "others of the lane are stored as ever")
		s := q.Status()
		assert.Equal(t, 1, s.SetAside)
		assert.Less(t, s.Bytes, int64(1<<18), "the stuck rows are not in memory")
		assert.Equal(t, 2000*50, s.Readings)
		heal()
		require.NoError(t, q.Flush(t.Context()))
		assert.Equal(t, 2000*51, store.count())
		assert.True(t, slices.IsSorted(store.stored["stuck"]))
		// Once it has caught up, it is a bucket like any other.
		_, err := q.Append(t.Context(), mixed(1, "stuck"))
		require.NoError(t, err)
		s = q.Status()
		assert.Zero(t, s.SetAside)
		assert.Zero(t, s.Readings)
		assert.Equal(t, uint64(2000*51+1), s.Released)
		q.Close(context.Background())
	})
}

func TestStuckBucketFillsALaneThatCannotSetItAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, q, heal := stuckLane(t, Config{Faults: fault.Without(fault.SetAside)})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		late := false
		for i := 0; i < 1000 && !late; i++ {
			good := make(chan error, 1)
			go func() {
				_, err := q.Append(ctx, mixed(i, "well"))
				good <- err
			}()
			q.add(mixed(i, slices.Repeat([]string{"stuck"}, 50)...), nil)
			select {
			case <-good:
			case <-time.After(time.Minute):
				late = true
			}
		}
		assert.True(t, late, "the test of set-aside buckets passes without them")
		heal()
		require.NoError(t, q.Flush(t.Context()))
		assert.NotZero(t, store.count())
		q.Close(context.Background())
	})
}

func TestManyStuckBucketsCatchUpTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		healed := map[string]bool{}
		store.verdict = func(share *batch.Share) (batch.Verdict, error) {
			if share.Sensor != "well" && !healed[share.Sensor] {
				return batch.Wait, errAway
			}
			return batch.Stored, nil
		}
		q := start(t, store, Config{Lanes: 1, MaxBytes: 1 << 20})
		sensors := []string{"well"}
		for i := range 20 {
			sensors = append(sensors, fmt.Sprint("stuck-", i))
		}
		for i := range 3000 {
			q.add(mixed(i, sensors...), nil)
			time.Sleep(10 * time.Millisecond) //nolint:forbidigo // fake time
			if i >= 2000 && i%50 == 0 {       // one after the other, while readings come in
				store.mu.Lock()
				healed[fmt.Sprint("stuck-", (i-2000)/50)] = true
				store.mu.Unlock()
			}
		}
		require.NoError(t, q.Flush(t.Context()))
		assert.Equal(t, 3000*21, store.count())
		for _, sensor := range sensors {
			assert.Len(t, store.stored[sensor], 3000, sensor)
		}
		assert.Zero(t, q.Status().SetAside)
		q.Close(context.Background())
	})
}

func TestBucketThatFailsWithAllOthersIsNotSetAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		away := true
		store.verdict = func(*batch.Share) (batch.Verdict, error) {
			if away {
				return batch.Wait, errAway
			}
			return batch.Stored, nil
		}
		q := start(t, store, Config{Lanes: 1, MaxBytes: 1 << 20})
		for i := range 3000 {
			q.add(mixed(i, "a", "b", "c", "d", "e", "f"), nil)
		}
		time.Sleep(time.Minute) //nolint:forbidigo // fake time
		s := q.Status()
		assert.Zero(t, s.SetAside)
		assert.Less(t, s.Bytes, int64(1<<20+1<<16), "what does not fit stays in the journal")
		assert.Equal(t, 18_000, s.Readings)
		store.mu.Lock()
		away = false
		store.mu.Unlock()
		require.NoError(t, q.Flush(t.Context()))
		assert.Equal(t, 18_000, store.count())
		q.Close(context.Background())
	})
}

func TestWhatABucketLacksIsNotTrimmed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, q, heal := stuckLane(t, Config{})
		for i := range 1000 {
			sensor := "well"
			if i%400 == 0 {
				sensor = "stuck"
			}
			q.add(mixed(i, sensor), nil)
			time.Sleep(50 * time.Millisecond) //nolint:forbidigo // fake time
		}
		assert.Equal(t, 1, q.Status().SetAside)
		assert.Zero(t, q.Status().Rest, "the oldest that is not stored is the first")
		heal()
		require.NoError(t, q.Flush(t.Context()))
		assert.Equal(t, 1000, store.count())
		q.Close(context.Background())
	})
}

// TestSetAsideRowsNeedNoOrder has a store that stores every other row of a stuck
// bucket, and gives the rest back in another order.
func TestSetAsideRowsNeedNoOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, q, heal := stuckLane(t, Config{})
		inner := store.verdict
		gaps := 0
		store.verdict = func(share *batch.Share) (batch.Verdict, error) {
			v, err := inner(share)
			if v == batch.Wait {
				gaps += share.DropWhere(func(r batch.Ref) bool { return r.Seq()%4 == 0 })
				slices.Reverse(share.Rows)
			}
			return v, err
		}
		feed(t, q, 300)
		assert.Equal(t, 1, q.Status().SetAside)
		heal()
		require.NoError(t, q.Flush(t.Context()))
		assert.Positive(t, gaps)
		assert.Equal(t, 300*51, store.count()+gaps)
		assert.Equal(t, uint64(300*51), q.Status().Released)
		assert.Zero(t, q.Status().Readings)
		q.Close(context.Background())
	})
}

func TestManyStuckBucketsLeaveTheOthersAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		stuck := true
		store.verdict = func(share *batch.Share) (batch.Verdict, error) {
			if stuck && share.Sensor != "well" {
				return batch.Wait, errAway
			}
			return batch.Stored, nil
		}
		q := start(t, store, Config{Lanes: 1, MaxBytes: 4 << 20})
		sensors := make([]string, 3000)
		for i := range sensors {
			sensors[i] = fmt.Sprint("stuck-", i)
		}
		q.add(mixed(0, sensors...), nil)
		for i := range 100 { // so that they are at fault, and not the store
			_, err := q.Append(t.Context(), mixed(i, "well"))
			require.NoError(t, err)
			time.Sleep(50 * time.Millisecond) //nolint:forbidigo // fake time
		}
		assert.Equal(t, 3000, q.Status().SetAside)
		before := q.follows
		for i := range 100 {
			begin := time.Now()
			_, err := q.Append(t.Context(), mixed(i, "well"))
			require.NoError(t, err)
			assert.Less(t, time.Since(begin), 10*time.Millisecond)
			time.Sleep(100 * time.Millisecond) //nolint:forbidigo // fake time
		}
		synctest.Wait()
		assert.LessOrEqual(t, q.follows-before, probesAtOnce*(int(10*time.Second/probePause)+1), "probes in ten seconds")
		store.mu.Lock()
		stuck = false
		store.mu.Unlock()
		begin := time.Now()
		require.NoError(t, q.Flush(t.Context()))
		assert.Less(t, time.Since(begin), 5*time.Second, "once it is over, nobody waits for his turn")
		assert.Equal(t, 3200, store.count())
		q.Close(context.Background())
	})
}

func TestFewRowsOfLargeRequestsCountWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		away := true
		store.verdict = func(*batch.Share) (batch.Verdict, error) {
			if away {
				return batch.Wait, errAway
			}
			return batch.Stored, nil
		}
		q := start(t, store, Config{Lanes: 4, MaxBytes: 1 << 20})
		for i := range 100 {
			q.add(mixed(i, append(slices.Repeat([]string{"many"}, 1000), "few-1", "few-2", "few-3", "few-4", "few-5")...), nil)
		}
		time.Sleep(time.Minute) //nolint:forbidigo // fake time
		synctest.Wait()
		size := q.records[0].MemorySize()
		for _, l := range q.lanes {
			assert.Less(t, l.parcels.pinned, int64(1<<20)+size, "what a lane keeps in memory")
		}
		store.mu.Lock()
		away = false
		store.mu.Unlock()
		require.NoError(t, q.Flush(t.Context()))
		assert.Equal(t, 100*1005, store.count())
		for _, l := range q.lanes {
			assert.Zero(t, l.held.Load())
		}
		q.Close(context.Background())
	})
}

// TestBucketMayGetStuckAgainWhileItCatchesUp lets a few writes of the bucket
// through, then none, again and again.
func TestBucketMayGetStuckAgainWhileItCatchesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		writes := 0
		store.verdict = func(share *batch.Share) (batch.Verdict, error) {
			if share.Sensor == "stuck" {
				if writes++; writes%30 > 4 {
					return batch.Wait, errAway
				}
			}
			return batch.Stored, nil
		}
		q := start(t, store, Config{Lanes: 1, MaxBytes: 1 << 20})
		feed(t, q, 3000)
		require.NoError(t, q.Flush(t.Context()))
		assert.Equal(t, 3000*51, store.count())
		assert.Zero(t, q.Status().SetAside)
		q.Close(context.Background())
	})
}

// TestFailoversSetNothingAside has a store that is away for two seconds of every
// five.
func TestFailoversSetNothingAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		begin := time.Now()
		store.verdict = func(*batch.Share) (batch.Verdict, error) {
			if time.Since(begin)%(5*time.Second) > 3*time.Second {
				return batch.Wait, errAway
			}
			return batch.Stored, nil
		}
		q := start(t, store, Config{Lanes: 2, MaxBytes: 4 << 20})
		for i := range 3000 {
			q.add(mixed(i, fmt.Sprint("s-", i%700), fmt.Sprint("s-", (i+350)%700), "often"), nil)
			time.Sleep(20 * time.Millisecond) //nolint:forbidigo // fake time
			if i%50 == 0 {
				assert.Zero(t, q.Status().SetAside)
			}
		}
		require.NoError(t, q.Flush(t.Context()))
		assert.Equal(t, 9000, store.count())
		q.Close(context.Background())
	})
}
