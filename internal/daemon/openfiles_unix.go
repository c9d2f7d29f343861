//go:build unix

package daemon

import (
	"syscall"
)

// openFiles returns how many files this process may have open; 0: unknown. Go raises the limit
// to the maximum at the start.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return uint64(limit.Cur) //nolint:unconvert // of another type on some systems
}
