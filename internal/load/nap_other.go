//go:build !linux

package load

import "time"

// nap waits with a timer.
func nap(d time.Duration) { <-time.After(d) }
