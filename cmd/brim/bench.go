package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/checkpoint"
	"github.com/brim-telemetry/brim/internal/bench/compression"
	"github.com/brim-telemetry/brim/internal/bench/fill"
	"github.com/brim-telemetry/brim/internal/bench/granularity"
	benchreport "github.com/brim-telemetry/brim/internal/bench/report"
	"github.com/brim-telemetry/brim/internal/bench/speed"
	storagebench "github.com/brim-telemetry/brim/internal/bench/storage"
	"github.com/brim-telemetry/brim/internal/bench/timeseries"
)

// experiments lists them in the order in which `brim bench all` runs them.
func experiments() []*bench.Experiment {
	return []*bench.Experiment{
		granularity.Experiment(), fill.Experiment(), timeseries.Experiment(),
		compression.Experiment(), checkpoint.Experiment(), storagebench.Experiment(), speed.Experiment(),
	}
}

// newBench returns `brim bench`, which holds what was published about MongoDB
// against what this machine shows:
//
//	                               ┌─▶ live line ─▶ stderr
//	flags ─▶ bench.Run, one by one ┤
//	                               └─▶ bench.Result ─▶ report.Text or JSON ─▶ stdout
//	                                        └────────▶ report.HTML ─▶ --report
func newBench(p *process, all []*bench.Experiment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Check published figures about MongoDB on this machine",
		Long: "Check published figures about MongoDB on this machine. Each experiment answers a question, and holds each\n" +
			"published figure against what it measures: confirmed; direction holds, size differs; not seen here; opposite.\n\n" +
			"It runs mongods of its own in a scratch folder, and removes them in the end. With --mongo-uri it measures\n" +
			"your MongoDB, in a scratch database that it drops in the end.",
		Example: "  brim bench list\n" +
			"  brim bench granularity --quick\n" +
			"  brim bench all --report experiments.html\n" +
			"  brim bench compression --mongo-uri mongodb://db.example:27017 --output json",
		Args: subcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBenchList(p, all), newBenchAll(p, all))
	for _, e := range all {
		cmd.AddCommand(newBenchOne(p, e))
	}
	return cmd
}

// newBenchOne returns `brim bench NAME`.
func newBenchOne(p *process, e *bench.Experiment) *cobra.Command {
	const width = 100 // as the other helps have
	cmd := &cobra.Command{
		Use:   e.Name,
		Short: e.Question,
		Long:  strings.TrimSpace(benchreport.Describe(e, width)),
		Args:  cobra.NoArgs,
	}
	o := newBenchFlags(cmd, p)
	if len(e.Cells) > 0 {
		o.addCells(cmd, e)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), p, e) }
	return cmd
}

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
		Long: fmt.Sprintf("Run all experiments, one after the other: %s. One that fails does not keep the others\n"+
			"from running. In the end a table has the claims of all.", strings.Join(names, ", ")),
		Args: cobra.NoArgs,
	}
	o := newBenchFlags(cmd, p)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), p, all...) }
	return cmd
}

// newBenchList returns `brim bench list`.
func newBenchList(p *process, all []*bench.Experiment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the experiments: what each answers, how long it takes, its cells",
		Args:  cobra.NoArgs,
	}
	output := outputFlag(cmd, "text", "json")
	cmd.RunE = func(*cobra.Command, []string) error {
		if *output == "json" {
			return benchreport.ListJSON(p.stdout, all)
		}
		return benchreport.List(p.stdout, listWidth(p.stdout), all)
	}
	return cmd
}

// listWidth is that of a terminal, or what can be read in most.
func listWidth(w io.Writer) int {
	const common = 100
	if width := textWidth(w); width > 0 {
		return width
	}
	return common
}

// cellNames lists the names of an experiment's cells.
func cellNames(e *bench.Experiment) []string {
	var names []string
	for _, c := range e.Cells {
		names = append(names, c.Name)
	}
	return names
}
