package mongod_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestDataSurvivesEveryShutdown ends mongod and its daemon in every way, one after the
// other, with the same data.
func TestDataSurvivesEveryShutdown(t *testing.T) {
	t.Parallel()
	mongodtest.Native(t, "it is ended by signals, and locks its files")
	dir := t.TempDir()
	binary(t)
	start := func(config mongod.Config) *mongod.Server {
		config.DataDir = dir
		return startServer(t, config)
	}

	// While both run, the data directory is locked. A killed daemon leaves its mongod behind.
	daemon := startDaemon(t, dir)
	_, err := mongod.Start(t.Context(), mongodtest.Defaults(mongod.Config{DataDir: dir}))
	require.ErrorContains(t, err, fmt.Sprintf("process %d is running on it", daemon.Process.Pid))
	daemon.kill(t)
	require.True(t, isMongodOn(daemon.mongod, dir), "its mongod was stopped")
	put(t, connect(t, daemon.uri), "a")

	// The next daemon stops that mongod. It is closed with no time left.
	var log logged
	server := start(mongod.Config{Logger: log.logger()})
	require.False(t, isMongodOn(daemon.mongod, dir))
	require.Contains(t, log.String(), fmt.Sprintf("pid=%d", daemon.mongod))
	require.Equal(t, daemon.uri, server.URI())
	require.Regexp(t, `^\d+\.\d+\.\d+`, server.Version())
	put(t, connect(t, server.URI()), "b")
	pid := server.Pid()
	noTime, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, server.Close(noTime), context.Canceled)
	require.False(t, isMongodOn(pid, dir))

	// The port is in use, so another is chosen. The remaining mongod does not respond, and
	// only its own lock file has its pid.
	occupy(t, portOf(t, server.URI()))
	daemon = startDaemon(t, dir)
	require.NotEqual(t, portOf(t, server.URI()), portOf(t, daemon.uri))
	put(t, connect(t, daemon.uri), "c")
	daemon.kill(t)
	require.NoError(t, os.Remove(filepath.Join(dir, "mongod", "brim.json")))
	require.NoError(t, exec.Command("kill", "-STOP", fmt.Sprint(daemon.mongod)).Run())
	server = start(mongod.Config{StopTimeout: 500 * time.Millisecond})
	require.False(t, isMongodOn(daemon.mongod, dir))
	requireStored(t, connect(t, server.URI()), "a", "b", "c")

	// A server is closed while its mongod is down.
	pid = server.Pid()
	require.NoError(t, server.Kill())
	if err := server.Close(t.Context()); !errors.Is(err, context.DeadlineExceeded) { // it may have been restarted and has little time to stop
		require.NoError(t, err)
	}
	require.False(t, isMongodOn(pid, dir))
	require.Zero(t, server.Pid())

	// The URI also stays the same after a clean stop.
	uri := server.URI()
	server = start(mongod.Config{})
	require.True(t, server.Running())
	require.Equal(t, uri, server.URI())
	requireStored(t, connect(t, server.URI()), "a", "b", "c")
	closeServer(t, server)
	require.NoError(t, server.Close(t.Context()), "again")

	// Damaged data is reported with mongod's message.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mongod", "db", "WiredTiger.turtle"), []byte("not a turtle"), 0o600))
	_, err = mongod.Start(t.Context(), mongodtest.Defaults(mongod.Config{DataDir: dir}))
	require.ErrorContains(t, err, "WiredTiger.turtle: fatal turtle file read error")
	require.ErrorContains(t, err, filepath.Join(dir, "mongod", "mongod.log"))
}

// TestDeadMongodIsRestarted at the same URI, once it can start. Its first port is in
// use: another program may bind it between Brim's check and mongod's.
func TestDeadMongodIsRestarted(t *testing.T) {
	t.Parallel()
	bin, mark := filepath.Join(t.TempDir(), "mongod"), filepath.Join(t.TempDir(), "mark")
	works := `exec "` + binary(t).Path + `" "$@"`
	listener := `{"s":"E","msg":"Error setting up listener","attr":{"error":{"errmsg":"Address already in use"}}}`
	script(t, bin, `case "$*" in *--version*) ;; *) [ -e `+mark+` ] || { touch `+mark+`; echo '`+listener+`'; exit 48; };; esac`, works)
	registry, log := prometheus.NewPedanticRegistry(), &logged{}
	server := startServer(t, mongod.Config{Bin: bin, Logger: log.logger(), Registerer: registry})
	taken := regexp.MustCompile(`drawing another" port=(\d+)`).FindStringSubmatch(log.String())
	require.NotNil(t, taken, log)
	require.NotContains(t, server.URI(), ":"+taken[1]+"/")
	client := connect(t, server.URI())
	put(t, client, "before")
	requireMetrics(t, registry, 1, 0)

	uri, pid := server.URI(), server.Pid()
	script(t, bin, `echo "the disk is on fire" >&2`, `exit 3`)
	require.NoError(t, server.Kill())
	eventually(t, func() bool { return strings.Contains(log.String(), "the disk is on fire") }, "the reason was not logged")
	assert.Contains(t, log.String(), "mongod died")
	assert.Contains(t, log.String(), "signal: killed")
	assert.Contains(t, log.String(), "exit status 3")
	assert.False(t, server.Running())
	script(t, bin, works)
	eventually(t, func() bool { return strings.Contains(log.String(), "accepts writes again") }, "mongod was not restarted")
	assert.True(t, server.Running())
	assert.Equal(t, 1, server.Restarts())
	assert.Equal(t, uri, server.URI())
	assert.NotEqual(t, pid, server.Pid())
	put(t, client, "after")
	requireStored(t, client, "before", "after")
	requireMetrics(t, registry, 1, 1)

	closeServer(t, server)
	left, err := testutil.GatherAndCount(registry)
	require.NoError(t, err)
	require.Zero(t, left, "metrics outlived their server")
}

func requireMetrics(t *testing.T, registry *prometheus.Registry, running, restarts int) {
	t.Helper()
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	require.Empty(t, problems)
	want := fmt.Sprintf(`
# HELP brim_mongod_restarts_total How often the embedded mongod died and was restarted.
# TYPE brim_mongod_restarts_total counter
brim_mongod_restarts_total %d
# HELP brim_mongod_running Whether the embedded mongod accepts writes (1), or is down or starting (0).
# TYPE brim_mongod_running gauge
brim_mongod_running %d
`, restarts, running)
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(want)))
}

func TestChildDiesWithItsParent(t *testing.T) {
	t.Parallel()
	parent := startSelf(t, parentEnv+"="+filepath.Join(t.TempDir(), "out"))
	var child int
	_, err := fmt.Fscanf(parent.output, "pid %d\n", &child)
	require.NoError(t, err)
	exists := func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
		return err == nil && strings.HasPrefix(string(text), "sleep")
	}
	eventually(t, exists, "the child did not start") // its arguments appear with a delay
	parent.kill(t)
	eventually(t, func() bool { return !exists() }, "the child outlived its parent")
}

// TestForeignMongodOnTheFilesIsLeftAlone: the shared mongod uses the same files
// under another path.
func TestForeignMongodOnTheFilesIsLeftAlone(t *testing.T) {
	t.Parallel()
	mongodtest.Native(t, "its lock file has its pid")
	foreign, dir := mongodtest.Shared(t), t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "mongod"), 0o700))
	require.NoError(t, os.Symlink(foreign.DBPath(), filepath.Join(dir, "mongod", "db")))
	pid := foreign.Pid()
	_, err := mongod.Start(t.Context(), mongodtest.Defaults(mongod.Config{DataDir: dir}))
	require.ErrorContains(t, err, fmt.Sprintf("process %d has its files open", pid))
	require.Equal(t, pid, foreign.Pid(), "a foreign process was killed")
}

func TestForeignProcessWithRecordedPidIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	foreign := exec.Command("sleep", "1000")
	require.NoError(t, foreign.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = foreign.Wait()
	}()
	t.Cleanup(func() {
		_ = foreign.Process.Kill()
		<-ended
	})
	memory := fmt.Sprintf(`{"port":0,"pid":%d}`, foreign.Process.Pid)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "mongod"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mongod", "brim.json"), []byte(memory), 0o600))

	bin := filepath.Join(t.TempDir(), "mongod")
	script(t, bin, answersVersion, `exit 3`)
	_, err := mongod.Start(t.Context(), mongodtest.Defaults(mongod.Config{DataDir: dir, Bin: bin}))
	require.ErrorContains(t, err, "exit status 3", "no other process blocked it")
	select {
	case <-ended:
		require.Fail(t, "a foreign process was killed")
	default:
	}
}
