package main

import (
	"fmt"

	"github.com/brim-telemetry/brim/internal/doctor"
)

// openDoctor makes the monitor that looks at MongoDB's storage engine and its
// disk; nil where no stream needs MongoDB.
func (d *daemon) openDoctor(s *storage) (*doctor.Monitor, error) {
	if s.conn == nil {
		return nil, nil //nolint:nilnil // there is nothing to look at, and that is no error
	}
	config := doctor.Config{
		Database: s.conn.Database(), Interval: d.cfg.ServerStatusInterval, Logger: d.log, Registerer: d.registry,
	}
	for _, stream := range d.cfg.Streams {
		config.Streams = append(config.Streams, doctor.Stream{Name: stream.Name, Storage: stream.Storage})
	}
	monitor, err := doctor.New(config)
	if err != nil {
		return nil, fmt.Errorf("set up the looks at MongoDB: %w", err)
	}
	return monitor, nil
}
