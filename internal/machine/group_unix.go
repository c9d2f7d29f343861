//go:build unix && !linux

package machine

import "syscall"

// NewGroup starts a process in its own group, so that Ctrl-C in the terminal reaches only
// its parent, which then stops it in an orderly way. The signal is for Linux only.
func NewGroup(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
