package mongodtest

import "syscall"

// attributes keep a terminal's signals from a member, and end it when the test
// binary ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
