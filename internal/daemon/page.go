package daemon

import (
	"fmt"
	"slices"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon/console"
	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/scrape"
)

// openDoctor returns the monitor of MongoDB's storage engine and its disk; nil if no
// stream needs MongoDB.
func (d *daemon) openDoctor(s *storage) (*doctor.Monitor, error) {
	if s.conn == nil {
		return nil, nil //nolint:nilnil // there is nothing to monitor, and that is no error
	}
	thresholds, err := LoadThresholds(d.cfg.Thresholds)
	if err != nil {
		return nil, err
	}
	config := doctor.Config{
		Database: s.conn.Database(), Interval: d.cfg.ServerStatusInterval, Thresholds: thresholds, Logger: d.log, Registerer: d.registry,
		Available: s.available,
		WritePath: doctor.NewPace(func() (doctor.Writes, error) {
			seen, err := scrape.Gather(d.registry)
			return doctor.WritesOf(seen), err
		}).Sample,
	}
	if server := d.mongod.Load(); server != nil {
		config.DBPath = server.DBPath()
	}
	for _, stream := range d.cfg.Streams {
		config.Streams = append(config.Streams, doctor.Stream{Name: stream.Name, Storage: stream.Storage, Compressor: stream.Compressor})
	}
	monitor, err := doctor.New(config)
	if err != nil {
		return nil, fmt.Errorf("set up the monitor of MongoDB: %w", err)
	}
	return monitor, nil
}

// newConsole returns the live page.
func (d *daemon) newConsole() *console.Console {
	return console.New(console.Config{
		Version: d.version.Version, Gatherer: d.registry, Logger: d.log,
		Parts: d.parts, Streams: d.pageStreams, Signals: d.pageSignals, Diagnosis: d.pageDiagnosis,
		HTTPAddr: func() string { return reachable(d.listeners.http) },
		Scheme:   d.scheme(),
	})
}

func (d *daemon) pageStreams() []console.Stream {
	s := d.storage.Load()
	var out []console.Stream
	for _, stream := range d.cfg.Streams {
		one := console.Stream{
			Name: stream.Name, Storage: string(stream.Storage), Granularity: config.FormatDuration(stream.Granularity),
			Default: stream.Name == d.cfg.Default.Name, Ready: s != nil && s.reason(stream.Name) == nil,
		}
		if stream.hasBuckets() {
			one.Window = stream.Granularity
		}
		out = append(out, one)
	}
	return out
}

func (d *daemon) pageSignals() []doctor.Signal {
	if monitor := d.monitor.Load(); monitor != nil {
		return monitor.Signals()
	}
	return nil
}

func (d *daemon) pageDiagnosis() console.Diagnosis {
	monitor := d.monitor.Load()
	if monitor == nil {
		return console.Diagnosis{}
	}
	seen := monitor.Seen()
	slow := slices.DeleteFunc(doctor.Diagnose(seen), func(f doctor.Finding) bool { return f.Kind != doctor.Slow })
	if seen.Server.Why != "" {
		return console.Diagnosis{Findings: slow, Note: "The storage engine cannot be sampled: " + seen.Server.Why + "."}
	}
	return console.Diagnosis{Findings: slow, Note: seen.Excused()}
}

// CheckThresholds returns an error for an invalid file.
func CheckThresholds(path string) error {
	_, err := LoadThresholds(path)
	return err
}

// LoadThresholds reads a file of thresholds. If path is empty, it returns nil, which stands for
// the built-in ones.
func LoadThresholds(path string) (*doctor.Thresholds, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // nil is the built-in ones
	}
	return doctor.LoadThresholds(path)
}
