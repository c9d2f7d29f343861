package queue

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// known interns the series of all tests, as a daemon does for its requests.
var known = batch.NewInterner(0)

// mixed makes a batch with one reading of each sensor.
func mixed(at int, sensors ...string) *batch.Batch {
	b := known.Builder(time.Now())
	for i, sensor := range sensors {
		b.Begin(stream, i, telemetry.TimeRange{Newest: math.MaxInt64})
		b.Sensor([]byte(sensor))
		b.Time(base.Add(time.Duration(at) * time.Millisecond).UnixMilli())
		b.Int([]byte("v"), int64(at))
		b.Text([]byte("note"), fmt.Appendf(nil, "%016d", at)) // so that readings take memory
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
	store.verdict = func(pending *batch.Pending) (batch.Verdict, error) {
		if stuck && pending.Sensor == "stuck" {
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
		assert.Less(t, slowest, 100*time.Millisecond, "other buckets of the lane are not delayed")
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

func TestManyStuckBucketsCatchUpTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		healed := map[string]bool{}
		store.verdict = func(pending *batch.Pending) (batch.Verdict, error) {
			if pending.Sensor != "well" && !healed[pending.Sensor] {
				return batch.Wait, errAway
			}
			return batch.Stored, nil
		}
		q := start(t, store, Config{Lanes: 1, MaxBytes: 1 << 20})
		const records = 1500
		sensors := []string{"well"}
		for i := range 20 {
			sensors = append(sensors, fmt.Sprint("stuck-", i))
		}
		for i := range records {
			q.add(mixed(i, sensors...), nil)
			time.Sleep(10 * time.Millisecond) //nolint:forbidigo // fake time
			if i >= 500 && i%50 == 0 {        // one after another, while readings arrive
				store.mu.Lock()
				healed[fmt.Sprint("stuck-", (i-500)/50)] = true
				store.mu.Unlock()
			}
		}
		require.NoError(t, q.Flush(t.Context()))
		assert.Equal(t, records*21, store.count())
		for _, sensor := range sensors {
			assert.Len(t, store.stored[sensor], records, sensor)
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
		store.verdict = func(*batch.Pending) (batch.Verdict, error) {
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

func TestRowsOfSetAsideBucketsAreNotTrimmed(t *testing.T) {
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

// TestSetAsideRowsMayBeOutOfOrder uses a store that stores every other row of a stuck
// bucket, and gives the rest back in another order.
func TestSetAsideRowsMayBeOutOfOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, q, heal := stuckLane(t, Config{})
		inner := store.verdict
		gaps := 0
		store.verdict = func(pending *batch.Pending) (batch.Verdict, error) {
			v, err := inner(pending)
			if v == batch.Wait {
				gaps += pending.DropWhere(func(r batch.Ref) bool { return r.Seq()%4 == 0 })
				slices.Reverse(pending.Rows)
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

func TestManyStuckBucketsDoNotDelayOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		stuck := true
		store.verdict = func(pending *batch.Pending) (batch.Verdict, error) {
			if stuck && pending.Sensor != "well" {
				return batch.Wait, errAway
			}
			return batch.Stored, nil
		}
		q := start(t, store, Config{Lanes: 1, MaxBytes: 4 << 20})
		sensors := make([]string, 1000)
		for i := range sensors {
			sensors[i] = fmt.Sprint("stuck-", i)
		}
		q.add(mixed(0, sensors...), nil)
		for i := range 100 { // so that they are at fault, and not the store
			_, err := q.Append(t.Context(), mixed(i, "well"))
			require.NoError(t, err)
			time.Sleep(50 * time.Millisecond) //nolint:forbidigo // fake time
		}
		assert.Equal(t, 1000, q.Status().SetAside)
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
		assert.Less(t, time.Since(begin), 5*time.Second, "once it is over, no bucket waits")
		assert.Equal(t, 1200, store.count())
		q.Close(context.Background())
	})
}

func TestFewRowsOfLargeRequestsCountAsTheWholeRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		away := true
		store.verdict = func(*batch.Pending) (batch.Verdict, error) {
			if away {
				return batch.Wait, errAway
			}
			return batch.Stored, nil
		}
		q := start(t, store, Config{Lanes: 4, MaxBytes: 1 << 20})
		for i := range 50 {
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
		assert.Equal(t, 50*1005, store.count())
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
		store.verdict = func(pending *batch.Pending) (batch.Verdict, error) {
			if pending.Sensor == "stuck" {
				if writes++; writes%30 > 4 {
					return batch.Wait, errAway
				}
			}
			return batch.Stored, nil
		}
		q := start(t, store, Config{Lanes: 1, MaxBytes: 1 << 20})
		feed(t, q, 1000)
		require.NoError(t, q.Flush(t.Context()))
		assert.Equal(t, 1000*51, store.count())
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
		store.verdict = func(*batch.Pending) (batch.Verdict, error) {
			if time.Since(begin)%(5*time.Second) > 3*time.Second {
				return batch.Wait, errAway
			}
			return batch.Stored, nil
		}
		q := start(t, store, Config{Lanes: 2, MaxBytes: 4 << 20})
		for i := range 1500 {
			q.add(mixed(i, fmt.Sprint("s-", i%700), fmt.Sprint("s-", (i+350)%700), "often"), nil)
			time.Sleep(40 * time.Millisecond) //nolint:forbidigo // fake time
			if i%50 == 0 {
				assert.Zero(t, q.Status().SetAside)
			}
		}
		require.NoError(t, q.Flush(t.Context()))
		assert.Equal(t, 4500, store.count())
		q.Close(context.Background())
	})
}

// windows makes a batch of n readings of one sensor, spread evenly over several
// windows.
func windows(sensor string, first, n, count int) *batch.Batch {
	b := batch.NewBuilder(time.Now())
	for i := range n {
		b.Begin(stream, i, telemetry.TimeRange{Newest: math.MaxInt64})
		b.Sensor([]byte(sensor))
		b.Time(base.Add(time.Duration((first+i)%count) * 5 * time.Minute).UnixMilli())
		b.Int([]byte("v"), int64(i))
		b.Text([]byte("note"), fmt.Appendf(nil, "%016d", first+i))
		if refusal := b.End(); refusal != nil {
			panic(refusal)
		}
	}
	return b.Batch()
}

// TestStuckBucketsDoNotBlockTheirLane fills a lane several times over with
// readings that cannot be written, in one bucket, in two equal ones, in many: a
// reading of another sensor after them is stored within seconds, and all of them
// once the cause is gone.
func TestStuckBucketsDoNotBlockTheirLane(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		windows int
		others  bool // send meanwhile
	}{
		{name: "one", windows: 1},
		{name: "two", windows: 2},
		{name: "many", windows: 360},
		{name: "many among others", windows: 360, others: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newFakeStore(t)
				isStuck := true
				store.verdict = func(pending *batch.Pending) (batch.Verdict, error) {
					if isStuck && pending.Sensor == "stuck" {
						return batch.Wait, errAway
					}
					return batch.Stored, nil
				}
				q := start(t, store, Config{Lanes: 1, MaxBytes: 1 << 20})
				want := 0
				for i := range 1000 {
					q.add(windows("stuck", i*72, 72, test.windows), nil)
					want += 72
					if test.others && i%50 == 0 {
						q.add(mixed(i, "well", "better"), nil)
						want += 2
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				_, err := q.Append(ctx, mixed(1000, "well"))
				took := time.Since(began)
				pass(10 * time.Second)
				s := q.Status()
				require.NoError(t, err, "the other sensor's reading is stored")
				assert.Less(t, took, 5*time.Second)
				assert.InDelta(t, test.windows, s.SetAside, 5, "but for some that are in the way of nothing")
				assert.Less(t, s.Bytes, int64(1<<19), "the stuck rows are not in memory")
				store.mu.Lock()
				isStuck = false
				store.mu.Unlock()
				began = time.Now()
				require.NoError(t, q.Flush(t.Context()))
				assert.Less(t, time.Since(began), 10*time.Second)
				assert.Equal(t, want+1, store.count())
				assert.Zero(t, q.Status().SetAside)
				q.Close(context.Background())
			})
		})
	}
}

// TestOutageSetsNothingAside has a MongoDB that refuses every write for 20
// seconds, while many more buckets arrive than a lane can hold: they wait, only a few
// are tried, and all are stored as soon as it is back.
func TestOutageSetsNothingAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		away := true
		var most, sent int
		store.verdict = func(pending *batch.Pending) (batch.Verdict, error) {
			if !away {
				return batch.Stored, nil
			}
			sent++
			return batch.Wait, errAway
		}
		q := start(t, store, Config{Lanes: 1, MaxBytes: 1 << 20})
		const sensors, records = 500, 60
		for i := range records {
			names := make([]string, sensors)
			for k := range names {
				names[k] = fmt.Sprint("s-", (i*sensors+k)%20_000)
			}
			q.add(mixed(i, names...), nil)
		}
		for range 20 {
			pass(time.Second)
			most = max(most, q.Status().SetAside)
		}
		assert.Zero(t, most)
		held := q.Status().Buckets
		assert.Less(t, held, 20_000, "not all of them are in memory")
		writes := func() int {
			store.mu.Lock()
			defer store.mu.Unlock()
			return sent
		}
		tried := writes()
		pass(10 * time.Second)
		tried = writes() - tried
		assert.Less(t, tried, 11*(held+4*probesAtOnce), "beside what is in memory, a few buckets are tried")
		store.mu.Lock()
		away = false
		store.mu.Unlock()
		began := time.Now()
		require.NoError(t, q.Flush(t.Context()))
		assert.Less(t, time.Since(began), 10*time.Second)
		assert.Equal(t, sensors*records, store.count())
		assert.Zero(t, q.Status().SetAside)
		q.Close(context.Background())
	})
}

// TestABucketThatHangsIsSetAsideAtOnce has writes that are given up: the bucket
// costs its lane one of them, and probes take place alongside the lane's work.
func TestABucketThatHangsIsSetAsideAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		locked, hung := true, 0
		isHung := func(pending *batch.Pending) bool { return locked && pending.Sensor == "stuck" }
		store.before = func(_ context.Context, writes []*batch.Pending) {
			store.mu.Lock()
			hangs := false
			for _, pending := range writes {
				hangs = hangs || isHung(pending)
				hung = max(hung, pending.Hung)
			}
			store.mu.Unlock()
			if hangs {
				<-time.After(10 * time.Second)
			}
		}
		store.verdict = func(pending *batch.Pending) (batch.Verdict, error) {
			if isHung(pending) {
				return batch.Hangs, errAway
			}
			return batch.Stored, nil
		}
		q := start(t, store, Config{Lanes: 1})
		q.add(mixed(0, "stuck"), nil)
		pass(12 * time.Second)
		require.Equal(t, 1, q.Status().SetAside)
		for i := range 100 {
			began := time.Now()
			_, err := q.Append(t.Context(), mixed(i, "well"))
			require.NoError(t, err)
			assert.Less(t, time.Since(began), time.Second)
			pass(500 * time.Millisecond)
		}
		store.mu.Lock()
		locked = false
		store.mu.Unlock()
		assert.Positive(t, hung, "the store knows that the bucket hung, and may wait longer")
		require.NoError(t, q.Flush(t.Context()))
		assert.Equal(t, 101, store.count())
		q.Close(context.Background())
	})
}

// TestCatchingUpRemembersNoOthers has a bucket catch up along the rows of very
// many others, which are stored.
func TestCatchingUpRemembersNoOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const sensors = 2000
		store, q, heal := stuckLane(t, Config{Streams: map[string]Stream{stream: {Policy: Policy{Readings: 1}}}, Remembered: sensors / 4})
		feed(t, q, 200)
		require.Equal(t, 1, q.Status().SetAside)
		for i := range 10 {
			names := make([]string, sensors)
			for k := range names {
				names[k] = fmt.Sprint("sensor-", i*sensors+k)
			}
			q.add(mixed(i, names...), nil)
			pass(5 * time.Second)
		}
		require.LessOrEqual(t, q.Status().Buckets, sensors/4+1)
		most := 0
		inner := store.verdict
		store.verdict = func(pending *batch.Pending) (batch.Verdict, error) {
			most = max(most, q.Status().Buckets)
			return inner(pending)
		}
		heal()
		require.NoError(t, q.Flush(t.Context()))
		assert.LessOrEqual(t, max(most, q.Status().Buckets), sensors/4+1)
		q.Close(context.Background())
	})
}

// TestBucketsThatHaveCaughtUpAreForgotten has many buckets catch up together.
func TestBucketsThatHaveCaughtUpAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, q, heal := stuckLane(t, Config{Remembered: 20})
		for i := range 1000 {
			q.add(windows("stuck", i*72, 72, 200), nil)
		}
		for i := range 1000 { // so that their rows are stored before the walk ends
			q.add(mixed(i, "well"), nil)
		}
		pass(10 * time.Second)
		require.Greater(t, q.Status().SetAside, 100)
		heal()
		require.NoError(t, q.Flush(t.Context()))
		assert.LessOrEqual(t, q.Status().Buckets, 20)
		q.Close(context.Background())
	})
}

// TestWaitingWhileABucketIsSetAside asks where the rest of each sensor's readings is, while
// one bucket cannot be written.
func TestWaitingWhileABucketIsSetAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, q, heal := stuckLane(t, Config{})
		feed(t, q, 200)
		require.Equal(t, 1, q.Status().SetAside)
		synctest.Wait()
		assert.Less(t, q.Status().Rest, uint64(2), "everything from the oldest stuck reading on is kept")
		assert.Less(t, q.Waiting(stream, "stuck").From, uint64(2), "its oldest reading")
		assert.Equal(t, q.End(), q.Waiting(stream, "well").From, "what is set aside for another sensor does not count")
		seen := make(map[string]int64)
		from, _ := q.WaitingSensors(stream, func(sensor string, newest int64, _ func() [][]telemetry.Tag) { seen[sensor] = newest })
		assert.Equal(t, q.End(), from)
		assert.Equal(t, map[string]int64{"stuck": base.Add(199 * time.Millisecond).UnixMilli()}, seen)
		heal()
		require.NoError(t, q.Flush(t.Context()))
		assert.Equal(t, Snapshot{From: q.End()}, q.Waiting(stream, "stuck"))
		q.Close(context.Background())
	})
}

// In an outage a full lane reads the journal behind what it holds a few times, not
// again and again, and still tries a bucket that comes later.
func TestAFullLaneSeldomReadsTheJournalAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		tried := false
		store.verdict = func(pending *batch.Pending) (batch.Verdict, error) {
			tried = tried || pending.Sensor == "new"
			return batch.Wait, errAway
		}
		q := start(t, store, Config{Lanes: 1, MaxBytes: 1 << 20})
		const records = 2000
		for i := range records {
			q.add(mixed(i, slices.Repeat([]string{"a", "b"}, 10)...), nil)
		}
		pass(time.Minute)
		q.fakeJournal.mu.Lock()
		before := q.reads
		q.fakeJournal.mu.Unlock()
		q.add(mixed(records, "new"), nil)
		pass(5 * time.Second)
		store.mu.Lock()
		assert.True(t, tried)
		store.mu.Unlock()
		pass(time.Minute)
		q.fakeJournal.mu.Lock()
		assert.Less(t, q.reads-before, 4*records, "records read in a minute")
		q.fakeJournal.mu.Unlock()
		q.Close(cancelled())
	})
}

// TestWaitingMissesNothing asks continuously, while buckets fail, are set aside, probed
// and catch up. Every reading must be stored, in memory, or after the position.
func TestWaitingMissesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		writes := 0
		var q *line
		check := func(sensor string) {
			waiting := q.Waiting(stream, sensor)
			q.fakeJournal.mu.Lock()
			assert.GreaterOrEqual(t, waiting.From, q.trimmed, "what was trimmed cannot be read")
			q.fakeJournal.mu.Unlock()
			held := make(map[uint64]int64)
			for _, r := range waiting.Rows {
				held[r.Seq()] = r.Row().Time
				assert.Equal(t, sensor, r.Batch.Series(r.Row()).Sensor)
			}
			for _, b := range q.records[:waiting.From] { // the test adds none meanwhile
				for i := range uint32(b.Len()) {
					r := batch.Ref{Batch: b, Index: i}
					if b.Series(b.Row(i)).Sensor != sensor || store.done[r.Seq()] {
						continue
					}
					if at, ok := held[r.Seq()]; !ok || at != r.Row().Time {
						assert.Fail(t, "a reading that is not stored is missing", "%s, sequence %d", sensor, r.Seq())
						return
					}
				}
			}
		}
		store.verdict = func(pending *batch.Pending) (batch.Verdict, error) {
			for _, sensor := range []string{"bad-1", "bad-2", "well"} {
				check(sensor)
			}
			if strings.HasPrefix(pending.Sensor, "bad") {
				if writes++; writes%40 > 15 {
					return batch.Wait, errAway
				}
			}
			return batch.Stored, nil
		}
		q = start(t, store, Config{Lanes: 1, MaxBytes: 1 << 20, Streams: map[string]Stream{stream: {Policy: Policy{Readings: 1, Interval: 20 * time.Millisecond}}}})
		aside := 0
		for i := range 600 {
			q.add(mixed(i*1000, "bad-1", "well", "bad-2"), nil)
			pass(30 * time.Millisecond)
			aside = max(aside, q.Status().SetAside)
		}
		assert.Positive(t, aside)
		require.NoError(t, q.Flush(t.Context()))
		assert.Equal(t, 1800, store.count())
		q.Close(context.Background())
	})
}

// TestFindingRowsStoredIsNotAWrite has a bucket that fails while lookups find the
// readings of another one stored: that does not show that MongoDB takes writes, so
// nothing is set aside.
func TestFindingRowsStoredIsNotAWrite(t *testing.T) {
	t.Parallel()
	for _, found := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			store := newFakeStore(t)
			store.before = func(_ context.Context, writes []*batch.Pending) {
				store.mu.Lock()
				defer store.mu.Unlock()
				for _, s := range writes {
					if found && s.Sensor == "known" {
						store.lastSeq[keyOf(s)] = math.MaxUint64
					}
				}
			}
			store.verdict = func(pending *batch.Pending) (batch.Verdict, error) {
				if pending.Sensor == "bad" {
					return batch.Wait, errAway
				}
				return batch.Stored, nil
			}
			q := start(t, store, Config{Lanes: 1})
			for i := range 100 {
				b := mixed(i, "bad", "known")
				b.Recovered = true
				q.add(b, nil)
				pass(100 * time.Millisecond)
			}
			assert.Equal(t, found, q.Status().SetAside == 0)
			q.Close(cancelled())
		})
	}
}

// TestAClockThatWasSetBack has a record of an earlier process whose time of
// arrival is six hours ahead: it and later records are stored as usual.
func TestAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		q := start(t, store, Config{Lanes: 1})
		old := mixed(0, "old")
		old.Received = time.Unix(0, time.Now().Add(6*time.Hour).UnixNano()) // as batch.Decode makes it
		q.add(old, nil)
		q.add(mixed(0, "new"), nil)
		pass(2 * time.Second)
		assert.Equal(t, 2, store.count())
		q.Close(context.Background())
	})
}

// TestOnlyFirstRowsAreSentAhead reads ahead past rows of a bucket that holds
// others: when it no longer holds any, rows that come later must wait for those
// that were passed over, or these would count as stored.
func TestOnlyFirstRowsAreSentAhead(t *testing.T) {
	t.Parallel()
	q := start(t, newFakeStore(t), Config{Lanes: 1})
	q.Close(cancelled()) // from here on the lane is the test's
	l := q.lanes[0]
	record := func(position uint64, sensors ...string) batch.Record {
		b := mixed(int(position), sensors...)
		b.Session, b.FirstSeq = "s1", 10*position
		return batch.Record{Batch: b, Position: position, Next: position + 1}
	}
	ahead := func(r batch.Record) (sensors []string) {
		for _, pending := range l.othersOf(r) {
			assert.True(t, pending.Recovered, "it may be sent again")
			sensors = append(sensors, fmt.Sprint(pending.Sensor, " ", len(pending.Rows)))
		}
		return sensors
	}
	l.ahead.seen = make(map[bucketKey]struct{})
	l.take(record(1, "held", "idle"), &l.parcels, l.takeNew)
	held, idleOne := l.schedule.gathering.first, l.schedule.gathering.last
	idleOne.state = idle
	assert.Equal(t, []string{"new 2", "idle 1"}, ahead(record(2, "new", "held", "new", "idle")))
	held.state = idle
	assert.Equal(t, []string{"newer 1"}, ahead(record(3, "held", "new", "newer", "idle")))
}

// followed is a journal in memory that tells when a cursor is made.
type followed struct {
	*journal.Journal
	told func(position uint64)
}

func (f *followed) Follow(position uint64, part batch.Part) batch.Cursor {
	f.told(position)
	return f.Journal.Follow(position, part)
}

// A walk along an in-memory journal skips stored records, which may be all that the
// lane has read. A request that arrives as the walk begins is left to the lane's own
// cursor: neither refused as out of order nor acknowledged before it is stored.
func TestCatchUpDoesNotOvertakeTheLane(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		var healed, slow atomic.Bool
		store.verdict = func(pending *batch.Pending) (batch.Verdict, error) {
			if pending.Sensor == "stuck" && !healed.Load() {
				return batch.Hangs, errAway
			}
			return batch.Stored, nil
		}
		store.before = func(_ context.Context, writes []*batch.Pending) {
			for _, s := range writes {
				if s.Sensor == "well" && slow.Load() {
					time.Sleep(5 * time.Second) //nolint:forbidigo // fake time
				}
			}
		}
		v, err := journal.Open(journal.Config{Memory: true, TailBytes: 1, Session: "s1", Streams: map[string]journal.Stream{stream: {Granularity: 5 * time.Minute}}})
		require.NoError(t, err)
		var all sync.WaitGroup
		send := func(at int, sensors ...string) {
			all.Go(func() {
				receipt, err := v.Append(context.Background(), mixed(at, sensors...), batch.Request{Want: telemetry.Stored})
				assert.NoError(t, err)
				assert.Empty(t, receipt.Refused)
				for _, sensor := range sensors {
					store.mu.Lock()
					assert.NotEmpty(t, store.stored[sensor], "acknowledged before it is stored")
					store.mu.Unlock()
				}
			})
		}
		var once sync.Once
		follow := func(position uint64) {
			if position == 0 { // a probe, or the lane itself
				return
			}
			once.Do(func() {
				slow.Store(true)
				end := v.End()
				send(2, "stuck", "well", "third")
				for v.End() == end {
					time.Sleep(time.Millisecond) //nolint:forbidigo // fake time
				}
			})
		}
		q, err := New(Config{
			Journal: &followed{v, follow}, Streams: map[string]Stream{stream: {Store: store, Granularity: 5 * time.Minute}}, Lanes: 1,
			DeadLetters: &fakeLetters{}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		})
		require.NoError(t, err)
		send(0, "stuck")
		pass(time.Second)
		require.Equal(t, 1, q.Status().SetAside)
		send(1, "well") // the lane goes on
		pass(time.Second)
		healed.Store(true)
		all.Wait()
		assert.True(t, slow.Load(), "no walk began behind the first record")
		assert.Zero(t, testutil.ToFloat64(q.metrics.outOfOrder))
		assert.Zero(t, testutil.ToFloat64(q.metrics.impossible))
		assert.Len(t, store.stored["stuck"], 2)
		v.Stop()
		q.Close(cancelled())
		require.NoError(t, v.Close())
	})
}

// halvingStore refuses one reading, or all of one sensor: it halves what it sends until a reading
// stands alone, and remembers the limit in State.
type halvingStore struct {
	mu     sync.Mutex
	hangs  bool
	poison uint64
	refuse string // sensor whose document cannot be changed
	sent   int    // writes of it
}

func (h *halvingStore) Write(_ context.Context, writes []*batch.Pending) {
	time.Sleep(8 * time.Millisecond) //nolint:forbidigo // fake time
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range writes {
		limit, ok := s.State.(*int)
		if !ok {
			limit = new(int)
			s.State = limit
		}
		n := len(s.Rows)
		if *limit > 0 {
			n = min(n, *limit)
		}
		bad := s.Sensor == h.refuse
		if bad {
			h.sent++
		}
		for _, r := range s.Rows[:n] {
			bad = bad || r.Seq() == h.poison
		}
		switch s.Verdict, s.Err = batch.Again, errAway; {
		case h.hangs:
			s.Verdict = batch.Hangs
		case bad && n > 1:
			*limit = n / 2
		case bad && s.Sensor == h.refuse:
			*limit, s.Verdict = 1, batch.Wait
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

// That the store halves what it sends is no success: a bucket whose document is refused is probed
// now and then, and does not keep the lane from its other work.
func TestARefusedBucketIsProbedSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &halvingStore{refuse: "hot"}
		q := start(t, store, Config{Lanes: 1})
		for i := 0; q.Status().SetAside == 0 && i < 5000; i++ {
			q.add(mixed(i, "hot", "hot", "hot", "hot", "hot", "well"), nil)
			pass(10 * time.Millisecond)
		}
		assert.Equal(t, 1, q.Status().SetAside)
		store.mu.Lock()
		before := store.sent
		store.mu.Unlock()
		pass(10 * time.Second)
		store.mu.Lock()
		const halvings = 10 // until one reading of the walk is left
		assert.Less(t, store.sent-before, (halvings+1)*int(10*time.Second/probePause))
		store.mu.Unlock()
		q.Close(cancelled())
	})
}

// A store that gives up in the middle of a write leaves the remaining buckets
// unsent. They are not set aside, even if it happens often while others are stored.
func TestUnsentBucketsAreNotSetAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		giveUp := true
		store.verdict = func(pending *batch.Pending) (batch.Verdict, error) {
			if giveUp && pending.Sensor == "last" {
				return batch.Unsent, errAway
			}
			return batch.Stored, nil
		}
		q := start(t, store, Config{Lanes: 1})
		for i := range 100 {
			q.add(mixed(i, "first", "last"), nil)
			time.Sleep(200 * time.Millisecond) //nolint:forbidigo // fake time
		}
		assert.Zero(t, q.Status().SetAside)
		assert.Equal(t, 100, q.Status().Readings-waitingOf(store, "first"))
		store.mu.Lock()
		giveUp = false
		store.mu.Unlock()
		require.NoError(t, q.Flush(t.Context()))
		assert.Equal(t, 200, store.count())
		q.Close(context.Background())
	})
}

// A stream without a collection leaves every write unsent, possibly for long.
func TestUnsentBucketsBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		store.verdict = func(*batch.Pending) (batch.Verdict, error) { return batch.Unsent, errAway }
		q := start(t, store, Config{Lanes: 1})
		q.add(mixed(0, "one"), nil)
		pass(30 * time.Second)
		store.mu.Lock()
		before := store.writes
		store.mu.Unlock()
		pass(20 * time.Second)
		store.mu.Lock()
		assert.LessOrEqual(t, store.writes-before, 20, "writes in twenty seconds, one a second at most")
		store.verdict = nil
		store.mu.Unlock()
		pass(2 * maxBackoff)
		assert.Equal(t, 1, store.count())
		q.Close(context.Background())
	})
}

// waitingOf returns how many of a sensor's hundred readings are not stored.
func waitingOf(s *fakeStore, sensor string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return 100 - len(s.stored[sensor])
}

// A probe reads a record for one bucket. Once that is done, the bucket keeps none of it in
// memory.
func TestProbesKeepNoBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, q, heal := stuckLane(t, Config{})
		q.add(mixed(0, "stuck", "stuck", "well"), nil) // its only record, which a probe stores
		for i := range 100 {
			_, err := q.Append(t.Context(), mixed(i, "well"))
			require.NoError(t, err)
			pass(100 * time.Millisecond)
		}
		require.Equal(t, 1, q.Status().SetAside)
		heal()
		require.NoError(t, q.Flush(t.Context()))
		synctest.Wait()
		l := q.lanes[0]
		l.mu.Lock()
		defer l.mu.Unlock()
		require.Len(t, l.buckets, 2)
		for _, b := range l.buckets {
			for _, r := range b.rows[:cap(b.rows)] {
				assert.Nil(t, r.Batch, b.key.sensor)
			}
		}
	})
}

// Queries are answered while the lanes end. The race detector sees whether a lane that
// ends a probe is alone with its buckets.
func TestQueriesWhileAProbeEnds(t *testing.T) {
	t.Parallel()
	store, q, _ := stuckLane(t, Config{})
	probed, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	feedStuck := func(i int) { q.add(mixed(i, "stuck", "well"), &fakeTracker{done: make(chan struct{})}) }
	for i := range 20 {
		feedStuck(i)
	}
	require.Eventually(t, func() bool {
		feedStuck(20)
		return q.Status().SetAside == 1
	}, time.Minute, 5*time.Millisecond)
	store.mu.Lock()
	store.before = func(_ context.Context, writes []*batch.Pending) {
		if writes[0].Sensor == "stuck" {
			once.Do(func() { close(probed) })
			<-goOn
		}
	}
	store.mu.Unlock()
	<-probed
	var queries sync.WaitGroup
	over := make(chan struct{})
	queries.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				q.Waiting(stream, "stuck")
			}
		}
	})
	var closed sync.WaitGroup
	closed.Go(func() { q.Close(cancelled()) })
	close(goOn)
	closed.Wait()
	close(over)
	queries.Wait()
}
