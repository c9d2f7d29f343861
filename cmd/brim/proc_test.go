package main

import (
	"github.com/prometheus/procfs"
)

// peakMemory returns the peak RAM of a process in bytes; ok is false if the system does not
// report it.
func peakMemory(pid int) (peak int64, ok bool) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, false
	}
	status, err := process.NewStatus()
	return int64(status.VmHWM), err == nil
}

// processorModel names the processor, as far as the system does.
func processorModel() string {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return "unknown processor"
	}
	processors, err := fs.CPUInfo()
	if err != nil || len(processors) == 0 {
		return "unknown processor"
	}
	return processors[0].ModelName
}
