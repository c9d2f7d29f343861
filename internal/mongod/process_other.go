//go:build !unix

package mongod

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
)

// supported says why no mongod can be run here. A child could only be killed:
// it cannot be asked to end, nor to open its log again, and one that a killed
// daemon left behind cannot be told from somebody else's.
func supported() error {
	return fmt.Errorf("%w: run mongod: Brim runs a MongoDB of its own on Unix alone, and this is %s; instead:%s", ErrUnavailable, runtime.GOOS, elsewhere)
}

func commandLine(int) []string { return nil }

func isEnding(int) bool { return false }

func attributes(bool) *syscall.SysProcAttr { return nil }

func ownGroup(*exec.Cmd) {}

func (*process) reopenLog() error { return nil }
