//go:build !linux

package deploy_test

import "syscall"

// endsWithTest does what it can where the system cannot tell a child.
func endsWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
