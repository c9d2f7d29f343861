//go:build !unix

package mongod

import (
	"fmt"
	"os/exec"
	"runtime"
)

// supported says why no mongod can run on this system: it could not be stopped
// cleanly, nor recognized if a killed daemon left it behind.
func supported() error {
	return fmt.Errorf("%w: run mongod: Brim runs its own MongoDB on Unix only, and this is %s; instead:%s", ErrUnavailable, runtime.GOOS, otherOptions)
}

func commandLine(int) []string { return nil }

func isEnding(int) bool { return false }

func ownGroup(*exec.Cmd) {}

func (*Process) reopenLog() error { return nil }
