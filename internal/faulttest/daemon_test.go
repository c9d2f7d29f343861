package faulttest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// patience is how long a test waits for another process on a busy machine.
const patience = 60 * time.Second

// binary is the daemon under test, with crash points. In the short form it has the race
// detector if the tests do; in the full form it runs at production speed.
var binary = brimtest.Binary{Tags: "fault", Plain: full()}

// daemon is `brim serve` with its own ports and directories, which survive
// restarts.
type daemon struct {
	HTTP, Admin string // http://host:port
	GRPC        string // host:port
	Dir         string // data directory, with the journal in it
	Token       string // for the admin listener; empty: none

	// Crash is the point, from internal/crash, at which the next process ends; empty: none.
	Crash string

	t      testing.TB
	flags  []string
	log    string // file
	cmd    *exec.Cmd
	exited <-chan struct{} // closed when the process has ended
}

// eager writes everything that accumulated in each flush interval, whatever the
// cost to MongoDB: faults hit updates, so there must be many.
var eager = []string{"--flush-budget", "10000%"}

// policies merge readings as little as possible, by default, and until there are five or
// they are 2 s old.
var policies = [][]string{eager, {"--flush-budget", "2%"}, {"--flush-budget", "0%", "--flush-max", "2s", "--merge-readings", "5"}}

// newDaemon prepares a daemon; flags are added to those that every test needs.
func newDaemon(t testing.TB, flags ...string) *daemon {
	t.Helper()
	address := func() string { return "127.0.0.1:" + strconv.Itoa(mongodtest.FreePort(t)) }
	data, grpc, admin := address(), address(), address()
	d := &daemon{t: t, HTTP: "http://" + data, Admin: "http://" + admin, GRPC: grpc, Dir: t.TempDir()}
	d.log = filepath.Join(d.Dir, "brim.log")
	d.flags = slices.Concat([]string{
		"serve", "--http-addr", data, "--grpc-addr", grpc, "--admin-addr", admin,
		"--data-dir", d.Dir, "--journal-dir", d.journal(), "--log-format", "json", "--granularity", "1m",
	}, eager, flags)
	t.Cleanup(d.cleanUp)
	return d
}

func (d *daemon) journal() string { return filepath.Join(d.Dir, "journal") }

// start starts the process and returns at once. Its flags override earlier
// ones.
func (d *daemon) start(more ...string) *daemon {
	d.t.Helper()
	require.True(d.t, d.ended(), "the daemon runs already")
	out, err := os.OpenFile(d.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(d.t, err)
	defer out.Close()
	cmd := exec.Command(binary.Path(d.t), append(d.flags[:len(d.flags):len(d.flags)], more...)...)
	cmd.Env = append(brimtest.Env(), "BRIM_CRASH="+d.Crash)
	cmd.Dir, cmd.Stdout, cmd.Stderr = d.Dir, out, out
	d.cmd, d.exited = cmd, brimtest.Launch(d.t, cmd, syscall.SIGKILL).Exited()
	return d
}

// ready waits until the daemon accepts readings.
func (d *daemon) ready() *daemon {
	d.t.Helper()
	reason := d.awaitReady()
	require.Empty(d.t, reason, "brim does not get ready")
	return d
}

// awaitReady waits until the daemon accepts readings, or returns why it does not.
func (d *daemon) awaitReady() (reason string) {
	reason = "it does not answer"
	ready := d.await(func() bool {
		code, body, err := d.ask(http.MethodGet, "/readyz")
		if err == nil {
			reason = body
		}
		return err == nil && code == http.StatusOK
	})
	if ready {
		return ""
	}
	return reason
}

// await waits for a condition; false if the daemon ended, or the wait timed
// out.
func (d *daemon) await(condition func() bool) bool {
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-d.exited:
			return condition()
		case <-deadline:
			return false
		}
	}
	return true
}

// ended reports whether no process runs.
func (d *daemon) ended() bool {
	if d.exited == nil {
		return true
	}
	select {
	case <-d.exited:
		return true
	default:
		return false
	}
}

// kill ends the daemon like a crash.
func (d *daemon) kill() {
	if !d.ended() {
		_ = d.cmd.Process.Kill()
		<-d.exited
	}
}

// stop shuts it down.
func (d *daemon) stop() {
	d.t.Helper()
	if d.ended() {
		return
	}
	require.NoError(d.t, d.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-d.exited:
	case <-time.After(patience):
		require.FailNow(d.t, "brim does not stop", d.lastWords())
	}
}

// drained reports whether the daemon is ready and has stored everything.
func (d *daemon) drained() bool {
	code, _, err := d.ask(http.MethodGet, "/readyz")
	return err == nil && code == http.StatusOK && d.flush(time.Second) == nil
}

// flush waits until all accepted readings are stored.
func (d *daemon) flush(timeout time.Duration) error {
	code, body, err := d.askFor(timeout+patience, http.MethodPost, "/flush?timeout="+timeout.String())
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("flush: %d %s", code, body)
	}
	return err
}

// ask sends a request to the admin listener.
func (d *daemon) ask(method, path string) (code int, body string, err error) {
	return d.askFor(patience, method, path)
}

func (d *daemon) askFor(timeout time.Duration, method, path string) (code int, body string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, d.Admin+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	if d.Token != "" {
		req.Header.Set("Authorization", "Bearer "+d.Token)
	}
	return brimtest.CarryOut(req)
}

// metric returns a counter or gauge, all of its label sets added up; 0 where
// the daemon does not answer.
func (d *daemon) metric(name string) float64 {
	code, body, err := d.ask(http.MethodGet, "/metrics")
	if err != nil || code != http.StatusOK {
		return 0
	}
	sum := 0.0
	for line := range strings.Lines(body) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if family, _, _ := strings.Cut(series, "{"); family == name {
			v, err := strconv.ParseFloat(value[strings.LastIndexByte(value, ' ')+1:], 64)
			require.NoError(d.t, err)
			sum += v
		}
	}
	return sum
}

// rss returns the resident memory in bytes.
func (d *daemon) rss() int64 {
	d.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", d.cmd.Process.Pid))
	require.NoError(d.t, err)
	var size, resident int64
	_, err = fmt.Sscan(string(text), &size, &resident)
	require.NoError(d.t, err)
	return resident * int64(os.Getpagesize())
}

// highestRSS returns the daemon's peak resident memory in bytes.
func (d *daemon) highestRSS() int64 {
	d.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	require.NoError(d.t, err)
	_, line, found := strings.Cut(string(text), "VmHWM:")
	require.True(d.t, found)
	var kib int64
	_, err = fmt.Sscan(line, &kib)
	require.NoError(d.t, err)
	return kib << 10
}

// processorTime returns a process's CPU time in seconds; process is a pid or
// "self", or empty for the daemon.
func (d *daemon) processorTime(process string) float64 {
	d.t.Helper()
	if process == "" {
		process = strconv.Itoa(d.cmd.Process.Pid)
	}
	text, err := os.ReadFile("/proc/" + process + "/stat")
	require.NoError(d.t, err)
	_, rest, _ := strings.Cut(string(text), ") ") // the name before it may contain anything
	fields := strings.Fields(rest)
	require.Greater(d.t, len(fields), 12)
	ticks := 0
	for _, field := range fields[11:13] { // user mode and kernel
		n, err := strconv.Atoi(field)
		require.NoError(d.t, err)
		ticks += n
	}
	return float64(ticks) / 100
}

// lastWords returns the end of the log.
func (d *daemon) lastWords() string {
	text, err := os.ReadFile(d.log)
	if errors.Is(err, os.ErrNotExist) {
		return "(no log)"
	}
	const most = 4 << 10
	return string(text[max(0, len(text)-most):])
}

func (d *daemon) cleanUp() {
	d.kill()
	text, _ := os.ReadFile(d.log)
	if bytes.Contains(text, []byte("WARNING: DATA RACE")) {
		d.t.Errorf("a data race in brim:\n%s", text)
	}
	if d.t.Failed() {
		d.t.Logf("the end of brim's log:\n%s", d.lastWords())
	}
}
