// Package fill is an experiment.
package fill

import (
	"context"
	"errors"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
)

// Experiment returns it.
func Experiment() *bench.Experiment {
	return &bench.Experiment{
		Name:     "fill",
		Question: "How does write latency change through the hour, and what do merging and time-series collections change?",
		Full:     10*time.Minute,
		Quick:    150*time.Second,
		Cells:    []bench.Cell{},
		Run:      run,
	}
}

func run(context.Context, *bench.Lab, *bench.Result) error { return errors.New("not there yet") }
