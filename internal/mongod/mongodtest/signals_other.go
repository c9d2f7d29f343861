//go:build !unix

package mongodtest

import "syscall"

// No process can be stopped here: sending any of them is an error.
const stopSignal, goOnSignal = syscall.SIGINT, syscall.SIGINT

func attributes() *syscall.SysProcAttr { return nil }
