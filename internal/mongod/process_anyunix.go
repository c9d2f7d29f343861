//go:build unix

package mongod

import (
	"os/exec"
	"syscall"
)

// supported says why no mongod can be run here.
func supported() error { return nil }

// ownGroup has a command end with all that it has started. It is for scripts
// around a program.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// reopenLog has mongod go on in a new file where its log was.
func (p *process) reopenLog() error { return p.handle.Signal(syscall.SIGUSR1) }
