//go:build unix && !linux

package launch

import (
	"os/exec"
	"syscall"
)

// ownGroup keeps a terminal's Ctrl-C from the process: who launched it ends it,
// after what it sends. A signal at the launcher's death is Linux's alone.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
