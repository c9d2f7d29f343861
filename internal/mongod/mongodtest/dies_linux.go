package mongodtest

import "syscall"

// endsWithTest makes a member end when the test binary does.
func endsWithTest(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
