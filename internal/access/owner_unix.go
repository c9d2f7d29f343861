//go:build unix

package access

import (
	"fmt"
	"os"
	"syscall"
)

// copyOwner gives a file the mode and the owner of the one that it replaces, so that a
// daemon that runs as another user can still read it.
func copyOwner(f *os.File, before os.FileInfo) error {
	if err := f.Chmod(before.Mode().Perm()); err != nil {
		return fmt.Errorf("set the mode: %w", err)
	}
	owner, ok := before.Sys().(*syscall.Stat_t)
	if !ok || int(owner.Uid) == os.Geteuid() && int(owner.Gid) == os.Getegid() {
		return nil
	}
	if err := f.Chown(int(owner.Uid), int(owner.Gid)); err != nil {
		return fmt.Errorf("keep the owner of the access file: %w", err)
	}
	return nil
}

// ownerOf returns the user that owns a file.
func ownerOf(info os.FileInfo) (uid int, ok bool) {
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(owner.Uid), true
}
