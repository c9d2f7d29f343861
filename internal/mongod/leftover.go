package mongod

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"syscall"
	"time"
)

// endLeftOver ends the mongod that a daemon left behind when it was killed.
// It is ended and not taken over, because it may run with other settings, and
// only a child's death is reported to its parent.
//
// No foreign process is ever signalled: a candidate must be named by our own
// memory or by mongod's lock file, and must have been started with our
// --dbpath and our --logpath.
func (f files) endLeftOver(ctx context.Context, timeout time.Duration, log *slog.Logger) error {
	if err := f.awaitPid(ctx); err != nil {
		return err
	}
	for _, pid := range slices.Compact([]int{f.recall().Pid, readPid(f.mongodLock())}) {
		if pid <= 0 || pid == os.Getpid() {
			continue
		}
		if err := f.endIfOurs(ctx, pid, timeout, log); err != nil {
			return err
		}
	}
	return f.awaitUnlocked(ctx)
}

// awaitPid returns when a mongod that has just locked the database's files, and
// whose daemon was killed in that moment, has written who it is; at once where
// there is none.
func (f files) awaitPid(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for readPid(f.mongodLock()) == 0 {
		locked, err := f.dbLocked()
		if err != nil || !locked {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil // it is refused by what it holds
		}
	}
	return nil
}

// awaitUnlocked returns when no process has the database's files open. It
// waits for one that is ending, and refuses at once for one that runs.
func (f files) awaitUnlocked(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		// The holder is read first: a process is gone only after its files
		// are closed.
		holder := readPid(f.mongodLock())
		ending := holder == 0 || isEnding(holder) // a mongod that ends takes its number away first
		locked, err := f.dbLocked()
		if err != nil || !locked {
			return err
		}
		if !ending {
			return fmt.Errorf("use %s: process %d has its files open (%s is locked), and was not started by Brim; end it, or choose another data directory",
				f.db, holder, f.mongodLock())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for mongod %d, which is ending, to close its files: %w", holder, ctx.Err())
		}
	}
}

func (f files) endIfOurs(ctx context.Context, pid int, timeout time.Duration, log *slog.Logger) error {
	// The handle comes before the look at the arguments, so that it cannot
	// come to mean a process that got the same pid in between.
	process, err := os.FindProcess(pid)
	if err != nil {
		return nil
	}
	defer func() { _ = process.Release() }()
	if !startedWith(commandLine(pid), "--dbpath", f.db, "--logpath", f.log) {
		return nil
	}
	log.Warn("ending the mongod that an unclean end left behind", "pid", pid)
	if err := endProcess(ctx, process, timeout); err != nil {
		return fmt.Errorf("end left-over mongod %d: %w", pid, err)
	}
	return nil
}

// endProcess asks a mongod that is not our child to end, and kills it when it
// does not within timeout.
func endProcess(ctx context.Context, process *os.Process, timeout time.Duration) error {
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGTERM, timeout}, {syscall.SIGKILL, killTimeout}} {
		err := process.Signal(step.signal)
		if errors.Is(err, os.ErrProcessDone) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("send %v: %w", step.signal, err)
		}
		if waitGone(ctx, process, step.wait) {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return errors.New("it does not end when killed")
}

const (
	// killTimeout is how long a killed process may take to go: as long as the
	// system needs to give back its memory.
	killTimeout = 10 * time.Second
	// lookInterval is how often a process is looked at whose end is awaited:
	// only a parent would be told.
	lookInterval = 20 * time.Millisecond
)

// waitGone reports whether the process ends before timeout. Its files may
// still be open for a moment.
func waitGone(ctx context.Context, process *os.Process, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		if process.Signal(syscall.Signal(0)) != nil || isEnding(process.Pid) {
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

// startedWith reports whether the arguments hold each pair of flag and value.
func startedWith(args []string, pairs ...string) bool {
	for pair := range slices.Chunk(pairs, 2) {
		at := slices.Index(args, pair[0])
		if at < 0 || at+1 >= len(args) || args[at+1] != pair[1] {
			return false
		}
	}
	return true
}
