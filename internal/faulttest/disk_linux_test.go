package faulttest_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
)

// smallDisk returns a folder on an in-memory disk of diskBytes; "" if this
// process may not mount one.
func smallDisk(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%d", diskBytes)); err != nil {
		notRun("FS-5 on a small disk (mount a tmpfs); the journal's own limit stands in for it", err)
		return ""
	}
	t.Cleanup(func() { assert.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir
}
