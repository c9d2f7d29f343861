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
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
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
	dir      string // temporary
	progress io.Writer
	setting  setting
	grown    *growth // nil unless it was measured
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
	r := &report{Setting: y.setting, Rows: all, Growth: y.grown}
	show := r.printText
	if c.output == "json" {
		show = r.printJSON
	}
	return errors.Join(show(stdout), r.writePage(c.report))
}

func parse(args []string, stderr io.Writer) (*config, error) {
	var c config
	flags := flag.NewFlagSet("yardstick", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&c.brim, "brim", filepath.Join("bin", "brim"), "the `program` to measure")
	flags.StringVar(&c.rows, "rows", "", "what to measure, `names` separated by commas (default: all but growth; --list tells them)")
	flags.IntVar(&c.pairs, "pairs", 5, "pairs, or runs where there is nothing to pair, of which the median counts")
	flags.DurationVar(&c.time, "time", 10*time.Second, "how long each side sends, at least (growth: 5s)")
	flags.IntVar(&c.connections, "connections", 3, "connections that send to Brim")
	flags.StringVar(&c.output, "output", "text", "text or json")
	flags.StringVar(&c.profile, "profile", "", "write profiles of the daemon while it takes line protocol into this `directory`")
	flags.StringVar(&c.report, "report", "", "write a page with curves of the growth into this `file`")
	flags.BoolVar(&c.list, "list", false, "list what can be measured")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	c.growthTime = growthTime
	flags.Visit(func(f *flag.Flag) {
		if f.Name == "time" {
			c.growthTime = c.time
		}
	})
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("%q is no flag, and there are no arguments", flags.Arg(0))
	case c.pairs < 1 || c.pairs > 100:
		return nil, fmt.Errorf("--pairs %d does not fit: allowed are 1 to 100", c.pairs)
	case c.time < 100*time.Millisecond || c.time > 10*time.Minute:
		return nil, fmt.Errorf("--time %v does not fit: allowed are 100ms to 10m", c.time)
	case c.connections < 1 || c.connections > 64:
		return nil, fmt.Errorf("--connections %d does not fit: allowed are 1 to 64", c.connections)
	case c.output != "text" && c.output != "json":
		return nil, fmt.Errorf("--output %q does not fit: allowed are text and json", c.output)
	case c.report != "" && !slices.Contains(strings.Split(c.rows, ","), growthName):
		return nil, errors.New("--report shows the growth, which only --rows growth measures")
	}
	return &c, nil
}

// choose returns the measurements with these names, in their own order.
func choose(names string) ([]measurement, error) {
	all := measurements()
	if names == "" {
		return slices.DeleteFunc(all, func(m measurement) bool { return m.name == growthName }), nil
	}
	known := make([]string, len(all))
	for i, m := range all {
		known[i] = m.name
	}
	asked := strings.Split(names, ",")
	for _, name := range asked {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("--rows: %q is not one of %s", name, strings.Join(known, ","))
		}
	}
	return slices.DeleteFunc(all, func(m measurement) bool { return !slices.Contains(asked, m.name) }), nil
}

// note tells whoever waits how far it is.
func (y *yardstick) note(format string, args ...any) { _, _ = fmt.Fprintf(y.progress, format, args...) }
