package load

import (
	"syscall"
	"time"
)

// nap puts its thread to sleep, and is at most 0.1 ms late on an idle machine. A Go timer is up
// to a millisecond late when no goroutine runs, because the runtime waits for network and
// timers together at that resolution; a local daemon answers faster.
func nap(d time.Duration) {
	t := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&t, nil) // a signal may end it early; the caller checks the clock
}
