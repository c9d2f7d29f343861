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
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is how long a test waits for another process on a busy machine.
const patience = 60 * time.Second

// binary is the program under test, built when the first test asks.
var binary struct {
	once sync.Once
	dir  string
	err  error
}

// brimBinary returns the path of the program, with the race detector in it if
// the tests have it.
func brimBinary(t testing.TB) string {
	t.Helper()
	binary.once.Do(func() {
		if binary.dir, binary.err = os.MkdirTemp("", "brim-e2e-"); binary.err != nil {
			return
		}
		args := []string{"build", "-o", filepath.Join(binary.dir, "brim")}
		if raceEnabled {
			args = append(args, "-race")
		}
		out, err := exec.Command("go", append(args, ".")...).CombinedOutput()
		if err != nil {
			binary.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	require.NoError(t, binary.err)
	return filepath.Join(binary.dir, "brim")
}

func removeBinary() {
	if binary.dir != "" {
		_ = os.RemoveAll(binary.dir)
	}
}

// brimProcess is a daemon that runs as a process of its own.
type brimProcess struct {
	HTTP, GRPC, Admin string // addresses, host:port

	t      testing.TB
	cmd    *exec.Cmd
	logs   synced
	exited chan struct{} // closed when the process has ended
}

// startBrim runs `brim serve` with the given flags on free ports, and returns
// when it listens; awaitReady waits for more. At the test's end it is stopped,
// and the test fails if it cannot be or if the race detector found something.
func startBrim(t testing.TB, args ...string) *brimProcess {
	t.Helper()
	b := &brimProcess{t: t, exited: make(chan struct{})}
	args = append([]string{"serve", "--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--log-format", "json"}, args...)
	b.cmd = exec.Command(brimBinary(t), args...)
	b.cmd.Env = foreignEnv()
	b.cmd.Dir = t.TempDir()
	b.cmd.Stderr = &b.logs
	b.cmd.SysProcAttr = endsWithTest()
	require.NoError(t, b.cmd.Start())
	go func() {
		defer close(b.exited)
		_ = b.cmd.Wait() // its code is asked for by who stops it
	}()
	t.Cleanup(b.cleanUp)
	listening := b.awaitLog("listening")
	b.HTTP, b.GRPC, b.Admin = listening["http"].(string), listening["grpc"].(string), listening["admin"].(string)
	return b
}

// foreignEnv is the environment without settings of a daemon, except where a
// mongod is.
func foreignEnv() []string {
	var env []string
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, envPrefix) || strings.HasPrefix(pair, "BRIM_MONGOD_BIN=") {
			env = append(env, pair)
		}
	}
	return env
}

func (b *brimProcess) cleanUp() {
	if !b.hasExited() {
		_ = b.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-b.exited:
		case <-time.After(patience):
			b.t.Error("brim does not stop")
			_ = b.cmd.Process.Kill()
			<-b.exited
		}
	}
	if b.t.Failed() {
		b.t.Logf("log of brim %d:\n%s", b.cmd.Process.Pid, b.logs.String())
	}
	if strings.Contains(b.logs.String(), "WARNING: DATA RACE") {
		b.t.Errorf("a data race in brim:\n%s", b.logs.String())
	}
}

func (b *brimProcess) hasExited() bool {
	select {
	case <-b.exited:
		return true
	default:
		return false
	}
}

// awaitLog returns the first line of the log with this message.
func (b *brimProcess) awaitLog(message string) map[string]any {
	b.t.Helper()
	var found map[string]any
	b.eventually("log line "+message, func() bool {
		for line := range strings.Lines(b.logs.String()) {
			var entry map[string]any
			if json.Unmarshal([]byte(line), &entry) == nil && entry["msg"] == message {
				found = entry
				return true
			}
		}
		return false
	})
	return found
}

// eventually waits for a condition outside this process, and fails when brim
// ends meanwhile.
func (b *brimProcess) eventually(what string, condition func() bool) {
	b.t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-b.exited:
			if condition() {
				return
			}
			require.FailNow(b.t, "brim ended while the test waited for "+what, b.logs.String())
		case <-deadline:
			require.FailNow(b.t, "no "+what, b.logs.String())
		}
	}
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

// awaitReadiness waits until /readyz answers with the code and a body that
// holds the text.
func (b *brimProcess) awaitReadiness(code int, text string) {
	b.t.Helper()
	b.eventually(fmt.Sprintf("readiness %d %s", code, text), func() bool {
		got, body, err := b.try(http.MethodGet, "http://"+b.Admin+"/readyz", "")
		return err == nil && got == code && strings.Contains(body, text)
	})
}

// try makes a request on a connection of its own.
func (b *brimProcess) try(method, url, body string) (code int, answer string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Close = true
	return carryOut(req)
}

// carryOut returns what a request is answered with.
func carryOut(req *http.Request) (code int, answer string, err error) {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	var buffer bytes.Buffer
	_, err = buffer.ReadFrom(resp.Body)
	return resp.StatusCode, buffer.String(), err
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
	req.Close = true
	return carryOut(req)
}

// post sends readings.
func (b *brimProcess) post(path, body string) (code int, answer string) {
	b.t.Helper()
	code, answer, err := b.try(http.MethodPost, "http://"+b.HTTP+path, body)
	require.NoError(b.t, err)
	return code, answer
}

// admin asks the admin listener.
func (b *brimProcess) admin(method, path string) (code int, answer string) {
	b.t.Helper()
	code, answer, err := b.try(method, "http://"+b.Admin+path, "")
	require.NoError(b.t, err)
	return code, answer
}

// status returns what /status shows.
func (b *brimProcess) status() status {
	b.t.Helper()
	_, body := b.admin(http.MethodGet, "/status")
	var s status
	require.NoError(b.t, json.Unmarshal([]byte(body), &s))
	return s
}

// signal sends a signal.
func (b *brimProcess) signal(s os.Signal) {
	b.t.Helper()
	require.NoError(b.t, b.cmd.Process.Signal(s))
}

// wait returns the exit code; -1 after a kill.
func (b *brimProcess) wait() int {
	b.t.Helper()
	select {
	case <-b.exited:
	case <-time.After(patience):
		require.FailNow(b.t, "brim does not end", b.logs.String())
	}
	return b.cmd.ProcessState.ExitCode()
}

// stop ends the daemon in good order and returns its exit code.
func (b *brimProcess) stop() int {
	b.t.Helper()
	b.signal(syscall.SIGTERM)
	return b.wait()
}

// processRuns reports whether a process with this id exists and has not ended;
// in a container without an init, nobody takes away what has.
func processRuns(pid int) bool {
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		_, state, _ := strings.Cut(string(stat), ") ")
		return !strings.HasPrefix(state, "Z")
	}
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
