//go:build unix && !linux

package machine

import "syscall"

// NewGroup starts a process in a group of its own, so that Ctrl-C in the terminal is for
// its parent, which ends it in order. The signal is for Linux only.
func NewGroup(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
