package shape

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/bench"
)

// everySecond schedules calls a second apart.
func everySecond(calls int) Schedule {
	return func(n int) (time.Duration, bool) { return time.Duration(n) * time.Second, n < calls }
}

func TestPaceCatchesUpAfterAStall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var late []time.Duration
		require.NoError(t, (&Traffic{Began: began, due: everySecond(5)}).pace(t.Context(), 0, 1, func(n int, due time.Duration) {
			late = append(late, time.Since(began)-due)
			if n == 1 {
				time.Sleep(2500 * time.Millisecond) //nolint:forbidigo // the stall, in bubble time
			}
		}))
		assert.Equal(t, []time.Duration{0, 0, 1500 * time.Millisecond, 500 * time.Millisecond, 0}, late)
	})
}

func TestPaceOfOneWorkerAmongSeveral(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var made []int
		p := &Traffic{Began: time.Now(), due: everySecond(8)}
		require.NoError(t, p.pace(t.Context(), 1, 3, func(n int, _ time.Duration) { made = append(made, n) }))
		assert.Equal(t, []int{1, 4, 7}, made)
	})
}

func TestPaceEndsOnErrorStopAndCancellation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("failed")
		p := &Traffic{Began: time.Now(), due: everySecond(8)}
		require.ErrorIs(t, p.pace(t.Context(), 0, 1, func(int, time.Duration) { bench.Check(failed) }), failed)

		stop := make(chan struct{})
		p.Began, p.stop = time.Now(), stop
		made := 0
		require.NoError(t, p.pace(t.Context(), 0, 1, func(n int, _ time.Duration) {
			if made++; n == 2 {
				close(stop)
			}
		}))
		assert.Equal(t, 3, made)

		ctx, cancel := context.WithCancelCause(t.Context())
		p.Began, p.stop = time.Now(), nil
		require.ErrorIs(t, p.pace(ctx, 0, 1, func(int, time.Duration) { cancel(failed) }), failed)
	})
}
