package speed

import (
	"context"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/store"
)

// inserts are what a program without Brim does: it inserts a document for each reading
// of sensors with the driver, 100 a call, three writers at once, unordered and with majority
// write concern.
type inserts struct {
	source   shape.Source
	interval time.Duration // of event time, between two readings of a sensor
	rate     float64       // documents a second; 0: as fast as possible
	// checkpointed measurements include a checkpoint of what was inserted.
	checkpointed bool
}

const (
	rawWriters = 3
	perCall    = 100 // readings of a request of brim load, and documents of a call beside it
	// rawSensors are as many as all calls of a round need. How many there are is nothing
	// to inserts, which have no index but that of _id.
	rawSensors = 10 * rawWriters * perCall
)

// measure inserts for a duration, from an event time on, into a collection that is
// dropped afterwards.
func (in inserts) measure(ctx context.Context, m *bench.MongoDB, begin time.Time, length time.Duration) (documents int64, spent bench.Spent) {
	c := bench.Must(shape.New(ctx, m, shape.Config{
		Name: rawCollection, Shape: shape.Shape{Kind: shape.Plain}, Compressor: store.Snappy, Unordered: true,
		Readings: shape.Readings{Source: in.source, Sensors: rawSensors, Begin: begin, Interval: in.interval},
	}))
	f := c.Fleet(rawWriters, perCall, nil)
	spent = m.Measure(ctx, func(ctx context.Context) error {
		if in.rate > 0 {
			traffic := f.Start(ctx, shape.Steadily(in.rate/perCall).For(length))
			bench.Check(traffic.Wait())
			documents = int64(len(traffic.Operations()) * perCall)
		} else {
			until := time.Now().Add(length)
			_, n, err := f.Run(ctx, func(*shape.Worker, int) bool { return time.Now().Before(until) })
			bench.Check(err)
			documents = int64(n)
		}
		if !in.checkpointed {
			return nil
		}
		return m.Checkpoint(ctx)
	})
	expect(sumOf(ctx, m.Database().Collection(rawCollection), 1), documents, "documents", "inserted")
	bench.Check(c.Drop(ctx))
	return documents, spent
}
