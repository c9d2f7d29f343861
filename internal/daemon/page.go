package daemon

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon/console"
	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/scrape"
)

// openDoctor makes the monitor that looks at MongoDB's storage engine and its
// disk; nil where no stream needs MongoDB.
func (d *daemon) openDoctor(s *storage) (*doctor.Monitor, error) {
	if s.conn == nil {
		return nil, nil //nolint:nilnil // there is nothing to look at, and that is no error
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
		config.Streams = append(config.Streams, doctor.Stream{Name: stream.Name, Storage: stream.Storage})
	}
	monitor, err := doctor.New(config)
	if err != nil {
		return nil, fmt.Errorf("set up the looks at MongoDB: %w", err)
	}
	return monitor, nil
}

// newConsole makes the live page, which answers from the first moment on. Its
// history is in the data directory.
func (d *daemon) newConsole() (*console.Console, error) {
	return console.New(console.Config{
		Version: d.version.Version, Gatherer: d.registry, Logger: d.log,
		Parts: d.pageParts, Streams: d.pageStreams, Signals: d.pageSignals, Diagnosis: d.pageDiagnosis,
		FlushInterval: d.cfg.FlushInterval,
		HTTPAddr:      func() string { return reachable(d.listeners.http) },
		Scheme:        d.scheme(),
		File:          filepath.Join(d.cfg.DataDir, "console-history"),
	})
}

// looks are the goroutine that looks at the metrics for the live page.
type looks struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// look lets the live page look at the metrics until stop has stored what was
// taken, which is when they are most worth a look. The data directory must be
// this daemon's own by now, since the history is kept there.
func (d *daemon) look(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &looks{cancel: cancel}
	l.done.Go(func() { d.console.Run(ctx) })
	d.looks.Store(l)
}

func (l *looks) end() {
	l.cancel()
	l.done.Wait()
}

func (d *daemon) pageParts() []console.Part {
	var out []console.Part
	for _, p := range d.parts() {
		out = append(out, console.Part(p))
	}
	return out
}

func (d *daemon) pageStreams() []console.Stream {
	s := d.storage.Load()
	var out []console.Stream
	for _, stream := range d.cfg.Streams {
		out = append(out, console.Stream{
			Name: stream.Name, Storage: string(stream.Storage), Granularity: config.FormatDuration(stream.Granularity),
			Default: stream.Name == d.cfg.Default.Name, Ready: s != nil && s.reason(stream.Name) == nil,
		})
	}
	return out
}

func (d *daemon) pageSignals() []console.Signal {
	monitor := d.monitor.Load()
	if monitor == nil {
		return nil
	}
	var out []console.Signal
	for _, s := range monitor.Signals() {
		out = append(out, console.Signal{
			Name: s.Name, Title: s.Title, Value: s.Value, Unit: s.Unit, Class: s.Class.String(), Threshold: s.Describe(), Why: s.Why,
		})
	}
	return out
}

// pageDiagnosis puts findings of one cause together, as the page shows them.
func (d *daemon) pageDiagnosis() console.Diagnosis {
	monitor := d.monitor.Load()
	if monitor == nil {
		return console.Diagnosis{}
	}
	seen := monitor.Seen()
	out := console.Diagnosis{Note: seen.Excused()}
	if seen.Server.Why != "" {
		out.Note = "The storage engine cannot be seen: " + seen.Server.Why + "."
	}
	for _, f := range doctor.Diagnose(seen) {
		if f.Kind != doctor.Slow {
			continue
		}
		if n := len(out.Causes); n == 0 || out.Causes[n-1].Name != f.Name {
			out.Causes = append(out.Causes, console.Cause{Name: f.Name, Words: f.Cause, Class: f.Class.String(), Evidence: f.Evidence})
		}
		last := &out.Causes[len(out.Causes)-1]
		last.Actions = append(last.Actions, console.Action{Do: f.Action, Cost: f.Cost})
	}
	return out
}

// CheckThresholds refuses a file that cannot be used.
func CheckThresholds(path string) error {
	_, err := LoadThresholds(path)
	return err
}

// LoadThresholds returns nil where there is no file: the built-in ones.
func LoadThresholds(path string) (*doctor.Thresholds, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // nil is the built-in ones
	}
	return doctor.LoadThresholds(path)
}
