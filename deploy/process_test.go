package deploy_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is how long a test waits for another process on a busy machine.
const patience = 90 * time.Second

// binary is brim, built when the first test asks.
var binary struct {
	once sync.Once
	dir  string
	err  error
}

func brimBinary(t testing.TB) string {
	t.Helper()
	binary.once.Do(func() {
		if binary.dir, binary.err = os.MkdirTemp("", "brim-deploy-"); binary.err != nil {
			return
		}
		args := []string{"build", "-o", filepath.Join(binary.dir, "brim")}
		if raceEnabled {
			args = append(args, "-race") // as the other tests that run it, so that it is compiled once
		}
		out, err := exec.Command("go", append(args, "github.com/brim-telemetry/brim/cmd/brim")...).CombinedOutput()
		if err != nil {
			binary.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	require.NoError(t, binary.err)
	return filepath.Join(binary.dir, "brim")
}

// A process is a program under way. It is ended with the test.
type process struct {
	t      testing.TB
	name   string
	log    string // file
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended
}

func start(t testing.TB, path string, args ...string) *process {
	t.Helper()
	dir := t.TempDir()
	p := &process{t: t, name: filepath.Base(path) + " " + args[0], log: filepath.Join(dir, "log"), exited: make(chan struct{})}
	out, err := os.Create(p.log)
	require.NoError(t, err)
	defer out.Close()
	p.cmd = exec.Command(path, args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, out, out
	p.cmd.SysProcAttr = endsWithTest()
	// Without settings of a daemon, except where a mongod is.
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(pair string) bool {
		return strings.HasPrefix(pair, "BRIM_") && !strings.HasPrefix(pair, "BRIM_MONGOD_BIN=")
	})
	started := make(chan error)
	go func() {
		// The signal at the parent's death comes when the thread ends that
		// started the child, so that thread is kept for as long.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // how it ended is for those who ended it
			close(p.exited)
		}
	}()
	require.NoError(t, <-started)
	t.Cleanup(p.cleanUp)
	return p
}

func (p *process) cleanUp() {
	if !p.ended() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.exited:
		case <-time.After(patience):
			p.t.Errorf("%s does not stop", p.name)
			_ = p.cmd.Process.Kill()
			<-p.exited
		}
	}
	if log := p.logged(); p.t.Failed() || strings.Contains(log, "WARNING: DATA RACE") {
		p.t.Errorf("log of %s:\n%s", p.name, log[max(0, len(log)-8<<10):])
	}
}

func (p *process) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

func (p *process) logged() string {
	text, _ := os.ReadFile(p.log)
	return string(text)
}

// await waits for a condition outside this process, and fails when the process
// ends meanwhile.
func (p *process) await(what string, condition func() bool) {
	p.t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-p.exited:
			require.FailNow(p.t, p.name+" ended while the test waited for "+what)
		case <-deadline:
			require.FailNow(p.t, "no "+what+" from "+p.name)
		}
	}
}

// awaitLog returns the first line of a log of JSON with this message.
func (p *process) awaitLog(message string) (entry map[string]any) {
	p.t.Helper()
	p.await("log line "+message, func() bool {
		for line := range strings.Lines(p.logged()) {
			entry = nil
			if json.Unmarshal([]byte(line), &entry) == nil && entry["msg"] == message {
				return true
			}
		}
		return false
	})
	return entry
}
