package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"
)

// createAll gives each sensor the first bucket with a reading in it, or as many
// as the time is enough for, and returns how many. The store writes the first;
// the others are its copies under other names, since a million updates of the
// store would take longer than all that is measured.
func createAll(ctx context.Context, coll *mongo.Collection, writers []*growthWriter, most time.Duration) (created int, err error) {
	until := time.Now().Add(most)
	model, err := writers[0].model(ctx, coll)
	if err != nil {
		return 0, err
	}
	counts := make([]int, len(writers))
	group, under := errgroup.WithContext(ctx)
	for i, w := range writers {
		group.Go(func() (err error) {
			counts[i], err = w.create(under, coll, model, until)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return 0, fmt.Errorf("create buckets: %w", err)
	}
	for _, n := range counts {
		created += n
	}
	return created, nil
}

// model stores a reading of the writer's first sensor, and returns its bucket.
func (w *growthWriter) model(ctx context.Context, coll *mongo.Collection) (model bson.D, err error) {
	if err := w.share(w.sensors[:1], 1); err != nil {
		return nil, err
	}
	if _, err := w.drain(ctx); err != nil {
		return nil, err
	}
	if err := coll.FindOneAndDelete(ctx, bson.D{}).Decode(&model); err != nil {
		return nil, fmt.Errorf("read the first bucket: %w", err)
	}
	return model, nil
}

// create copies the model for the writer's sensors. Those that the time is not
// enough for are not written at all.
func (w *growthWriter) create(ctx context.Context, coll *mongo.Collection, model bson.D, until time.Time) (created int, err error) {
	var documents []any
	for created < len(w.sensors) && time.Now().Before(until) {
		documents = documents[:0]
		for i := created; i < min(created+mostShares, len(w.sensors)); i++ {
			documents = append(documents, copyFor(model, w.sensors[i].id()))
		}
		if _, err := coll.InsertMany(ctx, documents, options.InsertMany().SetOrdered(false)); err != nil {
			return created, err
		}
		created += len(documents)
	}
	w.sensors = w.sensors[:created]
	w.next, w.step = 0, w.PerUpdate // so that an hour ends with an update
	return created, nil
}

// copyFor is a bucket as that of another sensor.
func copyFor(model bson.D, sensor string) bson.D {
	d := slices.Clone(model)
	for i := range d {
		switch d[i].Key {
		case "_id":
			if id, ok := d[i].Value.(bson.D); ok {
				id = slices.Clone(id)
				id[0].Value = sensor // {s, b, g, p}
				d[i].Value = id
			}
		case "sensorId":
			d[i].Value = sensor
		}
	}
	return d
}
