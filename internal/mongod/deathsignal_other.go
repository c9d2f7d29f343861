//go:build unix && !linux

package mongod

import "syscall"

func setDeathSignal(*syscall.SysProcAttr) {}
