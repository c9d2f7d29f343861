package machine

import (
	"context"
	"time"
)

// Quiet says when processes count as at rest, so that one measurement does not
// pay for the one before.
type Quiet struct {
	Share float64       // of a processor, up to which they do next to nothing
	Looks int           // in a row at which they did no more
	Most  time.Duration // after which nobody waits any longer
}

// quietLook is how often it is looked.
const quietLook = 250 * time.Millisecond

// Await returns when the processor time that used tells grows by next to nothing;
// false if it did not come to that in time.
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
