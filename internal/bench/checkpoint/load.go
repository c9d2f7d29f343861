package checkpoint

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/lane"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A Load is what is written at a steady rate while checkpoints come.
type Load struct {
	// Inserts is a document for each reading, in place of appends to buckets.
	Inserts bool
	Sensors int
	Fields  int // of a reading; 0: 4
	// Granularity of the buckets, and Interval between two readings of a sensor,
	// both in event time.
	Granularity, Interval time.Duration
	ReadingsPerUpdate     int
	ReadingsPerSecond     float64          // of all sensors, in wall time
	Compressor            store.Compressor // empty: snappy
}

// Revisit is how long it takes until a bucket gets its next update.
func (l Load) Revisit() time.Duration {
	return time.Duration(float64(l.Sensors*l.ReadingsPerUpdate) / l.ReadingsPerSecond * float64(time.Second))
}

// Name tells the load in one word.
func (l Load) Name() string {
	if l.Inserts {
		return nameInserts
	}
	return nameAppends
}

func (l Load) check() error {
	switch {
	case l.Sensors < lanes || l.ReadingsPerUpdate < 1 || !(l.ReadingsPerSecond > 0):
		return fmt.Errorf("check a load: at least %d sensors, a reading per update and a rate are needed", lanes)
	case l.Interval <= 0 || l.Granularity < l.Interval || l.Granularity%l.Interval != 0:
		return fmt.Errorf("check a load: a granularity of %v does not hold a whole number of intervals of %v", l.Granularity, l.Interval)
	}
	return store.CheckGranularity(l.Granularity)
}

// perWindow is how many readings a full bucket has.
func (l Load) perWindow() uint64 { return uint64(l.Granularity / l.Interval) } //nolint:gosec // checked to be positive

const (
	lanes = 4 // as many as the daemon has at least
	// commandsPerSecond is how many writes there are: enough that the slowest
	// hundredth of a short checkpoint is one that happened.
	commandsPerSecond = 200

	nameAppends, nameInserts = "appends", "inserts"

	stream     = "readings"  // the collection of appends
	documents  = "documents" // the collection of inserts
	capReading = 1000        // as the daemon's own cap
	capBytes   = 256 << 10
)

// updatesPerCommand is how many sensors' readings one write carries.
func (l Load) updatesPerCommand() int {
	return max(1, int(math.Round(l.ReadingsPerSecond/float64(l.ReadingsPerUpdate)/commandsPerSecond)))
}

// pause is from one write to the next, of all lanes together.
func (l Load) pause() time.Duration {
	return time.Duration(float64(l.updatesPerCommand()*l.ReadingsPerUpdate) / l.ReadingsPerSecond * float64(time.Second))
}

// A writer writes a load. It goes on where it was after its MongoDB has started
// again.
type writer struct {
	load    Load
	m       *bench.MongoDB
	sensors *load.Sensors
	order   []int    // sensors, as they come in turn: not that of the buckets' keys
	next    []uint64 // reading of each sensor
	turn    [lanes]int
}

func newWriter(m *bench.MongoDB, l Load, seed uint64) (*writer, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	sensors, err := load.NewSensors(load.SensorsConfig{Count: l.Sensors, Fields: l.Fields, Seed: seed, Prefix: "s-"})
	if err != nil {
		return nil, err
	}
	order := rand.New(rand.NewPCG(seed, 1)).Perm(l.Sensors) //nolint:gosec // the same by seed
	return &writer{load: l, m: m, sensors: sensors, order: order, next: make([]uint64, l.Sensors)}, nil
}

// prepare makes the collection, of appends with a bucket of each sensor that is
// part full: they fill up and begin at all times, so that they are as full in the
// mean from the first moment to the last.
func (w *writer) prepare(ctx context.Context) error {
	if w.load.Inserts {
		c := store.Collection{Database: w.m.Database(), Name: documents, Compressor: w.load.Compressor}
		_, err := c.Ensure(ctx, options.CreateCollection())
		return err
	}
	s, err := w.open(ctx)
	if err != nil {
		return err
	}
	full := w.load.perWindow()
	portions := make([]lane.Portion, 0, len(w.order))
	for i, sensor := range w.order {
		begun := uint64(i) * full / uint64(len(w.order)) //nolint:gosec // buckets are at all stages, as many at each
		if w.next[sensor] = begun; begun > 0 {
			portions = append(portions, lane.Portion{Sensor: sensor, Count: int(begun)}) //nolint:gosec // of one window
		}
	}
	if _, err = w.lane(s).Write(ctx, portions); err != nil {
		return fmt.Errorf("store what was there before: %w", err)
	}
	return nil
}

// open returns the store of production.
func (w *writer) open(ctx context.Context) (*bucket.Store, error) {
	s, err := bucket.New(bucket.Config{
		Database: w.m.Database(), Stream: stream, Granularity: w.load.Granularity,
		MaxReadings: capReading, MaxBytes: capBytes, Compressor: w.load.Compressor, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		return nil, err
	}
	return s, s.Prepare(ctx)
}

// begin is when reading 0 of each sensor was measured: the start of a window.
func begin() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

func (w *writer) lane(s lane.Store) *lane.Lane {
	return lane.New(lane.Config{
		Store: s, Source: w.sensors, Stream: stream, Granularity: w.load.Granularity, Begin: begin(), Interval: w.load.Interval,
	})
}

// portions are what the next write of a lane has.
func (w *writer) portions(number int, dst []lane.Portion) []lane.Portion {
	mine := (len(w.order) - number + lanes - 1) / lanes
	for range min(w.load.updatesPerCommand(), mine) {
		sensor := w.order[number+lanes*(w.turn[number]%mine)]
		w.turn[number]++
		dst = append(dst, lane.Portion{Sensor: sensor, First: w.next[sensor], Count: w.load.ReadingsPerUpdate})
		w.next[sensor] += uint64(w.load.ReadingsPerUpdate) //nolint:gosec // checked to be positive
	}
	return dst
}

// documents are the readings of portions, one each.
func (w *writer) documents(portions []lane.Portion) []any {
	var out []any
	var fields []telemetry.Field
	for _, p := range portions {
		for i := range p.Count {
			k := p.First + uint64(i)                              //nolint:gosec // counts from 0
			at := begin().Add(time.Duration(k) * w.load.Interval) //nolint:gosec // readings of years
			fields = w.sensors.AppendFields(fields[:0], p.Sensor, k, at)
			document := bson.D{{Key: "sensorId", Value: w.sensors.ID(p.Sensor)}, {Key: store.TimeKey, Value: at}}
			for _, f := range fields {
				document = append(document, bson.E{Key: f.Name, Value: f.Value.Any()})
			}
			out = append(out, document)
		}
	}
	return out
}
