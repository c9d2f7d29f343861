package mongod

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// commandLine returns the arguments that a process was started with; none
// when it is gone or not ours to look at.
func commandLine(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

// isZombie reports whether a process has ended and only its parent has not
// looked yet.
func isZombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// pid (name) state …, and the name may hold anything.
	_, after, _ := bytes.Cut(text[bytes.LastIndexByte(text, ')')+1:], []byte(" "))
	return len(after) > 0 && (after[0] == 'Z' || after[0] == 'X')
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
