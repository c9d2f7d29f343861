package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/daemon"
)

// patience is how long a test waits for another process on a busy machine.
const patience = brimtest.Patience

const raceEnabled = brimtest.Race

// binary is the program under test.
var binary brimtest.Binary

// brimBinary returns the path of the program, with the race detector in it if
// the tests have it.
func brimBinary(t testing.TB) string {
	t.Helper()
	return binary.Path(t)
}

// brimProcess is a daemon that runs as a process of its own.
type brimProcess struct {
	HTTP, GRPC, Admin string // addresses, host:port

	*brimtest.Process
	t testing.TB
}

// startBrim runs `brim serve` with the given flags on free ports, and returns
// when it listens; awaitReady waits for more. At the test's end it is stopped,
// and the test fails if it cannot be or if the race detector found something.
func startBrim(t testing.TB, args ...string) *brimProcess {
	t.Helper()
	return serve(t, exec.Command(brimBinary(t)), args...)
}

// serve is startBrim with the command that runs another build of brim.
func serve(t testing.TB, cmd *exec.Cmd, args ...string) *brimProcess {
	t.Helper()
	cmd.Args = append(cmd.Args, "serve", "--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--log-format", "json")
	cmd.Args = append(cmd.Args, args...)
	cmd.Env = foreignEnv()
	// A daemon that ends in good order stops its mongod.
	b := &brimProcess{t: t, Process: brimtest.Start(t, cmd, syscall.SIGTERM)}
	listening := b.AwaitLog("listening")
	b.HTTP, b.GRPC, b.Admin = listening["http"].(string), listening["grpc"].(string), listening["admin"].(string)
	return b
}

// foreignEnv is the environment without settings of a daemon, except where a
// mongod is.
func foreignEnv() []string { return brimtest.Env("BRIM_MONGOD_BIN") }

// awaitLog returns the first line of the log with this message.
func (b *brimProcess) awaitLog(message string) map[string]any {
	b.t.Helper()
	return b.AwaitLog(message)
}

// eventually waits for a condition outside this process.
func (b *brimProcess) eventually(what string, condition func() bool) {
	b.t.Helper()
	b.Await(what, condition)
}

// awaitReady waits until the daemon takes readings.
func (b *brimProcess) awaitReady() *brimProcess {
	b.t.Helper()
	b.awaitReadiness(http.StatusOK, "")
	return b
}

// awaitStorage waits until the daemon takes readings and can store them.
func (b *brimProcess) awaitStorage() *brimProcess {
	b.t.Helper()
	b.awaitLog("ready")
	return b.awaitReady()
}

// awaitCatalog waits until queries by tag and PromQL are answered, of stream readings.
func (b *brimProcess) awaitCatalog() *brimProcess {
	b.t.Helper()
	b.eventually("the catalog of sensors is complete", func() bool {
		_, metrics := b.admin(http.MethodGet, "/metrics")
		return strings.Contains(metrics, `brim_catalog_complete{stream="readings"} 1`)
	})
	return b
}

// awaitReadiness waits until /readyz answers with the code and a body that
// holds the text.
func (b *brimProcess) awaitReadiness(code int, text string) {
	b.t.Helper()
	b.eventually(fmt.Sprintf("readiness %d %s", code, text), func() bool {
		got, body, err := brimtest.Ask(http.MethodGet, "http://"+b.Admin+"/readyz", "")
		return err == nil && got == code && strings.Contains(body, text)
	})
}

// send posts a body with headers, given as names and values in turn, on a
// connection of its own. Any goroutine may call it.
func (b *brimProcess) send(path string, body []byte, headers ...string) (code int, answer string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+b.HTTP+path, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return brimtest.CarryOut(req)
}

// post sends readings.
func (b *brimProcess) post(path, body string) (code int, answer string) {
	b.t.Helper()
	code, answer, err := brimtest.Ask(http.MethodPost, "http://"+b.HTTP+path, body)
	require.NoError(b.t, err)
	return code, answer
}

// admin asks the admin listener.
func (b *brimProcess) admin(method, path string) (code int, answer string) {
	b.t.Helper()
	code, answer, err := brimtest.Ask(method, "http://"+b.Admin+path, "")
	require.NoError(b.t, err)
	return code, answer
}

// status returns what /status shows.
func (b *brimProcess) status() daemon.Status {
	b.t.Helper()
	_, body := b.admin(http.MethodGet, "/status")
	var s daemon.Status
	require.NoError(b.t, json.Unmarshal([]byte(body), &s))
	return s
}

// mongoURI is that of the embedded MongoDB for other clients, with the password.
func (b *brimProcess) mongoURI() string {
	b.t.Helper()
	uri, err := os.ReadFile(b.status().Mongod.URIFile)
	require.NoError(b.t, err)
	return strings.TrimSpace(string(uri))
}

// signal sends a signal.
func (b *brimProcess) signal(s os.Signal) { b.t.Helper(); b.Signal(s) }

// wait returns the exit code; -1 after a kill.
func (b *brimProcess) wait() int { b.t.Helper(); return b.Wait() }

// stop ends the daemon in good order and returns its exit code.
func (b *brimProcess) stop() int { b.t.Helper(); return b.Stop() }

// processRuns reports whether a process with this id exists and has not ended;
// in a container without an init, one that has stays as a zombie.
func processRuns(pid int) bool {
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		_, state, _ := strings.Cut(string(stat), ") ")
		return !strings.HasPrefix(state, "Z")
	}
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

func writeConfig(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "brim.yaml")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// writeURI writes a file that holds a MongoDB URI.
func writeURI(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "uri")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
