package machine

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Start starts a command with NewGroup's attributes, unless it has its own, and then
// calls wait in a goroutine. wait must call cmd.Wait.
func Start(cmd *exec.Cmd, atDeath syscall.Signal, wait func()) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = NewGroup(atDeath)
	}
	started := make(chan error)
	go func() {
		// The signal is sent when this thread ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			wait()
		}
	}()
	return <-started
}
