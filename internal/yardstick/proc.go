package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is what Linux counts processor time in, for those who look.
const tick = 10 * time.Millisecond

// processorTime returns what a process has used so far, in user and in kernel
// mode, with all its threads; from /proc/PID/stat.
func processorTime(pid int) (time.Duration, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read the processor time of %d: %w", pid, err)
	}
	return parseStat(content)
}

// parseStat takes places 11 and 12 after the name, which stands in parentheses
// and may hold anything.
func parseStat(content []byte) (used time.Duration, err error) {
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("%q is not the state of a process", content)
	}
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read processor time: %w", err)
		}
		used += time.Duration(ticks) * tick
	}
	return used, nil
}

// memoryOf returns the memory of a process in bytes: what it has now (VmRSS),
// and the most it ever had (VmHWM); from /proc/PID/status.
func memoryOf(pid int) (now, most int64, err error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("read the memory of %d: %w", pid, err)
	}
	if now, err = kilobytes(content, "VmRSS"); err != nil {
		return 0, 0, err
	}
	most, err = kilobytes(content, "VmHWM")
	return now, most, err
}

// kilobytes returns, in bytes, a value like "VmRSS:	  1234 kB".
func kilobytes(content []byte, name string) (int64, error) {
	for line := range strings.Lines(string(content)) {
		found, value, _ := strings.Cut(line, ":")
		if found != name {
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", name, err)
		}
		return kb << 10, nil
	}
	return 0, fmt.Errorf("the system does not tell %s", name)
}

// A cpu is the processor time of all who take part.
type cpu struct{ brim, mongod, generator time.Duration }

func (c cpu) since(before cpu) cpu {
	return cpu{c.brim - before.brim, c.mongod - before.mongod, c.generator - before.generator}
}

// per returns microseconds for each of n.
func per(used time.Duration, n int64) float64 { return float64(used.Nanoseconds()) / 1e3 / float64(n) }
