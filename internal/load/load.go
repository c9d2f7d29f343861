// Package load pretends to be many sensors. A schedule says when each request
// is due, a fleet what its readings are, a Sender (package load/send) takes it
// to a daemon, and Run brings them together and tells how long it took. What
// came of a run is a Result, which package load/report shows.
//
// The load is open-loop: request n is due at a time that does not depend on the
// answers, and its response time counts from then. A server that stalls is thus
// seen by all requests that should have been sent meanwhile, as its users would
// see it, and not only by the one that it kept waiting.
package load

import (
	"context"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Request is what is sent at once. Its owner is whoever called Sender.Send,
// who uses it again for the next.
type Request struct {
	// Readings share memory with the fleet: they are valid until Send returns.
	// Readings of one sensor stand together where the fleet could arrange it.
	Readings []telemetry.Reading
}

// An Answer is what the daemon said to a request.
type Answer struct {
	Accepted, Rejected int
	// Failure is why the request as a whole was not taken, empty if it was: a
	// short name out of a small closed set like "timeout", "connection", "503".
	Failure string
}

// A Sender takes requests to a daemon. Send blocks until the answer came or ctx
// ends, never tries again, and may be called by one goroutine only; a run has
// one Sender for each request that can be under way. The error is for people, and
// is set only together with a Failure or where every reading was rejected.
type Sender interface {
	Send(ctx context.Context, r *Request) (Answer, error)
	Close() error
}

// A Stream is what the daemon says of the stream that is written to.
type Stream struct {
	Name               string
	Storage            string // bucket, timeseries or memory
	GranularitySeconds int
}
