// Package machine describes this machine: its processor, memory and file systems, and
// how much of them processes use. It starts processes that end with this one, and waits
// until they are idle, or for a while. It reads /proc; unknown values are empty.
package machine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// TotalMemory returns the machine's memory in MiB; 0 if it is unknown.
func TotalMemory() int64 {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	memory, err := fs.Meminfo()
	if err != nil || memory.MemTotalBytes == nil {
		return 0
	}
	return int64(*memory.MemTotalBytes >> 20) //nolint:gosec // of this machine
}

// FileSystem returns the type of the file system that holds a directory: that of the
// longest mount point above it.
func FileSystem(dir string) string {
	mounts, _ := procfs.GetMounts() // none if they are unknown
	return mountedAt(mounts, dir)
}

func mountedAt(mounts []*procfs.MountInfo, dir string) (kind string) {
	longest := 0
	for _, m := range mounts {
		if relative, err := filepath.Rel(m.MountPoint, dir); err == nil && filepath.IsLocal(relative) && len(m.MountPoint) >= longest {
			longest, kind = len(m.MountPoint), m.FSType
		}
	}
	return kind
}

// Driver is the version of MongoDB's driver for Go; empty if it is not known.
func Driver() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == "go.mongodb.org/mongo-driver/v2" {
			return m.Version
		}
	}
	return ""
}

// BootID identifies the current boot of the machine; empty if it is not known.
func BootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// Memory returns the memory of a process in bytes, now (VmRSS) and at most (VmHWM), from
// /proc/PID/status.
func Memory(pid int) (now, most int64, err error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0, fmt.Errorf("read the memory of %d: %w", pid, err)
	}
	status, err := process.NewStatus()
	if err != nil {
		return 0, 0, fmt.Errorf("read the memory of %d: %w", pid, err)
	}
	return int64(status.VmRSS), int64(status.VmHWM), nil //nolint:gosec // of this machine
}

// Pause waits for d, or returns why ctx ended before that, also if d is 0.
func Pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
