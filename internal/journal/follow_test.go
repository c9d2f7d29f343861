package journal_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/journal"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// appendMany appends n batches from several goroutines.
func appendMany(t testing.TB, j *journal.Journal, n int) {
	t.Helper()
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			for range n / 8 {
				assert.NoError(t, tryAppend(j, makeBatch("readings", random.IntN(100), 1+random.IntN(3))))
			}
		})
	}
	all.Wait()
}

// outOfOrder counts the records whose sequences do not rise.
func outOfOrder(records []batch.Record) int {
	n, last := 0, uint64(0)
	for _, r := range records {
		if r.Batch.FirstSeq <= last {
			n++
		}
		last = r.Batch.FirstSeq + uint64(r.Batch.Len()) - 1
	}
	return n
}

func TestEveryCursorSeesTheSameOrder(t *testing.T) {
	t.Parallel()
	for name, tail := range map[string]int64{"from memory": 8 << 20, "from disk": 1, "from both": 20 << 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := fakeConfig(faulttest.NewFiles(1), "first")
			cfg.TailBytes = tail
			j := open(t, cfg)
			const n = 400
			seen := make([][]batch.Record, 4)
			var followers sync.WaitGroup
			for i := range seen {
				followers.Go(func() {
					c := j.Follow(j.Oldest(), batch.Part{})
					for len(seen[i]) < n {
						r, found, err := c.Next()
						if !assert.NoError(t, err) {
							return
						}
						if !found {
							<-j.Grown(c.Position())
							continue
						}
						seen[i] = append(seen[i], r)
					}
					assert.Equal(t, j.End(), c.Position())
				})
			}
			appendMany(t, j, n)
			followers.Wait()
			assert.Zero(t, outOfOrder(seen[0]))
			for _, other := range seen[1:] {
				for k := range other {
					require.Equal(t, seen[0][k].Position, other[k].Position)
					require.Equal(t, seen[0][k].Next, other[k].Next)
					require.Equal(t, readings(seen[0][k].Batch), readings(other[k].Batch))
				}
			}
			late := follow(t, j, 0)
			require.Len(t, late, n)
			assert.Zero(t, outOfOrder(late))
			// A cursor may begin at any record.
			for _, at := range []int{0, 1, n / 3, n - 1} {
				assert.Equal(t, numbers(late[at:]), numbers(follow(t, j, late[at].Position)))
			}
		})
	}
}

func TestGrownIsClosedByTheNextRecord(t *testing.T) {
	t.Parallel()
	j := open(t, config(t.TempDir(), "first"))
	grown := j.Grown(j.End())
	assertOpen(t, grown)
	mustAppend(t, j, makeBatch("readings", 0, 1))
	<-grown
	<-j.Grown(0)
	assertOpen(t, j.Grown(j.End()))
}

func assertOpen(t *testing.T, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
		t.Error("the channel is closed")
	default:
	}
}

func TestRecordsKeepTheSettingsTheyWereJournaledWith(t *testing.T) {
	t.Parallel()
	cfg := config(t.TempDir(), "first")
	j := open(t, cfg)
	mustAppend(t, j, makeBatch("readings", 0, 1))
	require.NoError(t, j.Close())
	cfg.Session = "second"
	cfg.Streams = map[string]journal.Stream{"readings": {Storage: "timeseries", Target: "elsewhere", Granularity: time.Hour}}
	j = open(t, cfg)
	b := makeBatch("readings", 1, 1)
	mustAppend(t, j, b)
	assert.Equal(t, time.Hour, b.Granularity(b.SeriesAt(0).Stream))
	require.NoError(t, j.Close())

	cfg.Session = "third"
	j = open(t, cfg)
	mustAppend(t, j, makeBatch("readings", 2, 1))
	records := follow(t, j, 0)
	assert.Equal(t, 5*time.Minute, records[0].Batch.Granularity(records[0].Batch.SeriesAt(0).Stream))
	assert.Equal(t, time.Hour, records[1].Batch.Granularity(records[1].Batch.SeriesAt(0).Stream))
	assert.Equal(t, []journal.Unapplied{
		{Session: "first", Stream: "readings", Settings: streams()["readings"], Readings: 1},
		{Session: "second", Stream: "readings", Settings: cfg.Streams["readings"], Readings: 1},
	}, j.Unapplied())
}

func TestStoredSegmentsAreDeletedAndNotReplayed(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	j := open(t, fakeConfig(files, "first"))
	for n := range 300 {
		mustAppend(t, j, makeBatch("readings", n, 1))
	}
	records := follow(t, j, 0)
	before := j.Status()
	j.Trim(records[200].Position)
	j.Trim(records[100].Position) // an old story
	require.Eventually(t, func() bool { return j.Status().Segments < before.Segments/2 }, 10*time.Second, time.Millisecond)
	assert.Less(t, j.Status().Bytes, before.Bytes/2)
	held := int64(0)
	for _, name := range segmentsOf(files) {
		held += int64(len(files.Bytes(name)))
	}
	assert.Equal(t, held, j.Status().Bytes)
	assert.Equal(t, upTo(300)[200:], numbers(follow(t, j, records[200].Position)))
	require.NoError(t, j.Close())

	j = open(t, fakeConfig(files, "second"))
	assert.Equal(t, records[200].Position, j.Oldest())
	assert.EqualValues(t, 100, j.Taken())
	c := j.Follow(0, batch.Part{})
	_, _, err := c.Next()
	assert.ErrorContains(t, err, "trimmed")
	j.Trim(j.End())
	require.Eventually(t, func() bool { return j.Status().Segments == 0 }, 10*time.Second, time.Millisecond)
	end := j.End()
	require.NoError(t, j.Close())
	j = open(t, fakeConfig(files, "third"))
	assert.Equal(t, end, j.Oldest(), "positions never go back")
	mustAppend(t, j, makeBatch("readings", 7, 1))
	assert.Equal(t, []int{7}, numbers(follow(t, j, j.Oldest())))
}

func TestAgeOfTheOldestUnappliedReading(t *testing.T) {
	t.Parallel()
	cfg := fakeConfig(faulttest.NewFiles(1), "first")
	var ahead time.Duration
	cfg.Now = func() time.Time { return time.Now().Add(ahead) }
	j := open(t, cfg)
	assert.Zero(t, j.Status().OldestUnappliedS)
	mustAppend(t, j, makeBatch("readings", 0, 1))
	middle := j.End()
	require.NoError(t, j.Close())
	ahead = time.Minute
	cfg.Session = "second"
	j = open(t, cfg)
	assert.InDelta(t, 60, j.Status().OldestUnappliedS, 5)
	late := makeBatch("readings", 1, 1)
	late.Received = late.Received.Add(40 * time.Second)
	mustAppend(t, j, late)
	assert.InDelta(t, 60, j.Status().OldestUnappliedS, 5)
	j.Trim(middle)
	assert.InDelta(t, 20, j.Status().OldestUnappliedS, 5)
	j.Trim(j.End())
	assert.Zero(t, j.Status().OldestUnappliedS)
	late = makeBatch("readings", 1, 1)
	late.Received = late.Received.Add(50 * time.Second)
	mustAppend(t, j, late)
	assert.InDelta(t, 10, j.Status().OldestUnappliedS, 5)
}

func TestArrivalTimesStayFewWhenClocksDisagree(t *testing.T) {
	t.Parallel()
	j := open(t, fakeConfig(faulttest.NewFiles(1), "first"))
	began := time.Now().Add(-time.Hour)
	for i := range 200 {
		b := makeBatch("readings", 0, 1)
		b.Received = began.Add(time.Duration(i)*10*time.Millisecond - time.Duration(i%2)*time.Minute)
		mustAppend(t, j, b)
	}
	assert.LessOrEqual(t, journal.Arrivals(j), 9, "2 s of them")
	assert.InDelta(t, 3600, j.Status().OldestUnappliedS, 5)
}

// TestAgesGrowAfterTheClockWasSetBack has a record that an earlier process accepted
// while its clock was two hours ahead.
func TestAgesGrowAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	cfg := fakeConfig(faulttest.NewFiles(1), "first")
	passed := time.Duration(0)
	cfg.Now = func() time.Time { return time.Now().Add(passed) }
	j := open(t, cfg)
	ahead := makeBatch("readings", 0, 1)
	ahead.Received = ahead.Received.Add(2 * time.Hour)
	mustAppend(t, j, ahead)
	require.NoError(t, j.Close())
	cfg.Session = "second"
	j = open(t, cfg)
	assert.InDelta(t, 0, j.Status().OldestUnappliedS, 5)
	passed = 90 * time.Second
	assert.InDelta(t, 90, j.Status().OldestUnappliedS, 5, "the alert of the journal sees it")
}

// kind is one of the two kinds of journal.
type kind struct {
	name   string
	memory bool
	open   func(t *testing.T) *journal.Journal
}

// kinds are the journal on disk, once such that it must be read again from
// there, and the one in memory.
func kinds() []kind {
	onDisk := func(tail int64) func(t *testing.T) *journal.Journal {
		return func(t *testing.T) *journal.Journal {
			cfg := fakeConfig(faulttest.NewFiles(1), "first")
			cfg.TailBytes = tail
			j, err := journal.Open(cfg)
			require.NoError(t, err)
			return j
		}
	}
	return []kind{
		{name: "disk, followed in memory", open: onDisk(8 << 20)},
		{name: "disk, followed there", open: onDisk(1)},
		{name: "memory", memory: true, open: func(t *testing.T) *journal.Journal {
			j, err := journal.Open(memoryConfig())
			require.NoError(t, err)
			return j
		}},
	}
}

// eachKind runs a test in fake time on every kind of journal.
func eachKind(t *testing.T, run func(t *testing.T, j *journal.Journal, memory bool)) {
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := k.open(t)
				run(t, j, k.memory)
				require.NoError(t, j.Close())
			})
		})
	}
}

// answer is what an Append came to.
type answer struct {
	receipt batch.Receipt
	err     error
}

// appendStored appends in the background, waiting for stored.
func appendStored(ctx context.Context, j appender, b *batch.Batch, r batch.Request) <-chan answer {
	r.Want = telemetry.Stored
	out := make(chan answer, 1)
	go func() {
		receipt, err := j.Append(ctx, b, r)
		out <- answer{receipt, err}
	}()
	synctest.Wait()
	return out
}

func TestStoredIsAcknowledgedWhenAllReadingsAreStored(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, j *journal.Journal, _ bool) {
		first := appendStored(t.Context(), j, makeBatch("readings", 0, 3), batch.Request{})
		second := appendStored(t.Context(), j, makeBatch("readings", 3, 2), batch.Request{})
		records := follow(t, j, j.Oldest())
		require.Len(t, records, 2)
		track := records[0].Batch.Tracker
		require.NotNil(t, track)
		track.Released(2)
		synctest.Wait()
		assert.Empty(t, first, "one row is not stored")
		track.Refused(records[0].Batch.Row(1), telemetry.Refuse(telemetry.StoreRefused, "too large"))
		track.Released(1)
		got := <-first
		require.NoError(t, got.err)
		assert.Equal(t, telemetry.Stored, got.receipt.Ack)
		require.Len(t, got.receipt.Refused, 1)
		assert.Equal(t, 1, got.receipt.Refused[0].Index)
		assert.Equal(t, telemetry.StoreRefused, got.receipt.Refused[0].Refusal.Code)
		assert.Empty(t, second)
		records[1].Batch.Tracker.Released(2)
		assert.Equal(t, telemetry.Stored, (<-second).receipt.Ack)
		assert.EqualValues(t, 5, j.Taken())
	})
}

func TestTimeoutOfStoredIsJournaledOrUnknown(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, j *journal.Journal, memory bool) {
		began := time.Now()
		timedOut := <-appendStored(t.Context(), j, makeBatch("readings", 0, 1), batch.Request{})
		assert.Equal(t, 10*time.Second, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ended := <-appendStored(ctx, j, makeBatch("readings", 1, 1), batch.Request{})
		left := appendStored(t.Context(), j, makeBatch("readings", 2, 1), batch.Request{})
		require.NoError(t, j.Close())
		closed := <-left
		for _, got := range []answer{timedOut, ended, closed} {
			if memory {
				assert.Equal(t, telemetry.UnknownOutcome, telemetry.KindOf(got.err))
				continue
			}
			require.NoError(t, got.err)
			assert.Equal(t, telemetry.Journaled, got.receipt.Ack)
		}
	})
}

func TestRowsStoredAfterTheTimeout(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, j *journal.Journal, _ bool) {
		<-appendStored(t.Context(), j, makeBatch("readings", 0, 1), batch.Request{})
		for _, r := range follow(t, j, j.Oldest()) {
			if r.Batch.Tracker != nil {
				r.Batch.Tracker.Released(1)
			}
		}
		j.Trim(j.End())
	})
}

func TestRepeatedRequestWaitsForStored(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, j *journal.Journal, memory bool) {
		key := batch.Request{Key: "a", Answer: []byte("one")}
		appendStored(t.Context(), j, makeBatch("readings", 0, 1), batch.Request{}) // is never stored
		first := appendStored(t.Context(), j, makeBatch("readings", 0, 2), key)
		second := appendStored(t.Context(), j, makeBatch("readings", 0, 2), key)
		b := follow(t, j, j.Oldest())[1].Batch
		b.Tracker.Released(1)
		synctest.Wait()
		assert.Empty(t, second, "one row is not stored")
		b.Tracker.Refused(b.Row(1), telemetry.Refuse(telemetry.StoreRefused, "too large"))
		b.Tracker.Released(1)
		want := (<-first).receipt
		assert.Equal(t, telemetry.Stored, want.Ack)
		require.Len(t, want.Refused, 1)
		want.Repeated, want.Answer = true, []byte("one")
		began := time.Now()
		third := appendStored(t.Context(), j, makeBatch("readings", 0, 2), key)
		for _, again := range []<-chan answer{second, third} {
			got := <-again
			require.NoError(t, got.err)
			assert.Equal(t, want, got.receipt)
		}
		assert.Zero(t, time.Since(began), "without waiting for the request before them")
		assert.EqualValues(t, 3, j.Taken())

		appendStored(t.Context(), j, makeBatch("readings", 1, 1), batch.Request{Key: "b"})
		late := <-appendStored(t.Context(), j, makeBatch("readings", 1, 1), batch.Request{Key: "b"})
		if memory {
			assert.Equal(t, telemetry.UnknownOutcome, telemetry.KindOf(late.err))
		} else {
			assert.Equal(t, telemetry.Journaled, late.receipt.Ack)
		}
		_, err := j.Append(t.Context(), makeBatch("readings", 1, 1), batch.Request{Want: telemetry.Stored, Key: "b", BodyHash: 9})
		assert.Equal(t, telemetry.Conflict, telemetry.KindOf(err))
	})
}

func TestStoppingJournalRefusesRequests(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, j *journal.Journal, _ bool) {
		require.NoError(t, j.Err())
		assert.Empty(t, j.Unapplied())
		assert.Zero(t, j.Status().OldestUnappliedS)
		grown := j.Grown(j.End())
		waiting := appendStored(t.Context(), j, makeBatch("events", 0, 1), batch.Request{})
		<-grown
		<-time.After(3 * time.Second)
		assert.InDelta(t, 3, j.Status().OldestUnappliedS, 0.3)
		j.Stop()
		assertRefused(t, j.Err(), "stopping")
		refused := <-appendStored(t.Context(), j, makeBatch("readings", 0, 1), batch.Request{})
		assertRefused(t, refused.err, "stopping")
		r := follow(t, j, j.Oldest())[0]
		assert.Equal(t, time.Minute, r.Batch.Granularity(r.Batch.SeriesAt(0).Stream))
		r.Batch.Tracker.Released(1)
		assert.Equal(t, telemetry.Stored, (<-waiting).receipt.Ack, "what was accepted before is answered")
		j.Trim(r.Next)
		assert.Zero(t, j.Status().OldestUnappliedS)
		nowhere := <-appendStored(t.Context(), j, makeBatch("nowhere", 0, 1), batch.Request{})
		assert.Equal(t, telemetry.NotFound, telemetry.KindOf(nowhere.err))
	})
}

func TestRepeatedRequestIsStoredAfterTheFirstTimedOut(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, j *journal.Journal, _ bool) {
		key := batch.Request{Key: "a"}
		appendStored(t.Context(), j, makeBatch("readings", 0, 1), batch.Request{})
		first := appendStored(t.Context(), j, makeBatch("readings", 0, 1), key)
		b := follow(t, j, j.Oldest())[1].Batch
		<-first
		second := appendStored(t.Context(), j, makeBatch("readings", 0, 1), key)
		b.Tracker.Released(1)
		third := appendStored(t.Context(), j, makeBatch("readings", 0, 1), key)
		for _, again := range []<-chan answer{second, third} {
			require.Len(t, again, 1, "without waiting")
			got := <-again
			require.NoError(t, got.err)
			assert.Equal(t, telemetry.Stored, got.receipt.Ack)
			assert.True(t, got.receipt.Repeated)
		}
	})
}

func TestRepeatAnswersWithoutReadings(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, j *journal.Journal, _ bool) {
		r := batch.Request{Want: telemetry.Stored, Key: "a", BodyHash: 1}
		receipt, err := j.Repeat(t.Context(), r)
		require.NoError(t, err)
		assert.Equal(t, batch.Receipt{}, receipt, "it was never accepted")
		first := appendStored(t.Context(), j, makeBatch("readings", 0, 1), r)
		again := make(chan batch.Receipt, 1)
		go func() {
			receipt, err := j.Repeat(t.Context(), r)
			assert.NoError(t, err)
			again <- receipt
		}()
		synctest.Wait()
		follow(t, j, j.Oldest())[0].Batch.Tracker.Released(1)
		require.NoError(t, (<-first).err)
		assert.Equal(t, batch.Receipt{Ack: telemetry.Stored, Repeated: true, Answer: []byte{}}, <-again)
		r.BodyHash++
		_, err = j.Repeat(t.Context(), r)
		assert.Equal(t, telemetry.Conflict, telemetry.KindOf(err))
		assert.EqualValues(t, 1, j.Taken())
	})
}

func TestRepeatedRequestWaitsForTrim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j, err := journal.Open(fakeConfig(faulttest.NewFiles(1), "first"))
		require.NoError(t, err)
		assertTaken(t, j, keyed("a", 1))
		again := appendStored(t.Context(), j, makeBatch("readings", 0, 1), keyed("a", 1))
		assert.Empty(t, again)
		assert.Equal(t, j.End(), j.FlushTo())
		j.Trim(j.End())
		assert.Equal(t, telemetry.Stored, (<-again).receipt.Ack)
		began := time.Now()
		again = appendStored(t.Context(), j, makeBatch("readings", 0, 1), keyed("a", 1))
		assert.Equal(t, telemetry.Stored, (<-again).receipt.Ack)
		assert.Zero(t, time.Since(began))
		require.NoError(t, j.Close())
	})
}

func memoryConfig() journal.Config {
	return journal.Config{Memory: true, Session: "first", Streams: streams()}
}

func TestJournalInMemoryAcknowledgesOnlyStored(t *testing.T) {
	t.Parallel()
	v := open(t, memoryConfig())
	err := tryAppend(v, makeBatch("readings", 0, 1))
	var e *telemetry.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, telemetry.Invalid, e.Kind)
	assert.Equal(t, "ack_unavailable", e.Code)
	assert.True(t, v.Status().Volatile)
}

func TestJournalInMemoryIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := memoryConfig()
		cfg.MaxBytes, cfg.TailBytes = 1<<20, 1
		v, err := journal.Open(cfg)
		require.NoError(t, err)
		var refused answer
		for waiting := 0; refused.err == nil && waiting < 300; waiting++ {
			ch := appendStored(t.Context(), v, makeBatch("readings", 0, 200), batch.Request{})
			select {
			case refused = <-ch:
			default:
			}
		}
		assertRefused(t, refused.err, "queue_full")
		assert.ErrorContains(t, refused.err, "--queue-max-bytes")
		assert.LessOrEqual(t, v.Status().Bytes, cfg.MaxBytes)
		records := follow(t, v, 0)
		for _, r := range records[1:] {
			r.Batch.Tracker.Released(r.Batch.Len())
		}
		<-time.After(time.Second)
		held := v.Status().Bytes
		assert.Less(t, held, int64(20<<10), "freed although the first request is not stored")
		assert.Len(t, follow(t, v, 0), 1, "only the first")
		records[0].Batch.Tracker.Released(records[0].Batch.Len())
		<-time.After(time.Second)
		assert.Zero(t, v.Status().Bytes, "freed before it is trimmed")
		again := appendStored(t.Context(), v, makeBatch("readings", 0, 200), batch.Request{})
		assert.Empty(t, again, "it waits for the store")
		v.Trim(records[len(records)-1].Next)
		assert.Len(t, follow(t, v, 0), 1)
		require.NoError(t, v.Close())
		<-again
	})
}

func TestJournalInMemoryRefusesWhileMongoDBIsAway(t *testing.T) {
	t.Parallel()
	cfg := memoryConfig()
	away := errors.New("no server is there")
	cfg.Admit = func(stream string) error {
		if stream == "events" {
			return away
		}
		return nil
	}
	v, err := journal.Open(cfg)
	require.NoError(t, err)
	_, err = v.Append(context.Background(), makeBatch("events", 0, 1), batch.Request{Want: telemetry.Stored})
	assertRefused(t, err, "mongodb_away")
	require.ErrorIs(t, err, away)
	assert.Zero(t, v.Taken())
	require.NoError(t, v.Close())
}

func TestJournalInMemoryKeepsTheOrder(t *testing.T) {
	t.Parallel()
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			v, err := journal.Open(memoryConfig())
			require.NoError(t, err)
			var all sync.WaitGroup
			for range 200 {
				all.Go(func() {
					_, _ = v.Append(context.Background(), makeBatch("readings", 0, 1), batch.Request{Want: telemetry.Stored})
				})
			}
			synctest.Wait()
			records := follow(t, v, 0)
			assert.Len(t, records, 200)
			assert.Zero(t, outOfOrder(records))
			require.NoError(t, v.Close())
			all.Wait()
		})
	}
}

func TestAnUnknownOutcomeSaysHowToRepeatTheRequest(t *testing.T) {
	t.Parallel()
	for key, advice := range map[string]string{
		"":  "; repeating it may store them twice; an Idempotency-Key prevents that",
		"a": "; repeat it with the same Idempotency-Key",
	} {
		synctest.Test(t, func(t *testing.T) {
			v, err := journal.Open(memoryConfig())
			require.NoError(t, err)
			for range 2 {
				got := <-appendStored(t.Context(), v, makeBatch("readings", 0, 1), batch.Request{Key: key})
				var e *telemetry.Error
				require.ErrorAs(t, got.err, &e)
				assert.Equal(t, "outcome_unknown", e.Code)
				assert.True(t, strings.HasSuffix(e.Message, advice), e.Message)
				assert.Contains(t, e.Message, "within 10s")
			}
			assert.Equal(t, key == "", v.Taken() == 2)
			require.NoError(t, v.Close())
		})
	}
}
