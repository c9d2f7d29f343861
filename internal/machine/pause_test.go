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

func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		require.NoError(t, Pause(t.Context(), time.Minute))
		assert.Equal(t, time.Minute, time.Since(began))

		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		require.NoError(t, Pause(ctx, 0))
		require.ErrorIs(t, Pause(ctx, time.Hour), why)
		assert.Equal(t, time.Minute+time.Second, time.Since(began))
		require.ErrorIs(t, Pause(ctx, 0), why, "also with nothing to wait for")
	})
}
