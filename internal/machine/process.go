package machine

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// CPU returns what a process has used so far, in user and in kernel
// mode, with all its threads; from /proc/PID/stat, to 10 ms.
func CPU(pid int) (time.Duration, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, fmt.Errorf("read the processor time of %d: %w", pid, err)
	}
	stat, err := process.Stat()
	if err != nil {
		return 0, fmt.Errorf("read the processor time of %d: %w", pid, err)
	}
	return time.Duration(stat.CPUTime() * float64(time.Second)), nil
}

// Memory returns the memory of a process in bytes: what it has now (VmRSS),
// and the most it ever had (VmHWM); from /proc/PID/status.
func Memory(pid int) (now, most int64, err error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0, fmt.Errorf("read the memory of %d: %w", pid, err)
	}
	status, err := process.NewStatus()
	if err != nil {
		return 0, 0, fmt.Errorf("read the memory of %d: %w", pid, err)
	}
	return int64(status.VmRSS), int64(status.VmHWM), nil //nolint:gosec // of this machine
}
