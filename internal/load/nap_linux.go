package load

import (
	"syscall"
	"time"
)

// nap lets its thread sleep, and wakes up to 0.1 ms late at most on an idle
// machine. A timer of the Go runtime is up to a millisecond late where no
// goroutine runs, for so coarsely does the runtime wait for the network and its
// timers together; a millisecond is more than a local daemon takes to answer.
func nap(d time.Duration) {
	t := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&t, nil) // a signal may end it early, its caller looks at the clock
}
