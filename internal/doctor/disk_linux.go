package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"github.com/prometheus/procfs/blockdevice"
	"golang.org/x/sys/unix"
)

// disks reads what Linux says about disks and processes.
type disks struct {
	proc, sys string
	hostname  func() (string, error)
	device    func(path string) (major, minor uint32, err error)
	space     func(path string) (size, free float64, err error)
}

func newDisks() *disks {
	return &disks{proc: procfs.DefaultMountPoint, sys: "/sys", hostname: os.Hostname, device: deviceOf, space: spaceAt}
}

func deviceOf(path string) (major, minor uint32, err error) {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return 0, 0, fmt.Errorf("examine %s: %w", path, err)
	}
	dev := uint64(stat.Dev) //nolint:unconvert // it is 32 bits wide on some architectures
	return unix.Major(dev), unix.Minor(dev), nil
}

func spaceAt(path string) (size, free float64, err error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return 0, 0, fmt.Errorf("examine the file system of %s: %w", path, err)
	}
	block := float64(stat.Bsize)
	return float64(stat.Blocks) * block, float64(stat.Bavail) * block, nil
}

// sample reads the counters of the disk that holds path. They cover the whole
// disk, since its partitions share it.
func (d *disks) sample(path string) diskSample {
	out := unseenDisk("")
	if size, free, err := d.space(path); err == nil {
		out.size, out.free = size, free
	}
	major, minor, err := d.device(path)
	if err != nil {
		out.why = "the dbPath cannot be examined: " + err.Error()
		return out
	}
	if major == 0 {
		out.why = fmt.Sprintf("the file system %s names no disk", d.fileSystem(major, minor))
		return out
	}
	fs, err := blockdevice.NewFS(d.proc, d.sys)
	if err != nil {
		out.why = "there is no /proc or /sys"
		return out
	}
	all, err := fs.ProcDiskstats()
	if err != nil {
		out.why = "/proc/diskstats cannot be read"
		return out
	}
	i := slices.IndexFunc(all, func(s blockdevice.Diskstats) bool { return s.MajorNumber == major && s.MinorNumber == minor })
	if i < 0 {
		out.why = fmt.Sprintf("/proc/diskstats has no device %d:%d", major, minor)
		return out
	}
	name := d.wholeDisk(all[i].DeviceName)
	if j := slices.IndexFunc(all, func(s blockdevice.Diskstats) bool { return s.DeviceName == name }); j >= 0 {
		i = j
	}
	out.device, out.kind = all[i].DeviceName, d.kind(fs, all[i].DeviceName)
	out.count(all[i].IOStats)
	return out
}

// machine reads how long the CPUs were busy. Waiting for a disk is idle time;
// guest time is already part of user time.
func (d *disks) machine() cpuTime {
	fs, err := procfs.NewFS(d.proc)
	if err != nil {
		return cpuTime{}
	}
	stat, err := fs.Stat()
	if err != nil {
		return cpuTime{}
	}
	c := stat.CPUTotal
	busy := c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal
	return cpuTime{total: busy + c.Idle + c.Iowait, busy: busy}
}

// sectorBytes is the size of a sector in /proc/diskstats, whatever the disk.
const sectorBytes = 512

func (l *diskSample) count(s blockdevice.IOStats) {
	seconds := func(ms uint64) float64 { return float64(ms) / 1000 }
	l.reads, l.writes = float64(s.ReadIOs), float64(s.WriteIOs)
	l.readBytes, l.writtenBytes = float64(s.ReadSectors)*sectorBytes, float64(s.WriteSectors)*sectorBytes
	l.waitSeconds = seconds(s.ReadTicks) + seconds(s.WriteTicks)
	l.busySeconds = seconds(s.IOsTotalTicks)
}

// fileSystem returns the type of a mounted file system by its device number,
// for those without a disk.
func (d *disks) fileSystem(major, minor uint32) string {
	if fs, err := procfs.NewFS(d.proc); err == nil {
		mounts, _ := fs.GetMounts() // on an error the disk is unknown
		number := fmt.Sprintf("%d:%d", major, minor)
		if i := slices.IndexFunc(mounts, func(m *procfs.MountInfo) bool { return m.MajorMinorVer == number }); i >= 0 {
			return mounts[i].FSType
		}
	}
	return "of the dbPath"
}

// wholeDisk returns the disk of a partition, or the device itself.
func (d *disks) wholeDisk(device string) string {
	parents, err := filepath.Glob(filepath.Join(d.sys, "block", "*", device, "partition"))
	if err != nil || len(parents) == 0 {
		return device
	}
	return filepath.Base(filepath.Dir(filepath.Dir(parents[0])))
}

// kind returns the kind of a disk. Mapped and striped devices have the kind of
// the disks beneath.
func (d *disks) kind(fs blockdevice.FS, device string) diskKind {
	beneath := d.beneath(device, 0)
	is := func(what func(string) bool) bool { return slices.ContainsFunc(beneath, what) }
	switch {
	case is(d.virtual):
		return diskUnknown
	case !is(func(name string) bool { return !strings.HasPrefix(name, "nvme") }):
		return diskNVMe
	}
	rotational, err := fs.SysBlockDeviceRotational(device)
	switch {
	case err != nil:
		return diskUnknown
	case rotational == 0:
		return diskSSD
	default:
		return diskHDD
	}
}

// beneath returns the disks under a device, or the device itself.
func (d *disks) beneath(device string, depth int) []string {
	const deepest = 8 // encryption on a volume on a mirror is 3
	slaves, err := os.ReadDir(filepath.Join(d.sys, "block", device, "slaves"))
	if err != nil || len(slaves) == 0 || depth == deepest {
		return []string{device}
	}
	var out []string
	for _, slave := range slaves {
		out = append(out, d.beneath(d.wholeDisk(slave.Name()), depth+1)...)
	}
	return out
}

// virtual reports whether a disk belongs to a virtual machine, or is in memory
// or on a network: its rotational flag means nothing.
func (d *disks) virtual(device string) bool {
	for _, prefix := range []string{"vd", "xvd", "loop", "ram", "zram", "nbd", "rbd", "drbd"} {
		if strings.HasPrefix(device, prefix) {
			return true
		}
	}
	for _, file := range []string{"vendor", "model"} {
		raw, err := os.ReadFile(filepath.Join(d.sys, "block", device, "device", file))
		if err != nil {
			continue // not every disk has both
		}
		said := strings.ToLower(string(raw))
		for _, maker := range []string{"qemu", "vmware", "vbox", "virtual", "google", "msft", "elastic block store", "nvme_card-pd"} {
			if strings.Contains(said, maker) {
				return true
			}
		}
	}
	return false
}

// workingFolder returns the working folder of a server's process if it runs on
// this machine, and otherwise why not. The host name is not enough, given
// tunnels and containers; name, pid and start time together are.
func (d *disks) workingFolder(s *status) (folder, why string) {
	name, err := d.hostname()
	if err != nil || !sameHost(s.host, name) {
		return "", whyElsewhere
	}
	fs, err := procfs.NewFS(d.proc)
	if err != nil {
		return "", "there is no /proc"
	}
	process, err := fs.Proc(s.pid)
	if err != nil {
		return "", whyElsewhere
	}
	stat, err := process.Stat()
	if err != nil {
		return "", whyElsewhere
	}
	started, err := stat.StartTime()
	if err != nil {
		return "", whyElsewhere
	}
	// The server's uptime starts a moment after the process did, which may
	// first have opened and repaired its files.
	const early, late = 10 * time.Second, 5 * time.Minute
	gap := s.started.Sub(time.UnixMilli(int64(started * 1000)))
	if gap < -early || gap > late {
		return "", whyElsewhere
	}
	folder, err = process.Cwd()
	if err != nil {
		folder = "" // another user's process: the dbPath is known only if it is absolute
	}
	return folder, ""
}
