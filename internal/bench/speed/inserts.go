package speed

import (
	"context"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/store"
)

// inserts are what a program without Brim does: it inserts a document for each reading
// with the driver, three writers at once, unordered and with majority write concern.
type inserts struct {
	shape     shape.Kind
	source    shape.Source
	sensors   int
	interval  time.Duration // of event time, between two readings of a sensor
	perSensor int           // readings of a sensor that stand together
	perCall   int           // documents of a call, a multiple of perSensor
	rate      float64       // documents a second; 0: as fast as possible
	// checkpointed measurements include a checkpoint of what was inserted.
	checkpointed bool
}

const (
	rawWriters = 3
	// together is how many readings of a sensor stand together where they are grouped.
	together = 60
	perCall  = 100 // readings of a request of brim load, and documents of a call beside it
	// rawSensors are as many as all calls of a round need. How many there are is nothing
	// to inserts, which have no index but that of _id.
	rawSensors = 10 * rawWriters * perCall
)

// rawSides are the sides that insert what the hosts send: the first as documents, and
// the second into a time-series collection, where each call has whole groups, so that no
// two writers share one, which would make two buckets of it.
func rawSides(of hosts) map[string]inserts {
	return map[string]inserts{
		rawDocuments: {shape: shape.Plain, source: named{of}, sensors: len(of), interval: interval, perSensor: rawWriters, perCall: rawWriters * ((len(of) + rawWriters - 1) / rawWriters)},
		rawSeries:    {shape: shape.Native, source: of, sensors: len(of), interval: interval, perSensor: together, perCall: 16 * together},
	}
}

// measure inserts for a duration, from an event time on, into a collection that is
// dropped afterwards.
func (in inserts) measure(ctx context.Context, m *bench.MongoDB, begin time.Time, length time.Duration) (documents int64, spent bench.Spent) {
	c := bench.Must(shape.New(ctx, m, shape.Config{
		Name: rawCollection, Shape: shape.Shape{Kind: in.shape}, Compressor: store.Snappy, Unordered: true, PerUpdate: in.perSensor,
		Readings: shape.Readings{Source: in.source, Sensors: in.sensors, Begin: begin, Interval: in.interval},
	}))
	f := c.Fleet(rawWriters, in.perCall/in.perSensor, nil)
	spent = m.Measure(ctx, func(ctx context.Context) error {
		if in.rate > 0 {
			traffic := f.Start(ctx, shape.Steadily(in.rate/float64(in.perCall)).For(length))
			bench.Check(traffic.Wait())
			documents = int64(len(traffic.Operations()) * in.perCall)
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
