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

// A task can be repeated. Its error is an *Error.
type task struct {
	key       string
	read      bool // nothing is stored, so any daemon may be asked
	repeating func()
	try       func(ctx context.Context, to int) attempt
}

// A course is a task being repeated.
type course struct {
	client       *Client
	task         task
	start        time.Time
	tried        int
	to           int       // the address of the last attempt
	moves        int       // to another address since the last wait
	unknownSince time.Time // when the first attempt with an unknown outcome began; zero: there was none
}

// repeat tries until it succeeds, or repeating makes no sense.
func (c *Client) repeat(ctx context.Context, retryFor time.Duration, t task) attempt {
	s := &course{client: c, task: t, start: time.Now()}
	for {
		if ctx.Err() != nil { // do not even start
			return s.failed(context.Cause(ctx))
		}
		began := time.Now()
		if s.unknownSince.IsZero() || c.config.AtLeastOnce {
			s.to = int(c.current.Load())
		}
		a := s.try(ctx)
		if a.err == nil {
			a.result.Attempts, a.result.Address = s.tried, c.addresses[s.to].base
			return a
		}
		if a.unknown && s.unknownSince.IsZero() {
			s.unknownSince = began
		}
		if ctx.Err() != nil {
			return s.failed(fmt.Errorf("%w: %w", context.Cause(ctx), a.err))
		}
		wait, ok := s.next(a, retryFor)
		if !ok {
			return s.failed(a.err)
		}
		if err := pause(ctx, wait); err != nil {
			return s.failed(fmt.Errorf("%w: %w", err, a.err))
		}
		if t.repeating != nil {
			t.repeating()
		}
	}
}

// errNoAnswer is the cause of a context whose attempt has timed out.
var errNoAnswer = fmt.Errorf("no answer came in time: %w", context.DeadlineExceeded)

func (s *course) try(ctx context.Context) attempt {
	s.tried++
	ctx, cancel := context.WithTimeoutCause(ctx, s.client.config.Timeout, errNoAnswer)
	defer cancel()
	return s.task.try(ctx, s.to)
}

// next returns how long to wait before the next attempt, and whether there is one.
func (s *course) next(a attempt, retryFor time.Duration) (time.Duration, bool) {
	if !a.again || retryFor < 0 {
		return 0, false
	}
	c := s.client
	if s.moveOn(a) && s.moves < len(c.addresses) {
		return 0, true // that one did not ask for a pause
	}
	s.moves = 0
	wait := a.after + jitter(c.config, s.tried)
	if time.Since(s.start)+wait > retryFor {
		return 0, false
	}
	if !s.unknownSince.IsZero() && !c.config.AtLeastOnce && time.Since(s.unknownSince)+wait > c.config.KeyLife {
		return 0, false
	}
	return wait, true
}

// moveOn makes the client use the next address if this one may be left, and reports
// whether it did.
func (s *course) moveOn(a attempt) bool {
	c := s.client
	switch {
	case len(c.addresses) == 1, telemetry.KindOf(a.err) == telemetry.Quota:
		return false
	case !s.unknownSince.IsZero() && !c.config.AtLeastOnce:
		return false
	}
	s.moves++
	c.current.CompareAndSwap(int64(s.to), int64((s.to+1)%len(c.addresses)))
	return true
}

func (s *course) failed(err error) attempt {
	return attempt{err: &Error{
		Unknown: !s.unknownSince.IsZero() && !s.task.read, Key: s.task.key,
		Address: s.client.addresses[s.to].base, Attempts: s.tried, Err: err,
	}}
}

// jitter returns a random time ("full jitter"), so that clients that failed together
// do not return together.
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

// maxRetryAfter bounds what a daemon or a proxy may ask for.
const maxRetryAfter = 24 * time.Hour

// parseRetryAfter parses a Retry-After in seconds or as a date; 0: it is invalid.
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

// wayOf says whether to repeat after an error of a daemon.
func wayOf(e *telemetry.Error) attempt {
	a := attempt{err: e, after: e.RetryAfter}
	switch e.Kind {
	case telemetry.Unavailable, telemetry.Quota, telemetry.TooSlow:
		a.again = true
	case telemetry.UnknownOutcome:
		a.again, a.unknown = true, true
	case telemetry.Internal:
		a.unknown = true
	default: // nothing was stored, and repeating will not help
	}
	return a
}
