package machine

import (
	"os"
	"runtime"
)

// cpus is the initial GOMAXPROCS.
var cpus = runtime.GOMAXPROCS(0) //nolint:gochecknoglobals // AddThread changes GOMAXPROCS

// CPUs returns how many CPUs this process could use when it started, or the environment's
// GOMAXPROCS.
func CPUs() int { return cpus }

// AddThread lets Go run one thread more than there are CPUs. Go's scheduler lets a goroutine
// compute for up to 10 ms before it runs another one on that thread; the kernel's scheduler gives
// the CPU sooner to a thread that was idle. Small requests use up to a tenth more CPU then.
//
// It does nothing if the environment has GOMAXPROCS, or if the process may use only some of the
// machine's CPUs: with a quota, the kernel would stop all its threads. It waits for the end of a
// garbage collection, and stops all goroutines for a moment; so does RemoveThread.
func AddThread() {
	if adjustable() {
		runtime.GOMAXPROCS(cpus + 1)
	}
}

// RemoveThread ends the effect of AddThread.
func RemoveThread() {
	if adjustable() {
		runtime.SetDefaultGOMAXPROCS() // which may have changed
	}
}

func adjustable() bool { return os.Getenv("GOMAXPROCS") == "" && cpus == runtime.NumCPU() }
