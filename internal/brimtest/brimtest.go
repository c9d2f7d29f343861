// Package brimtest runs brim, and other programs, as processes in tests.
package brimtest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Binary is brim, built when the first test asks. A test package has one and
// removes it when its tests have run. BRIM_OVERLAY names an overlay for the build, see
// internal/sabotage.
type Binary struct {
	Tags  string // of the build
	Plain bool   // without the race detector, even where the tests have it

	once sync.Once
	dir  string
	err  error
}

// Path returns where the binary is. It has the race detector in it if the
// tests have, as those of other packages, so that it is compiled once.
func (b *Binary) Path(t testing.TB) string {
	t.Helper()
	b.once.Do(func() { b.err = b.build(t.Context()) })
	require.NoError(t, b.err)
	return b.path()
}

func (b *Binary) path() string { return filepath.Join(b.dir, "brim") }

// build links brim once for all test binaries of a checkout: go build does not rebuild a
// program that is up to date. Each test binary links the file under its own name, so that
// a later build does not replace the program it runs.
func (b *Binary) build(ctx context.Context) error {
	module, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	all := filepath.Join(os.TempDir(), fmt.Sprintf("brim-test-%d", os.Getuid()))
	flags := []string{"-tags", b.Tags}
	if overlay := os.Getenv("BRIM_OVERLAY"); overlay != "" { // set by the sabotage runner, which also removes its folder
		all, flags = filepath.Dir(overlay), append(flags, "-overlay", overlay)
	}
	if Race && !b.Plain {
		flags = append(flags, "-race")
	}
	cache := filepath.Join(all, fmt.Sprintf("%x", sha256.Sum256(fmt.Append(module, flags)))[:16])
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return fmt.Errorf("make a folder for brim: %w", err)
	}
	lock := flock.New(filepath.Join(cache, "lock"))
	if err := lock.Lock(); err != nil {
		return fmt.Errorf("lock the folder for brim: %w", err)
	}
	defer func() { _ = lock.Close() }()
	program := filepath.Join(cache, "brim")
	args := slices.Concat([]string{"build", "-o", program}, flags, []string{"github.com/brim-telemetry/brim/cmd/brim"})
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build brim: %w\n%s", err, out)
	}
	if b.dir, err = os.MkdirTemp(all, "run-"); err != nil {
		return fmt.Errorf("make a folder for brim: %w", err)
	}
	if err := os.Link(program, b.path()); err != nil {
		return fmt.Errorf("name brim: %w", err)
	}
	return nil
}

// Run runs brim with these variables and arguments, and returns what it printed.
func (b *Binary) Run(t testing.TB, env []string, args ...string) (output string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), b.Path(t), args...)
	cmd.Env = append(Env(), env...)
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// Settings returns what `brim serve` would run with, by names of settings,
// given these variables and flags.
func (b *Binary) Settings(t testing.TB, env []string, flags ...string) map[string]string {
	t.Helper()
	out, err := b.Run(t, env, append([]string{"config", "print", "--output", "json"}, flags...)...)
	require.NoError(t, err, out)
	var printed struct {
		Settings []struct{ Name, Value string }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &printed), out)
	settings := make(map[string]string)
	for _, s := range printed.Settings {
		settings[s.Name] = s.Value
	}
	return settings
}

// Remove deletes the binary if it was built.
func (b *Binary) Remove() {
	if b.dir != "" {
		_ = os.RemoveAll(b.dir)
	}
}

// Env is the environment without settings of brim, which refuses those that it
// does not know, except the ones to keep. BRIM_MONGOD_BIN tells where a mongod is.
func Env(keep ...string) []string {
	return slices.DeleteFunc(os.Environ(), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return strings.HasPrefix(name, "BRIM_") && !slices.Contains(keep, name)
	})
}

// Idle returns a command that runs only when nothing else does, like that of a client on another
// machine. With nice, which stands in where there is no chrt, Linux lets a thread finish its slice
// of some milliseconds.
func Idle(path string) *exec.Cmd {
	if chrt, err := exec.LookPath("chrt"); err == nil {
		return exec.Command(chrt, "--idle", "0", path) //nolint:noctx // the caller ends it
	}
	return exec.Command("nice", "-n", "19", path) //nolint:noctx // likewise
}

// RunFirst lets this process run before all others until end is called, like a client on another
// machine, if there is a chrt and it may. Processes that it starts meanwhile do so, too.
func RunFirst(t testing.TB) (end func()) {
	t.Helper()
	set := func(policy, priority string) {
		out, err := exec.CommandContext(t.Context(), "chrt", "--all-tasks", policy, "--pid", priority, strconv.Itoa(os.Getpid())).CombinedOutput()
		if err != nil {
			t.Logf("this process competes with others for CPUs: %v: %s", err, out)
		}
	}
	set("--rr", "1")
	return func() { set("--other", "0") }
}

// Patience is how long a test waits for another process on a busy machine.
const Patience = 90 * time.Second

// A Process is a running program.
type Process struct {
	Cmd *exec.Cmd

	t      testing.TB
	name   string
	log    string        // file
	exited chan struct{} // closed when it has ended
}

// Launch starts a command; the caller ends it. If the
// test binary ends before that, the process gets the signal.
func Launch(t testing.TB, cmd *exec.Cmd, signal syscall.Signal) *Process {
	t.Helper()
	p := &Process{Cmd: cmd, t: t, name: filepath.Base(cmd.Path), exited: make(chan struct{})}
	require.NoError(t, machine.Start(cmd, signal, func() { // a test may run it in a separate session
		_ = cmd.Wait() // the exit status matters only to the caller
		close(p.exited)
	}))
	return p
}

// Start starts a command in a directory of its own, with its output in
// a log. At the test's end it is stopped; the test fails if it cannot be, or
// if the race detector found something.
func Start(t testing.TB, cmd *exec.Cmd, signal syscall.Signal) *Process {
	t.Helper()
	cmd.Dir = t.TempDir()
	log := filepath.Join(t.TempDir(), "log")
	out, err := os.Create(log)
	require.NoError(t, err)
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	p := Launch(t, cmd, signal)
	p.log = log
	t.Cleanup(p.cleanUp)
	return p
}

func (p *Process) cleanUp() {
	if !p.Ended() {
		_ = p.Cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.exited:
		case <-time.After(Patience):
			p.t.Errorf("%s does not stop", p.name)
			p.Kill()
		}
	}
	log := p.Logged()
	if strings.Contains(log, "WARNING: DATA RACE") {
		p.t.Errorf("a data race in %s", p.name)
	}
	if p.t.Failed() {
		p.t.Logf("log of %s %d:\n%s", p.name, p.Cmd.Process.Pid, log)
	}
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.Cmd.Process.Signal(s))
}

// Kill ends the process by SIGKILL.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // it may have ended
	<-p.exited
}

// Wait waits for the end and returns the exit code; -1 after a signal.
func (p *Process) Wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(Patience):
		require.FailNow(p.t, p.name+" does not end", p.Logged())
	}
	return p.Cmd.ProcessState.ExitCode()
}

// Stop ends the process by SIGTERM and returns its exit code.
func (p *Process) Stop() int {
	p.t.Helper()
	p.Signal(syscall.SIGTERM)
	return p.Wait()
}

// Logged returns all output of the process.
func (p *Process) Logged() string {
	text, _ := os.ReadFile(p.log)
	return string(text)
}

// Holds waits until a condition holds; false if the
// process ended, or patience did.
func (p *Process) Holds(condition func() bool) bool {
	deadline := time.After(Patience)
	for pause := 20 * time.Millisecond; !condition(); pause = min(pause*5/4, 100*time.Millisecond) { // looking takes CPU time, too
		select {
		case <-time.After(pause):
		case <-p.exited:
			return condition()
		case <-deadline:
			return false
		}
	}
	return true
}

// Await waits until a condition holds, and fails the test
// if it never does.
func (p *Process) Await(what string, condition func() bool) {
	p.t.Helper()
	switch {
	case p.Holds(condition):
	case p.Ended():
		require.FailNow(p.t, p.name+" ended while the test waited for "+what, p.Logged())
	default:
		require.FailNow(p.t, "no "+what+" from "+p.name, p.Logged())
	}
}

// AwaitLog returns the first line of a log of JSON with this message.
func (p *Process) AwaitLog(message string) (entry map[string]any) {
	p.t.Helper()
	p.Await("log line "+message, func() bool {
		for line := range strings.Lines(p.Logged()) {
			entry = nil
			if json.Unmarshal([]byte(line), &entry) == nil && entry["msg"] == message {
				return true
			}
		}
		return false
	})
	return entry
}

// Ask sends a request on a connection of its own.
func Ask(method, url, body string) (code int, answer string, err error) {
	return AskFor(Patience, method, url, body)
}

// AskFor is Ask with another timeout.
func AskFor(patience time.Duration, method, url, body string) (code int, answer string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	return CarryOut(req)
}

// CarryOut sends a request on a connection of its own.
func CarryOut(req *http.Request) (code int, answer string, err error) {
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// Readings returns the readings of a sensor of the default stream, once the daemon answers queries.
// The token may be empty.
func Readings(base, token, sensor string) (all []telemetry.Reading, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	for after := ""; ; {
		address := fmt.Sprintf("%s/v1/sensors/%s/readings?limit=100000&after=%s", base, url.PathEscape(sensor), after)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
		if err != nil {
			return nil, err
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		code, answer, err := CarryOut(req)
		if err != nil {
			return nil, err
		}
		if code == http.StatusServiceUnavailable {
			select {
			case <-time.After(50 * time.Millisecond):
				continue
			case <-ctx.Done():
			}
		}
		var page struct {
			Readings []telemetry.Reading
			After    string
		}
		if err := json.Unmarshal([]byte(answer), &page); err != nil || code != http.StatusOK {
			return nil, fmt.Errorf("%d %s", code, answer)
		}
		if all, after = append(all, page.Readings...), page.After; after == "" {
			return all, nil
		}
	}
}
