package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// Options are what a daemon is given by the process that it runs in.
type Options struct {
	Env     []string  // NAME=value
	Stderr  io.Writer // gets the log, and what a person at a terminal should see
	Version Version
}

// Serve runs a daemon until ctx ends or a signal comes. A SIGHUP makes it read
// its file again, where it has one.
func Serve(ctx context.Context, c *Config, o Options) error {
	level := new(slog.LevelVar)
	level.Set(logLevel(c.LogLevel))
	log := newLeveledLogger(o.Stderr, level, c.LogFormat)
	hups := newHangups(c.from)
	running, stopping, release := watchSignals(ctx, log, hups)
	defer release()
	d, err := newDaemon(c, log, o)
	if err != nil {
		return err
	}
	defer limitCollector(d.door.Memory)()
	d.level, d.reloads = level, newReloader(d, c.from, hups.asked)
	d.supervisor = newSupervisor(d, o.Env)
	defer d.supervisor.start()()
	serving, err := d.listen(running)
	if err == nil {
		ended := d.reloads.start(serving)
		err = d.run(serving)
		ended()
	}
	if serving.Err() != nil {
		err = nil // what an interrupted start says is no news; stop knows if a server failed
	}
	return errors.Join(err, d.stop(stopping))
}

var ErrTwice = errors.New("a second signal ended the daemon at once")

// oneSignal is within which time the same signal again is part of the first.
// Nobody presses a key twice as fast.
const oneSignal = 100 * time.Millisecond

// watchSignals is onSignals, which are logged, for who has a use of hangups; or
// nil.
func watchSignals(ctx context.Context, log *slog.Logger, hups *hangups) (running, stopping context.Context, release func()) {
	return onSignalsBut(ctx, hups,
		func(s os.Signal) {
			if hups != nil && s == syscall.SIGHUP {
				log.Info("stopping", "signal", s.String(), "why", hups.why())
				return
			}
			log.Info("stopping", "signal", s.String())
		},
		func(s os.Signal) { log.Warn("stopping at once", "signal", s.String()) })
}

// OnSignals returns two contexts: running ends with ctx or at the first
// signal to stop, of which soft tells, stopping at the second, of which hard does.
// A third ends the process, as it would have without us. The same signal that
// comes again at once is none: timeout(1) and some supervisors send theirs to the
// process and to its group. That nobody reads our output any more ends nothing:
// what was started must be ended in good order.
func OnSignals(ctx context.Context, soft, hard func(os.Signal)) (running, stopping context.Context, release func()) {
	return onSignalsBut(ctx, nil, soft, hard)
}

// onSignalsBut is onSignals but for the hangups that somebody has a use of.
func onSignalsBut(ctx context.Context, hups *hangups, soft, hard func(os.Signal)) (running, stopping context.Context, release func()) {
	signals := make(chan os.Signal, 2)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		if !signal.Ignored(s) { // a shell's background job
			signal.Notify(signals, s)
		}
	}
	if hups.wanted() {
		signal.Notify(signals, syscall.SIGHUP)
	}
	broken := make(chan os.Signal, 1) // pipes: whoever wrote gets an error instead
	signal.Notify(broken, syscall.SIGPIPE)
	running, stop := context.WithCancel(ctx)
	stopping, end := context.WithCancelCause(context.WithoutCancel(ctx))
	var watching sync.WaitGroup
	done := make(chan struct{})
	watching.Go(func() {
		heed(signals, done, hups,
			func(s os.Signal) { soft(s); stop() },
			func(s os.Signal) { hard(s); end(ErrTwice) })
		signal.Stop(signals)
	})
	return running, stopping, func() {
		signal.Stop(signals)
		signal.Stop(broken)
		close(done)
		watching.Wait()
		stop()
		end(nil)
	}
}

// heed carries out an act for each signal, until all are or done is closed.
func heed(signals <-chan os.Signal, done <-chan struct{}, hups *hangups, acts ...func(os.Signal)) {
	var last os.Signal
	var at time.Time // when last came
	for len(acts) > 0 {
		select {
		case s := <-signals:
			if hups.takes(s) || s == last && time.Since(at) < oneSignal {
				continue
			}
			last, at = s, time.Now()
			acts[0](s)
			acts = acts[1:]
		case <-done:
			return
		}
	}
}

// newLogger writes structured logs; a terminal gets the same as a file.
func newLogger(w io.Writer, level, format string) *slog.Logger {
	return newLeveledLogger(w, logLevel(level), format)
}

// newLeveledLogger is newLogger with a level that may change.
func newLeveledLogger(w io.Writer, level slog.Leveler, format string) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// logLevel returns the level by its name.
func logLevel(name string) slog.Level {
	var l slog.Level
	if err := l.UnmarshalText([]byte(name)); err != nil {
		return slog.LevelInfo
	}
	return l
}
