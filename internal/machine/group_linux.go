package machine

import "syscall"

// NewGroup starts a process in its own group, so that Ctrl-C in the terminal reaches only
// its parent, which then stops it in an orderly way. On Linux the process also gets the
// signal when the thread that started it ends; 0: none.
func NewGroup(atDeath syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: atDeath}
}
