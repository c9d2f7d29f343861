package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The arm64 build takes and gives back a reading under emulation. Compiling all
// of it takes minutes, so it is done where it is asked for.
func TestTheARM64ProgramServes(t *testing.T) {
	t.Parallel()
	if os.Getenv("BRIM_TEST_ARM64") == "" {
		t.Skip("NOT RUN: the arm64 program under emulation; BRIM_TEST_ARM64=1 asks for it")
	}
	emulator, err := exec.LookPath("qemu-aarch64-static")
	require.NoError(t, err, "Debian: apt-get install qemu-user-static")
	dir := t.TempDir()
	r := stamped(t)
	program, err := r.build(t.Context(), "linux/arm64")
	require.NoError(t, err)
	said, err := output(exec.CommandContext(t.Context(), emulator, program, "version"))
	require.NoError(t, err)
	assert.Contains(t, said, "brim v1.2.3-try 4f0c2aa 2026-11-21T10:00:00Z (go1.")
	assert.Contains(t, said, "linux/arm64")

	cmd := exec.CommandContext(t.Context(), emulator, program, "serve", "--storage", "memory", "--data-dir", filepath.Join(dir, "data"),
		"--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	address, ready := "", false
	lines := bufio.NewScanner(stderr)
	for !ready && lines.Scan() {
		if found := regexp.MustCompile(`http=(\S+)`).FindStringSubmatch(lines.Text()); found != nil {
			address = "http://" + found[1]
		}
		ready = strings.Contains(lines.Text(), "msg=ready")
	}
	require.True(t, ready, "it ended before it was ready")
	answer := call(t, http.MethodPost, address+"/v1/readings", `{"sensorId":"s-1","ts":"2026-11-21T10:00:00Z","fields":{"t":23.5}}`)
	assert.Contains(t, answer, `"accepted":1`)
	answer = call(t, http.MethodGet, address+"/v1/sensors/s-1/readings?from=2026-11-21T00:00:00Z", "")
	assert.Contains(t, answer, `"ts":"2026-11-21T10:00:00.000Z","fields":{"t":23.5}`)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_, _ = io.Copy(io.Discard, stderr)
	assert.NoError(t, cmd.Wait())
}

// call returns the body of an answer.
func call(t *testing.T, method, url, body string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return string(text)
}
