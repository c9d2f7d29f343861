package access

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

func TestRefusalsAreDelayed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want time.Duration
	}{
		"unknown":                {telemetry.Errorf(telemetry.Unauthenticated, "c", "m"), minDelay},
		"who may not":            {telemetry.Errorf(telemetry.Forbidden, "c", "m"), minDelay},
		"who is beyond":          {telemetry.Errorf(telemetry.Quota, "c", "m"), minDelay},
		"a mistake in a request": {telemetry.Errorf(telemetry.Invalid, "c", "m"), 0},
		"a defect":               {errors.New("x"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, err := Open(Config{})
				require.NoError(t, err)
				start := time.Now()
				g.DelayRefusal(t.Context(), c.err)
				assert.Equal(t, c.want, time.Since(start))
			})
		})
	}
}

func TestRefusalRateIsLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, err := Open(Config{})
		require.NoError(t, err)
		refused := telemetry.Errorf(telemetry.Unauthenticated, "c", "m")
		ctx, cancel := context.WithCancel(t.Context())
		start, given := time.Now(), 0
		var mu sync.Mutex
		var clients sync.WaitGroup
		for range 300 { // retrying at once
			clients.Go(func() {
				for ctx.Err() == nil {
					g.DelayRefusal(ctx, refused)
					mu.Lock()
					given++
					mu.Unlock()
				}
			})
		}
		<-time.After(20 * time.Second)
		cancel()
		clients.Wait()
		assert.InDelta(t, refusalRate*20, given, refusalRate*20/10)
		assert.Equal(t, 20*time.Second, time.Since(start), "none waits when its client has gone")
		assert.Zero(t, g.delayed.Load())
	})
}

func TestNoDelayWithoutRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		(*Guard)(nil).DelayRefusal(t.Context(), telemetry.Errorf(telemetry.Quota, "c", "m"))
		assert.Zero(t, time.Since(start))
	})
}
