//go:build unix && !linux

package mongodtest

import "syscall"

// attributes keep a terminal's signals from a member. That it ends with the test
// binary, only Linux can do.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
