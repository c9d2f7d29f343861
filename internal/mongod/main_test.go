package mongod_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/brim-telemetry/brim/internal/mongod"
	"github.com/brim-telemetry/brim/internal/mongod/mongodtest"
)

// These variables make the test binary run as another program: with daemonEnv as a daemon
// that runs a mongod on the named data directory until it is killed, with authentication if
// daemonAuthEnv is set; with parentEnv as a parent whose child writes to the named file and
// must die with it.
const (
	daemonEnv     = "BRIM_TEST_DAEMON"
	daemonAuthEnv = "BRIM_TEST_DAEMON_AUTH"
	parentEnv     = "BRIM_TEST_PARENT"
)

func TestMain(m *testing.M) {
	switch dir, out := os.Getenv(daemonEnv), os.Getenv(parentEnv); {
	case dir != "":
		os.Exit(runDaemon(dir))
	case out != "":
		os.Exit(runParent(out))
	}
	mongodtest.Main(m)
}

// runDaemon prints mongod's pid and URI and waits to be killed.
func runDaemon(dir string) int {
	config := mongodtest.Defaults(mongod.Config{DataDir: dir})
	config.DieWithParent = false
	if os.Getenv(daemonAuthEnv) != "" {
		config.Auth, config.Database = true, "test"
	}
	server, err := mongod.Start(context.Background(), config)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stdout, "error:", err)
		return 1
	}
	_, _ = fmt.Fprintln(os.Stdout, "pid", server.Pid(), server.URI())
	select {}
}

// runParent prints its child's pid and waits to be killed.
func runParent(out string) int {
	child, err := mongod.Spawn("sleep", []string{"1000"}, out, true)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stdout, "error:", err)
		return 1
	}
	_, _ = fmt.Fprintln(os.Stdout, "pid", child.Pid)
	select {}
}

// program is the test binary as another program.
type program struct {
	*exec.Cmd
	output io.Reader
}

// kill ends the program like a crash.
func (p program) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, p.Process.Kill())
	_ = p.Wait()
}

// startSelf starts this test binary as a program that ends with the test.
func startSelf(t *testing.T, env ...string) program {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), env...)
	output, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return program{cmd, output}
}

// daemon is a daemon in a separate process, with a mongod.
type daemon struct {
	program
	mongod int // its pid
	uri    string
}

// startDaemon starts a daemon that ends, with its mongod, at the end of the test.
func startDaemon(t *testing.T, dir string) daemon {
	t.Helper()
	d := daemon{program: startSelf(t, daemonEnv+"="+dir)}
	_, err := fmt.Fscanf(d.output, "pid %d %s\n", &d.mongod, &d.uri)
	require.NoError(t, err)
	t.Cleanup(func() { killIfOn(d.mongod, dir) })
	return d
}

// killIfOn kills a mongod that a failed test left behind, if it uses the
// directory.
func killIfOn(pid int, dir string) {
	if !isMongodOn(pid, dir) {
		return
	}
	if process, err := os.FindProcess(pid); err == nil {
		_ = process.Kill()
	}
}

func isMongodOn(pid int, dir string) bool {
	arguments, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && strings.Contains(string(arguments), filepath.Join(dir, "mongod", "db"))
}

// startServer starts a server that the test may close; otherwise it is closed
// after the test.
func startServer(t *testing.T, config mongod.Config) *mongod.Server {
	t.Helper()
	return mongodtest.Start(t, config)
}

func closeServer(t *testing.T, server *mongod.Server) {
	t.Helper()
	require.NoError(t, server.Close(t.Context()))
	require.Zero(t, server.Pid())
	require.False(t, server.Running())
}

// binary is the mongod that the tests run.
func binary(t *testing.T) mongod.Binary {
	t.Helper()
	mongodtest.URI(t) // installs it, or skips
	binary, err := mongod.Obtain(t.Context(), mongodtest.Defaults(mongod.Config{DataDir: t.TempDir()}))
	require.NoError(t, err)
	return binary
}

// answersVersion is the first line of scripts in place of mongod.
const answersVersion = `case "$*" in *--version*) echo 'db version v6.0.5'; exit;; esac`

// script writes a mongod that first runs the sh lines.
func script(t *testing.T, path string, lines ...string) {
	t.Helper()
	text := "#!/bin/sh\n" + strings.Join(lines, "\n") + "\n"
	// A concurrent fork by another test would inherit the open file, and a file
	// that is open for writing cannot be executed.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fresh := path + ".new"
	require.NoError(t, os.WriteFile(fresh, []byte(text), 0o755))
	require.NoError(t, os.Rename(fresh, path))
}

// connect returns a client that outlives restarts.
func connect(t *testing.T, uri string) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetTimeout(20 * time.Second))
	require.NoError(t, err)
	t.Cleanup(func() {
		// The server may already be gone.
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		require.NoError(t, client.Disconnect(ctx))
	})
	return client
}

// durable is a write concern for writes that survive a kill.
func durable() *writeconcern.WriteConcern {
	journaled := true
	return &writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}
}

// put durably stores one document.
func put(t *testing.T, client *mongo.Client, id string) {
	t.Helper()
	_, err := client.Database("test", options.Database().SetWriteConcern(durable())).
		Collection("kept").InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}})
	require.NoError(t, err)
}

// requireStored checks that exactly these documents are stored.
func requireStored(t *testing.T, client *mongo.Client, ids ...string) {
	t.Helper()
	cursor, err := client.Database("test").Collection("kept").Find(t.Context(), bson.D{})
	require.NoError(t, err)
	var found []struct {
		ID string `bson:"_id"`
	}
	require.NoError(t, cursor.All(t.Context(), &found))
	var got []string
	for _, document := range found {
		got = append(got, document.ID)
	}
	require.ElementsMatch(t, ids, got)
}

func adminCommand(t *testing.T, client *mongo.Client, command bson.D) bson.M {
	t.Helper()
	var answer bson.M
	require.NoError(t, client.Database("admin").RunCommand(t.Context(), command).Decode(&answer))
	return answer
}

// eventually waits for another process.
func eventually(t *testing.T, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, 30*time.Second, 5*time.Millisecond, what)
}

// logged is a logger whose output a test can read.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
