package main

import (
	"bytes"
	"flag"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

func TestMain(m *testing.M) {
	if panels := os.Getenv(panelUsersMode); panels != "" {
		usePanels(panels)
		return
	}
	// Daemons would inherit signals ignored here (nohup, or a shell's &).
	unheard := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			signal.Notify(unheard, s)
		}
	}
	// Tests mostly wait for daemons and mongods to start and stop.
	if flag.Parse(); flag.Lookup("test.parallel").Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0))) // a valid number
	}
	code := mongodtest.Run(m)
	binary.Remove()
	os.Exit(code)
}

// outcome is the result of a command.
type outcome struct {
	stdout, stderr string
	err            error
	code           int
}

// runBrim carries out one command in this process.
func runBrim(t testing.TB, env []string, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	err := run(t.Context(), args, env, strings.NewReader(""), &stdout, &stderr)
	return outcome{stdout: stdout.String(), stderr: stderr.String(), err: err, code: exitCode(err)}
}

// loadSettings loads a configuration that must be valid.
func loadSettings(t *testing.T, s daemon.Sources) *daemon.Config {
	t.Helper()
	c, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}
