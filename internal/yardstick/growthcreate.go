package main

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/bench/lane"
)

// createAll gives each sensor the first bucket with a reading in it, or as many
// as the time is enough for, and returns how many.
func createAll(ctx context.Context, coll *mongo.Collection, writers []*growthWriter, most time.Duration) (created int, err error) {
	until := time.Now().Add(most)
	group, under := errgroup.WithContext(ctx)
	for _, w := range writers {
		group.Go(func() error { return w.create(under, coll, until) })
	}
	if err := group.Wait(); err != nil {
		return 0, fmt.Errorf("create buckets: %w", err)
	}
	for _, w := range writers {
		created += len(w.sensors)
	}
	return created, nil
}

// create makes the buckets of the writer's sensors. Those that the time is not
// enough for are not written at all.
func (w *growthWriter) create(ctx context.Context, coll *mongo.Collection, until time.Time) error {
	if len(w.sensors) == 0 {
		return nil
	}
	model, err := w.lane.Model(ctx, coll, lane.Portion{Sensor: w.sensors[0], Count: 1})
	if err != nil {
		return err
	}
	created, err := w.lane.Copy(ctx, model, w.sensors, until)
	w.sensors = w.sensors[:created]
	w.next, w.step = 0, uint64(w.PerUpdate) //nolint:gosec // so that an hour ends with an update
	return err
}
