// Package machine describes this machine: its processor, memory and file systems, and
// what its processes use of them. It starts processes that end with this one, and waits
// until they are idle, or for a while. It reads /proc; what is unknown is empty.
package machine

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/prometheus/procfs"
)

// TotalMemory is in MiB; 0 where the system does not tell.
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

// FileSystem returns the kind of the one that holds a directory: that of the
// longest mount point above it.
func FileSystem(dir string) string {
	content, _ := os.ReadFile("/proc/mounts") // empty where there is none
	return mountedAt(string(content), dir)
}

func mountedAt(mounts, dir string) (kind string) {
	longest := 0
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) < 3 || len(fields[1]) < longest {
			continue
		}
		if relative, err := filepath.Rel(fields[1], dir); err != nil || relative == ".." || strings.HasPrefix(relative, "../") {
			continue
		}
		longest, kind = len(fields[1]), fields[2]
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
