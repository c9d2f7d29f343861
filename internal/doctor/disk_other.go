//go:build !linux

package doctor

// disks sees nothing where the system is not Linux.
type disks struct{}

func newDisks() *disks { return &disks{} }

const whyNotLinux = "only on Linux can the disk be seen"

func (*disks) look(string) diskLook { return unseenDisk(whyNotLinux) }

func (*disks) workingFolder(*status) (folder, why string) { return "", whyNotLinux }

func (*disks) machine() machineLook { return machineLook{} }
