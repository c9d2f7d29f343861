package access

import (
	"context"
	"time"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// The answer to who is refused takes shortestHold at least, and as much longer as
// it takes that no more than holdRate of them are given in a second, but not more
// than longestHold: the connections and calls that a listener keeps bound how many wait.
const (
	shortestHold = 50 * time.Millisecond
	longestHold  = 2 * time.Second
	holdRate     = 500 // a second
)

// Hold waits before a refusal is answered, for as long as that takes or until ctx
// ends: requests of who may not ask, may not do it, or asks too much cost the
// daemon a little each, and with nothing to wait for, a few connections could send
// so many that others wait. Of other errors it returns at once.
func (g *Guard) Hold(ctx context.Context, err error) {
	if g == nil || !heldBack(telemetry.KindOf(err)) {
		return
	}
	g.held.Add(1)
	g.metrics.held.Inc()
	defer func() { g.held.Add(-1); g.metrics.held.Dec() }()
	timer := time.NewTimer(g.holdTime())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func heldBack(kind telemetry.ErrorKind) bool {
	switch kind {
	case telemetry.Unauthenticated, telemetry.Forbidden, telemetry.Quota:
		return true
	default:
		return false
	}
}

// holdTime is how long the next refusal is held: n that are held for n/holdRate
// each are holdRate in a second.
func (g *Guard) holdTime() time.Duration {
	return min(max(shortestHold, time.Duration(g.held.Load())*time.Second/holdRate), longestHold)
}
