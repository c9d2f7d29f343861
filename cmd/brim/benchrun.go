package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/brim-telemetry/brim/internal/bench"
	benchreport "github.com/brim-telemetry/brim/internal/bench/report"
)

// run runs an experiment and shows what came.
func (o *benchOptions) run(ctx context.Context, p *process, e *bench.Experiment) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	page, err := openToWrite(o.report)
	if err != nil {
		return err
	}
	c := o.config
	if c.Brim, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	c.Version, c.Out = readVersion().Version, p.stderr
	c.Progress = func(at bench.Progress) {
		_, _ = fmt.Fprintf(p.stderr, "%s %d/%d · %s · %s of about %s\n", at.Experiment, at.Step, at.Of, at.What, at.Elapsed, at.Expected)
	}
	r, err := bench.Run(ctx, e, c)
	if r == nil {
		return err
	}
	if *o.output == "json" {
		err = errors.Join(err, benchreport.JSON(p.stdout, r))
	} else {
		err = errors.Join(err, benchreport.Text(p.stdout, 0, r))
	}
	if page != nil {
		err = errors.Join(err, rewrite(page, func(w io.Writer) error { return benchreport.HTML(w, r) }))
	}
	return err
}
