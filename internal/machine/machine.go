// Package machine describes this machine: its processor, memory and file systems, and
// how much of them processes use. It starts processes that end with this one, and waits
// until they are idle, or for a while. It reads /proc; unknown values are empty.
package machine

import (
	"path/filepath"
	"runtime/debug"

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
