package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/procfs"
)

// A setting is where and with what was measured. What the system does not tell
// is empty.
type setting struct {
	Cores      int    `json:"cores"`
	Processor  string `json:"processor"`
	MemoryMiB  int64  `json:"memory_mib"`
	FileSystem string `json:"file_system"` // of the data
	System     string `json:"system"`
	Go         string `json:"go"`
	Brim       string `json:"brim"`
	Mongod     string `json:"mongod"`
	Driver     string `json:"driver"` // of MongoDB, for Go
	Pairs      int    `json:"pairs"`
	Time       string `json:"time"` // of a run, at least
}

func readSetting(dir string) setting {
	return setting{
		Cores: runtime.NumCPU(), Processor: processorModel(), MemoryMiB: totalMemory(), FileSystem: fileSystem(dir),
		System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Driver: driverVersion(),
	}
}

func (s *setting) lines() []string {
	return []string{
		fmt.Sprintf("machine: %d cores, %s, %s MiB memory, data on %s, %s", s.Cores, known(s.Processor), thousands(float64(s.MemoryMiB), 0), known(s.FileSystem), s.System),
		fmt.Sprintf("versions: brim %s, %s, mongod %s, driver %s; daemon, mongod and generator on the same machine", known(s.Brim), s.Go, known(s.Mongod), known(s.Driver)),
		fmt.Sprintf("medians of %d pairs or runs of at least %s a side; where a row has fewer runs, they take a minute each", s.Pairs, s.Time),
	}
}

func known(s string) string {
	if s == "" {
		return "(unknown)"
	}
	return s
}

// processorModel is as /proc/cpuinfo tells; empty where there is none.
func processorModel() string {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return ""
	}
	processors, err := fs.CPUInfo()
	if err != nil || len(processors) == 0 {
		return ""
	}
	return processors[0].ModelName
}

// totalMemory is in MiB; 0 where the system does not tell.
func totalMemory() int64 {
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

// fileSystem returns the kind of the one that holds a directory: that of the
// longest mount point above it.
func fileSystem(dir string) string {
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

func driverVersion() string {
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
