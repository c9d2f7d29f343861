// Package launch runs `brim serve` and `brim load` as separate processes, which
// internal/bench measures.
package launch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/brim-telemetry/brim/internal/machine"
)

// stopTimeout is how long a daemon and its mongod may take to stop.
const stopTimeout = 30 * time.Second

// Config says which daemon to run.
type Config struct {
	Brim string    // the program
	Args []string  // of serve, in addition to addresses and the log format
	Out  io.Writer // gets the daemon's messages for people, and its warnings
	// Abort, when it ends, kills a daemon that is stopping before it was ready; nil: never.
	Abort context.Context
	// CertDir is where a self-signed certificate is made, with which the daemon has TLS;
	// empty: it has none.
	CertDir string
}

// A Daemon is `brim serve` in a separate process. It uses free ports on 127.0.0.1, so
// several can run.
type Daemon struct {
	HTTP, GRPC, Admin string // addresses, HOST:PORT
	CA                string // file of the certificate; empty: no TLS

	client *http.Client // nil: the default one
	cmd    *exec.Cmd
	exited chan struct{}
}

// Start returns when the daemon can store readings. Of the settings in the environment,
// the daemon gets only those for mongod.
func Start(ctx context.Context, c Config) (*Daemon, error) {
	args := append([]string{
		"serve", "--log-format", "json",
		"--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0",
	}, c.Args...)
	d := &Daemon{exited: make(chan struct{})}
	if c.CertDir != "" {
		flags, err := d.secure(c.CertDir)
		if err != nil {
			return nil, fmt.Errorf("make the daemon's certificate: %w", err)
		}
		args = append(args, flags...)
	}
	d.cmd = exec.Command(c.Brim, args...) //nolint:noctx // Stop ends it, softly
	d.cmd.Env = environment()
	log, err := d.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start the daemon: %w", err)
	}
	ready := make(chan struct{})
	err = machine.Start(d.cmd, syscall.SIGTERM, func() {
		d.follow(log, ready, c.Out) // before Wait, which closes the pipe
		_ = d.cmd.Wait()            // the exit itself is the error, whatever the status
		close(d.exited)
	})
	if err != nil {
		return nil, fmt.Errorf("start the daemon: %w; `make build` makes it", err)
	}
	select {
	case <-ready:
		return d, nil
	case <-d.exited:
		return nil, fmt.Errorf("the daemon ended before it was ready: %v", d.cmd.ProcessState)
	case <-ctx.Done():
		if c.Abort != nil {
			defer context.AfterFunc(c.Abort, d.Kill)()
		}
		return nil, fmt.Errorf("wait for the daemon: %w", errors.Join(ctx.Err(), d.Stop()))
	}
}

// environment is our environment without the settings of another daemon, whose MongoDB
// this one must not write to. It keeps those that say where mongod is.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(pair string) bool {
		return strings.HasPrefix(pair, "BRIM_") && !strings.HasPrefix(pair, "BRIM_MONGOD_")
	})
}

// follow reads the daemon's log: its addresses, when it is ready, and messages for people.
func (d *Daemon) follow(log io.Reader, ready chan<- struct{}, out io.Writer) {
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var line struct {
			Level, Msg, Step, HTTP, GRPC, Admin string
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			_, _ = fmt.Fprintln(out, lines.Text())
			continue
		}
		switch {
		case line.Msg == "listening":
			d.HTTP, d.GRPC, d.Admin = line.HTTP, line.GRPC, line.Admin
		case line.Msg == "ready" && ready != nil:
			close(ready)
			ready = nil
		case line.Msg == "preparing":
			_, _ = fmt.Fprintln(out, line.Step)
		case line.Level == "WARN" || line.Level == "ERROR":
			_, _ = fmt.Fprintln(out, lines.Text())
		}
	}
	_, _ = io.Copy(io.Discard, log) // a line too long to scan must not stop the daemon
}

// Pid is the process ID.
func (d *Daemon) Pid() int { return d.cmd.Process.Pid }

// Exited is closed when the process has ended.
func (d *Daemon) Exited() <-chan struct{} { return d.exited }

// Kill ends the daemon at once.
func (d *Daemon) Kill() {
	_ = d.cmd.Process.Kill() // fails only if it has ended
}

// Stop ends the daemon with SIGTERM, and waits until it has ended.
func (d *Daemon) Stop() error {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		<-d.exited
		return nil //nolint:nilerr // it has ended already
	}
	select {
	case <-d.exited:
		return nil
	case <-time.After(stopTimeout):
		d.Kill()
		<-d.exited
		return fmt.Errorf("the daemon did not stop in %v and was killed", stopTimeout)
	}
}
