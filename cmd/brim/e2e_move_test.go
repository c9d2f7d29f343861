package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// TestMove changes a stream's storage and merges its collections into one.
// internal/store/generation has the tests of what `brim move` does.
func TestMove(t *testing.T) {
	t.Parallel()
	db := mongodtest.Database(t)
	site := onShared(t, db)
	mongo := site[:4]
	a := startBrim(t, site...).awaitStorage()
	code, answer := a.post("/v1/readings", `[{"sensorId":"a","ts":1795000000000,"fields":{"n":1}},{"sensorId":"b","ts":1795000000000,"fields":{"n":2}}]`)
	require.Equal(t, http.StatusOK, code, answer)
	move := func(more ...string) outcome {
		return runBrim(t, nil, append(append([]string{"move", "readings", "--admin", "127.0.0.1:1"}, mongo...), more...)...)
	}
	got := move()
	require.NoError(t, got.err)
	assert.Equal(t, "stream readings has one collection: there is nothing to move\n", got.stdout)
	require.Zero(t, a.Stop())

	other := startBrim(t, append(onShared(t, db), "--compressor", "zstd")...).awaitStorage()
	startMove(t, mongo, "waiting until all daemons know")()
	got = runBrim(t, nil, "move", "readings", "--admin", other.Admin, "--output", "json")
	require.NoError(t, got.err, got.stderr)
	var result moveResult
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &result), got.stdout)
	require.Len(t, result.Moved, 1)
	assert.Equal(t, []any{"readings", "readings.g2", int64(2)}, []any{result.Moved[0].Collection, result.Moved[0].Into, result.Moved[0].Readings})
	names, err := db.ListCollectionNames(t.Context(), map[string]any{"name": map[string]any{"$in": []string{"readings", "readings.g2"}}})
	require.NoError(t, err)
	assert.Equal(t, []string{"readings.g2"}, names)
	query := runBrim(t, nil, "query", "--url", "http://"+other.HTTP, "--from", "2026-01-01", "--output", "ndjson", "b")
	require.NoError(t, query.err)
	assert.JSONEq(t, `{"sensorId":"b","ts":"2026-11-18T11:06:40.000Z","fields":{"n":2}}`, query.stdout)

	got = move("--abandon", "nobody:/journal")
	assert.ErrorContains(t, got.err, `no daemon "nobody:/journal" has readings for stream "readings"`)
	var usage config.UsageError
	for _, wrong := range [][]string{{"--stream", "readings"}, {"--share", "0.5%"}, {"--share", "101%"}, {"more"}} {
		assert.ErrorAs(t, move(wrong...).err, &usage, wrong)
	}
	got = runBrim(t, nil, append([]string{"move", "none", "--admin", "127.0.0.1:1"}, mongo...)...)
	assert.ErrorContains(t, got.err, `STREAM: there is no stream "none"`)
}

// startMove starts a move, and returns once its progress shows a text. The move must not end
// before end interrupts it.
func startMove(t testing.TB, mongo []string, progress string) (end func()) {
	t.Helper()
	cmd := exec.Command(brimBinary(t), append([]string{"move", "readings", "--admin", "127.0.0.1:1"}, mongo...)...)
	cmd.Env = foreignEnv()
	out, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), progress) {
		t.Log(lines.Text())
	}
	assert.Contains(t, lines.Text(), progress)
	return func() {
		last := make(chan string)
		go func() {
			text := ""
			for lines.Scan() {
				text = lines.Text()
			}
			last <- text
		}()
		assert.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		assert.Equal(t, "brim: move stream readings: interrupted", <-last)
		require.Error(t, cmd.Wait())
	}
}
