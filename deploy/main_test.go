package deploy_test

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

var (
	binary brimtest.Binary
	images imageSet
)

func TestMain(m *testing.M) {
	if err := setTestcontainers(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := mongodtest.Run(m)
	binary.Remove()
	images.Remove()
	os.Exit(code)
}

// start runs a program until the test ends.
func start(t testing.TB, path string, args ...string) *brimtest.Process {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = brimtest.Env("BRIM_MONGOD_BIN")
	return brimtest.Start(t, cmd, syscall.SIGKILL)
}
