//go:build !linux

package faulttest_test

import "syscall"

// portLater needs Linux.
func portLater(string, string, syscall.RawConn) error { return nil }
