package machine

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestMachine(t *testing.T) {
	t.Parallel()
	assert.Positive(t, TotalMemory())
	assert.NotEmpty(t, FileSystem(t.TempDir()))
}

func TestFileSystemOfLongestMountPoint(t *testing.T) {
	t.Parallel()
	const mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmp/x xfs rw 0 0\n/dev/c /tm btrfs rw 0 0\n"
	for dir, want := range map[string]string{"/": "ext4", "/home": "ext4", "/tmp": "tmpfs", "/tmp/y": "tmpfs", "/tmp/x/y": "xfs", "/tmpx": "ext4"} {
		assert.Equal(t, want, mountedAt(mounts, dir), dir)
	}
	assert.Empty(t, mountedAt("", "/"))
}
