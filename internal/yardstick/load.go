package main

import (
	"context"
	"fmt"

	"github.com/brim-telemetry/brim/internal/launch"
	"github.com/brim-telemetry/brim/internal/load"
)

// load runs `brim load` against a daemon.
func (y *yardstick) load(ctx context.Context, r *rig, args ...string) (*load.Result, error) {
	return launch.Load(ctx, y.brim, r.Daemon, args...)
}

// lossRemark says what of a load did not arrive; empty if all did.
func lossRemark(result *load.Result) string {
	if result.Acked == result.Sent && result.Dropped == 0 {
		return ""
	}
	return fmt.Sprintf("of %d readings due, %d were not acknowledged and %d never sent", result.Sent+result.Dropped, result.Sent-result.Acked, result.Dropped)
}
