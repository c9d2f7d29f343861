package machine

import (
	"context"
	"time"
)

// Quiet says when processes count as idle, so that a measurement is not disturbed by
// the work that the previous one left.
type Quiet struct {
	Share float64       // of a processor that idle processes use at most
	Looks int           // samples in a row that must be idle
	Most  time.Duration // to wait at most
}

// quietLook is the interval between two samples.
const quietLook = 250 * time.Millisecond

// Await returns when the CPU time that used returns hardly grows any more; false if
// that did not happen in time.
func (q Quiet) Await(ctx context.Context, used func() (time.Duration, error)) (bool, error) {
	before, err := used()
	if err != nil {
		return false, err
	}
	deadline := time.Now().Add(q.Most)
	for quiet := 0; quiet < q.Looks; quiet++ {
		if time.Now().After(deadline) {
			return false, nil
		}
		if err := Pause(ctx, quietLook); err != nil {
			return false, err
		}
		now, err := used()
		if err != nil {
			return false, err
		}
		if float64(now-before) > q.Share*float64(quietLook) {
			quiet = -1
		}
		before = now
	}
	return true, nil
}
