//go:build !linux

package mongodtest

import "syscall"

// endsWithTest does nothing where the system cannot tell a child.
func endsWithTest(*syscall.SysProcAttr) {}
