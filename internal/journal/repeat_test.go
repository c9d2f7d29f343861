package journal_test

import (
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

func TestARepetitionIsStoredAfterTheFirstGaveUpWaiting(t *testing.T) {
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

func TestARepetitionIsAnsweredWithoutItsReadings(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, j *journal.Journal, _ bool) {
		r := batch.Request{Want: telemetry.Stored, Key: "a", BodyHash: 1}
		receipt, err := j.Repeat(t.Context(), r)
		require.NoError(t, err)
		assert.Equal(t, batch.Receipt{}, receipt, "it was never taken")
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

func TestARepetitionOfWhatNobodyFollowsWaitsForTrim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j, err := journal.Open(fakeConfig(faulttest.NewFiles(1), "first", nil))
		require.NoError(t, err)
		assertTaken(t, j, keyed("a", 1))
		again := appendStored(t.Context(), j, makeBatch("readings", 0, 1), keyed("a", 1))
		assert.Empty(t, again)
		j.Trim(j.End())
		assert.Equal(t, telemetry.Stored, (<-again).receipt.Ack)
		began := time.Now()
		again = appendStored(t.Context(), j, makeBatch("readings", 0, 1), keyed("a", 1))
		assert.Equal(t, telemetry.Stored, (<-again).receipt.Ack)
		assert.Zero(t, time.Since(began))
		require.NoError(t, j.Close())
	})
}
