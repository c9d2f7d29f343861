package load

import (
	"syscall"
	"time"
)

// nap makes its thread sleep, and on an idle machine is at most 0.1 ms late. A timer of
// the Go runtime is up to a millisecond late when no goroutine runs, because the runtime
// waits for the network and for timers together with that resolution; a local daemon
// answers faster.
func nap(d time.Duration) {
	t := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&t, nil) // a signal may end it early; its caller checks the clock
}
