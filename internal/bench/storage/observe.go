package storage

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/procfs"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/internal/store"
)

// Names of the doctor's signals.
const (
	diskBusy   = "disk_busy"
	diskAwait  = "disk_await"
	cacheDirty = "cache_dirty"
	checkpoint = "checkpoint_duration"
)

// A sight is what one look at MongoDB and its disk showed. Rates are since the
// look before.
type sight struct {
	Signals          []doctor.Signal `json:"signals"`
	Processors       number          `json:"mongod_processors"`  // that mongod used, in the mean
	Writers          number          `json:"writers_processors"` // that this process used
	Machine          number          `json:"machine_processors"` // that all on this machine used
	DiskOperations   number          `json:"disk_operations_per_second"`
	DiskBytes        number          `json:"disk_bytes_per_second"`
	CheckpointsTaken number          `json:"checkpoints_taken"` // since the server's start
}

// signal returns the one of a name; one that does not exist cannot be seen.
func (s sight) signal(name string) doctor.Signal {
	for _, one := range s.Signals {
		if one.Name == name {
			return one
		}
	}
	return doctor.Signal{Name: name, Class: doctor.Unknown}
}

// An observer looks with the doctor's eyes.
type observer struct {
	mongodb  *bench.MongoDB
	monitor  *doctor.Monitor
	registry *prometheus.Registry

	at       time.Time
	cpu, own time.Duration // of mongod and of this process
	machine  number        // processor time of all, s
	before   scrape.Look
}

func newObserver(m *bench.MongoDB, stream string) (*observer, error) {
	o := &observer{mongodb: m, registry: prometheus.NewRegistry()}
	var err error
	o.monitor, err = doctor.New(doctor.Config{
		Database: m.Database(), DBPath: m.DBPath(), Interval: time.Second, Registerer: o.registry,
		Streams: []doctor.Stream{{Name: stream, Storage: store.Bucket}},
	})
	return o, err
}

// look looks now. Of the first one, the rates are not known.
func (o *observer) look(ctx context.Context) (sight, error) {
	o.monitor.Look(ctx)
	if ctx.Err() != nil {
		return sight{}, context.Cause(ctx)
	}
	cpu, err := o.mongodb.CPU(ctx)
	if err != nil {
		return sight{}, err
	}
	all := machineTime()
	own, ownErr := machine.CPU(os.Getpid())
	now, err := scrape.Gather(o.registry)
	if err != nil {
		return sight{}, fmt.Errorf("gather what the doctor saw: %w", err)
	}
	at := time.Now()
	seconds := at.Sub(o.at).Seconds()
	rate := func(name string) number {
		return number((now.Value(name, nil) - o.before.Value(name, nil)) / seconds)
	}
	s := sight{
		Signals: o.monitor.Signals(), Processors: number((cpu - o.cpu).Seconds() / seconds), Writers: number((own - o.own).Seconds() / seconds), Machine: (all - o.machine) / number(seconds),
		DiskOperations: rate("brim_disk_operations_total"), DiskBytes: rate("brim_disk_read_bytes_total") + rate("brim_disk_written_bytes_total"),
		CheckpointsTaken: number(now.Value("brim_mongodb_checkpoints_total", nil)),
	}
	if o.before == nil {
		s.Processors, s.Writers, s.Machine = unknown(), unknown(), unknown()
	}
	if ownErr != nil { // not every system tells it
		s.Writers = unknown()
	}
	o.at, o.cpu, o.own, o.machine, o.before = at, cpu, own, all, now
	return s, nil
}

// machineTime is the processor time in seconds that was used on this machine
// since its start; not every system tells it.
func machineTime() number {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return unknown()
	}
	stat, err := fs.Stat()
	if err != nil {
		return unknown()
	}
	t := stat.CPUTotal
	return number(t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ)
}
