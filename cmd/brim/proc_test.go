package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// peakMemory returns the most memory that a process had in RAM, in bytes; ok
// is false where the system does not tell.
func peakMemory(pid int) (peak int64, ok bool) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(content)) {
		if rest, found := strings.CutPrefix(line, "VmHWM:"); found {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kib << 10, err == nil
		}
	}
	return 0, false
}

// processorTime returns how long a process has used processors; ok is false
// where the system does not tell.
func processorTime(pid int) (used time.Duration, ok bool) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	// The name, in parentheses, may hold anything. Behind it stand the state,
	// and in places 11 and 12 after that the ticks in user and kernel mode.
	_, rest, found := strings.Cut(string(content[max(0, bytes.LastIndexByte(content, ')')):]), ") ")
	fields := strings.Fields(rest)
	if !found || len(fields) < 13 {
		return 0, false
	}
	const tick = 10 * time.Millisecond // what Linux shows, whatever it counts in
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, false
		}
		used += time.Duration(ticks) * tick
	}
	return used, true
}

// processorModel names the processor, as far as the system tells.
func processorModel() string {
	content, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	for line := range strings.Lines(string(content)) {
		if name, model, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(model)
		}
	}
	return "unknown processor"
}
