//go:build !linux

package main

import "syscall"

func endsWithTest() *syscall.SysProcAttr { return nil }
