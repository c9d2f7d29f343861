// Command yardstick measures what Brim promises of its speed, with real
// daemons and their own mongods on this machine, and prints a table of it.
// `make bench` runs it.
//
//	              ┌ raw    driver, insertMany ─────────────────────┐
//	fleet ─ pair ─┤                                                ├─▶ the same mongod
//	              └ brim   POST /write ─▶ brim serve ─▶ all stored ┘
//
// What is a ratio is measured in pairs, one side after the other against the
// same mongod in a fresh directory; the median of the pairs counts. A reading
// through Brim counts when it is stored, so the clock runs until the journal
// has nothing left that is not.
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
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case interrupted && err != nil:
		fmt.Fprintln(os.Stderr, "yardstick: interrupted; the daemon and its mongod are stopped, and their folder is removed")
		os.Exit(130) //nolint:forbidigo // as a shell says it of a program that a signal ended; this is main
	case err != nil:
		fmt.Fprintln(os.Stderr, "yardstick:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

// config is what can be set.
type config struct {
	brim        string // the program
	rows        string // names, separated by commas
	pairs       int
	singleRuns  int           // of single readings, a minute each
	fillRuns    int           // of the fill, a minute each
	time        time.Duration // of a run, at least
	connections int
	output      string
	profile     string // directory; empty: none
	list        bool
	report      string        // file that gets the page about the growth; empty: none
	growthTime  time.Duration // of a point of the growth, at least
}

// A measurement is what one name of --rows stands for.
type measurement struct {
	name, what string
	measure    func(y *yardstick, ctx context.Context) ([]row, error)
}

func measurements() []measurement {
	return []measurement{
		{"lines", "line protocol until stored against raw insertMany; Brim's processor time and allocations", (*yardstick).lines},
		{"grpc", "compact gRPC against line protocol; allocations", (*yardstick).grpc},
		{"ndjson", "NDJSON against line protocol", (*yardstick).ndjson},
		{"timeseries", "line protocol into a time-series collection against raw insertMany into one", (*yardstick).timeseries},
		{"single", "single-reading JSON requests at 15,000/s", (*yardstick).single},
		{"fill", "time of writes into full against into empty buckets", (*yardstick).fill},
		{"prefilled", "the same for 10,000 sensors whose buckets were filled beforehand", (*yardstick).prefilled},
		{"memory", "RSS at full rate, and of a million sensors", (*yardstick).memory},
		{"journal", "bytes a second that the journal takes without fsync", (*yardstick).journal},
		{growthName, "how the cost grows with sensors, readings an update, fields and writers (only if named: it takes some ten minutes)", (*yardstick).growth},
	}
}

// A yardstick measures.
type yardstick struct {
	config
	dir       string // temporary
	progress  io.Writer
	setting   setting
	grown     *growth  // nil unless it was measured
	explained []string // below the table
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	c, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if c.list {
		for _, m := range measurements() {
			_, _ = fmt.Fprintf(stdout, "%-12s %s\n", m.name, m.what)
		}
		return nil
	}
	chosen, err := choose(c.rows)
	if err != nil {
		return err
	}
	if err := checkPage(c.report); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "brim-yardstick-")
	if err != nil {
		return fmt.Errorf("make a directory for the measurements: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	y := &yardstick{config: *c, dir: dir, progress: stderr, setting: readSetting(dir)}
	y.setting.Pairs, y.setting.Time = c.pairs, c.time.String()
	var all []row
	for _, m := range chosen {
		y.note("%s: %s\n", m.name, m.what)
		rows, err := m.measure(y, ctx)
		if err != nil {
			return fmt.Errorf("measure %s: %w", m.name, err)
		}
		all = append(all, rows...)
	}
	r := &report{Setting: y.setting, Rows: all, Notes: y.explained, Growth: y.grown}
	show := r.printText
	if c.output == "json" {
		show = r.printJSON
	}
	return errors.Join(show(stdout), r.writePage(c.report))
}

func parse(args []string, stderr io.Writer) (*config, error) {
	var c config
	flags := c.flags(stderr)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("%q is not a flag; what to measure is named by --rows (allowed are %s)", flags.Arg(0), strings.Join(names(), ","))
	}
	c.growthTime = growthTime
	chosen := false // how often the fill is measured
	flags.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "time":
			c.growthTime = c.time
		case "fill-runs":
			chosen = true
		}
	})
	if !chosen {
		c.fillRuns = min(c.fillRuns, max(c.pairs, 1))
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	return &c, nil
}

// flags returns those that set c.
func (c *config) flags(stderr io.Writer) *flag.FlagSet {
	flags := flag.NewFlagSet("yardstick", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		_, _ = fmt.Fprintf(stderr, "yardstick measures how fast Brim is on this machine, with daemons and mongods that it starts itself,\n"+
			"and prints a table in Markdown. All rows take about half an hour; --list names them.\n\n"+
			"Usage: yardstick [flags], for example yardstick --rows lines,journal --pairs 3\n\n")
		flags.PrintDefaults()
	}
	flags.StringVar(&c.brim, "brim", filepath.Join("bin", "brim"), "the `program` to measure")
	flags.StringVar(&c.rows, "rows", "", "rows of the table to measure, as `names` separated by commas:\n"+strings.Join(names(), ",")+"\n(default all but "+growthName+"; --list says what each is)")
	flags.IntVar(&c.pairs, "pairs", 5, "measure each row `n` times, 1 to 100, and report the median. What is a ratio is measured in pairs:\nBrim and what it is compared with, one after the other. single and fill have counts of their own")
	flags.IntVar(&c.singleRuns, "single-runs", 1, "measure the row single `n` times, 1 to 100; each takes a minute")
	flags.IntVar(&c.fillRuns, "fill-runs", fillRuns, "measure the row fill `n` times, 1 to 100; each takes a minute. Unless set, no more often than --pairs")
	flags.DurationVar(&c.time, "time", 10*time.Second, "send for this `duration` on each side of a pair, 100ms to 10m; the clock runs on until all is stored.\nsingle, fill, prefilled and memory have durations of their own; growth takes 5s a point unless set")
	flags.IntVar(&c.connections, "connections", 3, "send to Brim over `n` connections, 1 to 64")
	flags.StringVar(&c.output, "output", "text", "`form` of the result: text or json")
	flags.StringVar(&c.profile, "profile", "", "write CPU and allocation profiles of the daemon during the row lines into this `directory`")
	flags.StringVar(&c.report, "report", "", "write a page with curves of the row growth into this `file`")
	flags.BoolVar(&c.list, "list", false, "list the rows that can be measured, and do nothing else")
	return flags
}

// check refuses what makes no sense.
func (c *config) check() error {
	for _, count := range []struct {
		flag       string
		value, max int
	}{{"pairs", c.pairs, 100}, {"single-runs", c.singleRuns, 100}, {"fill-runs", c.fillRuns, 100}, {"connections", c.connections, 64}} {
		if count.value < 1 || count.value > count.max {
			return fmt.Errorf("--%s %d does not fit: allowed are 1 to %d", count.flag, count.value, count.max)
		}
	}
	switch {
	case c.time < 100*time.Millisecond || c.time > 10*time.Minute:
		return fmt.Errorf("--time %v does not fit: allowed are 100ms to 10m", c.time)
	case c.output != "text" && c.output != "json":
		return fmt.Errorf("--output %q does not fit: allowed are text and json", c.output)
	case c.report != "" && !slices.Contains(strings.Split(c.rows, ","), growthName):
		return errors.New("--report shows the growth, which only --rows growth measures")
	}
	return nil
}

// names returns those of all measurements, in their order.
func names() []string {
	all := measurements()
	of := make([]string, len(all))
	for i := range all {
		of[i] = all[i].name
	}
	return of
}

// choose returns the measurements with these names, in their own order.
func choose(rows string) ([]measurement, error) {
	all := measurements()
	if rows == "" {
		return slices.DeleteFunc(all, func(m measurement) bool { return m.name == growthName }), nil
	}
	known, asked := names(), strings.Split(rows, ",")
	for _, name := range asked {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("--rows: %q is not one of %s", name, strings.Join(known, ","))
		}
	}
	return slices.DeleteFunc(all, func(m measurement) bool { return !slices.Contains(asked, m.name) }), nil
}

// note tells whoever waits how far it is.
func (y *yardstick) note(format string, args ...any) { _, _ = fmt.Fprintf(y.progress, format, args...) }
