package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/scrape"
)

// A passage is what came of sending readings until all of them were stored.
type passage struct {
	Readings    int64
	Rate        float64 // readings a second
	BrimCPU     float64 // microseconds a reading, as the next two
	MongodCPU   float64
	Generator   float64
	Allocations float64 // of the daemon, a reading
	Merged      float64 // readings an update
}

// pass sends for as long as told and lets the clock run until the daemon has
// stored all. It holds that MongoDB has what was sent.
func (r *rig) pass(ctx context.Context, s sender, duration time.Duration) (*passage, error) {
	before, err := r.tally(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	readings, err := s.send(ctx, r, newStretch(r.begin(), duration))
	if err != nil {
		return nil, err
	}
	if err := r.Flush(ctx, storedTimeout); err != nil {
		return nil, err
	}
	took := time.Since(start)
	after, err := r.tally(ctx)
	if err != nil {
		return nil, err
	}
	if stored := after.stored - before.stored; stored != readings {
		return nil, fmt.Errorf("MongoDB has %d readings of %d that were acknowledged", stored, readings)
	}
	used := after.cpu.since(before.cpu)
	updates := after.updates.Since(before.updates)
	return &passage{
		Readings: readings, Rate: float64(readings) / took.Seconds(),
		BrimCPU: per(used.brim, readings), MongodCPU: per(used.mongod, readings), Generator: per(used.generator, readings),
		Allocations: (after.mallocs - before.mallocs) / float64(readings), Merged: updates.Mean(),
	}, nil
}

// A tally is what was counted up to a moment.
type tally struct {
	cpu     cpu
	stored  int64 // readings in MongoDB
	mallocs float64
	updates scrape.Histogram // readings of each
}

func (r *rig) tally(ctx context.Context) (t tally, err error) {
	if t.stored, err = r.stored(ctx); err != nil {
		return t, err
	}
	look, err := r.Look(ctx)
	if err != nil {
		return t, err
	}
	t.mallocs = look.Value("go_memstats_mallocs_total", nil)
	t.updates = look.Histogram("brim_store_update_readings", nil)
	t.cpu, err = r.cpu()
	return t, err
}

// stored counts the readings in the default stream.
func (r *rig) stored(ctx context.Context) (int64, error) {
	return sumOf(ctx, r.client.Database(brimDatabase).Collection(collection), r.each)
}

// sumOf adds up an expression over all documents.
func sumOf(ctx context.Context, coll *mongo.Collection, expression any) (n int64, err error) {
	cursor, err := coll.Aggregate(ctx, bson.A{bson.D{{Key: "$group", Value: bson.D{
		{Key: "_id", Value: nil}, {Key: "n", Value: bson.D{{Key: "$sum", Value: expression}}},
	}}}})
	if err != nil {
		return 0, fmt.Errorf("count the readings in MongoDB: %w", err)
	}
	var sums []struct{ N int64 }
	if err := cursor.All(ctx, &sums); err != nil {
		return 0, fmt.Errorf("count the readings in MongoDB: %w", err)
	}
	if len(sums) == 0 {
		return 0, nil
	}
	return sums[0].N, nil
}

// checkSensors holds that all ways in gave the same ids to the sensors, so that
// they stored the same.
func (r *rig) checkSensors(ctx context.Context, want int) error {
	var ids []string
	if err := r.client.Database(brimDatabase).Collection(collection).Distinct(ctx, "sensorId", bson.D{}).Decode(&ids); err != nil {
		return fmt.Errorf("look which sensors MongoDB has: %w", err)
	}
	if len(ids) != want {
		return fmt.Errorf("MongoDB has readings of %d sensors, and %d were sent", len(ids), want)
	}
	return nil
}

// An insertion is what came of inserting documents directly.
type insertion struct {
	Documents int64
	Rate      float64 // documents a second
	MongodCPU float64 // microseconds a document, as the next
	Client    float64
}

// insertInto writes into a collection and drops its database.
func (r *rig) insertInto(ctx context.Context, coll *mongo.Collection, pages []*page, duration time.Duration) (i *insertion, err error) {
	before, err := r.cpu()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	documents, err := insert(ctx, coll, pages, newStretch(r.begin(), duration))
	if err != nil {
		return nil, err
	}
	took := time.Since(start)
	after, err := r.cpu()
	if err != nil {
		return nil, err
	}
	stored, err := sumOf(ctx, coll, 1)
	if err == nil && stored != documents {
		err = fmt.Errorf("MongoDB has %d documents of %d that were inserted", stored, documents)
	}
	if err := errors.Join(err, coll.Database().Drop(ctx)); err != nil {
		return nil, err
	}
	used := after.since(before)
	return &insertion{
		Documents: documents, Rate: float64(documents) / took.Seconds(),
		MongodCPU: per(used.mongod, documents), Client: per(used.generator, documents),
	}, nil
}
