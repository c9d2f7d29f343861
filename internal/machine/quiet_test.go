package machine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// busy uses half a processor until a time after now, and then nothing.
func busy(until time.Duration) func() (time.Duration, error) {
	began := time.Now()
	return func() (time.Duration, error) { return min(time.Since(began), until) / 2, nil }
}

func TestAwaitQuiet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := Quiet{Share: 0.1, Looks: 3, Most: 10 * time.Second}
		began := time.Now()
		quiet, err := q.Await(t.Context(), busy(2*time.Second))
		require.NoError(t, err)
		assert.True(t, quiet)
		assert.Equal(t, 2*time.Second+3*quietLook, time.Since(began))

		began = time.Now()
		quiet, err = q.Await(t.Context(), busy(time.Hour))
		require.NoError(t, err)
		assert.False(t, quiet)
		assert.InDelta(t, 10, time.Since(began).Seconds(), 2*quietLook.Seconds())
	})
}

func TestAwaitQuietEndsWithContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := Quiet{Share: 0.1, Looks: 3, Most: 10 * time.Second}
		gone := errors.New("the process is gone")
		_, err := q.Await(t.Context(), func() (time.Duration, error) { return 0, gone })
		require.ErrorIs(t, err, gone)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		_, err = q.Await(ctx, busy(time.Hour))
		require.ErrorIs(t, err, gone)
	})
}
