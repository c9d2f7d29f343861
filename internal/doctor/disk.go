package doctor

import (
	"cmp"
	"context"
	"math"
	"path/filepath"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A diskKind determines which latency is acceptable.
type diskKind string

const (
	diskNVMe    diskKind = "nvme"
	diskSSD     diskKind = "ssd"
	diskHDD     diskKind = "hdd"
	diskUnknown diskKind = "unknown" // virtual disks included: what they report about themselves is often wrong
)

// A diskSample is what the system says about the disk under the dbPath.
type diskSample struct {
	at     time.Time
	why    string // not empty: the disk's counters are NaN
	path   string // a path on the disk; empty: unknown
	device string // such as sda; empty if unknown
	kind   diskKind

	size, free float64 // bytes of the file system; free for users other than root

	reads, writes           float64 // completed since the system's start
	readBytes, writtenBytes float64
	waitSeconds             float64 // summed over reads and writes
	busySeconds             float64 // with at least one in progress
}

func unseenDisk(why string) diskSample {
	nan := math.NaN()
	return diskSample{why: why, kind: diskUnknown, size: nan, free: nan,
		reads: nan, writes: nan, readBytes: nan, writtenBytes: nan, waitSeconds: nan, busySeconds: nan}
}

// since returns the share of time in which the disk was busy and the mean time
// of a read or write, 0 if there were none; NaN and why if unknown.
func (d *diskSample) since(before diskSample) (busy, await float64, why string) {
	nan := math.NaN()
	seconds := d.at.Sub(before.at).Seconds()
	switch {
	case d.why != "":
		return nan, nan, d.why
	case before.why != "" || before.device != d.device || seconds <= 0 || d.busySeconds < before.busySeconds:
		return nan, nan, whyFirst
	}
	busy = min((d.busySeconds-before.busySeconds)/seconds, 1)
	if n := d.reads + d.writes - before.reads - before.writes; n > 0 {
		await = (d.waitSeconds - before.waitSeconds) / n
	}
	return busy, await, ""
}

// Why the disk is unknown.
const (
	whyElsewhere = "MongoDB does not run on this machine"
	whyNoPath    = "MongoDB does not report its dbPath: the role clusterMonitor permits it"
	whyUnasked   = "MongoDB has not reported where its files are"
)

// A process describes a server's process; it does not change, so it is asked once.
type process struct {
	host    string // the server's; empty: an answer is missing, so ask again
	pid     int
	started time.Time

	here   bool   // it runs on this machine
	path   string // its dbPath; empty: not on this machine, or not reported
	why    string // why path is empty
	cores  float64
	noCPUs string  // why cores is 0
	memory float64 // bytes; 0: unknown
}

// sampleMachine reads the counters of the disk under the dbPath and, if MongoDB runs
// on this machine, of its CPUs. While MongoDB is away its last answers are used: the
// disk matters most then.
func (m *Monitor) sampleMachine(ctx context.Context, now *sample) {
	p := &m.process
	if s := now.server; s != nil {
		if !s.isProcess(p) {
			*p = m.askProcess(ctx, s)
		}
		now.cores, now.coresWhy, now.memory = p.cores, p.noCPUs, p.memory
	}
	path, why := m.config.DBPath, ""
	if path == "" {
		path, why = p.path, p.why
	}
	switch {
	case path != "":
		now.disk = m.disks.sample(path)
		now.disk.path = path
	case why == "" && now.serverWhy == whyNotPermitted:
		now.disk = unseenDisk(whyNoPath)
	case why == "":
		now.disk = unseenDisk(whyUnasked)
	default:
		now.disk = unseenDisk(why)
	}
	now.disk.at = m.config.Now()
	if m.config.DBPath != "" || p.here {
		now.machine = m.disks.machine()
	}
	m.say(ctx, "disk", now.disk.why, nil)
}

// askProcess asks for what does not change while a process runs. Questions that
// failed for no known reason are asked again with the next sample.
func (m *Monitor) askProcess(ctx context.Context, s *status) process {
	p := process{host: s.host, pid: s.pid, started: s.started}
	raw, err := m.run(ctx, bson.D{{Key: "hostInfo", Value: 1}})
	switch {
	case err == nil:
		p.cores, p.noCPUs = countProcessors(raw)
		p.memory = memoryOf(raw)
	case NotPermitted(err):
		p.noCPUs = whyNoHostInfo
	default:
		p.host, p.noCPUs = "", whyCoresUnasked
	}
	folder, why := m.disks.workingFolder(s)
	if p.why = why; why != "" {
		return p
	}
	p.here = true
	raw, err = m.run(ctx, bson.D{{Key: "getCmdLineOpts", Value: 1}})
	switch {
	case err == nil:
		p.path = absolute(folder, text(raw, "parsed", "storage", "dbPath"))
	case NotPermitted(err):
		p.why = whyNoPath
	default:
		p.host, p.why = "", whyUnasked
	}
	return p
}

// defaultDBPath is mongod's default.
const defaultDBPath = "/data/db"

// absolute resolves a process's dbPath against its working folder.
func absolute(folder, path string) string {
	if path = cmp.Or(path, defaultDBPath); filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(folder, path)
}

// sameHost reports whether a server that calls itself host, with or without a
// port, has this machine's name.
func sameHost(host, name string) bool {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	return host != "" && strings.EqualFold(host, name)
}

// DiskKind returns the kind of the disk under a folder: nvme, ssd, hdd, or
// unknown.
func DiskKind(folder string) string { return string(newDisks().sample(folder).kind) }
