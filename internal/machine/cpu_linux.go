package machine

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Processor is the model in /proc/cpuinfo; empty if it is unknown.
func Processor() string {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return ""
	}
	processors, err := fs.CPUInfo()
	if err != nil || len(processors) == 0 {
		return ""
	}
	return processors[0].ModelName
}

// CPU returns the CPU time that a process has used, in user and in kernel mode, with
// all its threads. It reads the process's own clock, since /proc counts in steps of 10 ms,
// which are many updates.
func CPU(pid int) (time.Duration, error) {
	// The clock's number is made as clock_getcpuclockid(3) makes it: the process's
	// number, inverted, above three bits that name the clock of the scheduler.
	const scheduler = 2
	var used unix.Timespec
	var err error = unix.ESRCH
	if pid > 0 { // none and below stand for the caller
		err = unix.ClockGettime(int32(^pid<<3|scheduler), &used) //nolint:gosec // at most 2^22
	}
	if err != nil {
		return 0, fmt.Errorf("read the CPU time of %d: %w", pid, err)
	}
	return time.Duration(used.Nano()), nil
}
