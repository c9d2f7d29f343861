package brimtest_test

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/brim-telemetry/brim/internal/brimtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestProcessIsAwaitedAndStopped(t *testing.T) {
	t.Parallel()
	p := brimtest.Start(t, exec.Command("sh", "-c", `trap 'exit 3' TERM; echo 'no JSON'; echo '{"msg":"ready","n":7}' >&2; while :; do sleep 0.1; done`), syscall.SIGKILL)
	assert.InDelta(t, 7, p.AwaitLog("ready")["n"], 0)
	assert.Contains(t, p.Logged(), "no JSON")
	assert.False(t, p.Ended())
	assert.Equal(t, 3, p.Stop())
	assert.True(t, p.Ended())
	assert.False(t, p.Holds(func() bool { return false }), "it has ended")
}

func TestKilledProcessHasNoExitCode(t *testing.T) {
	t.Parallel()
	p := brimtest.Start(t, exec.Command("sleep", "600"), syscall.SIGKILL)
	p.Kill()
	p.Kill()
	assert.Equal(t, -1, p.Wait())
}

func TestEnvHasNoSettingsOfBrim(t *testing.T) {
	t.Setenv("BRIM_HTTP_ADDR", "nowhere")
	t.Setenv("BRIM_MONGOD_BIN", "/bin/mongod")
	assert.NotContains(t, brimtest.Env(), "BRIM_MONGOD_BIN=/bin/mongod")
	assert.NotContains(t, brimtest.Env("BRIM_MONGOD_BIN"), "BRIM_HTTP_ADDR=nowhere")
	assert.Contains(t, brimtest.Env("BRIM_MONGOD_BIN"), "BRIM_MONGOD_BIN=/bin/mongod")
}
