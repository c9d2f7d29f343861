package machine

import "syscall"

// NewGroup starts a process in a group of its own, so that Ctrl-C in the terminal is for
// its parent, which ends it in order. Where the system can (Linux), the process gets the
// signal when the thread that started it ends; 0: none.
func NewGroup(atDeath syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: atDeath}
}
