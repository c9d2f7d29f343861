package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/brim-telemetry/brim/internal/config"
)

// A loadCleanup deletes the sensors of one load run, whose ids share a unique prefix.
type loadCleanup struct {
	remote         *remote
	stream, prefix string
}

// check returns an error if the sensors could not be deleted. It is called before the run.
func (c *loadCleanup) check(ctx context.Context) error {
	d := &deletion{DryRun: true}
	query := url.Values{"stream": {c.stream}, "prefix": {c.prefix}, "dry-run": {"true"}, "limit": {"1"}}
	if _, err := d.ask(ctx, c.remote, "/v1/sensors?"+query.Encode()); err != nil {
		return fmt.Errorf("--cleanup: %w", err)
	}
	return nil
}

// run deletes them, also after a run that was interrupted: ctx may have ended.
func (c *loadCleanup) run(ctx context.Context, w io.Writer) error {
	again := ""
	if ctx.Err() != nil {
		ctx, again = context.WithoutCancel(ctx), "; interrupt again to leave them"
	}
	_, _ = fmt.Fprintf(w, "deleting the sensors of this run (%s…)%s\n", c.prefix, again)
	o := deleteOptions{stream: c.stream, prefix: c.prefix, yes: true}
	d, err := o.run(ctx, &process{stderr: w}, c.remote)
	if err != nil {
		return fmt.Errorf("--cleanup: %w; %s; to delete the rest, run: brim delete --url %s --stream %s --prefix %s --yes", err, d, config.ShellWord(config.MaskUser(c.remote.base)), config.ShellWord(c.stream), c.prefix)
	}
	_, _ = fmt.Fprintln(w, d)
	return nil
}

// newCleanup returns what deletes the sensors of a run.
func (o *loadOptions) newCleanup(base, flag, stream, prefix string) *loadCleanup {
	return &loadCleanup{remote: o.remote(base, flag, time.Minute), stream: stream, prefix: prefix}
}
