package fill

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/lane"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
)

const (
	writers    = 4   // as many as the daemon has lanes
	perCommand = 250 // updates, each of another bucket
	leastBurst = 4000

	// collection is that of the daemon's default stream.
	collection = "readings"
	// Caps of a part, as the daemon's.
	partReadings = 1000
	partBytes    = 256 << 10
)

// burst is how many readings of each sensor are written at once to see what
// MongoDB can store.
func (p plan) burst() int { return max(1, (leastBurst+p.prefilledSensors-1)/p.prefilledSensors) }

// A capacity is what MongoDB stores when it gets all that it can take.
type capacity struct {
	Rate float64 `json:"rate"` // readings a second
	// PerProcessor is readings for each second that mongod used a processor: what
	// a processor stores a second, whoever else is at work on the machine.
	PerProcessor float64 `json:"readings_per_processor_second"`
}

// most writes readings of all sensors of the crowd, one per update, as fast as
// MongoDB takes them. The daemon rests meanwhile: lanes write with its store.
func (c *crowd) most(ctx context.Context, m *bench.MongoDB, rows int) (most capacity, err error) {
	s, err := bucket.New(bucket.Config{
		Database: m.Database(), Stream: collection, Granularity: time.Hour, MaxReadings: partReadings, MaxBytes: partBytes,
		Compressor: store.Snappy, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		return most, err
	}
	if err := s.Prepare(ctx); err != nil {
		return most, err
	}
	if err := m.Settle(ctx); err != nil {
		return most, err
	}
	before, err := m.CPU(ctx)
	if err != nil {
		return most, err
	}
	lanes, under := errgroup.WithContext(ctx)
	began := time.Now()
	for w := range writers {
		lanes.Go(func() error {
			l := lane.New(lane.Config{Store: s, Source: c.sensors, Stream: collection, Granularity: time.Hour, Begin: c.begin, Interval: interval})
			for row := range rows {
				if err := c.row(under, l, w, c.rows+row); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := lanes.Wait(); err != nil {
		if ctx.Err() != nil {
			return most, context.Cause(ctx)
		}
		return most, err
	}
	took := time.Since(began)
	after, err := m.CPU(ctx)
	if err != nil {
		return most, err
	}
	c.rows += rows
	readings := float64(rows * c.sensors.Len())
	return capacity{Rate: readings / took.Seconds(), PerProcessor: finite(readings / (after - before).Seconds())}, nil
}

// row writes one reading of each of a writer's sensors.
func (c *crowd) row(ctx context.Context, l *lane.Lane, writer, row int) error {
	portions := make([]lane.Portion, 0, perCommand)
	for sensor := writer; sensor < c.sensors.Len(); sensor += writers {
		portions = append(portions, lane.Portion{Sensor: sensor, First: uint64(row), Count: 1}) //nolint:gosec // counts from 0
		if len(portions) < perCommand && sensor+writers < c.sensors.Len() {
			continue
		}
		if _, err := l.Write(ctx, portions); err != nil {
			return err
		}
		portions = portions[:0]
	}
	return nil
}
