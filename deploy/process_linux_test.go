package deploy_test

import "syscall"

// endsWithTest makes a process end when the test binary does.
func endsWithTest() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
