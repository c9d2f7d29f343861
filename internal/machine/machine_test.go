package machine

import (
	"runtime"
	"testing"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/assert"
)

func TestMachine(t *testing.T) {
	t.Parallel()
	assert.Positive(t, TotalMemory())
	assert.NotEmpty(t, FileSystem(t.TempDir()))
}

func TestFileSystemOfLongestMountPoint(t *testing.T) {
	t.Parallel()
	mounts := []*procfs.MountInfo{
		{MountPoint: "/", FSType: "ext4"}, {MountPoint: "/tmp", FSType: "tmpfs"}, {MountPoint: "/tmp/x", FSType: "xfs"}, {MountPoint: "/tm", FSType: "btrfs"},
	}
	for dir, want := range map[string]string{"/": "ext4", "/home": "ext4", "/tmp": "tmpfs", "/tmp/y": "tmpfs", "/tmp/x/y": "xfs", "/tmpx": "ext4"} {
		assert.Equal(t, want, mountedAt(mounts, dir), dir)
	}
	assert.Empty(t, mountedAt(nil, "/"))
}

func TestOneThreadMoreThanCPUs(t *testing.T) { //nolint:paralleltest // GOMAXPROCS is that of the process
	if !adjustable() {
		t.Skip("the environment has GOMAXPROCS, or this process may not use all CPUs")
	}
	AddThread()
	assert.Equal(t, CPUs()+1, runtime.GOMAXPROCS(0))
	RemoveThread()
	assert.Equal(t, CPUs(), runtime.GOMAXPROCS(0))
}
