//go:build !linux

package faulttest_test

import "syscall"

// endsWithTest does what it can on systems that do not notify children.
func endsWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
