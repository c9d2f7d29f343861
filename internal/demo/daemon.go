package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/brim-telemetry/brim/internal/launch"
)

// configuration is the daemon's file.
const configuration = `
data-dir: %s
granularity: 1h
flush-interval: %s
stream: merged
streams:
  single:
    max-readings-per-update: 1
  merged: {}
  timeseries:
    storage: timeseries
`

// startDaemon returns when the daemon can store readings.
func startDaemon(ctx context.Context, o *options, dir string, stderr io.Writer) (*launch.Daemon, error) {
	file := filepath.Join(dir, "brim.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, configuration, filepath.Join(dir, "data"), o.flushInterval()), 0o600); err != nil {
		return nil, fmt.Errorf("write the daemon's configuration: %w", err)
	}
	return launch.Start(ctx, launch.Config{Brim: o.brim, Args: []string{"--config", file}, Out: stderr})
}
