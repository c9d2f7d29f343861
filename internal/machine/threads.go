package machine

import (
	"os"
	"runtime"
)

// cpus is the initial GOMAXPROCS.
var cpus = runtime.GOMAXPROCS(0) //nolint:gochecknoglobals // AddThread changes GOMAXPROCS

// CPUs returns how many CPUs this process may use, or the environment's GOMAXPROCS.
func CPUs() int { return cpus }

// AddThread lets Go run one thread more than there are CPUs, unless the environment has
// GOMAXPROCS. Go's scheduler lets a goroutine compute for up to 10 ms before it runs another one
// on that thread; the kernel's scheduler gives the CPU sooner to a thread that was idle. Small
// requests use up to a tenth more CPU then. Both functions stop all goroutines for a moment.
func AddThread() { setThreads(cpus + 1) }

// RemoveThread ends the effect of AddThread.
func RemoveThread() { setThreads(cpus) }

func setThreads(n int) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(n)
	}
}
