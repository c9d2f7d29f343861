package lane

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// everySecond has n calls, a second apart.
func everySecond(calls int) func(int) (time.Duration, bool) {
	return func(n int) (time.Duration, bool) { return time.Duration(n) * time.Second, n < calls }
}

func TestCallsAreMadeWhenTheyAreDueAndAfterAStallAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var late []time.Duration
		require.NoError(t, Pace{Began: began, Due: everySecond(5), Every: 1}.Run(t.Context(), func(n int, due time.Duration) error {
			late = append(late, time.Since(began)-due)
			if n == 1 {
				time.Sleep(2500 * time.Millisecond) //nolint:forbidigo // the stall, in a bubble's time
			}
			return nil
		}))
		assert.Equal(t, []time.Duration{0, 0, 1500 * time.Millisecond, 500 * time.Millisecond, 0}, late)
	})
}

func TestCallsAreSharedOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var made []int
		p := Pace{Began: time.Now(), Due: everySecond(8), First: 1, Every: 3}
		require.NoError(t, p.Run(t.Context(), func(n int, _ time.Duration) error { made = append(made, n); return nil }))
		assert.Equal(t, []int{1, 4, 7}, made)
	})
}

func TestAPaceEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("failed")
		p := Pace{Began: time.Now(), Due: everySecond(8), Every: 1}
		require.ErrorIs(t, p.Run(t.Context(), func(int, time.Duration) error { return failed }), failed)

		stop := make(chan struct{})
		p.Began, p.Stop = time.Now(), stop
		made := 0
		require.NoError(t, p.Run(t.Context(), func(n int, _ time.Duration) error {
			if made++; n == 2 {
				close(stop)
			}
			return nil
		}))
		assert.Equal(t, 3, made)

		ctx, cancel := context.WithCancelCause(t.Context())
		p.Began, p.Stop = time.Now(), nil
		require.ErrorIs(t, p.Run(ctx, func(int, time.Duration) error { cancel(failed); return nil }), failed)
	})
}
