// Package timeseries is an experiment.
package timeseries

import (
	"context"
	"errors"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
)

// Experiment returns it.
func Experiment() *bench.Experiment {
	return &bench.Experiment{
		Name:     "timeseries",
		Question: "Does a native time-series collection load faster, take less space and answer faster than an ordinary one?",
		Full:     8*time.Minute,
		Quick:    75*time.Second,
		Cells:    []bench.Cell{},
		Run:      run,
	}
}

func run(context.Context, *bench.Lab, *bench.Result) error { return errors.New("not there yet") }
