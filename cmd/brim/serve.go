package main

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

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newServe returns `brim serve`, the daemon:
//
//	--http-addr ─┬─▶ ingest.Door ─▶ inlet ─▶ journal ─▶ queue.Queue ─┬─ lanes of a stream ─▶ bucket.Store ─────┐
//	--grpc-addr ─┤      (refuses while         │            ▲        ├─ lanes of a stream ─▶ timeseries.Store ─┼─▶ MongoDB:
//	             │       inlet is shut)    --journal-dir    │        └─ lanes of a stream ─▶ memory.Store      │   --mongo-uri, or
//	             └─▶ read.Reader ◀──────────────────────────┼─────────── what is stored ◀─────────────────────┘   mongod.Server
//	--admin-addr ──▶ admin ─────────────────────────────────┴─▶ flush, status, readiness, metrics
//
// The listeners come first and answer from then on, so that a taken port is
// known at once and probes see a daemon that starts. The inlet opens when the
// journal is open; the queue follows it when there is a MongoDB to try. The
// stop goes the same way: the door and the journal refuse, the queue brings to
// the stores what it can, then what is on the right of them ends.
func newServe(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon: readings in over HTTP and gRPC, documents in MongoDB",
		Long: "Run the daemon: readings in over HTTP and gRPC, documents in MongoDB.\n\n" +
			"Each flag can also be set in the environment (BRIM_MONGO_URI for --mongo-uri, and so on)\n" +
			"and by its name in a YAML file; a flag wins over the environment, and that over the file.",
		Args: cobra.NoArgs,
	}
	flags := settingFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		from := flags(p)
		c, err := from.load()
		if err != nil {
			return err
		}
		return serve(cmd.Context(), from, c, p)
	}
	return cmd
}

// settingFlags adds the daemon's settings to a command's flags. The result is
// to be called when the flags are parsed.
func settingFlags(flags *pflag.FlagSet) func(*process) sources {
	flags.SortFlags = false
	path := flags.String("config", "", "YAML `FILE` with settings and streams")
	for _, s := range (&settings{}).all() {
		text := s.initial
		take := func(given string) error { text = given; return nil } // checked with the other sources
		flags.Var(&flagText{text: &text, kind: s.kind, set: take}, s.name, s.usage)
	}
	return func(p *process) sources {
		given := make(map[string]string)
		for _, s := range (&settings{}).all() {
			if f := flags.Lookup(s.name); f.Changed {
				given[s.name] = f.Value.String()
			}
		}
		return sources{flags: given, env: p.env, path: *path}
	}
}

// serve runs a daemon until ctx ends or a signal comes. A SIGHUP makes it read
// its file again, where it has one.
func serve(ctx context.Context, from sources, c *configuration, p *process) error {
	level := new(slog.LevelVar)
	level.Set(logLevel(c.LogLevel))
	log := newLeveledLogger(p.stderr, level, c.LogFormat)
	hups := newHangups(from)
	running, stopping, release := watchSignals(ctx, log, hups)
	defer release()
	d, err := newDaemon(c, log, p)
	if err != nil {
		return err
	}
	defer limitCollector(d.door.Memory)()
	d.level, d.reloads = level, newReloader(d, from, hups.asked)
	d.supervisor = newSupervisor(d, p.env)
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

var errTwice = errors.New("a second signal ended the daemon at once")

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

// onSignals returns two contexts: running ends with ctx or at the first
// signal to stop, of which soft tells, stopping at the second, of which hard does.
// A third ends the process, as it would have without us. The same signal that
// comes again at once is none: timeout(1) and some supervisors send theirs to the
// process and to its group. That nobody reads our output any more ends nothing:
// what was started must be ended in good order.
func onSignals(ctx context.Context, soft, hard func(os.Signal)) (running, stopping context.Context, release func()) {
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
			func(s os.Signal) { hard(s); end(errTwice) })
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
