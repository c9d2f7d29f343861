package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	benchreport "github.com/brim-telemetry/brim/internal/bench/report"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
)

// run runs experiments one after the other and shows what came of each. One that
// fails does not keep the others from running.
func (o *benchOptions) run(ctx context.Context, p *process, all ...*bench.Experiment) error {
	page, err := openToWrite(o.report)
	if err != nil {
		return err
	}
	defer closeUnwritten(page)
	live := newBenchLive(p.stderr, o.usual())
	defer live.end()
	running, aborting, release := daemon.OnSignals(ctx,
		func(os.Signal) {
			_, _ = fmt.Fprintln(live, "stopping, and removing what is scratch; a second signal does not wait")
		},
		func(os.Signal) { _, _ = fmt.Fprintln(live, "stopping at once") })
	defer release()
	c, err := o.prepare()
	if err != nil {
		return err
	}
	c.Abort, c.Progress, c.Out = aborting, live.show, live
	o.announce(live, all, c.Database)
	var results []*bench.Result
	var errs []error
	for _, e := range all {
		if running.Err() != nil {
			errs = append(errs, fmt.Errorf("%s and what follows it: %w", e.Name, bench.ErrInterrupted))
			break
		}
		r, err := bench.Run(running, e, c)
		live.clear()
		switch {
		case r != nil && r.Measured():
			results = append(results, r)
			err = errors.Join(err, o.show(p.stdout, r))
		case r != nil && err == nil:
			err = nothingMeasured(r)
		}
		errs = append(errs, err)
	}
	errs = append(errs, o.showAll(p.stdout, results, len(all) > 1))
	if page != nil && len(results) > 0 {
		errs = append(errs, rewrite(page, func(w io.Writer) error { return benchreport.HTML(w, results...) }))
	}
	return errors.Join(errs...)
}

// nothingMeasured says why.
func nothingMeasured(r *bench.Result) error {
	var left []string
	for _, l := range r.LeftOut {
		left = append(left, fmt.Sprintf("%s (%s)", l.What, l.Why))
	}
	return fmt.Errorf("%s: nothing was left to measure; left out: %s", r.Experiment, strings.Join(left, ", "))
}

// prepare completes what experiments are run with.
func (o *benchOptions) prepare() (c bench.Config, err error) {
	c = o.config
	c.Version = readVersion().Version
	if c.Brim, err = os.Executable(); err != nil {
		return c, fmt.Errorf("find this program: %w", err)
	}
	if c.URI != "" {
		c.Database = bench.ScratchName(time.Now())
	}
	return c, nil
}

// usual reports whether experiments take the time that they tell.
func (o *benchOptions) usual() bool {
	return len(o.config.Cells) == 0 && o.config.Repeats == bench.DefaultRepeats
}

// announce says beforehand what will be done, and where.
func (o *benchOptions) announce(w io.Writer, all []*bench.Experiment, database string) {
	what, takes := all[0].Name, time.Duration(0)
	if len(all) > 1 {
		what = fmt.Sprintf("%d experiments", len(all))
	}
	for _, e := range all {
		if o.config.Quick {
			takes += e.Quick
		} else {
			takes += e.Full
		}
	}
	about := benchreport.About(takes)
	if !o.usual() {
		about = fmt.Sprintf("of all cells, with %d repeats, %s; this is another choice", bench.DefaultRepeats, about)
	}
	_, _ = fmt.Fprintf(w, "%s: %s\n", what, about)
	if database == "" {
		return
	}
	_, _ = fmt.Fprintf(w, "scratch database %s in %s, dropped in the end\n", database, config.MaskURI(o.config.URI))
	for _, e := range all {
		if e.Restarts != "" {
			_, _ = fmt.Fprintf(w, "left out of %s with --mongo-uri: %s\n", e.Name, e.Restarts)
		}
	}
}

// show prints a result as soon as it is there; JSON comes in the end, whole.
func (o *benchOptions) show(w io.Writer, r *bench.Result) error {
	if *o.output == "json" {
		return nil
	}
	if err := benchreport.Text(w, textWidth(w), r); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

// showAll prints what is told of all results together.
func (o *benchOptions) showAll(w io.Writer, results []*bench.Result, several bool) error {
	switch {
	case *o.output == "json" && several:
		return benchreport.JSONAll(w, results)
	case len(results) == 0:
		return nil
	case *o.output == "json":
		return benchreport.JSON(w, results[0])
	case several:
		return benchreport.Table(w, textWidth(w), results)
	}
	return nil
}

// textWidth is how wide lines may be: those of a terminal end where it does, or
// where they can be read no longer; a file's do not, for it is Markdown.
func textWidth(w io.Writer) int {
	const readable = 140
	width := columnsOf(w)
	if width == math.MaxInt {
		return 0
	}
	return min(width, readable)
}
