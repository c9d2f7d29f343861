package queue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
)

// A store that gives up in the midst of a write leaves those behind untried: that
// is no fault of theirs, however often it happens while others are stored.
func TestWhatIsNeverTriedIsNotSetAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		giveUp := true
		store.verdict = func(share *batch.Share) (batch.Verdict, error) {
			if giveUp && share.Sensor == "last" {
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

// A stream without a collection leaves every write untried, for long perhaps.
func TestWhatIsNeverTriedBacksOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newFakeStore(t)
		store.verdict = func(*batch.Share) (batch.Verdict, error) { return batch.Unsent, errAway }
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
