//go:build !linux

package machine

import (
	"errors"
	"fmt"
	"time"
)

// Processor is not known: only Linux tells it in a file.
func Processor() string { return "" }

// CPU returns what a process has used so far; only Linux tells.
func CPU(pid int) (time.Duration, error) {
	return 0, fmt.Errorf("read the processor time of %d: %w", pid, errors.ErrUnsupported)
}
