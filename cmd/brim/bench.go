package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/checkpoint"
	"github.com/brim-telemetry/brim/internal/bench/compression"
	"github.com/brim-telemetry/brim/internal/bench/fill"
	"github.com/brim-telemetry/brim/internal/bench/granularity"
	benchreport "github.com/brim-telemetry/brim/internal/bench/report"
	"github.com/brim-telemetry/brim/internal/bench/sealed"
	"github.com/brim-telemetry/brim/internal/bench/speed"
	storagebench "github.com/brim-telemetry/brim/internal/bench/storage"
	"github.com/brim-telemetry/brim/internal/bench/timeseries"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
)

// experiments lists them in the order of `brim bench all`.
func experiments() []*bench.Experiment {
	return []*bench.Experiment{
		granularity.Experiment(), fill.Experiment(), timeseries.Experiment(),
		compression.Experiment(), sealed.Experiment(), checkpoint.Experiment(), storagebench.Experiment(), speed.Experiment(),
	}
}

// newBench returns `brim bench`, which compares published claims about MongoDB with this
// machine:
//
//	                               ┌─▶ progress ─▶ stderr
//	flags ─▶ bench.Run, one by one ┤
//	                               └─▶ bench.Result ─▶ report.Text or JSON ─▶ stdout
//	                                        └────────▶ report.HTML ─▶ --report
func newBench(p *process, all []*bench.Experiment) *cobra.Command {
	commands := []*cobra.Command{newBenchList(p, all), newBenchAll(p, all)}
	for _, e := range all {
		commands = append(commands, newBenchOne(p, e))
	}
	cmd := newGroup("bench", "Check published figures about MongoDB on this machine", commands...)
	cmd.Long = "Check published figures about MongoDB on this machine. Each experiment answers a question, and compares each\n" +
		"published figure with what it measures: confirmed; direction holds, size differs; not seen here; opposite.\n\n" +
		"It runs mongods of its own in a scratch folder, and removes them in the end. With --mongo-uri it measures\n" +
		"your MongoDB, in a scratch database that it drops in the end."
	cmd.Example = "  brim bench list\n" +
		"  brim bench granularity --quick\n" +
		"  brim bench all --report experiments.html\n" +
		"  brim bench compression --mongo-uri mongodb://db.example:27017 --output json"
	return cmd
}

// newBenchOne returns `brim bench NAME`.
func newBenchOne(p *process, e *bench.Experiment) *cobra.Command {
	cmd := &cobra.Command{Use: e.Name, Short: e.Question, Long: strings.TrimSpace(benchreport.Describe(e, helpWidth)), Args: noArgs}
	o := newBenchFlags(cmd, p)
	if len(e.Cells) > 0 {
		o.addCells(cmd, e)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), p, e) }
	return cmd
}

// helpWidth is the width of lines in help.
const helpWidth = 100

// newBenchAll returns `brim bench all`.
func newBenchAll(p *process, all []*bench.Experiment) *cobra.Command {
	all = slices.DeleteFunc(slices.Clone(all), func(e *bench.Experiment) bool { return e.Extra })
	names := make([]string, len(all))
	for i, e := range all {
		names[i] = e.Name
	}
	cmd := &cobra.Command{
		Use:   "all",
		Short: "Run all experiments, one after the other",
		Long: fmt.Sprintf("Run all experiments, one after another: %s. If one fails, the others\n"+
			"still run. A table at the end lists all claims.", strings.Join(names, ", ")),
		Args: noArgs,
	}
	o := newBenchFlags(cmd, p)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), p, all...) }
	return cmd
}

// newBenchList returns `brim bench list`.
func newBenchList(p *process, all []*bench.Experiment) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the experiments: what each answers, how long it takes, its cells", Args: noArgs}
	output := outputFlag(cmd, "text", "json")
	cmd.RunE = func(*cobra.Command, []string) error {
		if *output == "json" {
			return benchreport.ListJSON(p.stdout, all)
		}
		return benchreport.List(p.stdout, cmp.Or(textWidth(p.stdout), helpWidth), all)
	}
	return cmd
}

// benchOptions are the flags of `brim bench NAME` and `brim bench all`.
type benchOptions struct {
	config bench.Config
	report string // file
	output *string
}

// newBenchFlags adds the flags common to all experiments.
func newBenchFlags(cmd *cobra.Command, p *process) *benchOptions {
	o := &benchOptions{}
	c := &o.config
	flags := cmd.Flags()
	add := flagAdder(flags)
	flags.BoolVar(&c.Quick, "quick", false, "fewer and smaller cells; the report lists what is reduced")
	add("repeats", strconv.Itoa(bench.DefaultRepeats), "N", "of each measurement; the median counts, minimum and maximum are shown", config.Count(&c.Repeats, 1, bench.MaxRepeats))
	add("seed", "1", "N", "the same seed makes the same readings", seed(&c.Seed))
	o.output = outputFlag(cmd, "text", "json")
	add("report", "", "FILE", "write a page with plots", config.Text(&o.report, daemon.NotEmpty))
	o.addPlace(cmd, p)
	return o
}

// addPlace adds the flags for where to measure.
func (o *benchOptions) addPlace(cmd *cobra.Command, p *process) {
	cmd.Flags().SortFlags = false
	c := &o.config
	c.MongodBin = config.LookupEnv(p.env, "BRIM_MONGOD_BIN")
	add := flagAdder(cmd.Flags())
	add("mongo-uri", "", "URI", "measure this MongoDB, in a scratch database that is dropped at the end. BRIM_MONGO_URI is ignored, so that nothing is written by accident to a daemon's MongoDB", config.Text(&c.URI, checkOwnURI))
	add(daemon.UriFileSetting, "", "FILE", "the same by a file that contains the URI; a password on the command line would be visible in the process list", parsed(&c.URI, config.ReadURIFile))
	cmd.Flags().StringVar(&c.MongodBin, "mongod-bin", c.MongodBin, "path of the mongod `FILE` to run; empty: the one on PATH, or an installed one (BRIM_MONGOD_BIN)")
	add("scratch-dir", "", "DIR", "where the scratch folder is made, on the disk to be measured; empty: the system's", config.Text(&c.Dir, checkFolder))
}

// checkOwnURI also refuses an empty URI: the flag is for a MongoDB of your own.
func checkOwnURI(uri string) error {
	if uri == "" {
		return errors.New("it must not be empty; leave it out for a mongod of its own")
	}
	return config.CheckURI(uri)
}

// addCells adds the flag that selects parts of an experiment.
func (o *benchOptions) addCells(cmd *cobra.Command, e *bench.Experiment) {
	var names []string
	for _, c := range e.Cells {
		names = append(names, c.Name)
	}
	flagAdder(cmd.Flags())("cells", "", "A,B", "run only these parts, of "+strings.Join(names, ", "), func(s string) error {
		for name := range strings.SplitSeq(s, ",") {
			name = strings.TrimSpace(name)
			if !slices.Contains(names, name) {
				return fmt.Errorf("%q is not a cell of %s%s; allowed: %s", name, e.Name, config.DidYouMean("", name, names), strings.Join(names, ", "))
			}
			if !slices.Contains(o.config.Cells, name) {
				o.config.Cells = append(o.config.Cells, name)
			}
		}
		return nil
	})
}

// run runs experiments one by one and prints each result. If one fails, the others still run.
func (o *benchOptions) run(ctx context.Context, p *process, all ...*bench.Experiment) error {
	if err := checkWritable(o.report); err != nil {
		return err
	}
	var results []*bench.Result
	err := o.measure(ctx, p, func(running context.Context, c bench.Config, live *progressLine) error {
		o.announce(live, all, c.Database)
		var errs []error
		for _, e := range all {
			if running.Err() != nil {
				errs = append(errs, fmt.Errorf("%s and the following: %w", e.Name, bench.ErrInterrupted))
				break
			}
			r, err := bench.Run(running, e, c)
			live.clear()
			switch {
			case r != nil && r.Measured():
				results = append(results, r)
				if *o.output != "json" {
					err = errors.Join(err, benchreport.Text(p.stdout, textWidth(p.stdout), r))
					_, _ = fmt.Fprintln(p.stdout)
				}
			case r != nil && err == nil:
				err = nothingMeasured(r)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	err = errors.Join(err, o.printAll(p.stdout, results, len(all) > 1))
	if len(results) > 0 {
		err = errors.Join(err, writeFile(o.report, func(w io.Writer) error { return benchreport.HTML(w, results...) }))
	}
	return err
}

// measure runs measurements: the first signal stops them gracefully, the second at once.
func (o *benchOptions) measure(ctx context.Context, p *process, run func(context.Context, bench.Config, *progressLine) error) (err error) {
	c := o.config
	c.Version = readVersion().Version
	if c.Brim, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if c.URI != "" {
		c.Database = bench.ScratchName(time.Now())
	}
	live, running, aborting, end := p.interruptible(ctx, 0, "stopping, and removing scratch data; a second signal stops at once")
	defer end()
	c.Abort, c.Out = aborting, live
	c.Progress = func(at bench.Progress) { showStep(live, at, o.usual()) }
	return run(running, c, live)
}

// nothingMeasured returns an error that explains why.
func nothingMeasured(r *bench.Result) error {
	var left []string
	for _, l := range r.LeftOut {
		left = append(left, fmt.Sprintf("%s (%s)", l.What, l.Why))
	}
	return fmt.Errorf("%s: nothing was left to measure; left out: %s", r.Experiment, strings.Join(left, ", "))
}

// usual reports whether experiments take as long as announced.
func (o *benchOptions) usual() bool {
	return len(o.config.Cells) == 0 && o.config.Repeats == bench.DefaultRepeats
}

// announce prints what will be done, and where.
func (o *benchOptions) announce(live *progressLine, all []*bench.Experiment, database string) {
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
		about = fmt.Sprintf("all cells with %d repeats take %s; this is a different selection", bench.DefaultRepeats, about)
	}
	live.say("%s: %s", what, about)
	if database == "" {
		return
	}
	live.say("scratch database %s in %s, dropped at the end", database, config.MaskURI(o.config.URI))
	for _, e := range all {
		if e.Restarts != "" {
			live.say("left out of %s with --mongo-uri: %s", e.Name, e.Restarts)
		}
	}
}

// printAll prints the JSON of all results, or a table of several.
func (o *benchOptions) printAll(w io.Writer, results []*bench.Result, several bool) error {
	switch {
	case *o.output == "json" && several:
		return benchreport.JSON(w, results)
	case len(results) == 0:
		return nil
	case *o.output == "json":
		return benchreport.JSON(w, results[0])
	case several:
		return benchreport.Table(w, textWidth(w), results)
	}
	return nil
}

// showStep shows a step that begins, and the total time if known: "granularity 7 · 360 resident
// · 0:21 of about 0:50".
func showStep(live *progressLine, p bench.Progress, known bool) {
	began, step := time.Now(), fmt.Sprintf("%s %d · %s · ", p.Experiment, p.Step, p.What)
	live.show(step, func(now time.Time) string {
		line := step + clockTime(p.Elapsed+now.Sub(began))
		if known {
			line += " of about " + clockTime(p.Expected)
		}
		return line
	})
}

// clockTime formats a time like a stopwatch: 0:05, 12:34, 1:00:00.
func clockTime(d time.Duration) string {
	seconds := int(d / time.Second)
	if seconds >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
	}
	return fmt.Sprintf("%d:%02d", seconds/60, seconds%60)
}
