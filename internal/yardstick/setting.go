package main

import (
	"fmt"
	"runtime"
	"time"

	"github.com/brim-telemetry/brim/internal/machine"
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
		Cores: runtime.NumCPU(), Processor: machine.Processor(), MemoryMiB: machine.TotalMemory(), FileSystem: machine.FileSystem(dir),
		System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Driver: machine.Driver(),
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

// A cpu is the processor time of all who take part.
type cpu struct{ brim, mongod, generator time.Duration }

func (c cpu) since(before cpu) cpu {
	return cpu{c.brim - before.brim, c.mongod - before.mongod, c.generator - before.generator}
}

// per returns microseconds for each of n.
func per(used time.Duration, n int64) float64 { return float64(used.Nanoseconds()) / 1e3 / float64(n) }
