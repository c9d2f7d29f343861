//go:build !linux

package doctor

// disks knows nothing on systems other than Linux.
type disks struct{}

func newDisks() *disks { return &disks{} }

const whyNotLinux = "the disk can be examined on Linux only"

func (*disks) sample(string) diskSample { return unseenDisk(whyNotLinux) }

func (*disks) workingFolder(*status) (folder, why string) { return "", whyNotLinux }

func (*disks) machine() cpuTime { return cpuTime{} }
