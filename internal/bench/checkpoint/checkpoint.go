// Package checkpoint is an experiment.
package checkpoint

import (
	"context"
	"errors"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
)

// Experiment returns it.
func Experiment() *bench.Experiment {
	return &bench.Experiment{
		Name:     "checkpoint",
		Question: "What does the checkpoint interval cost, and what does j:true?",
		Full:     12*time.Minute,
		Quick:    80*time.Second,
		Cells:    []bench.Cell{},
		Run:      run,
	}
}

func run(context.Context, *bench.Lab, *bench.Result) error { return errors.New("not there yet") }
