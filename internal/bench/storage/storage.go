// Package storage is an experiment.
package storage

import (
	"context"
	"errors"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
)

// Experiment returns it.
func Experiment() *bench.Experiment {
	return &bench.Experiment{
		Name:     "storage",
		Question: "Which signal shows first that the storage is at its limit, and what does compaction give back?",
		Full:     8*time.Minute,
		Quick:    80*time.Second,
		Cells:    []bench.Cell{},
		Run:      run,
	}
}

func run(context.Context, *bench.Lab, *bench.Result) error { return errors.New("not there yet") }
