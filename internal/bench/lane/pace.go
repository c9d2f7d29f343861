package lane

import (
	"context"
	"math"
	"time"
)

// A Pace makes calls when they are due, whatever became of those before: one
// that is late is made as soon as the one before it has ended, so that a stall
// shows in all that had to wait for it.
type Pace struct {
	Began time.Time
	// Due tells when call n is due, counted from 0 and from Began, no earlier than
	// the one before; false: there are no more.
	Due func(n int) (at time.Duration, ok bool)
	// First and Every choose the calls, where several share them: First, First +
	// Every, and so on. Every is at least 1.
	First, Every int
	Stop         <-chan struct{} // closed: no further call is made; nil: never
}

// Run makes the calls. It returns nil when there are no more, and else what
// ended it: an error of a call, or the cause of ctx.
func (p Pace) Run(ctx context.Context, call func(n int, due time.Duration) error) error {
	timer := time.NewTimer(math.MaxInt64)
	defer timer.Stop()
	for n := p.First; ; n += p.Every {
		due, ok := p.Due(n)
		if !ok {
			return nil
		}
		timer.Reset(due - time.Since(p.Began))
		select {
		case <-timer.C:
		case <-p.Stop:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := call(n, due); err != nil {
			return err
		}
	}
}
