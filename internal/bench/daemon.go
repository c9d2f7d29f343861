package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/brim-telemetry/brim/internal/launch"
	"github.com/brim-telemetry/brim/internal/load"
)

// A Daemon is `brim serve` that writes into an experiment's MongoDB.
type Daemon struct {
	*launch.Daemon
	lab *Lab
	dir string
}

// Daemon starts one on a MongoDB, with further flags. Its streams' collections
// are in the MongoDB's database.
func (l *Lab) Daemon(ctx context.Context, m *MongoDB, flags ...string) (*Daemon, error) {
	dir, err := os.MkdirTemp(l.dir, "daemon-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the daemon: %w", err)
	}
	config := filepath.Join(dir, "brim.yaml") // the URI may have a secret, which is not for a list of processes
	if err := os.WriteFile(config, fmt.Appendf(nil, "mongo-uri: %q\ndatabase: %q\ndata-dir: %q\n", m.URI(), m.Name(), filepath.Join(dir, "data")), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("write the daemon's configuration: %w", err), os.RemoveAll(dir))
	}
	d := &Daemon{lab: l, dir: dir}
	d.Daemon, err = launch.Start(ctx, launch.Config{
		Brim: l.config.Brim, Args: append([]string{"--config", config}, flags...), Out: l.config.Out, Abort: l.config.Abort,
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	l.open = append(l.open, d)
	return d, nil
}

// Load runs `brim load` against the daemon.
func (d *Daemon) Load(ctx context.Context, flags ...string) (*load.Result, error) {
	return launch.Load(ctx, d.lab.config.Brim, d.Daemon, flags...)
}

// Close stops the daemon, which stores what it has, and removes its folder.
// Further calls do nothing.
func (d *Daemon) Close() error {
	if !d.lab.ended(d) {
		return nil
	}
	abort := d.lab.config.Abort
	soft := context.AfterFunc(abort, d.Kill)
	defer soft()
	err := d.Stop()
	if abort.Err() != nil {
		err = nil // that it was killed is what was asked for
	}
	return errors.Join(err, os.RemoveAll(d.dir))
}
