package main

import (
	"context"
	"time"

	"github.com/brim-telemetry/brim/internal/launch/wire"
	"github.com/brim-telemetry/brim/internal/load"
)

// prefill gives each of the sensors of `brim load` so many readings from the
// window's begin on.
func prefill(ctx context.Context, r *rig, window time.Time, rows int) error {
	sensors, err := load.NewSensors(load.SensorsConfig{Count: prefilledSensors, Seed: 1, Prefix: prefilledPrefix})
	if err != nil {
		return err
	}
	return wire.Prefill{Sensors: sensors, Begin: window, Interval: prefilledInterval, To: rows}.Run(ctx, r.Daemon)
}
