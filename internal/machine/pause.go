package machine

import (
	"context"
	"time"
)

// Pause waits for d, or returns why ctx ended before. With nothing to wait for it
// only tells whether ctx has ended.
func Pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
