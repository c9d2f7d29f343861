package mongod

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// commandLine returns the arguments that a process was started with; none
// when it is gone or not ours to look at.
func commandLine(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

// isEnding reports whether a process is there but has given up its memory,
// and so its arguments: it is on its way out, or a zombie that its parent has
// not looked at. Threads of it may still hold its files open. A zombie answers
// signals.
func isEnding(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && len(text) == 0
}

// attributes puts mongod into a process group of its own: a Ctrl-C in the
// terminal is for the daemon, which has readings to store first.
func attributes(dieWithParent bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	if dieWithParent {
		a.Pdeathsig = syscall.SIGKILL
	}
	return a
}
