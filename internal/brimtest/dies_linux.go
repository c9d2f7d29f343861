package brimtest

import "syscall"

// endsWithTest makes a process get the signal when the test binary ends
// without having ended it.
func endsWithTest(signal syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: signal, Setpgid: true}
}
