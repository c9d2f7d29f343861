package maintain

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

// A throttle keeps work beside daemons gentle.
type throttle struct{ limiter *rate.Limiter }

// newThrottle lets so many bytes pass in a second; 0: any number.
func newThrottle(bytesPerSecond int64) *throttle {
	if bytesPerSecond <= 0 {
		return &throttle{limiter: rate.NewLimiter(rate.Inf, 0)}
	}
	// A tenth of a second at once, so that a chunk is paid for right after it.
	return &throttle{limiter: rate.NewLimiter(rate.Limit(bytesPerSecond), int(max(bytesPerSecond/10, 1)))}
}

// wait returns when n more bytes may pass, and what is owed for earlier ones is
// paid.
func (t *throttle) wait(ctx context.Context, n int64) error {
	for n > 0 {
		part := t.part(n)
		if err := t.limiter.WaitN(ctx, int(part)); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("wait for the rate: %w", err)
		}
		n -= part
	}
	return nil
}

// charge lets n bytes pass at once; the next wait includes them.
func (t *throttle) charge(n int64) {
	for n > 0 {
		part := t.part(n)
		t.limiter.ReserveN(time.Now(), int(part))
		n -= part
	}
}

func (t *throttle) part(n int64) int64 {
	if t.limiter.Limit() == rate.Inf {
		return n
	}
	return min(n, int64(t.limiter.Burst()))
}
