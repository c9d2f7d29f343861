//go:build !linux

package machine

import (
	"errors"
	"fmt"
	"time"
)

// CPU returns what a process has used so far; only Linux tells.
func CPU(pid int) (time.Duration, error) {
	return 0, fmt.Errorf("read the processor time of %d: %w", pid, errors.ErrUnsupported)
}
