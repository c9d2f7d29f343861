//go:build !linux

package brimtest

import "syscall"

// endsWithTest does nothing where the system cannot tell a child.
func endsWithTest(syscall.Signal) *syscall.SysProcAttr { return nil }
