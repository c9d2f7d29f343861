package main

import (
	"github.com/spf13/cobra"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/checkpoint"
	"github.com/brim-telemetry/brim/internal/bench/compression"
	"github.com/brim-telemetry/brim/internal/bench/fill"
	"github.com/brim-telemetry/brim/internal/bench/granularity"
	storageexperiment "github.com/brim-telemetry/brim/internal/bench/storage"
	"github.com/brim-telemetry/brim/internal/bench/timeseries"
)

// experiments lists them in the order in which `brim bench all` runs them.
func experiments() []*bench.Experiment {
	return []*bench.Experiment{
		granularity.Experiment(), fill.Experiment(), timeseries.Experiment(),
		compression.Experiment(), checkpoint.Experiment(), storageexperiment.Experiment(),
	}
}

// newBench returns `brim bench`, which holds what was published about MongoDB
// against what this machine shows:
//
//	                             ┌─▶ live line ─▶ stderr
//	flags ─▶ bench.Run, each ────┤
//	                             └─▶ bench.Result ─▶ report.Text or JSON ─▶ stdout
//	                                        └──────▶ report.HTML ─▶ --report
func newBench(p *process, all []*bench.Experiment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Check published figures about MongoDB on this machine",
		Args:  subcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, e := range all {
		cmd.AddCommand(newBenchOne(p, e))
	}
	return cmd
}

// newBenchOne returns `brim bench NAME`.
func newBenchOne(p *process, e *bench.Experiment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   e.Name,
		Short: e.Question,
		Args:  cobra.NoArgs,
	}
	o := newBenchFlags(cmd, p)
	o.addCells(cmd, e)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), p, e) }
	return cmd
}
