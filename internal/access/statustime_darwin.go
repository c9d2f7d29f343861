package access

import (
	"os"
	"syscall"
	"time"
)

// statusTime is when a file, or what is known of it, was changed: unlike the time
// of its content it cannot be set. Zero: not known.
func statusTime(info os.FileInfo) time.Time {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return time.Time{}
	}
	return time.Unix(s.Ctimespec.Unix())
}
