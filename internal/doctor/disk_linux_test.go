package doctor

import (
	"errors"
	"math"
	"os"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// linux is the machine in testdata; every path is on the given device.
func linux(major, minor uint32) *disks {
	return &disks{
		proc: "testdata/linux/proc", sys: "testdata/linux/sys",
		hostname: func() (string, error) { return "db1", nil },
		device:   func(string) (uint32, uint32, error) { return major, minor, nil },
		space:    func(string) (float64, float64, error) { return 1000, 400, nil },
	}
}

func TestDiskIsFoundBeneathTheDBPath(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		major, minor uint32
		device       string
		kind         diskKind
	}{
		"a partition of an NVMe disk":       {259, 2, "nvme0n1", diskNVMe},
		"an NVMe disk":                      {259, 0, "nvme0n1", diskNVMe},
		"a partition of an SSD":             {8, 1, "sda", diskSSD},
		"a hard disk":                       {8, 16, "sdb", diskHDD},
		"a virtual disk that says it turns": {254, 0, "vda", diskUnknown},
		"a hypervisor's disk":               {8, 32, "sdc", diskUnknown},
		"a network volume behind NVMe":      {259, 5, "nvme1n1", diskUnknown},
		"an encrypted volume on NVMe":       {253, 0, "dm-0", diskNVMe},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := linux(c.major, c.minor).sample("/data/db")
			assert.Empty(t, got.why)
			assert.Equal(t, c.device, got.device)
			assert.Equal(t, c.kind, got.kind)
			assert.Equal(t, 400.0, got.free)
		})
	}
}

// TestCountersOfThePartitionAreThoseOfTheDisk, since other partitions keep it
// busy as well.
func TestCountersOfThePartitionAreThoseOfTheDisk(t *testing.T) {
	t.Parallel()
	got := linux(259, 2).sample("/data/db")
	assert.Equal(t, diskSample{
		device: "nvme0n1", kind: diskNVMe, size: 1000, free: 400,
		reads: 1000, writes: 3000, readBytes: 16000 * 512, writtenBytes: 48000 * 512, waitSeconds: 2, busySeconds: 8.4,
	}, got)
}

func TestUnknownDiskSaysWhy(t *testing.T) {
	t.Parallel()
	broken := linux(259, 2)
	broken.device = func(string) (uint32, uint32, error) { return 0, 0, errors.New("no such file") }
	bare := linux(259, 2)
	bare.proc = t.TempDir()
	for name, c := range map[string]struct {
		disks *disks
		why   string
	}{
		"an overlay":           {linux(0, 45), "the file system overlay names no disk"},
		"memory":               {linux(0, 31), "the file system tmpfs names no disk"},
		"a mount that is gone": {linux(0, 99), "the file system of the dbPath names no disk"},
		"a device not counted": {linux(9, 9), "/proc/diskstats has no device 9:9"},
		"a dbPath not there":   {broken, "the dbPath cannot be examined: no such file"},
		"no counters":          {bare, "/proc/diskstats cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := c.disks.sample("/data/db")
			assert.Equal(t, c.why, got.why)
			assert.Empty(t, got.device)
			assert.Equal(t, diskUnknown, got.kind)
			assert.True(t, math.IsNaN(got.busySeconds))
			assert.Equal(t, 1000.0, got.size, "how full it is can be seen all the same")
		})
	}
}

func TestServerIsOfThisMachineOnlyIfItsProcessIs(t *testing.T) {
	t.Parallel()
	d := newDisks()
	name, err := os.Hostname()
	require.NoError(t, err)
	self, err := procfs.Self()
	require.NoError(t, err)
	stat, err := self.Stat()
	require.NoError(t, err)
	seconds, err := stat.StartTime()
	require.NoError(t, err)
	began := time.UnixMilli(int64(seconds * 1000))
	here, err := os.Getwd()
	require.NoError(t, err)

	for what, c := range map[string]struct {
		server status
		folder string
	}{
		"this process":                   {status{host: name + ":27017", pid: os.Getpid(), started: began.Add(time.Second)}, here},
		"another host":                   {status{host: "elsewhere:27017", pid: os.Getpid(), started: began}, ""},
		"no such process":                {status{host: name, pid: 1 << 30, started: began}, ""},
		"a process that began long ago":  {status{host: name, pid: os.Getpid(), started: began.Add(-time.Hour)}, ""},
		"a process that began after all": {status{host: name, pid: os.Getpid(), started: began.Add(time.Hour)}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			folder, why := d.workingFolder(&c.server)
			assert.Equal(t, c.folder, folder)
			assert.Equal(t, c.folder == "", why == whyElsewhere, why)
		})
	}
	assert.True(t, sameHost("VM:27017", "vm"))
	assert.False(t, sameHost("", ""))
	assert.Equal(t, "/srv/db", absolute("/srv", "db"))
	assert.Equal(t, "/var/db", absolute("/srv", "/var/db"))
	assert.Equal(t, defaultDBPath, absolute("/srv", ""))
}
