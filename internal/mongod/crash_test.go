package mongod_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

func TestKilledMongodComesBackAtTheSameURI(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	log := &logged{}
	server := startServer(t, mongod.Config{Registerer: registry, Logger: log.logger()})
	client := connect(t, server.URI())
	put(t, client, "before")
	requireMetrics(t, registry, 1, 0)
	uri, pid := server.URI(), server.Pid()

	began := time.Now()
	require.NoError(t, server.Kill())
	eventually(t, func() bool { return server.Restarts() == 1 }, "mongod was not started again")
	t.Logf("killed to writable: %v", time.Since(began))
	assert.True(t, server.Running())
	assert.Equal(t, uri, server.URI())
	assert.NotEqual(t, pid, server.Pid())
	put(t, client, "after")
	requireKept(t, client, "before", "after")
	requireMetrics(t, registry, 1, 1)
	assert.Contains(t, log.String(), "mongod died")
	assert.Contains(t, log.String(), "signal: killed")

	closeServer(t, server)
	left, err := testutil.GatherAndCount(registry)
	require.NoError(t, err)
	require.Zero(t, left, "metrics outlive their server")
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

func TestFailedRestartIsExplainedAndTriedAgain(t *testing.T) {
	t.Parallel()
	path := binary(t).Path
	bin := filepath.Join(t.TempDir(), "mongod")
	works := `exec "` + path + `" "$@"`
	script(t, bin, works)
	log := &logged{}
	server := startServer(t, mongod.Config{Bin: bin, Logger: log.logger()})
	client := connect(t, server.URI())
	put(t, client, "a")

	script(t, bin, `echo "the disk is on fire" >&2`, `exit 3`)
	require.NoError(t, server.Kill())
	eventually(t, func() bool { return strings.Contains(log.String(), "the disk is on fire") }, "the reason was not logged")
	assert.Contains(t, log.String(), "exit status 3")
	assert.False(t, server.Running())
	script(t, bin, works)
	eventually(t, server.Running, "mongod was not started again")
	requireKept(t, client, "a")
}

func TestCloseWhileMongodIsDownLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := startServer(t, mongod.Config{DataDir: dir})
	pid := server.Pid()
	require.NoError(t, server.Kill())
	closeServer(t, server)
	require.False(t, isMongodOn(pid, dir))
	require.True(t, startServer(t, mongod.Config{DataDir: dir}).Running())
}

func TestMongodLeftByAKilledDaemonIsEnded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	binary(t)
	daemon := startHolder(t, dir)
	daemon.kill(t)
	left := daemon.mongod
	require.True(t, isMongodOn(left, dir), "the test needs a mongod that outlives its daemon")
	put(t, connect(t, daemon.uri), "before")

	log := &logged{}
	server := startServer(t, mongod.Config{DataDir: dir, Logger: log.logger()})
	require.False(t, isMongodOn(left, dir))
	require.Contains(t, log.String(), fmt.Sprintf("pid=%d", left))
	require.Equal(t, daemon.uri, server.URI())
	client := connect(t, server.URI())
	put(t, client, "after")
	requireKept(t, client, "before", "after")
}

func TestStoppedLeftOverIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	binary(t)
	daemon := startHolder(t, dir)
	put(t, connect(t, daemon.uri), "before")
	daemon.kill(t)
	left := daemon.mongod
	// The memory is lost too: mongod's own lock file names it.
	require.NoError(t, os.Remove(filepath.Join(dir, "mongod", "brim.json")))
	signal(t, left, "STOP")

	server := startServer(t, mongod.Config{DataDir: dir, StopTimeout: 3 * time.Second})
	require.False(t, isMongodOn(left, dir))
	requireKept(t, connect(t, server.URI()), "before")
}

func signal(t *testing.T, pid int, name string) {
	t.Helper()
	require.NoError(t, exec.Command("kill", "-"+name, fmt.Sprint(pid)).Run())
}

func TestSecondDaemonIsRefusedAndMongodDiesWithTheFirstWhenAsked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	binary(t)
	daemon := startHolder(t, dir, holderDiesEnv+"=1")
	_, err := mongod.Start(t.Context(), mongodtest.Defaults(mongod.Config{DataDir: dir}))
	require.ErrorContains(t, err, fmt.Sprintf("process %d is running on it", daemon.Process.Pid))
	require.True(t, isMongodOn(daemon.mongod, dir), "the first daemon's mongod was touched")

	daemon.kill(t)
	eventually(t, func() bool { return !isMongodOn(daemon.mongod, dir) }, "mongod outlived its parent")
}

func TestForeignMongodOnTheFilesIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := filepath.Join(dir, "mongod", "db")
	require.NoError(t, os.MkdirAll(db, 0o700))
	foreign := exec.Command(binary(t).Path, "--dbpath", db, "--port", fmt.Sprint(mongodtest.FreePort(t)), "--bind_ip", "127.0.0.1",
		"--nounixsocket", "--wiredTigerCacheSizeGB", "0.25")
	require.NoError(t, foreign.Start())
	t.Cleanup(func() {
		_ = foreign.Process.Kill()
		_ = foreign.Wait()
	})
	eventually(t, func() bool {
		pid, err := os.ReadFile(filepath.Join(db, "mongod.lock"))
		return err == nil && strings.TrimSpace(string(pid)) == fmt.Sprint(foreign.Process.Pid)
	}, "the foreign mongod did not take the files")

	_, err := mongod.Start(t.Context(), mongodtest.Defaults(mongod.Config{DataDir: dir}))
	require.ErrorContains(t, err, fmt.Sprintf("process %d has its files open", foreign.Process.Pid))
	require.True(t, isMongodOn(foreign.Process.Pid, dir), "a foreign process was ended")
}

func TestForeignProcessWithARememberedPidIsLeftAlone(t *testing.T) {
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

	require.True(t, startServer(t, mongod.Config{DataDir: dir}).Running())
	select {
	case <-ended:
		require.Fail(t, "a foreign process was ended")
	default:
	}
}
