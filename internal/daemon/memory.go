package daemon

import (
	"bytes"
	"math"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/prometheus/procfs"

	"github.com/brim-telemetry/brim/internal/ingest"
)

// By default, requests may use an eighth of the memory limit, but no more than the CPUs can
// decode at a time: more requests in progress take memory and make each other slow. Two CPUs'
// part is enough for the largest body that is accepted by default.
const (
	ingestPart   = 8
	ingestPerCPU = 128 << 20
)

// ingestBytes returns the budget of requests: the setting, or a part of the memory limit that
// is enough for a body of the maximum length.
func (c *Settings) ingestBytes(limit uint64, cpus int) int64 {
	if c.IngestMaxBytes > 0 {
		return c.IngestMaxBytes
	}
	return max(ingest.LeastBudget(c.MaxBodyBytes), int64(min(limit/ingestPart, ingestPerCPU*uint64(max(2, cpus)))))
}

// By default, waiting readings may use a sixteenth of the memory limit, within these bounds.
// The garbage collector needs the same again.
const (
	queuePart  = 16
	leastQueue = 128 << 20
	mostQueue  = 1 << 30
)

// queueBytes returns the memory for waiting readings with this memory limit.
func queueBytes(limit uint64) int64 { return max(leastQueue, int64(min(limit/queuePart, mostQueue))) }

// memoryLimit returns how much memory this process may use: the minimum of its control groups,
// GOMEMLIMIT and the machine's memory; 0 if there is no limit. Since a collectorLimit replaces
// GOMEMLIMIT, it must be called before.
func memoryLimit(root string) uint64 {
	limit := uint64(debug.SetMemoryLimit(-1))
	if fs, err := procfs.NewFS(path.Join(root, "proc")); err == nil {
		if m, err := fs.Meminfo(); err == nil && m.MemTotalBytes != nil {
			limit = min(limit, *m.MemTotalBytes)
		}
	}
	if own, err := os.ReadFile(path.Join(root, "proc/self/cgroup")); err == nil {
		limit = min(limit, groupLimit(root, string(own)))
	}
	if limit == math.MaxInt64 {
		return 0
	}
	return limit
}

// groupLimit returns the lowest limit of the groups in /proc/self/cgroup and their parents, of
// cgroups v1 or v2.
func groupLimit(root, own string) uint64 {
	limit := uint64(math.MaxInt64)
	for line := range strings.Lines(own) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		dir, file := "sys/fs/cgroup", "memory.max"
		switch parts[1] {
		case "":
		case "memory":
			dir, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for group := path.Clean("/" + parts[2]); ; group = path.Dir(group) {
			text, err := os.ReadFile(path.Join(root, dir, group, file))
			if n, bad := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64); err == nil && bad == nil { // else there is none, like "max"
				limit = min(limit, n)
			}
			if group == "/" {
				break
			}
		}
	}
	return limit
}

// restBytes is the memory of the Go runtime, in addition to the budget of requests, at which
// the collector runs: 150 MiB less the pages of the program itself, which the runtime does not
// count.
const restBytes = 64 << 20

// A collectorLimit makes the garbage collector run before the process uses more than the
// budget of requests plus restBytes. GOGC=100 alone would let the heap grow to twice the
// memory in use, including twice the memory of requests.
//
// If the rest of the process needs more than restBytes, for example for many sensors and keys,
// the limit is higher, as with GOGC=100, so that the collector does not run all the time:
//
//	limit = budget + max(restBytes, rest, 2 × (rest - restBytes))
//	rest  = in use after a collection - held by requests and connections then
//
// The minimum of the last collections counts, since requests use more or less than they
// reserved.
type collectorLimit struct {
	given   int64                     // GOMEMLIMIT, which is never exceeded
	budget  func() (held, most int64) // of requests
	rest    [8]int64                  // of the last collections
	runs    int
	current int64
	ended   atomic.Bool
}

// limitCollector starts a collectorLimit; end stops it.
func limitCollector(budget func() (held, most int64)) (end func()) {
	l := &collectorLimit{given: debug.SetMemoryLimit(-1), budget: budget}
	_, most := budget()
	l.apply(l.next(0, most))
	l.await()
	return func() {
		l.ended.Store(true)
		debug.SetMemoryLimit(l.given)
	}
}

// await makes the next collection call collected.
func (l *collectorLimit) await() {
	type sentinel struct{ of *collectorLimit }
	runtime.SetFinalizer(&sentinel{l}, func(s *sentinel) { s.of.collected() })
}

func (l *collectorLimit) collected() {
	if l.ended.Load() {
		return
	}
	held, most := l.budget()
	l.apply(l.next(memoryInUse()-held, most))
	l.await()
}

// next returns the limit after a collection that left the rest of the process this large.
func (l *collectorLimit) next(rest, budget int64) int64 {
	l.rest[l.runs%len(l.rest)] = rest
	l.runs++
	least := slices.Min(l.rest[:])
	return min(l.given, budget+max(restBytes, least, 2*(least-restBytes)))
}

// apply sets the limit if it has changed by much: setting it stops the process for a moment.
func (l *collectorLimit) apply(limit int64) {
	if change := limit - l.current; max(change, -change) > l.current/32 {
		l.current = limit
		debug.SetMemoryLimit(limit)
	}
}

// memoryInUse returns the memory of the runtime without what the last collection freed, and
// without garbage since then.
func memoryInUse() int64 {
	samples := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(samples)
	in := int64(samples[0].Value.Uint64() + samples[1].Value.Uint64())
	for _, s := range samples[2:] {
		in -= int64(s.Value.Uint64())
	}
	return in
}
