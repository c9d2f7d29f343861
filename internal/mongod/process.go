package mongod

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/brim-telemetry/brim/internal/machine"
)

// Process is a running child.
type Process struct {
	Pid   int
	Ended chan struct{} // closed when it has ended
	State string        // how it ended: "exit status 14", "signal: killed"; valid once Ended is closed

	handle *os.Process
}

// Spawn starts a child whose output goes to the file out. A goroutine waits for
// its end. With dieWithParent, the child is killed when this process ends.
func Spawn(bin string, args []string, out string, dieWithParent bool) (*Process, error) {
	// A file and not a pipe: the child may outlive this process.
	file, err := os.OpenFile(out, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open mongod's output: %w", err)
	}
	defer func() { _ = file.Close() }()
	cmd := exec.CommandContext(context.Background(), bin, args...) // stop ends it, first with SIGTERM
	cmd.Stdout, cmd.Stderr = file, file
	var onParentExit syscall.Signal
	if dieWithParent {
		onParentExit = syscall.SIGKILL
	}
	p := &Process{Ended: make(chan struct{})}
	err = machine.Start(cmd, onParentExit, func() {
		defer close(p.Ended)
		p.State = "exit status 0"
		if err := cmd.Wait(); err != nil {
			p.State = err.Error()
		}
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", bin, err)
	}
	p.Pid, p.handle = cmd.Process.Pid, cmd.Process
	return p, nil
}

func (p *Process) alive() bool {
	select {
	case <-p.Ended:
		return false
	default:
		return true
	}
}

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) error { return p.handle.Signal(s) }

// Kill ends the process at once and does not wait for it.
func (p *Process) Kill() error {
	if err := p.handle.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill mongod %d: %w", p.Pid, err)
	}
	return nil
}

// stop asks the process to end and waits. When ctx or timeout ends first, it kills
// the process and returns an error.
func (p *Process) stop(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := p.handle.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop mongod %d: %w", p.Pid, err)
	}
	select {
	case <-p.Ended:
		return nil
	case <-ctx.Done():
	}
	if err := p.Kill(); err != nil {
		return err
	}
	<-p.Ended
	return fmt.Errorf("stop mongod %d: killed, because it did not end in time: %w", p.Pid, ctx.Err())
}

// poll calls done at each interval until it returns true or an error, or ctx ends.
func poll(ctx context.Context, interval time.Duration, done func() (bool, error)) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// within is poll with a timeout; ok is false if it expired.
func within(ctx context.Context, timeout time.Duration, done func() (bool, error)) (ok bool, err error) {
	limited, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()
	if err = poll(limited, pollInterval, done); errors.Is(err, errTimeout) {
		return false, nil
	}
	return err == nil, err
}

var errTimeout = errors.New("timeout")

const (
	// pollInterval for the end of a process that is not a child, and for ports.
	pollInterval = 20 * time.Millisecond
	// killTimeout is how long a killed process may take to end: the system has to
	// reclaim its memory.
	killTimeout = 10 * time.Second
	// portTimeout is how long to wait for a taken port.
	portTimeout = 2 * time.Second
	// Ports are drawn from below the range of outgoing connections (from 32768 on
	// Linux, 49152 elsewhere). Otherwise, while mongod is down, a client that
	// reconnects can be given mongod's port as its local one and connect to itself.
	firstPort, lastPort = 20_000, 32_767
	portAttempts        = 100
)

// portFree reports whether mongod could listen on the port now.
func portFree(ctx context.Context, port int) (bool, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("listen on port %d: %w", port, err)
	}
	return true, listener.Close()
}

// awaitPort reports whether the port is free. It waits a little, because an ending
// mongod closes its files before its sockets.
func awaitPort(ctx context.Context, port int) (bool, error) {
	return within(ctx, portTimeout, func() (bool, error) { return portFree(context.WithoutCancel(ctx), port) })
}

// pickPort returns a port that is free now.
func pickPort(ctx context.Context) (int, error) {
	for range portAttempts {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if free, err := portFree(ctx, port); free || err != nil {
			return port, err
		}
	}
	return 0, fmt.Errorf("find a free port: %d drawn from %d to %d are all taken", portAttempts, firstPort, lastPort)
}

// stopOrphan stops the mongod that a killed daemon left behind. It is not adopted,
// because its settings may differ, and only a parent learns of its child's death.
//
// No other process is ever signalled: the pid must be in our state file or in
// mongod's lock file, and the process must run with our --dbpath and --logpath.
func (f files) stopOrphan(ctx context.Context, timeout time.Duration, log *slog.Logger) error {
	// If a daemon was killed right after starting mongod, mongod may have locked
	// the files without having written its pid.
	_, err := within(ctx, killTimeout, func() (bool, error) {
		locked, err := f.dbLocked()
		return !locked || readPid(f.mongodLock()) != 0, err
	})
	if err != nil {
		return err
	}
	for _, pid := range slices.Compact([]int{f.loadLastRun().Pid, readPid(f.mongodLock())}) {
		if pid <= 0 || pid == os.Getpid() {
			continue
		}
		// The handle is taken before the arguments are checked, so that it
		// cannot refer to another process that got the same pid in between.
		process, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		if startedWith(commandLine(pid), "--dbpath", f.db, "--logpath", f.log) {
			log.Warn("stopping the mongod that a killed daemon left behind", "pid", pid)
			err = endProcess(ctx, process, timeout)
		}
		_ = process.Release()
		if err != nil {
			return fmt.Errorf("stop left-over mongod %d: %w", pid, err)
		}
	}
	return f.awaitUnlocked(ctx)
}

// awaitUnlocked returns when no process has the data files open. It waits for a
// process that is ending, but refuses at once if one is running.
func (f files) awaitUnlocked(ctx context.Context) error {
	var holder int
	unlocked, err := within(ctx, killTimeout, func() (bool, error) {
		// Read first: a process is gone only after its files are closed.
		holder = readPid(f.mongodLock())
		ending := holder == 0 || isEnding(holder) // a mongod that ends first removes its pid
		locked, err := f.dbLocked()
		if err == nil && locked && !ending {
			err = fmt.Errorf("use %s: process %d has its files open (%s is locked), and was not started by Brim; stop it, or choose another data directory",
				f.db, holder, f.mongodLock())
		}
		return !locked, err
	})
	if err == nil && !unlocked {
		err = fmt.Errorf("wait for mongod %d, which is ending, to close its files: it still has %s open", holder, f.db)
	}
	return err
}

// endProcess stops a process that is not our child: SIGTERM, then SIGKILL.
func endProcess(ctx context.Context, process *os.Process, timeout time.Duration) error {
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGTERM, timeout}, {syscall.SIGKILL, killTimeout}} {
		switch err := process.Signal(step.signal); {
		case errors.Is(err, os.ErrProcessDone):
			return nil
		case err != nil:
			return fmt.Errorf("send %v: %w", step.signal, err)
		}
		gone, _ := within(ctx, step.wait, func() (bool, error) { // its files may still be open for a moment
			return isGone(process) || isEnding(process.Pid), nil
		})
		if gone || ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return errors.New("it does not end when killed")
}

// startedWith reports whether the arguments contain each pair of flag and value.
func startedWith(args []string, pairs ...string) bool {
	for pair := range slices.Chunk(pairs, 2) {
		at := slices.Index(args, pair[0])
		if at < 0 || at+1 >= len(args) || args[at+1] != pair[1] {
			return false
		}
	}
	return true
}

func isGone(process *os.Process) bool { return process.Signal(syscall.Signal(0)) != nil }
