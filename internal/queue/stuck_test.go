package queue

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// windows makes a batch of n readings of one sensor, spread evenly over several
// windows.
func windows(sensor string, first, n, count int) *batch.Batch {
	b := batch.NewBuilder(time.Now())
	for i := range n {
		b.Begin(stream, i, telemetry.TimeRange{Newest: math.MaxInt64})
		b.Sensor([]byte(sensor))
		b.Time(base.Add(time.Duration((first+i)%count) * 5 * time.Minute).UnixMilli())
		b.Int([]byte("v"), int64(i))
		if refusal := b.End(); refusal != nil {
			panic(refusal)
		}
	}
	return b.Batch()
}

// TestStuckBucketsDoNotBlockTheirLane fills a lane several times over with
// readings that cannot be written, in one bucket, in two equal ones, in many: a
// reading of another sensor after them is stored within seconds, and all of them
// once the cause is gone. Without looking ahead, nothing else is stored any more.
func TestStuckBucketsDoNotBlockTheirLane(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		windows int
		others  bool // send meanwhile
		off     []fault.Protection
		blocked bool
	}{
		{name: "one", windows: 1},
		{name: "two", windows: 2},
		{name: "many", windows: 360},
		{name: "many among others", windows: 360, others: true},
		{name: "two without look-ahead", windows: 2, off: []fault.Protection{fault.LookAhead}, blocked: true},
		{name: "many without look-ahead", windows: 360, off: []fault.Protection{fault.LookAhead}, blocked: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newFakeStore(t)
				isStuck := true
				store.verdict = func(share *batch.Share) (batch.Verdict, error) {
					if isStuck && share.Sensor == "stuck" {
						return batch.Wait, errAway
					}
					return batch.Stored, nil
				}
				q := start(t, store, Config{Lanes: 1, MaxBytes: 1 << 20, Faults: fault.Without(test.off...)})
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
				if test.blocked {
					require.Error(t, err, "the test passes without the protection that it is for")
				} else {
					require.NoError(t, err)
					assert.Less(t, took, 5*time.Second)
					assert.InDelta(t, test.windows, s.SetAside, 5, "but for some that are in the way of nothing")
					assert.Less(t, s.Bytes, int64(1<<19), "the stuck rows are not in memory")
				}
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

// TestAnOutageSetsNothingAside has a MongoDB that refuses every write for a
// minute, while many more buckets come than a lane can hold: they wait, only a few
// are tried, and all are stored as soon as it is back.
func TestAnOutageSetsNothingAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		away := true
		var most, sent int
		store.verdict = func(share *batch.Share) (batch.Verdict, error) {
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
		for range 60 {
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
		isHung := func(share *batch.Share) bool { return locked && share.Sensor == "stuck" }
		store.before = func(_ context.Context, shares []*batch.Share) {
			store.mu.Lock()
			hangs := false
			for _, share := range shares {
				hangs = hangs || isHung(share)
				hung = max(hung, share.Hung)
			}
			store.mu.Unlock()
			if hangs {
				<-time.After(10 * time.Second)
			}
		}
		store.verdict = func(share *batch.Share) (batch.Verdict, error) {
			if isHung(share) {
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
		store, q, heal := stuckLane(t, Config{})
		const sensors = 2000
		q.lanes[0].remembered = sensors / 4
		feed(t, q, 100)
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
		store.verdict = func(share *batch.Share) (batch.Verdict, error) {
			most = max(most, q.Status().Buckets)
			return inner(share)
		}
		heal()
		require.NoError(t, q.Flush(t.Context()))
		assert.LessOrEqual(t, max(most, q.Status().Buckets), sensors/4+1)
		q.Close(context.Background())
	})
}

// TestStoredBefore asks for each sensor how far its readings are stored, next to a
// bucket that cannot be written.
func TestStoredBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, q, heal := stuckLane(t, Config{})
		before := func(sensor string) uint64 { return q.StoredBefore(stream, batch.SeriesHash(stream, sensor)) }
		feed(t, q, 200)
		require.Equal(t, 1, q.Status().SetAside)
		synctest.Wait()
		assert.Zero(t, q.Status().Rest, "nothing is trimmed")
		assert.Less(t, before("stuck"), uint64(2), "its oldest reading")
		assert.GreaterOrEqual(t, before("well"), q.End()-1, "what is set aside for another sensor does not count")
		heal()
		require.NoError(t, q.Flush(t.Context()))
		assert.Equal(t, q.End(), before("stuck"))
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
		store.verdict = func(share *batch.Share) (batch.Verdict, error) {
			tried = tried || share.Sensor == "new"
			return batch.Wait, errAway
		}
		q := start(t, store, Config{Lanes: 1, MaxBytes: 1 << 20})
		const records = 5000
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

// TestStoredBeforeMissesNothing asks all the time, while buckets fail, are set
// aside, probed and catch up: every reading before the position is stored.
func TestStoredBeforeMissesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		writes := 0
		var q *line
		check := func(sensor string) {
			before := q.StoredBefore(stream, batch.SeriesHash(stream, sensor))
			for _, b := range q.records[:before] { // the test adds none meanwhile
				for i := range uint32(b.Len()) {
					if r := (batch.Ref{Batch: b, Index: i}); b.Series(b.Row(i)).Sensor == sensor && !store.done[r.Seq()] {
						assert.Fail(t, "a reading that is not stored is not searched for", "%s, sequence %d", sensor, r.Seq())
						return
					}
				}
			}
		}
		store.verdict = func(share *batch.Share) (batch.Verdict, error) {
			for _, sensor := range []string{"bad-1", "bad-2", "well"} {
				check(sensor)
			}
			if strings.HasPrefix(share.Sensor, "bad") {
				if writes++; writes%40 > 15 {
					return batch.Wait, errAway
				}
			}
			return batch.Stored, nil
		}
		q = start(t, store, Config{Lanes: 1, MaxBytes: 1 << 20})
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

// TestWhatIsFoundStoredIsNotAWrite has a bucket that fails while lookups find the
// readings of another one stored: that does not show that MongoDB takes writes, so
// nothing is set aside.
func TestWhatIsFoundStoredIsNotAWrite(t *testing.T) {
	t.Parallel()
	for _, found := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			store := newFakeStore(t)
			store.before = func(_ context.Context, shares []*batch.Share) {
				store.mu.Lock()
				defer store.mu.Unlock()
				for _, s := range shares {
					if found && s.Sensor == "known" {
						store.lastSeq[keyOf(s)] = math.MaxUint64
					}
				}
			}
			store.verdict = func(share *batch.Share) (batch.Verdict, error) {
				if share.Sensor == "bad" {
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
		for _, share := range l.othersOf(r) {
			assert.True(t, share.Recovered, "it may be sent again")
			sensors = append(sensors, fmt.Sprint(share.Sensor, " ", len(share.Rows)))
		}
		return sensors
	}
	l.ahead.seen = make(map[bucketKey]struct{})
	l.take(record(1, "held", "idle"), &l.parcels, l.takeNew)
	held, idleOne := l.pending[0], l.pending[1]
	idleOne.state = idle
	assert.Equal(t, []string{"new 2", "idle 1"}, ahead(record(2, "new", "held", "new", "idle")))
	held.state = idle
	assert.Equal(t, []string{"newer 1"}, ahead(record(3, "held", "new", "newer", "idle")))
}
