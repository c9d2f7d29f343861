// Command demo shows in a minute what a bucket's fill does to its writes. It
// starts a daemon with its own mongod and three streams with hourly windows,
// sends the same load to one after the other, an hour of event time in twenty
// seconds, and prints how long MongoDB took by tenth of the window: with one
// reading in an update, with merged updates, and in a time-series collection.
// `make demo` runs it.
//
//	            ┌ then ─▶ stream single      one reading per update  ─┐
//	brim load ──┼ then ─▶ stream merged      a minute's in an update  ├─▶ brim serve ─▶ mongod
//	            └ then ─▶ stream timeseries  a minute's in an insert ─┘        │
//	                                                                  store_write_seconds ─▶ the table
//
// One after the other, since what makes one of them slow would slow the others.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/launch"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

// options are what can be set of a demonstration.
type options struct {
	brim     string        // the program
	duration time.Duration // of the load, a third for each stream
	sensors  int
	interval time.Duration // of event time, between two readings of a sensor
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main prints the error, once
	flags.StringVar(&o.brim, "brim", filepath.Join("bin", "brim"), "the program to show")
	o.duration, o.interval = time.Minute, 5*time.Second
	flags.Var((*duration)(&o.duration), "duration", "send load for this `duration`, 10s to 1h: a third for each stream, in which event time advances an hour")
	flags.IntVar(&o.sensors, "sensors", 56, "sensors of each stream")
	flags.Var((*duration)(&o.interval), "interval", "event time, a `duration`, between two readings of a sensor")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return printHelp(flags, stdout)
	case err != nil:
		return fmt.Errorf("%w; see --help", err)
	}
	if o.duration < 10*time.Second || o.duration > time.Hour {
		return fmt.Errorf("--duration %v does not fit: allowed are 10s to 1h", o.duration)
	}
	dir, err := os.MkdirTemp("", "brim-demo-")
	if err != nil {
		return fmt.Errorf("make a folder for the demonstration: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // temporary anyway
	d, err := startDaemon(ctx, &o, dir, stderr)
	if err != nil {
		return err
	}
	shown := show(ctx, &o, d, stdout, stderr)
	if shown == nil && term.IsTerminal(int(os.Stdin.Fd())) {
		_, _ = fmt.Fprintf(stderr, "\nThe daemon goes on for you to look at http://%s/ ; Ctrl-C ends it.\n", d.Admin)
		<-ctx.Done()
	}
	return errors.Join(shown, d.Stop())
}

func printHelp(flags *flag.FlagSet, w io.Writer) error {
	if _, err := fmt.Fprintf(w, "Usage: demo [flags]\n\nShows in a minute what a bucket's fill does to its writes.\n\n"); err != nil {
		return fmt.Errorf("print the help: %w", err)
	}
	flags.SetOutput(w)
	flags.PrintDefaults()
	return nil
}

// duration is a flag that is parsed like those of `brim`.
type duration time.Duration

func (d *duration) String() string { return config.FormatDuration(time.Duration(*d)) }

func (d *duration) Set(s string) error {
	v, err := config.ParseDuration(s)
	*d = duration(v)
	return err
}

// show sends the load and prints what it did.
func show(ctx context.Context, o *options, d *launch.Daemon, stdout, stderr io.Writer) error {
	_, _ = fmt.Fprintf(stderr, `
Three streams with hourly buckets get %.0f readings a second, one after the other; event time runs %.0f times faster than the clock.
Watch it:  http://%s/

`, float64(o.sensors)*o.speedup()/o.interval.Seconds(), o.speedup(), d.Admin)
	results, err := sendAll(ctx, o, d, stderr)
	if err != nil {
		return err
	}
	return printTable(stdout, o, results)
}

// each is how long a stream gets its load.
func (o *options) each() time.Duration {
	return (o.duration / time.Duration(len(variants()))).Round(time.Millisecond)
}

// speedup lets an hour of event time go by meanwhile.
func (o *options) speedup() float64 { return time.Hour.Seconds() / o.each().Seconds() }

// flushInterval is a minute of event time, so that an update carries as many
// readings however long the demonstration takes.
func (o *options) flushInterval() time.Duration {
	return (o.each() / 60).Round(time.Millisecond)
}
