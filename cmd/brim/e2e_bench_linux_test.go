package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// startBench runs `brim bench` as a separate process, with scratch data in the returned folder.
func startBench(t *testing.T, args ...string) (b *brimtest.Process, scratch string) {
	t.Helper()
	mongodtest.URI(t) // skips where there is none
	scratch = t.TempDir()
	cmd := exec.Command(brimBinary(t), append(append([]string{"bench"}, args...), "--scratch-dir", scratch)...)
	cmd.Env = foreignEnv()
	return brimtest.Start(t, cmd, syscall.SIGTERM), scratch
}

// processesIn returns the processes working in a folder, by program name.
func processesIn(t *testing.T, folder string) map[string]int {
	t.Helper()
	all, err := procfs.AllProcs()
	require.NoError(t, err)
	found := make(map[string]int)
	for _, p := range all {
		args, err := p.CmdLine()
		if err != nil || len(args) == 0 || slices.Contains(args, "bench") {
			continue // gone, or the one started here
		}
		if strings.Contains(strings.Join(args, " "), folder) {
			name, _, _ := strings.Cut(filepath.Base(args[0]), "-") // mongod-6.0.5
			found[name] = p.PID
		}
	}
	return found
}

// awaitFill starts an experiment that runs a mongod and a daemon, and returns once both are
// there.
func awaitFill(t *testing.T) (b *brimtest.Process, scratch string, pids map[string]int) {
	t.Helper()
	b, scratch = startBench(t, "fill", "--quick", "--cells", "1h-single")
	b.Await("mongod and daemon", func() bool {
		pids = processesIn(t, scratch)
		return pids["mongod"] != 0 && pids["brim"] != 0
	})
	return b, scratch, pids
}

func TestAnInterruptedBenchLeavesNothing(t *testing.T) {
	t.Parallel()
	b, scratch, _ := awaitFill(t)
	b.Signal(syscall.SIGINT)
	assert.Equal(t, exitFailed, b.Wait())
	assert.Empty(t, processesIn(t, scratch))
	left, err := os.ReadDir(scratch)
	require.NoError(t, err)
	assert.Empty(t, left)
	assert.Contains(t, b.Logged(), "stopping, and removing scratch data")
	assert.Contains(t, b.Logged(), "brim: fill: interrupted\n")
	assert.NotContains(t, b.Logged(), "Published and measured", "nothing was")
}

// TestBenchWithClosedPipeLeavesNothing interrupts `brim bench fill 2>&1 | tee log`: tee ends
// first.
func TestBenchWithClosedPipeLeavesNothing(t *testing.T) {
	t.Parallel()
	mongodtest.URI(t) // skips where there is none
	scratch := t.TempDir()
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	cmd := exec.Command(brimBinary(t), "bench", "fill", "--quick", "--cells", "1h-single", "--scratch-dir", scratch)
	cmd.Env, cmd.Stdout, cmd.Stderr = foreignEnv(), writer, writer
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // fails if it has ended
	require.NoError(t, writer.Close())
	_, err = reader.Read(make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	require.Eventually(t, func() bool { return processesIn(t, scratch)["mongod"] != 0 }, patience, 50*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.Error(t, cmd.Wait())
	assert.Empty(t, processesIn(t, scratch))
	left, err := os.ReadDir(scratch)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestSecondSignalEndsBenchAtOnce although a hanging mongod would delay the first.
func TestSecondSignalEndsBenchAtOnce(t *testing.T) {
	t.Parallel()
	b, scratch, pids := awaitFill(t)
	require.NoError(t, syscall.Kill(pids["mongod"], syscall.SIGSTOP))
	b.Signal(syscall.SIGTERM)
	b.Await("first signal", func() bool { return strings.Contains(b.Logged(), "removing scratch data") })
	b.Signal(syscall.SIGINT)
	begin := time.Now()
	assert.Equal(t, exitFailed, b.Wait())
	assert.Less(t, time.Since(begin), 28*time.Second, "the first signal gives mongod and the daemon 30 s each")
	assert.Contains(t, b.Logged(), "stopping at once")
	assert.Empty(t, processesIn(t, scratch))
	left, err := os.ReadDir(scratch)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestKilledBenchLeavesNoProcess(t *testing.T) {
	t.Parallel()
	b, scratch, _ := awaitFill(t)
	b.Kill()
	require.Eventually(t, func() bool { return len(processesIn(t, scratch)) == 0 }, patience, 50*time.Millisecond)
}

func TestAnInterruptedBenchLeavesNoDatabase(t *testing.T) {
	t.Parallel()
	client := mongodtest.Database(t).Client()
	b, _ := startBench(t, "timeseries", "--quick", "--cells", "load", "--mongo-uri", mongodtest.URI(t))
	var name string
	databases := func() []string {
		names, err := client.ListDatabaseNames(t.Context(), bson.D{{Key: "name", Value: name}})
		require.NoError(t, err)
		return names
	}
	b.Await("scratch database", func() bool {
		if shown := regexp.MustCompile(`scratch database (\S+) in `).FindStringSubmatch(b.Logged()); shown != nil {
			name = shown[1]
		}
		return name != "" && len(databases()) > 0
	})
	b.Signal(syscall.SIGTERM)
	assert.Equal(t, exitFailed, b.Wait())
	assert.Empty(t, databases())
}
