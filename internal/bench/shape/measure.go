package shape

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/lane"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/store"
)

// MeasureConfig says what is to be measured of one shape.
type MeasureConfig struct {
	Shape      Shape
	Compressor store.Compressor
	Interval   time.Duration // of a sensor
	Fields     int           // of a reading; 0: 4
	Seed       uint64
	// Span is how much of each sensor's time is loaded. It is made longer to whole
	// windows.
	Span time.Duration
	// Sensors that are loaded; 0: as many as make some 100,000 readings, 1 to 1,000.
	Sensors int
	// PerUpdate is how many readings of a sensor an update carries; 0: 12.
	PerUpdate int
	// QuerySpan is what a query asks for; 0: none is made. It is cut to Span.
	QuerySpan time.Duration
	// MaxReadings and MaxBytes are the caps of a part; 0: as in a daemon.
	MaxReadings, MaxBytes int
	// Name of the collection, which is dropped afterwards; empty: shape.
	Name string
}

// A Measurement is what one shape takes.
type Measurement struct {
	Size Size `json:"size"`
	// Data and Index are bytes on disk for each reading, after a checkpoint, without
	// what is free in the files. Logical are the bytes before compression.
	Data    float64 `json:"data_bytes_per_reading"`
	Index   float64 `json:"index_bytes_per_reading"`
	Logical float64 `json:"logical_bytes_per_reading"`
	// Documents for each reading; buckets of a time-series collection.
	Documents float64 `json:"documents_per_reading"`
	Updates   float64 `json:"updates_per_reading"`
	// Load is how long it took; CPU is the server's for each reading, checkpoint
	// included.
	Load time.Duration `json:"load_ns"`
	CPU  float64       `json:"cpu_seconds_per_reading"`
	// Query is the median time to read the readings of a query's span; 0: none was
	// made. QueryReadings is how many each gave.
	Query         time.Duration `json:"query_ns"`
	QueryReadings int           `json:"query_readings"`
}

const (
	measuredReadings = 100_000
	measuredSensors  = 1000
	measuredQueries  = 60
	defaultPerUpdate = 12
	// measuredPrefix is as long as the one that a load run gives to its sensors.
	measuredPrefix = "load-mi8dk3f2-"
)

var errSpan = errors.New("measure a shape: the span must be longer than the interval")

// Measure loads readings as `brim load` makes them, tags included, in one shape
// and tells what they take. It takes a few seconds, and leaves nothing behind.
// Documents per reading follow from Span, where it is not of whole hours.
func Measure(ctx context.Context, m *bench.MongoDB, cfg MeasureConfig) (out Measurement, err error) {
	readings, err := cfg.readings()
	if err != nil {
		return out, err
	}
	c, err := New(ctx, m, Config{
		Name: cfg.Name, Shape: cfg.Shape, Compressor: cfg.Compressor, Readings: readings, PerUpdate: cfg.PerUpdate,
		MaxReadings: cfg.MaxReadings, MaxBytes: cfg.MaxBytes,
	})
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, c.Drop(context.WithoutCancel(ctx))) }()
	before, err := m.Counters(ctx)
	if err != nil {
		return out, err
	}
	loaded, err := c.Load(ctx)
	if err != nil {
		return out, err
	}
	closing, err := c.closeLast(ctx)
	if err != nil {
		return out, err
	}
	if err := m.Checkpoint(ctx); err != nil {
		return out, err
	}
	after, err := m.Counters(ctx)
	if err != nil {
		return out, err
	}
	if out.Size, err = c.Size(ctx); err != nil {
		return out, err
	}
	out.Size.Documents -= int64(closing)
	n := float64(readings.Total())
	out.Data, out.Index = out.Size.PerReading(out.Size.Data()), out.Size.PerReading(out.Size.Index())
	out.Logical, out.Documents = out.Size.PerReading(out.Size.Logical), out.Size.PerReading(out.Size.Documents)
	out.Load, out.Updates = loaded.Took, float64(loaded.Updates)/n
	out.CPU = CPU(before, after) / n
	return out, c.queries(ctx, cfg, &out)
}

// readings chooses what is loaded.
func (cfg *MeasureConfig) readings() (r Readings, err error) {
	if cfg.Interval < time.Millisecond || cfg.Span < cfg.Interval {
		return r, errSpan
	}
	if cfg.Name == "" {
		cfg.Name = "shape"
	}
	if cfg.PerUpdate == 0 {
		cfg.PerUpdate = defaultPerUpdate
	}
	window, most := cfg.Shape.Granularity, cfg.MaxReadings
	if cfg.Shape.Kind == TimeSeries {
		window, most = time.Hour, 0 // the span of the server's buckets
	}
	if most == 0 {
		most = defaultMaxReadings // a part's, and a time-series bucket's
	}
	if cfg.Shape.naive() {
		window = cfg.Interval
	}
	window = max(min(window, time.Duration(most)*cfg.Interval), cfg.Interval)
	span := (cfg.Span + window - 1) / window * window
	r = Readings{Sensors: cfg.Sensors, Count: int(span / cfg.Interval), Begin: Begin(), Interval: cfg.Interval}
	if r.Sensors == 0 {
		r.Sensors = min(max(measuredReadings/r.Count, 1), measuredSensors)
	}
	source, err := load.NewSensors(load.SensorsConfig{Count: r.Sensors, Fields: cfg.Fields, Seed: cfg.Seed, Prefix: measuredPrefix})
	r.Source = source
	return r, err
}

// Begin is when readings of experiments begin: at the boundary of every window,
// and the same in all runs.
func Begin() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// closeLast writes the reading of each sensor that follows the last, so that a
// time-series bucket that is full of time is packed, as in the long run nearly
// all are, and returns how many buckets that begins. They are not packed, and
// their bytes count.
func (c *Collection) closeLast(ctx context.Context) (buckets int, err error) {
	if c.Shape.Kind != TimeSeries {
		return 0, nil
	}
	var portions []lane.Portion
	for sensor := range c.Readings.Sensors {
		portions = append(portions, lane.Portion{Sensor: sensor, First: uint64(c.Readings.Count), Count: 1}) //nolint:gosec // counts from 0
	}
	return len(portions), c.Write(ctx, portions)
}

// queries reads spans of random sensors at random times, one after another.
func (c *Collection) queries(ctx context.Context, cfg MeasureConfig, out *Measurement) error {
	if cfg.QuerySpan <= 0 {
		return nil
	}
	n := min(max(int(cfg.QuerySpan/cfg.Interval), 1), c.Readings.Count)
	random := rand.New(rand.NewPCG(cfg.Seed, 0)) //nolint:gosec // no secret
	var took bench.Samples
	for range measuredQueries {
		span := Span{Sensor: random.IntN(c.Readings.Sensors), First: uint64(random.IntN(c.Readings.Count - n + 1)), Count: n} //nolint:gosec // counts from 0
		began := time.Now()
		got, err := c.Read(ctx, span)
		if err != nil {
			return err
		}
		if got != n {
			return fmt.Errorf("read %s: %d readings came, not %d", c.Shape, got, n)
		}
		took = append(took, time.Since(began).Seconds())
		out.QueryReadings = got
	}
	out.Query = time.Duration(took.Median() * float64(time.Second))
	return nil
}
