//go:build !linux

package machine

import (
	"errors"
	"fmt"
	"time"
)

// Processor is unknown: only Linux has it in a file.
func Processor() string { return "" }

// CPU is available on Linux only.
func CPU(pid int) (time.Duration, error) {
	return 0, fmt.Errorf("read the CPU time of %d: %w", pid, errors.ErrUnsupported)
}
