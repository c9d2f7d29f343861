//go:build unix && !linux

package mongod

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// commandLine returns the arguments that a process was started with, cut at
// spaces; none when it is gone.
func commandLine(pid int) []string {
	text, err := exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

// isEnding reports whether a process is on its way out, or a zombie that its
// parent has not looked at. A zombie answers signals.
func isEnding(pid int) bool {
	text, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.ContainsAny(string(text), "ZE")
}

// attributes puts mongod into a process group of its own: a Ctrl-C in the
// terminal is for the daemon, which has readings to store first. A signal at
// the parent's death is Linux's alone.
func attributes(bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
