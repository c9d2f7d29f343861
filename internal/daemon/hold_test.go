package daemon

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/internal/store/storetest"
)

// batchOf is one reading on its way to the default stream.
func batchOf(t *testing.T) *batch.Batch {
	t.Helper()
	return storetest.Batch(t, "s1", 1, storetest.Reading("a", 0, 1))
}

func TestHoldWaitsForRequestsInFlight(t *testing.T) {
	t.Parallel()
	h, b := newHolds(), batchOf(t)
	early, err := h.enter(b)
	require.NoError(t, err)
	one, before := h.begin(storetest.Stream)
	require.Same(t, early, before)
	_, err = h.enter(b)
	require.ErrorContains(t, err, "accepts no readings for a moment", "even while it drains")
	select {
	case <-before.empty:
		assert.Fail(t, "a request is under way")
	default:
	}
	early.leave()
	<-before.empty
	h.lift(storetest.Stream, one)
	late, err := h.enter(b)
	require.NoError(t, err, "a hold that could not be had is lifted")
	late.leave()
}

// TestHoldWaitsForRequestsOfAnotherHold holds two streams while a request
// is in flight, and one of them twice.
func TestHoldWaitsForRequestsOfAnotherHold(t *testing.T) {
	t.Parallel()
	h := newHolds()
	early, err := h.enter(batchOf(t))
	require.NoError(t, err)
	_, first := h.begin("other")
	one, second := h.begin(storetest.Stream)
	h.lift(storetest.Stream, one) // it could not be had in time
	_, third := h.begin(storetest.Stream)
	for _, before := range []*inFlight{first, second, third} {
		select {
		case <-before.empty:
			assert.Fail(t, "a request is under way")
		default:
		}
	}
	early.leave()
	for _, before := range []*inFlight{first, second, third} {
		<-before.empty
	}
}

func TestExpiredHoldIsNotRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHolds()
		one, _ := h.begin(storetest.Stream)
		_, ok := h.keep(storetest.Stream, one, time.Minute)
		require.True(t, ok)
		again, _ := h.begin(storetest.Stream)
		<-time.After(61 * time.Second) // and requests arrive
		_, ok = h.keep(storetest.Stream, again, time.Minute)
		assert.False(t, ok, "it would seem uninterrupted")
	})
}

func TestHoldOfAnotherStreamRefusesNothing(t *testing.T) {
	t.Parallel()
	h := newHolds()
	one, _ := h.begin("other")
	_, ok := h.keep("other", one, 0)
	require.True(t, ok)
	inside, err := h.enter(batchOf(t))
	require.NoError(t, err)
	inside.leave()
}

func TestHoldEndsWithItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, b := newHolds(), batchOf(t)
		one, _ := h.begin(storetest.Stream)
		_, ok := h.keep(storetest.Stream, one, time.Minute)
		require.True(t, ok)
		<-time.After(50 * time.Second)
		again, before := h.begin(storetest.Stream)
		assert.Nil(t, before, "all is stored already")
		kept, ok := h.keep(storetest.Stream, again, time.Minute)
		require.True(t, ok)
		assert.Equal(t, one.since, kept.since, "it goes on")
		<-time.After(50 * time.Second)
		_, err := h.enter(b)
		require.Error(t, err)
		<-time.After(11 * time.Second)
		inside, err := h.enter(b)
		require.NoError(t, err)
		inside.leave()
		fresh, before := h.begin(storetest.Stream)
		assert.NotNil(t, before, "readings accepted in between have to be stored")
		assert.NotEqual(t, one.since, fresh.since, "it began anew")
		_, ok = h.keep(storetest.Stream, fresh, 0)
		require.True(t, ok)
		_, ok = h.keep(storetest.Stream, fresh, time.Second)
		require.True(t, ok)
		<-time.After(24 * time.Hour)
		_, err = h.enter(b)
		require.Error(t, err, "a lease does not shorten a hold until the restart")
		assert.True(t, h.release(storetest.Stream))
		assert.Nil(t, h.of(storetest.Stream))
	})
}
