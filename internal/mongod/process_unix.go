//go:build unix

package mongod

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/brim-telemetry/brim/internal/machine"
)

// supported says why no mongod can run on this system.
func supported() error { return nil }

// ownGroup makes a command end with everything that it has started.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = machine.NewGroup(0)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// reopenLog makes mongod reopen its log.
func (p *Process) reopenLog() error { return p.Signal(syscall.SIGUSR1) }

// commandLine returns the arguments of a process; none if it is gone or may not be
// inspected. Outside Linux they are split at spaces.
func commandLine(pid int) []string {
	if runtime.GOOS == "linux" {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || len(text) == 0 {
			return nil
		}
		return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	}
	text, err := ps("-ww", "-o", "command=", "-p", strconv.Itoa(pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

// isEnding reports whether a process is exiting or a zombie, which still answers
// signals. On Linux it has no memory, and so no arguments, but its threads may
// still have files open.
func isEnding(pid int) bool {
	if runtime.GOOS == "linux" {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return err == nil && len(text) == 0
	}
	text, err := ps("-o", "state=", "-p", strconv.Itoa(pid))
	return err == nil && bytes.ContainsAny(text, "ZE")
}

func ps(args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), psTimeout)
	defer cancel()
	return exec.CommandContext(ctx, "ps", args...).Output()
}

// psTimeout is ample for one process.
const psTimeout = 5 * time.Second
