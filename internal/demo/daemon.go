package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// configuration is the daemon's file. All ports are free ones, so that the
// demonstration runs beside another daemon.
const configuration = `
data-dir: %s
http-addr: 127.0.0.1:0
grpc-addr: 127.0.0.1:0
admin-addr: 127.0.0.1:0
log-format: json
granularity: 1h
flush-interval: %s
stream: merged
streams:
  single:
    max-readings-per-update: 1
  merged: {}
  timeseries:
    storage: timeseries
`

// A daemon is `brim serve` in a process of its own.
type daemon struct {
	cmd         *exec.Cmd
	http, admin string // addresses
	exited      chan struct{}
	reading     sync.WaitGroup // of its log
}

// startDaemon returns when the daemon can store readings.
func startDaemon(ctx context.Context, o *options, dir string, stderr io.Writer) (*daemon, error) {
	file := filepath.Join(dir, "brim.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, configuration, filepath.Join(dir, "data"), o.flushInterval()), 0o600); err != nil {
		return nil, fmt.Errorf("write the daemon's configuration: %w", err)
	}
	d := &daemon{cmd: exec.Command(o.brim, "serve", "--config", file), exited: make(chan struct{})} //nolint:noctx // stop ends it, softly
	d.cmd.Env = environment()
	log, err := d.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start the daemon: %w", err)
	}
	ownGroup(d.cmd)
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the daemon: %w; `make build` makes it", err)
	}
	ready := make(chan struct{})
	d.reading.Go(func() { d.follow(log, ready, stderr) })
	go func() {
		d.reading.Wait() // before Wait, which closes the pipe
		_ = d.cmd.Wait() // how it ended does not matter: that it did is an error
		close(d.exited)
	}()
	select {
	case <-ready:
		return d, nil
	case <-d.exited:
		return nil, fmt.Errorf("the daemon ended before it was ready: %v", d.cmd.ProcessState)
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the daemon: %w", errors.Join(ctx.Err(), d.stop()))
	}
}

// environment is ours without the settings of another daemon, whose MongoDB
// this one must not write to; where a mongod is may be told.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(pair string) bool {
		return strings.HasPrefix(pair, "BRIM_") && !strings.HasPrefix(pair, "BRIM_MONGOD_")
	})
}

// follow reads the daemon's log: where it listens, when it is ready, and what
// people should see.
func (d *daemon) follow(log io.Reader, ready chan<- struct{}, stderr io.Writer) {
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var line struct {
			Level, Msg, Step, HTTP, Admin string
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			_, _ = fmt.Fprintln(stderr, lines.Text())
			continue
		}
		switch {
		case line.Msg == "listening":
			d.http, d.admin = line.HTTP, line.Admin
		case line.Msg == "ready":
			close(ready)
		case line.Msg == "preparing":
			_, _ = fmt.Fprintln(stderr, line.Step)
		case line.Level == "WARN" || line.Level == "ERROR":
			_, _ = fmt.Fprintln(stderr, lines.Text())
		}
	}
}

// stop ends the daemon as an operator would, and waits until it is gone.
func (d *daemon) stop() error {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return nil //nolint:nilerr // it has ended already
	}
	select {
	case <-d.exited:
		return nil
	case <-time.After(30 * time.Second):
		_ = d.cmd.Process.Kill() // fails only if it has ended
		<-d.exited
		return errors.New("the daemon did not stop in 30 s and was killed")
	}
}
