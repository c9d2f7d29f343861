// Package examples_test runs the examples against a daemon.
package examples_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/brimtest"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
	"github.com/brim-telemetry/brim/pkg/client"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// binary is the daemon.
var binary brimtest.Binary

func TestMain(m *testing.M) {
	code := mongodtest.Run(m)
	binary.Remove()
	os.Exit(code)
}

// A daemon asks for a token.
type daemon struct {
	*brimtest.Process

	http, grpc, admin string // host:port
	dir, token        string
	storage           []string // flags
}

// startDaemon starts a daemon that keeps readings in memory.
func startDaemon(t *testing.T) *daemon {
	t.Helper()
	return startStoring(t, "--storage", "memory")
}

// startLasting starts a daemon whose readings are there when it was ended and
// started again.
func startLasting(t *testing.T) *daemon {
	t.Helper()
	db := mongodtest.Database(t)
	return startStoring(t, "--mongo-uri", mongodtest.URI(t), "--database", db.Name())
}

func startStoring(t *testing.T, storage ...string) *daemon {
	t.Helper()
	d := &daemon{dir: t.TempDir(), http: "127.0.0.1:0", grpc: "127.0.0.1:0", admin: "127.0.0.1:0", storage: storage}
	create := exec.Command(binary.Path(t), "token", "create", "examples", "--scope", "ingest", "--scope", "read", "--access-file", filepath.Join(d.dir, "access.yaml"))
	create.Env = brimtest.Env()
	out, err := create.Output()
	require.NoError(t, err)
	d.token = strings.TrimSpace(string(out))
	d.start(t)
	return d
}

// start runs the daemon, at the addresses that it had before.
func (d *daemon) start(t *testing.T) {
	t.Helper()
	args := append([]string{"serve", "--data-dir", filepath.Join(d.dir, "data"), "--http-addr", d.http, "--grpc-addr", d.grpc, "--admin-addr", d.admin,
		"--access-file", filepath.Join(d.dir, "access.yaml"), "--log-format", "json"}, d.storage...)
	cmd := exec.Command(binary.Path(t), args...)
	cmd.Env = brimtest.Env()
	d.Process = brimtest.Start(t, cmd, syscall.SIGKILL)
	listening := d.AwaitLog("listening")
	for name, address := range map[string]*string{"http": &d.http, "grpc": &d.grpc, "admin": &d.admin} {
		*address, _ = listening[name].(string)
	}
	d.Await("readiness", func() bool {
		code, _, err := brimtest.Ask(http.MethodGet, "http://"+d.admin+"/readyz", "")
		return err == nil && code == http.StatusOK
	})
}

// withToken is the daemon with another token.
func (d *daemon) withToken(token string) *daemon {
	return &daemon{http: d.http, grpc: d.grpc, token: token}
}

// env is the environment of a client.
func (d *daemon) env(more ...string) []string {
	return append(brimtest.Env(), append(more, "BRIM_URL=http://"+d.http, "BRIM_TOKEN="+d.token, "PYTHONDONTWRITEBYTECODE=1")...)
}

// run runs a client to its end and returns what it printed.
func (d *daemon) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = d.env()
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// client returns a client of the daemon.
func (d *daemon) client(t *testing.T, address string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Addresses: []string{address}, Token: client.Token(d.token)})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// readings returns what can be read back of a sensor.
func (d *daemon) readings(t *testing.T, sensor string) []telemetry.Reading {
	t.Helper()
	all, err := brimtest.Readings("http://"+d.http, d.token, sensor)
	require.NoError(t, err)
	return all
}

// python returns a Python 3 that has these modules.
func python(t *testing.T, modules ...string) string {
	t.Helper()
	path := brimtest.Program(t, "python3")
	if len(modules) == 0 {
		return path
	}
	try := exec.CommandContext(t.Context(), path, "-c", "import "+strings.Join(modules, ", "))
	try.Dir = t.TempDir() // here is a file pandas.py
	if err := try.Run(); err != nil {
		brimtest.Missing(t, "PYTHON3", "Python's "+strings.Join(modules, ", ")+" (tools/python/install brings them)")
	}
	return path
}
