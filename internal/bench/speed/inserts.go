package speed

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// rawPrefix makes sensor ids as long as those of brim load.
const rawPrefix = "load-mi8dk3f2-"

// Inserts are what a program without Brim does: it inserts a document for each reading,
// with time, sensor and fields, a hundred per call, unordered and with majority write
// concern. The only index is that of _id.
type inserts struct {
	source   shape.Source
	sensors  int           // that report in turn
	interval time.Duration // between two readings of a sensor
	rate     float64       // documents a second; 0: as fast as possible
	// checkpointed measurements include a checkpoint of what was inserted.
	checkpointed bool
}

// measure inserts into a collection that is dropped afterwards.
func (in *inserts) measure(ctx context.Context, m *bench.MongoDB, length time.Duration) (documents int64, spent bench.Spent) {
	coll := m.Database().Collection(rawCollection)
	spent = m.Measure(ctx, func(ctx context.Context) error {
		documents = bench.Must(in.run(ctx, coll, length))
		if !in.checkpointed {
			return nil
		}
		return m.Checkpoint(ctx)
	})
	expect(sumOf(ctx, coll, 1), documents, "documents", "inserted")
	bench.Check(coll.Drop(ctx))
	return documents, spent
}

// run inserts for a duration, each call when it is due.
func (in *inserts) run(ctx context.Context, coll *mongo.Collection, length time.Duration) (documents int64, err error) {
	begin := time.Now()
	var next, done atomic.Int64 // calls
	writers, under := errgroup.WithContext(ctx)
	unordered := options.InsertMany().SetOrdered(false)
	for range rawWriters {
		writers.Go(func() error {
			c := newCall(in, begin)
			for {
				number, due := next.Add(1)-1, time.Since(begin)
				if in.rate > 0 {
					due = time.Duration(float64(number*perCall) / in.rate * float64(time.Second))
				}
				if due >= length {
					return nil
				}
				if err := machine.Pause(under, due-time.Since(begin)); err != nil {
					return err
				}
				c.fill(number * perCall)
				if _, err := coll.InsertMany(under, c.documents, unordered); err != nil {
					return err
				}
				done.Add(1)
			}
		})
	}
	if err := writers.Wait(); err != nil {
		return 0, fmt.Errorf("insert documents: %w", err)
	}
	return done.Load() * perCall, context.Cause(ctx)
}

// A call is the documents of one call. It reuses their memory.
type call struct {
	in        *inserts
	begin     time.Time
	documents []any
	made      [perCall]bson.D
	fields    []telemetry.Field
}

func newCall(in *inserts, begin time.Time) *call {
	return &call{in: in, begin: begin, documents: make([]any, perCall)}
}

// fill makes the documents of a call, from a reading's number on.
func (c *call) fill(first int64) {
	for i := range c.documents {
		n := first + int64(i)
		sensor, k := int(n%int64(c.in.sensors)), n/int64(c.in.sensors)
		at := c.begin.Add(time.Duration(k) * c.in.interval)
		d := c.made[i][:0]
		d = append(d, bson.E{Key: store.TimeKey, Value: at}, bson.E{Key: "sensorId", Value: c.in.source.ID(sensor)})
		c.fields = c.in.source.AppendFields(c.fields[:0], sensor, uint64(k), at) //nolint:gosec // counts from 0
		for _, f := range c.fields {
			d = append(d, bson.E{Key: f.Name, Value: f.Value.Any()})
		}
		c.made[i], c.documents[i] = d, d
	}
}
