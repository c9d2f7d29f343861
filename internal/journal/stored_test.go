package journal_test

import (
	"context"
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

// kind is one of the two kinds of journal.
type kind struct {
	name     string
	memory bool
	open     func(t *testing.T) *journal.Journal
}


// kinds are the journal on disk, once such that it must be read again from
// there, and the one in memory.
func kinds() []kind {
	onDisk := func(tail int64) func(t *testing.T) *journal.Journal {
		return func(t *testing.T) *journal.Journal {
			cfg := fakeConfig(faulttest.NewFiles(1), "first", nil)
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

func TestStoredIsAcknowledgedWhenAllIsAtRest(t *testing.T) {
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
		assert.Empty(t, first, "one row is not at rest")
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

func TestStoredThatDoesNotComeIsJournaledOrUnknown(t *testing.T) {
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

func TestARowThatComesToRestLateHarmsNobody(t *testing.T) {
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

func TestARepetitionWaitsForStoredToo(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, j *journal.Journal, memory bool) {
		key := batch.Request{Key: "a", Answer: []byte("one")}
		appendStored(t.Context(), j, makeBatch("readings", 0, 1), batch.Request{}) // never comes to rest
		first := appendStored(t.Context(), j, makeBatch("readings", 0, 2), key)
		second := appendStored(t.Context(), j, makeBatch("readings", 0, 2), key)
		b := follow(t, j, j.Oldest())[1].Batch
		b.Tracker.Released(1)
		synctest.Wait()
		assert.Empty(t, second, "one row is not at rest")
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
		assert.Zero(t, time.Since(began), "whatever the one before them waits for")
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

func TestWhatStopsRefusesBothWays(t *testing.T) {
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
		assert.Equal(t, telemetry.Stored, (<-waiting).receipt.Ack, "what was taken before is answered")
		j.Trim(r.Next)
		assert.Zero(t, j.Status().OldestUnappliedS)
		nowhere := <-appendStored(t.Context(), j, makeBatch("nowhere", 0, 1), batch.Request{})
		assert.Equal(t, telemetry.NotFound, telemetry.KindOf(nowhere.err))
	})
}
