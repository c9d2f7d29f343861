package faulttest_test

import "syscall"

// endsWithTest makes a daemon end with the test binary.
func endsWithTest() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
