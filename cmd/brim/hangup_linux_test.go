package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/brim-telemetry/brim/internal/brimtest"
)

// openTerminal returns both ends of a new one: ours, and a program's.
func openTerminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	number, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0))
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	return ours, theirs
}

// TestLostTerminalEndsTheDaemon: with a configuration file, SIGHUP asks for a reload, but
// the loss of the terminal ends the daemon.
func TestLostTerminalEndsTheDaemon(t *testing.T) {
	t.Parallel()
	ours, theirs := openTerminal(t)
	path := filepath.Join(t.TempDir(), "brim.yaml")
	require.NoError(t, os.WriteFile(path, []byte("storage: memory\n"), 0o600))
	cmd := exec.Command(brimBinary(t), "serve", "--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0",
		"--log-format", "json", "--data-dir", t.TempDir(), "--config", path)
	cmd.Env = foreignEnv()
	cmd.Stdin = theirs // its log goes where the test sees it
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setsid: true, Setctty: true, Ctty: 0}
	b := &brimProcess{t: t, Process: brimtest.Start(t, cmd, syscall.SIGTERM)}
	require.NoError(t, theirs.Close())
	b.awaitLog("ready")
	b.signal(syscall.SIGHUP)
	assert.Equal(t, "applied", b.awaitLog("configuration reloaded")["outcome"])
	require.NoError(t, ours.Close())
	assert.Equal(t, "the terminal that the daemon was started on is gone", b.awaitLog("stopping")["why"])
	assert.Equal(t, 0, b.wait())
}
