package brimtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Patience is how long a test waits for another process on a busy machine.
const Patience = 90 * time.Second

// A Process is a program under way.
type Process struct {
	Cmd *exec.Cmd

	t      testing.TB
	name   string
	log    string        // file
	exited chan struct{} // closed when it has ended
}

// Launch starts a command, and nothing more: who launches it ends it. If the
// test binary ends before that, the process gets the signal.
func Launch(t testing.TB, cmd *exec.Cmd, signal syscall.Signal) *Process {
	t.Helper()
	p := &Process{Cmd: cmd, t: t, name: filepath.Base(cmd.Path), exited: make(chan struct{})}
	if cmd.SysProcAttr == nil { // else the test has a session of its own for it
		cmd.SysProcAttr = endsWithTest(signal)
	}
	started := make(chan error)
	go func() {
		// The signal at the parent's death comes when the thread ends that
		// started the child, so that thread is kept for as long.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is for those who ended it
			close(p.exited)
		}
	}()
	require.NoError(t, <-started)
	return p
}

// Start starts a command in a directory of its own, with all that it writes in
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

// Kill ends the process as a crash does.
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

// Stop ends the process in good order and returns its exit code.
func (p *Process) Stop() int {
	p.t.Helper()
	p.Signal(syscall.SIGTERM)
	return p.Wait()
}

// Logged is all that the process has written.
func (p *Process) Logged() string {
	text, _ := os.ReadFile(p.log)
	return string(text)
}

// Holds waits until a condition outside this process holds; false if the
// process ended, or patience did.
func (p *Process) Holds(condition func() bool) bool {
	deadline := time.After(Patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-p.exited:
			return condition()
		case <-deadline:
			return false
		}
	}
	return true
}

// Await waits until a condition outside this process holds, and fails the test
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
