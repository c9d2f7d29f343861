// Package granularity is an experiment.
package granularity

import (
	"context"
	"errors"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
)

// Experiment returns it.
func Experiment() *bench.Experiment {
	return &bench.Experiment{
		Name:     "granularity",
		Question: "What does an append cost as its bucket fills, and which granularity follows from that?",
		Full:     8 * time.Minute,
		Quick:    50 * time.Second,
		Cells:    []bench.Cell{},
		Run:      run,
	}
}

// publishedInterval is that of the sensors of the published tables.
const publishedInterval = 5 * time.Second

func run(context.Context, *bench.Lab, *bench.Result) error { return errors.New("not there yet") }
