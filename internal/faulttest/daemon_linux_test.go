package faulttest_test

import "syscall"

// endsWithTest makes a daemon end when the test binary does.
func endsWithTest() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
