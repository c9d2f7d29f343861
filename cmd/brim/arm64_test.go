package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
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
	program := filepath.Join(t.TempDir(), "brim")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=arm64")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.CommandContext(t.Context(), emulator, program, "version").CombinedOutput()
	require.NoError(t, err)
	assert.Contains(t, string(out), "linux/arm64")

	b := serve(t, exec.Command(emulator, program), "--storage", "memory", "--data-dir", t.TempDir()).awaitReady()
	_, answer := b.post("/v1/readings", `{"sensorId":"s-1","ts":"2026-11-21T10:00:00Z","fields":{"t":23.5}}`)
	assert.Contains(t, answer, `"accepted":1`)
	_, answer, err = brimtest.Ask(http.MethodGet, "http://"+b.HTTP+"/v1/sensors/s-1/readings?from=2026-11-21T00:00:00Z", "")
	require.NoError(t, err)
	assert.Contains(t, answer, `"ts":"2026-11-21T10:00:00.000Z","fields":{"t":23.5}`)
	assert.Zero(t, b.stop())
}
