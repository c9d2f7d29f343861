package machine

import (
	"fmt"

	"github.com/prometheus/procfs"
)

// Memory returns the memory of a process in bytes, now (VmRSS) and at most (VmHWM), from
// /proc/PID/status.
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
