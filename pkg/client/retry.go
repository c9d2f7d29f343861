package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// An attempt is the outcome of sending a request once. Without an error it has a
// result.
type attempt struct {
	result  Result
	err     error
	again   bool          // repeating makes sense
	unknown bool          // the readings may have been stored
	after   time.Duration // to wait, as the daemon asked
}

// A task is repeatable. Its error is an *Error.
type task struct {
	key       string
	repeating func()
	try       func(ctx context.Context, to int) attempt
}

// errNoAnswer is the cause of a context whose attempt has timed out.
var errNoAnswer = fmt.Errorf("no answer came in time: %w", context.DeadlineExceeded)

// repeat retries until the task succeeds or retrying is pointless.
func (c *Client) repeat(ctx context.Context, retryFor time.Duration, t task) attempt {
	start := time.Now()
	var unknownSince time.Time // when the first attempt with an unknown outcome began; zero: there was none
	tried, to, moves := 0, 0, 0
	failed := func(err error) attempt {
		return attempt{err: &Error{Unknown: !unknownSince.IsZero(), Key: t.key, Address: c.addresses[to].Base, Attempts: tried, Err: err}}
	}
	for stay := false; ; { // stay: only the last address knows the key
		if ctx.Err() != nil { // do not even start
			return failed(context.Cause(ctx))
		}
		if !stay {
			to = int(c.current.Load())
		}
		began := time.Now()
		tried++
		limited, cancel := context.WithTimeoutCause(ctx, c.config.Timeout, errNoAnswer)
		a := t.try(limited, to)
		if a.unknown && a.again && isOver(limited) && !errors.Is(a.err, context.DeadlineExceeded) {
			a.err = fmt.Errorf("%w: %w", errNoAnswer, a.err) // the daemon knows the deadline, and may notice its end first
		}
		cancel()
		if a.err == nil {
			a.result.Attempts, a.result.Address = tried, c.addresses[to].Base
			return a
		}
		if a.unknown && unknownSince.IsZero() {
			unknownSince = began
		}
		stay = !unknownSince.IsZero() && !c.config.AtLeastOnce
		if ctx.Err() != nil {
			return failed(fmt.Errorf("%w: %w", context.Cause(ctx), a.err))
		}
		if !a.again || retryFor < 0 {
			return failed(a.err)
		}
		if next := (to + 1) % len(c.addresses); next != to && !stay && telemetry.KindOf(a.err) != telemetry.Quota {
			c.current.CompareAndSwap(int64(to), int64(next))
			moves++
		} else {
			moves = len(c.addresses)
		}
		if moves >= len(c.addresses) { // all were tried since the last pause
			moves = 0
			wait := a.after + jitter(c.config, tried)
			if time.Since(start)+wait > retryFor || stay && time.Since(unknownSince)+wait > c.config.KeyLife {
				return failed(a.err)
			}
			if err := pause(ctx, wait); err != nil {
				return failed(fmt.Errorf("%w: %w", err, a.err))
			}
		}
		if t.repeating != nil {
			t.repeating()
		}
	}
}

// isOver reports whether the deadline of ctx has passed, even if its timer is late.
func isOver(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

// jitter returns a random time ("full jitter"), so that clients that failed together
// do not retry together.
func jitter(c Config, tried int) time.Duration {
	most := c.BackoffMax
	if shift := tried - 1; shift < 32 && c.BackoffMin<<shift > 0 {
		most = min(most, c.BackoffMin<<shift)
	}
	return rand.N(most + 1)
}

// pause waits, unless ctx ends before.
func pause(ctx context.Context, d time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		return context.DeadlineExceeded
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

// maxRetryAfter bounds the wait that a daemon or a proxy may request.
const maxRetryAfter = 24 * time.Hour

// parseRetryAfter parses a Retry-After in seconds or as a date; 0: invalid.
func parseRetryAfter(text string, now time.Time) time.Duration {
	text = strings.TrimSpace(text)
	if seconds, err := strconv.ParseUint(text, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return min(maxRetryAfter, time.Duration(min(seconds, uint64(maxRetryAfter/time.Second)))*time.Second)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(maxRetryAfter, max(0, at.Sub(now)))
	}
	return 0
}

// wayOf says whether to retry after an error of a daemon.
func wayOf(e *telemetry.Error) attempt {
	a := attempt{err: e, after: e.RetryAfter}
	switch e.Kind {
	case telemetry.Unavailable, telemetry.Quota, telemetry.TooSlow:
		a.again = true
	case telemetry.UnknownOutcome:
		a.again, a.unknown = true, true
	case telemetry.Internal:
		a.unknown = true
	default: // nothing was stored, and retrying will not help
	}
	return a
}
