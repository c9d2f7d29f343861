package main

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProcessorTimeStandsBehindTheName(t *testing.T) {
	t.Parallel()
	used, err := parseStat([]byte("42 (a ) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 150 25 7 9 20 0 8 0 100 1000 10"))
	require.NoError(t, err)
	assert.Equal(t, 1750*time.Millisecond, used)
	for _, broken := range []string{"", "42 (a) S 1", "42 (a) S 1 42 42 0 -1 4194560 100 0 0 0 x 25 7 9"} {
		_, err := parseStat([]byte(broken))
		assert.Error(t, err, broken)
	}
}

func TestMemoryIsInBytes(t *testing.T) {
	t.Parallel()
	content := []byte("Name:\tbrim\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n")
	peak, err := kilobytes(content, "VmHWM")
	require.NoError(t, err)
	assert.Equal(t, int64(2<<20), peak)
	_, err = kilobytes(content, "VmSwap")
	assert.ErrorContains(t, err, "VmSwap")
	now, most, err := memoryOf(os.Getpid())
	require.NoError(t, err)
	assert.Positive(t, now)
	assert.GreaterOrEqual(t, most, now)
}

func TestFileSystemIsThatOfTheLongestMountPoint(t *testing.T) {
	t.Parallel()
	const mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmp/x xfs rw 0 0\n/dev/c /tm btrfs rw 0 0\n"
	for dir, want := range map[string]string{"/": "ext4", "/home": "ext4", "/tmp": "tmpfs", "/tmp/y": "tmpfs", "/tmp/x/y": "xfs", "/tmpx": "ext4"} {
		assert.Equal(t, want, mountedAt(mounts, dir), dir)
	}
	assert.Empty(t, mountedAt("", "/"))
}
