package doctor

import (
	"context"
	"math"
	"time"
)

// A diskKind decides which latency is sensible.
type diskKind string

const (
	diskNVMe    diskKind = "nvme"
	diskSSD     diskKind = "ssd"
	diskHDD     diskKind = "hdd"
	diskUnknown diskKind = "unknown" // virtual disks among them: what they say of themselves is often not so
)

// A diskLook is what the system said of the disk that holds the dbPath.
type diskLook struct {
	at     time.Time
	why    string // not empty: the disk's counters cannot be seen and are NaN
	path   string // that was looked at; empty: none is known
	device string // as in sda; empty when there is none to be seen
	kind   diskKind

	size, free float64 // bytes of the file system; free for others than root

	reads, writes           float64 // completed since the system's start
	readBytes, writtenBytes float64
	waitSeconds             float64 // summed over reads and writes
	busySeconds             float64 // with at least one under way
}

func unseenDisk(why string) diskLook {
	nan := math.NaN()
	return diskLook{why: why, kind: diskUnknown, size: nan, free: nan,
		reads: nan, writes: nan, readBytes: nan, writtenBytes: nan, waitSeconds: nan, busySeconds: nan}
}

// since returns how busy the disk was and how long a read or write took in the
// mean, 0 if there was none; NaN and why if that cannot be known.
func (d diskLook) since(before diskLook) (busy, await float64, why string) {
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

// A place is where the dbPath of one server process is.
type place struct {
	host    string // of the process that was asked
	pid     int
	started time.Time
	here    bool   // it is a process of this machine
	path    string // empty: not on this machine, or not told
	why     string // why path is empty
}

// Why the disk cannot be seen.
const (
	whyElsewhere = "MongoDB does not run on this machine"
	whyNoPath    = "MongoDB does not tell its dbPath: the role clusterMonitor permits it"
	whyUnasked   = "MongoDB has not told where its files are"
)

// lookAtDisk finds the disk beneath the dbPath, and reads its counters.
func (m *Monitor) lookAtDisk(ctx context.Context, now *look) {
	path, why := m.config.DBPath, ""
	if path == "" {
		path, why = m.dbPath(ctx, now)
	}
	if path == "" {
		now.disk = unseenDisk(why)
	} else {
		now.disk = m.disks.look(path)
		now.disk.path = path
	}
	now.disk.at = m.config.Now()
	if ctx.Err() == nil {
		m.say("disk", now.disk.why, nil)
	}
}

// dbPath asks a server process once where its files are. While MongoDB is
// away the last answer holds: a disk is most worth a look then.
func (m *Monitor) dbPath(parent context.Context, now *look) (path, why string) {
	s := now.server
	if s == nil {
		if now.serverWhy == whyNotPermitted && m.place.host == "" {
			return "", whyNoPath
		}
		if m.place.path == "" && m.place.why == "" {
			return "", whyUnasked
		}
		return m.place.path, m.place.why
	}
	if s.isProcess(m.place.host, m.place.pid, m.place.started) {
		return m.place.path, m.place.why
	}
	p := place{host: s.host, pid: s.pid, started: s.started}
	var folder string
	if folder, p.why = m.disks.workingFolder(s); p.why == "" {
		p.here = true
		ctx, cancel := context.WithTimeout(parent, m.patience())
		defer cancel()
		raw, err := m.database.Client().Database("admin").RunCommand(ctx, getCmdLineOpts()).Raw()
		switch {
		case err == nil:
			p.path = absolute(folder, text(raw, "parsed", "storage", "dbPath"))
		case notPermitted(err):
			p.why = whyNoPath
		default:
			return "", whyUnasked // asked again at the next look
		}
	}
	m.place = p
	return p.path, p.why
}

// DiskKind tells the kind of the disk beneath a folder: nvme, ssd, hdd, or
// unknown.
func DiskKind(folder string) string { return string(newDisks().look(folder).kind) }
