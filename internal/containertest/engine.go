// Package containertest gives tests a container engine and images that are made
// on this machine, since no registry may be in reach: Brim's own, one of
// MongoDB, one of Prometheus. On a machine without an engine the tests are
// skipped, and say so; with BRIM_REQUIRE_DOCKER=1 they fail. The engine is the one
// that `docker` finds (DOCKER_HOST); tools/docker/engine starts one.
package containertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// askTimeout is for an engine that answers at once or not at all.
	askTimeout = 20 * time.Second
	// workTimeout is for what reads and writes images, on a busy machine.
	workTimeout = 5 * time.Minute
)

// Require skips the test where no container engine answers.
func Require(t testing.TB) {
	t.Helper()
	_, err := command(t.Context(), askTimeout, "docker", "info", "--format", "{{.ServerVersion}}")
	if err == nil {
		return
	}
	if os.Getenv("BRIM_REQUIRE_DOCKER") == "1" {
		require.FailNow(t, "BRIM_REQUIRE_DOCKER is set and no container engine answers (tools/docker/engine starts one)", err.Error())
	}
	fmt.Fprintf(os.Stderr, "SKIP: no container engine for %s\n", t.Name())
	t.Skip("no container engine: ", err)
}

// command runs a program and returns what it prints. The error has what it says.
func command(ctx context.Context, patience time.Duration, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		said := ""
		if errors.As(err, &exit) {
			said = "\n" + strings.TrimSpace(string(exit.Stderr)+"\n"+string(out))
		}
		return "", fmt.Errorf("%s %s: %w%s", name, strings.Join(args, " "), err, said)
	}
	return strings.TrimSpace(string(out)), nil
}

// Run runs the tests of a package. Each of them removes its containers, for the
// container that would do it otherwise is an image that would have to be pulled.
func Run(m *testing.M) int {
	settings := map[string]string{"TESTCONTAINERS_RYUK_DISABLED": "true"}
	if engine := os.Getenv("DOCKER_HOST"); engine == "" || strings.HasPrefix(engine, "unix:") {
		// Ports are then this machine's. Who runs in a container himself is otherwise
		// sent to a gateway, and to a wrong one by an engine whose bridge is new.
		settings["TESTCONTAINERS_HOST_OVERRIDE"] = "127.0.0.1"
	}
	for name, value := range settings {
		if err := os.Setenv(name, value); err != nil {
			fmt.Fprintln(os.Stderr, "containertest: set a variable:", err)
			return 1
		}
	}
	return m.Run()
}
