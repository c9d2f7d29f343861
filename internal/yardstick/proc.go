package main

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// processorTime returns what a process has used so far, in user and in kernel
// mode, with all its threads; from /proc/PID/stat, to 10 ms.
func processorTime(pid int) (time.Duration, error) {
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

// memoryOf returns the memory of a process in bytes: what it has now (VmRSS),
// and the most it ever had (VmHWM); from /proc/PID/status.
func memoryOf(pid int) (now, most int64, err error) {
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

// A cpu is the processor time of all who take part.
type cpu struct{ brim, mongod, generator time.Duration }

func (c cpu) since(before cpu) cpu {
	return cpu{c.brim - before.brim, c.mongod - before.mongod, c.generator - before.generator}
}

// per returns microseconds for each of n.
func per(used time.Duration, n int64) float64 { return float64(used.Nanoseconds()) / 1e3 / float64(n) }
