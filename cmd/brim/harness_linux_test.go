package main

import "syscall"

// endsWithTest makes a daemon stop, with its mongod, when the test binary ends
// without doing so itself.
func endsWithTest() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
}
