package journal_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/fault"
	"github.com/brim-telemetry/brim/internal/faulttest"
	"github.com/brim-telemetry/brim/internal/journal"
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
			cfg := fakeConfig(faulttest.NewFiles(1), "first", nil)
			cfg.TailBytes = tail
			j := open(t, cfg)
			const n = 400
			seen := make([][]batch.Record, 4)
			var followers sync.WaitGroup
			for i := range seen {
				followers.Go(func() {
					c := j.Follow(j.Oldest(), batch.Part{})
					defer c.Close()
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

func TestWithoutTheOrderSequencesAreMixedUp(t *testing.T) {
	t.Parallel()
	for range 20 {
		cfg := fakeConfig(faulttest.NewFiles(1), "first", []fault.Protection{fault.Order})
		j := open(t, cfg)
		appendMany(t, j, 400)
		if outOfOrder(follow(t, j, 0)) > 0 {
			return
		}
	}
	t.Error("all sequences are in order")
}

func TestGrownTellsOfTheNextRecord(t *testing.T) {
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

func TestRecordsKeepTheSettingsOfTheirTime(t *testing.T) {
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
	require.NoError(t, j.Close())

	cfg.Session, cfg.Faults = "fourth", fault.Without(fault.Granularity)
	j = open(t, cfg)
	assert.Zero(t, follow(t, j, 0)[0].Batch.Granularity("readings"))
}

func TestWhatIsAtRestIsDeletedAndNotSeenAgain(t *testing.T) {
	t.Parallel()
	files := faulttest.NewFiles(1)
	j := open(t, fakeConfig(files, "first", nil))
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

	j = open(t, fakeConfig(files, "second", nil))
	assert.Equal(t, records[200].Position, j.Oldest())
	assert.EqualValues(t, 100, j.Taken())
	c := j.Follow(0, batch.Part{})
	_, _, err := c.Next()
	assert.ErrorContains(t, err, "trimmed")
	c.Close()
	j.Trim(j.End())
	require.Eventually(t, func() bool { return j.Status().Segments == 0 }, 10*time.Second, time.Millisecond)
	end := j.End()
	require.NoError(t, j.Close())
	j = open(t, fakeConfig(files, "third", nil))
	assert.Equal(t, end, j.Oldest(), "positions never go back")
	mustAppend(t, j, makeBatch("readings", 7, 1))
	assert.Equal(t, []int{7}, numbers(follow(t, j, j.Oldest())))
}

func TestTheOldestReadingHasItsAge(t *testing.T) {
	t.Parallel()
	cfg := fakeConfig(faulttest.NewFiles(1), "first", nil)
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

func TestClocksThatDisagreeTakeNoMemory(t *testing.T) {
	t.Parallel()
	j := open(t, fakeConfig(faulttest.NewFiles(1), "first", nil))
	began := time.Now().Add(-time.Hour)
	for i := range 200 {
		b := makeBatch("readings", 0, 1)
		b.Received = began.Add(time.Duration(i)*10*time.Millisecond - time.Duration(i%2)*time.Minute)
		mustAppend(t, j, b)
	}
	assert.LessOrEqual(t, journal.Arrivals(j), 9, "2 s of them")
	assert.InDelta(t, 3600, j.Status().OldestUnappliedS, 5)
}

// TestAgesGrowThoughTheClockWasSetBack has a record that an earlier process took
// while its clock was two hours ahead.
func TestAgesGrowThoughTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	cfg := fakeConfig(faulttest.NewFiles(1), "first", nil)
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
