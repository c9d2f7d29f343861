package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/load/report"
	"github.com/brim-telemetry/brim/internal/load/send"
)

// newLoad returns `brim load`, which pretends to be many sensors:
//
//	flags ─▶ GET /v1/streams ─▶ look at /metrics ─▶ load.Generator ─▶ POST /flush ─▶ look again ─▶ report.Text ─▶ stdout
//	          (the window)         (--admin)         │        │          (--admin)                  ├─▶ --report, --hgrm
//	                                      send.Pool ◀┘        └▶ live line ─▶ stderr                └─▶ --fail-if
func newLoad(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Make load: readings of many sensors, each sent when it is due",
		Long: "Make load: readings of many sensors, each sent when it is due, whether the daemon has answered or not.\n\n" +
			"--interval is event time, which --speedup makes run faster than the clock: at 60 an hour's bucket fills\n" +
			"in a minute. Readings a second = sensors x speedup / interval. A request of a --batch is due when the\n" +
			"last of its readings is. Response time counts from when a request was due, service time from when it\n" +
			"was sent. What is due while --max-in-flight requests are not answered is dropped, and counted.\n" +
			"A run that was asked for more than could be taken reports SATURATED in its first line (\"saturated\" in JSON):\n" +
			"its times include time in a queue. The exit status stays 0 unless --fail-if says otherwise.\n\n" +
			"A request that fails counts with the time until that was known, and one that still waits for a connection\n" +
			"at the end with its wait: what they would have taken is longer. --fail-if therefore takes requests that\n" +
			"failed or were dropped for slower than any bound: where they are 1 % of those due, the p99 is not known,\n" +
			"and a condition that it be too high is met; so it is with max and mean where there is one of them.\n" +
			"A condition can be about p50, p90, p99, p999, max and mean (of the response time, or as service.p99 of the\n" +
			"service time), store.p50, store.p99 (--admin), drain (from the end of the schedule to the last answer),\n" +
			"achieved, dropped, failed and rejected (readings, or % of them).",
		Example: "  brim load --sensors 167 --interval 5s --speedup 60 --duration 60s --admin 127.0.0.1:8432 --report load.html\n" +
			"  brim load --rate 500..5000 --steps 10 --batch 10 --fail-if 'p99>50ms' --fail-if 'dropped>0'\n" +
			"  brim load --target grpc://127.0.0.1:8431 --from readings.ndjson.gz --speedup 100\n" +
			"  brim load --compare before.json after.json",
	}
	o := newLoadFlags(cmd, p)
	cmd.Args = o.arguments
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.compare {
			return compareResults(p.stdout, args)
		}
		return o.run(cmd.Context(), p)
	}
	return cmd
}

// compareResults prints two results beside each other.
func compareResults(w io.Writer, paths []string) error {
	a, err := report.Read(paths[0])
	if err != nil {
		return err
	}
	b, err := report.Read(paths[1])
	if err != nil {
		return err
	}
	return report.Compare(w, report.File{Result: a, Path: paths[0]}, report.File{Result: b, Path: paths[1]})
}

var errNothingTaken = errors.New("the daemon took no reading")

// run makes the load and reports.
func (o *loadOptions) run(ctx context.Context, p *process) (err error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	o.target = withScheme(o.target)
	if o.caller, err = o.access(p); err != nil {
		return err
	}
	if err := o.caller.mayShow(o.target); err != nil {
		return config.Usage(fmt.Errorf("--target: %w", err))
	}
	files, err := o.openFiles()
	if err != nil {
		return err
	}
	defer files.close()
	pool, err := send.New(send.Config{
		Target: o.target, Stream: o.stream, Ack: o.ack, Connections: o.config.Connections, Timeout: o.timeout, Form: o.form,
		Token: o.caller.token, TLS: o.caller.tls,
	})
	if err != nil {
		return config.Usage(fmt.Errorf("--target: %w", err))
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	generator, look, err := o.prepare(ctx, p, pool)
	if err != nil {
		return err
	}
	result, err := o.measure(ctx, p, generator, look)
	if result == nil {
		return err
	}
	if err = errors.Join(err, o.show(p, files, result), o.judge(result)); err == nil {
		o.warnLost(p.stderr, result)
	}
	return err
}

// warnLost says that a run which lost readings is no failure of the command,
// where nobody said what is one.
func (o *loadOptions) warnLost(w io.Writer, r *load.Result) {
	if lost := r.Failed + r.Dropped; lost > 0 && len(o.failIf) == 0 {
		_, _ = fmt.Fprintf(w, "%s of %s readings that were due failed or were dropped, and the exit status is 0 all the same: --fail-if 'failed>0' --fail-if 'dropped>0' would make it 1\n",
			humanize.Comma(lost), humanize.Comma(r.Sent+r.Dropped))
	}
}

// prepare finds out what is written to, and checks everything that can be
// checked before the first reading.
func (o *loadOptions) prepare(ctx context.Context, p *process, pool *send.Pool) (*load.Generator, *storeLook, error) {
	stream, err := o.discover(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	if err := pool.Check(ctx); err != nil {
		return nil, nil, explainTarget(o.target, "--target", err)
	}
	c := o.config
	c.Senders, c.Stream, c.Protocol, c.Target = pool.Sender, stream, pool.Protocol(), o.target
	c.Ack, c.Version = string(o.ack), readVersion().Version
	if o.metricsAddr != "" {
		if o.registry, err = loadRegistry(); err != nil {
			return nil, nil, err
		}
		c.Registerer = o.registry
	}
	live := newLiveLine(p.stderr, cmp.Or(c.Speedup, 1)/float64(stream.GranularitySeconds))
	c.Progress = live.show
	o.live = live
	generator, err := load.New(c)
	if err != nil {
		return nil, nil, config.Usage(err)
	}
	o.warnAhead(p.stderr, generator.Setup(), time.Now())
	warnInterval(p.stderr, generator.Setup())
	if o.admin == "" {
		return generator, nil, nil
	}
	look, err := o.caller.newStoreLook(ctx, o.admin, stream.Name)
	return generator, look, err
}

// warnInterval tells that a whole number of sensors makes another interval.
func warnInterval(w io.Writer, s load.Setup) {
	const unnoticed = 0.01
	if asked := s.AskedIntervalSeconds; asked > 0 && math.Abs(s.IntervalSeconds/asked-1) > unnoticed {
		_, _ = fmt.Fprintf(w, "--rate %s takes %d sensors, each of which reports every %.3f s of event time, and not every %.3f s\n", s.Rate, s.Sensors, s.IntervalSeconds, asked)
	}
}

// warnAhead tells that event time will overtake the clock.
func (o *loadOptions) warnAhead(w io.Writer, s load.Setup, now time.Time) {
	const unnoticed = time.Minute
	end := now.Add(time.Duration(s.DurationSeconds * float64(time.Second)))
	if ahead := s.EventEnd.Sub(end); ahead > unnoticed {
		_, _ = fmt.Fprintf(w, "event time ends %s ahead of the clock; the daemon refuses what is beyond its --max-future\n", ahead.Round(time.Second))
	}
}

// measure carries the run out. The result is nil if there was none.
func (o *loadOptions) measure(ctx context.Context, p *process, g *load.Generator, look *storeLook) (*load.Result, error) {
	metrics, err := o.serveMetrics(ctx)
	if err != nil {
		return nil, err
	}
	if metrics.address != "" {
		_, _ = fmt.Fprintf(p.stderr, "the generator's own metrics are at http://%s/metrics while it runs\n", metrics.address)
	}
	result, err := g.Run(ctx)
	o.live.end()
	metrics.close()
	if result == nil || look == nil {
		return result, err
	}
	// Also of a run that was interrupted; who does not want to wait sends a
	// second signal.
	rows, missed := look.finish(context.WithoutCancel(ctx))
	if missed != nil {
		_, _ = fmt.Fprintf(p.stderr, "store_by_fill may miss writes: %v\n", missed)
	}
	result.StoreByFill = rows
	return result, err
}

// show prints the result and writes the files that were asked for.
func (o *loadOptions) show(p *process, files *loadFiles, r *load.Result) error {
	x := files.extras
	var errs []error
	if *o.output == "json" {
		errs = append(errs, report.JSON(p.stdout, r))
		if why := report.Saturation(r); why != "" { // stdout mostly goes to a file
			_, _ = fmt.Fprintf(p.stderr, "saturated: %s\n", why)
		}
	} else {
		errs = append(errs, report.Text(p.stdout, r, x))
	}
	if files.html != nil {
		errs = append(errs, rewrite(files.html, func(w io.Writer) error { return report.HTML(w, r, x) }))
	}
	if files.hgrm != nil {
		errs = append(errs, rewrite(files.hgrm, func(w io.Writer) error { return report.HGRM(w, r) }))
	}
	return errors.Join(errs...)
}

// judge returns why the run failed.
func (o *loadOptions) judge(r *load.Result) error {
	var errs []error
	for _, c := range o.failIf {
		if err := c.Check(r); err != nil {
			errs = append(errs, err)
		}
	}
	if r.Sent > 0 && r.Acked == 0 {
		errs = append(errs, errNothingTaken)
	}
	return errors.Join(errs...)
}
