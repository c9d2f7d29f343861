//go:build !unix

package machine

import "syscall"

// NewGroup changes nothing on this system.
func NewGroup(syscall.Signal) *syscall.SysProcAttr { return nil }
