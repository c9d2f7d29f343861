package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/load"
)

// killDelay is how long `brim load` may take to end when it is told to.
const killDelay = 5 * time.Second

// load runs `brim load` against a daemon.
func (y *yardstick) load(ctx context.Context, r *rig, args ...string) (*load.Result, error) {
	cmd := exec.CommandContext(ctx, y.brim, append([]string{"load", "--target", "http://" + r.HTTP, "--output", "json"}, args...)...)
	cmd.WaitDelay = killDelay
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("run brim load: %w", context.Cause(ctx))
		}
		return nil, fmt.Errorf("run brim load %s: %w\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	var result load.Result
	if err := json.Unmarshal(stdout.Bytes(), &result); err != nil {
		return nil, fmt.Errorf("read what came of brim load: %w", err)
	}
	return &result, nil
}

// lossRemark says what of a load did not arrive; empty if all did.
func lossRemark(result *load.Result) string {
	if result.Acked == result.Sent && result.Dropped == 0 {
		return ""
	}
	return fmt.Sprintf("of %d readings due, %d were not acknowledged and %d never sent", result.Sent+result.Dropped, result.Sent-result.Acked, result.Dropped)
}
