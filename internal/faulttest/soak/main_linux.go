// Command soak runs a daemon with its embedded mongod for hours, under load and faults, and
// writes a page that says whether readings were lost or stored twice, and what grows:
//
//	make soak HOURS=8
//
// A run is a sequence of rounds. In each, workloads send while faults happen; then all
// readings are flushed and compared with what was acknowledged:
//
//	soak.go    a run: rounds, workloads, faults, checks
//	lines.go   what is measured, and what counts as growing
//	page.go    the page
//
// Event time is sped up ninetyfold, a month in eight hours, and ends at the present. The
// retention is shortened in each round, so that it removes readings of the same age in
// event time throughout.
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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(2) //nolint:forbidigo // this is main
	case !ok:
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	var (
		hours = flags.Float64("hours", 8, "hours to run, at least 0.1")
		brim  = flags.String("brim", "bin/brim", "path of the brim binary")
		rate  = flags.Float64("rate", 400, "readings per second, all workloads together")
		page  = flags.String("page", "soak.html", "file for the page")
		keep  = flags.Bool("keep", false, "keep the data even if the run succeeds")
	)
	if err := flags.Parse(args); err != nil {
		return errors.Is(err, flag.ErrHelp), err
	}
	if *hours < 0.1 || *hours > 1000 {
		return false, fmt.Errorf("--hours %v is out of range; allowed: 0.1 to 1000", *hours)
	}
	if *rate < 10 || *rate > 100_000 {
		return false, fmt.Errorf("--rate %v is out of range; allowed: 10 to 100000", *rate)
	}
	dir, err := os.MkdirTemp("", "brim-soak-")
	if err != nil {
		return false, fmt.Errorf("make a folder for the data: %w", err)
	}
	program, err := filepath.Abs(*brim)
	if err != nil {
		return false, fmt.Errorf("find %s: %w", *brim, err)
	}
	s := newSoak(dir, program, time.Duration(*hours*float64(time.Hour)), *rate, out)
	err = s.run(ctx)
	ok = err == nil && s.wrong == ""
	if ok && !*keep {
		err = os.RemoveAll(dir)
	} else {
		fmt.Fprintln(out, "the data and the daemon's log are in", dir)
	}
	if len(s.samples) > 0 {
		err = errors.Join(err, s.writePage(*page))
		fmt.Fprintf(out, "%s\nthe page is %s\n", s.verdict(), *page)
	}
	return ok && len(s.climbing()) == 0, err
}
