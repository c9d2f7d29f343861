//go:build unix

package mongodtest

import "syscall"

const stopSignal, goOnSignal = syscall.SIGSTOP, syscall.SIGCONT
