// Package compression is the experiment that weighs what a block compressor
// saves against what it costs: in three compressors, four shapes and two kinds
// of values, which are all that varies.
package compression

import (
	"context"
	"errors"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/lane"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/store"
)

// The cells.
const (
	cellSize  = "size"
	cellRead  = "read"
	cellWrite = "write"
)

// Experiment returns it.
func Experiment() *bench.Experiment {
	return &bench.Experiment{
		Name:     "compression",
		Question: "What do snappy and zstd save, and what do they cost?",
		Full:     6 * time.Minute,
		Quick:    70 * time.Second,
		Restarts: "cold reads, before which it is restarted",
		Cells: []bench.Cell{
			{Name: cellSize, What: "bytes of data and indexes: compressors by shapes by values"},
			{Name: cellRead, What: "reads of 100 readings, from the cache and from the disk"},
			{Name: cellWrite, What: "latency, processor time and bytes written at a fixed rate, and the processor time of checkpoints"},
		},
		Run: run,
	}
}

// compressors are what is compared.
func compressors() []store.Compressor {
	return []store.Compressor{store.NoneCompressor, store.Snappy, store.Zstd}
}

// The places of the compressors.
const (
	none = iota
	snappy
	zstd
)

// shapes are those that are compressed.
func shapes() []shape.Shape {
	return []shape.Shape{
		{Kind: shape.Documents}, {Kind: shape.Buckets, Granularity: 5 * time.Minute}, {Kind: shape.Buckets, Granularity: time.Hour}, {Kind: shape.TimeSeries, Granularity: time.Hour},
	}
}

// The places of the shapes.
const (
	documents = iota
	buckets5m
	buckets1h
	timeSeries
)

// Values are what readings hold.
type Values string

// The values.
const (
	Walk   Values = "random walk"
	Random Values = "random doubles"
)

const (
	interval = 5 * time.Second
	hour     = int(time.Hour / interval) // readings of a sensor
	fields   = 4
	// perUpdate is how many readings of a sensor arrive together: those of five
	// minutes.
	perUpdate = 60
	// readCount is how many readings a read asks for.
	readCount = 100
)

// scale is how much is done.
type scale struct {
	sensors, hours int
	rate           int // readings/s of the paced writes
	write          time.Duration
	checkpoint     int   // checkpoints, with an hour of readings each
	paced          []int // shapes
}

func scaleOf(quick bool) scale {
	if quick {
		return scale{sensors: 16, hours: 4, rate: 2000, write: 2500 * time.Millisecond, checkpoint: 3, paced: []int{buckets5m}}
	}
	return scale{sensors: 16, hours: 10, rate: 2000, write: 5 * time.Second, checkpoint: 6, paced: []int{documents, buckets5m, timeSeries}}
}

// A trial is one run of the experiment.
type trial struct {
	lab     *bench.Lab
	m       *bench.MongoDB
	result  *bench.Result
	scale   scale
	sources map[Values]lane.Source
	data    Data
	kept    [][]*shape.Collection // by shape and compressor, for the reads; nil before they are loaded
}

func run(ctx context.Context, lab *bench.Lab, r *bench.Result) error {
	return runScale(ctx, lab, r, scaleOf(lab.Quick))
}

// runScale is run at another scale, for tests.
func runScale(ctx context.Context, lab *bench.Lab, r *bench.Result, s scale) (err error) {
	m, err := lab.Start(ctx, bench.Setting{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	t := &trial{lab: lab, m: m, result: r, scale: s}
	if t.sources, err = sources(lab.Seed); err != nil {
		return err
	}
	t.tell()
	lab.Steps(t.steps())
	err = t.measure(ctx)
	t.report()
	return err
}

// sources are what makes each kind of values.
func sources(seed uint64) (map[Values]lane.Source, error) {
	const most = 1000
	walk, err := load.NewSensors(load.SensorsConfig{Count: most, Fields: fields, Signal: load.Walk, Seed: seed, Prefix: "s-"})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range walk.AppendFields(nil, 0, 0, shape.Begin()) {
		names = append(names, f.Name)
	}
	return map[Values]lane.Source{Walk: shape.Untagged{Source: walk}, Random: shape.Doubles{Names: names, Seed: seed}}, nil
}

func (t *trial) measure(ctx context.Context) error {
	for _, c := range []struct {
		name string
		run  func(context.Context) error
	}{{cellSize, t.sizes}, {cellRead, t.reads}, {cellWrite, t.writes}} {
		if !t.lab.Has(c.name) {
			continue
		}
		if err := c.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (t *trial) steps() (n int) {
	if t.lab.Has(cellSize) {
		n += 2 * len(shapes())
	} else if t.lab.Has(cellRead) {
		n += len(shapes())
	}
	if t.lab.Has(cellRead) {
		n += t.lab.Repeats
	}
	if t.lab.Has(cellWrite) {
		n += t.lab.Repeats * len(compressors())
	}
	return n
}

// readings are those of a number of hours, and of each sensor one more, which
// makes the server pack the time-series bucket before it.
func (t *trial) readings(values Values, hours int) shape.Readings {
	return shape.Readings{Source: t.sources[values], Sensors: t.scale.sensors, Count: hours*hour + 1, Begin: shape.Begin(), Interval: interval}
}

// tell says what is held fast and what is smaller.
func (t *trial) tell() {
	r, s := t.result, t.scale
	r.Pin("the same readings, by seed, in every shape and compressor: {ts, t, h, p, v} each %v from %d sensors, no tags", interval, s.sensors)
	r.Pin("random walk: numbers with one or two decimals, as `brim load --signal walk`; random doubles: from 0 to 1, all bits random")
	r.Pin("up to %d readings of a sensor arrive together, %d readings a command, one client, write concern majority with journal", perUpdate, shape.CommandReadings)
	r.Pin("indexes are compressed by their prefixes, as by default, whatever the collection's compressor; so is the journal, by snappy")
	r.Pin("a read asks for %d readings of one sensor, one after another, and decodes them", readCount)
	r.Pin("writes: open loop, %d readings/s, a command each %v, response time from when it was due; no checkpoint but those that are measured", s.rate, tick)
	r.Pin("%s readings of each kind for the published 10,000,000; sizes are measured once, since they hardly change from run to run", s.total())
	if full := scaleOf(false); t.lab.Quick {
		r.Reduce("%s readings of each kind, and a fixed rate into %d of the shapes for %v a repeat; a full run has %s, %d and %v",
			s.total(), len(s.paced), s.write, full.total(), len(full.paced), full.write)
	}
}

// total is how many readings there are of each kind.
func (s scale) total() string { return bench.Count.Format(float64(s.sensors * s.hours * hour)) }
