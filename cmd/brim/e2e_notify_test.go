package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
)

// A manager is a service manager's socket, with the messages received.
type manager struct {
	t    testing.TB
	conn *net.UnixConn
	path string
}

func listenAsManager(t testing.TB) *manager {
	t.Helper()
	dir, err := os.MkdirTemp("", "brim-notify") // the test's own may be too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m := &manager{t: t, path: filepath.Join(dir, "notify")}
	m.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.conn.Close() })
	return m
}

// next returns the next message: values by name.
func (m *manager) next() map[string]string {
	m.t.Helper()
	require.NoError(m.t, m.conn.SetReadDeadline(time.Now().Add(patience)))
	buffer := make([]byte, 1<<16)
	n, err := m.conn.Read(buffer)
	require.NoError(m.t, err)
	said := make(map[string]string)
	for _, line := range strings.Split(string(buffer[:n]), "\n") {
		name, value, found := strings.Cut(line, "=")
		require.True(m.t, found, "%q is no assignment", line)
		said[name] = value
	}
	return said
}

// await returns the first message with this name, and all before it.
func (m *manager) await(name string) (said map[string]string, before []map[string]string) {
	m.t.Helper()
	for {
		said = m.next()
		if said[name] != "" {
			return said, before
		}
		before = append(before, said)
	}
}

// startNotifying starts a daemon with a manager and a configuration file at path.
func startNotifying(t testing.TB, m *manager, config string, env ...string) (b *brimtest.Process, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "brim.yaml")
	require.NoError(t, os.WriteFile(path, []byte(config), 0o600))
	cmd := exec.Command(brimBinary(t), "serve", "--config", path, "--data-dir", t.TempDir(), "--log-format", "json",
		"--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0")
	cmd.Env = append(foreignEnv(), append([]string{"NOTIFY_SOCKET=" + m.path}, env...)...)
	return brimtest.Start(t, cmd, syscall.SIGTERM), path
}

// TestServiceManagerIsNotified: start, reload and stop of a real daemon.
func TestServiceManagerIsNotified(t *testing.T) {
	t.Parallel()
	m := listenAsManager(t)
	b, _ := startNotifying(t, m, "storage: memory\nstop-timeout: 7s\n", "WATCHDOG_USEC=300000")

	said, before := m.await("READY")
	assert.Equal(t, "1", said["READY"])
	assert.Contains(t, said["STATUS"], "accepts readings")
	require.NotEmpty(t, before, "a start is told, too")
	for _, s := range before {
		assert.Contains(t, s, "EXTEND_TIMEOUT_USEC", "a start that goes on asks for time")
	}
	b.AwaitLog("ready")
	for range 3 {
		said, _ = m.await("WATCHDOG")
		assert.NotContains(t, said, "READY")
	}
	assert.NotContains(t, said, "EXTEND_TIMEOUT_USEC", "it takes no longer, for it is ready")
	assert.Equal(t, "accepts readings and stores them", said["STATUS"])

	b.Signal(syscall.SIGHUP)
	said, _ = m.await("RELOADING")
	usec, err := strconv.ParseInt(said["MONOTONIC_USEC"], 10, 64)
	require.NoError(t, err, "%v", said)
	assert.Positive(t, usec)
	said, before = m.await("READY")
	for _, s := range before {
		assert.NotContains(t, s, "STOPPING")
	}
	assert.Contains(t, said["STATUS"], "accepts readings")

	b.Signal(syscall.SIGTERM)
	said, _ = m.await("STOPPING")
	assert.Equal(t, strconv.FormatInt((7*time.Second+10*time.Second).Microseconds(), 10), said["EXTEND_TIMEOUT_USEC"])
	assert.Contains(t, said["STATUS"], "the daemon is stopping")
	assert.Zero(t, b.Wait())
}

// TestReadyMeansThatReadingsAreAccepted: with a journal regardless of MongoDB, without one only
// once it answers.
func TestReadyMeansThatReadingsAreAccepted(t *testing.T) {
	t.Parallel()
	const nowhere = "mongo-uri: mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100\n"
	t.Run("with a journal", func(t *testing.T) {
		t.Parallel()
		m := listenAsManager(t)
		startNotifying(t, m, nowhere, "WATCHDOG_USEC=300000")
		m.await("READY")
		for {
			if said, _ := m.await("STATUS"); strings.Contains(said["STATUS"], "not ready behind the journal: ") {
				return
			}
		}
	})
	t.Run("without", func(t *testing.T) {
		t.Parallel()
		m := listenAsManager(t)
		b, _ := startNotifying(t, m, nowhere+"journal: off\n", "WATCHDOG_USEC=300000")
		for range 8 {
			said := m.next()
			assert.NotContains(t, said, "READY")
			assert.Contains(t, said, "EXTEND_TIMEOUT_USEC")
		}
		b.Signal(syscall.SIGHUP)
		b.AwaitLog("configuration reloaded")
		b.Signal(syscall.SIGTERM)
		_, before := m.await("STOPPING")
		for _, said := range before {
			assert.NotContains(t, said, "READY", "a reload makes no daemon ready")
		}
	})
}

// TestARefusedReloadIsInTheStatus: the manager only learns whether its own signal succeeded.
func TestARefusedReloadIsInTheStatus(t *testing.T) {
	t.Parallel()
	m := listenAsManager(t)
	b, config := startNotifying(t, m, "storage: memory\n")
	m.await("READY")
	b.AwaitLog("ready")
	require.NoError(t, os.WriteFile(config, []byte("storage: granite\n"), 0o600))
	b.Signal(syscall.SIGHUP)
	m.await("RELOADING")
	said, _ := m.await("READY")
	assert.Contains(t, said["STATUS"], "is invalid, the previous one stays in force")
}
