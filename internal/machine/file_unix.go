//go:build unix

package machine

import (
	"fmt"
	"os"
	"syscall"
)

// FileID identifies a file independently of its path: a copy has another ID, a
// renamed file the same. Empty if there is no such file.
func FileID(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d:%d", s.Dev, s.Ino)
}
