// Package compression is an experiment.
package compression

import (
	"context"
	"errors"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
)

// Experiment returns it.
func Experiment() *bench.Experiment {
	return &bench.Experiment{
		Name:     "compression",
		Question: "What do snappy and zstd save, and what do they cost?",
		Full:     8*time.Minute,
		Quick:    75*time.Second,
		Cells:    []bench.Cell{},
		Run:      run,
	}
}

func run(context.Context, *bench.Lab, *bench.Result) error { return errors.New("not there yet") }
