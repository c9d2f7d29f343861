package checkpoint

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/bench/lane"
	"github.com/brim-telemetry/brim/internal/machine"
)

// An operation is one write: when it was due and when it was stored, in seconds
// since the writing began. Its latency counts from when it was due, so that a
// write which had to wait for the one before shows it.
type operation struct{ due, done float64 }

// run writes until stop is closed, while watch looks on, and returns all writes
// in no order. It ends when watch does.
func (w *writer) run(ctx context.Context, watch func(ctx context.Context, began time.Time) error) ([]operation, error) {
	write, err := w.writes(ctx)
	if err != nil {
		return nil, err
	}
	stop := make(chan struct{})
	began := time.Now()
	var done [lanes][]operation
	group, ctx := errgroup.WithContext(ctx)
	for number := range lanes {
		group.Go(func() (err error) {
			done[number], err = w.pace(ctx, stop, began, paced{number: number, write: write[number]})
			return err
		})
	}
	group.Go(func() error {
		defer close(stop)
		return watch(ctx, began)
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var all []operation
	for _, operations := range done {
		all = append(all, operations...)
	}
	return all, nil
}

// paced is one of the lanes.
type paced struct {
	number int
	write  func(ctx context.Context, portions []lane.Portion) error
}

// pace writes when writes are due, or as soon as the one before is stored.
func (w *writer) pace(ctx context.Context, stop <-chan struct{}, began time.Time, p paced) ([]operation, error) {
	var operations []operation
	var portions []lane.Portion
	pause := w.load.pause()
	pace := lane.Pace{
		Began: began, Due: func(n int) (time.Duration, bool) { return time.Duration(n) * pause, true }, First: p.number, Every: lanes, Stop: stop,
	}
	err := pace.Run(ctx, func(_ int, due time.Duration) error {
		portions = w.portions(p.number, portions[:0])
		if err := p.write(ctx, portions); err != nil {
			return fmt.Errorf("write %s: %w", w.load.Name(), err)
		}
		operations = append(operations, operation{due.Seconds(), time.Since(began).Seconds()})
		return nil
	})
	return operations, err
}

// writes returns how each lane writes.
func (w *writer) writes(ctx context.Context) (write [lanes]func(context.Context, []lane.Portion) error, err error) {
	if w.load.Inserts {
		coll := w.m.Database().Collection(documents)
		for number := range write {
			write[number] = func(ctx context.Context, portions []lane.Portion) error {
				_, err := coll.InsertMany(ctx, w.documents(portions), options.InsertMany().SetOrdered(false))
				return err
			}
		}
		return write, nil
	}
	s, err := w.open(ctx)
	if err != nil {
		return write, err
	}
	for number := range write {
		l := w.lane(s)
		write[number] = func(ctx context.Context, portions []lane.Portion) error {
			_, err := l.Write(ctx, portions)
			return err
		}
	}
	return write, nil
}

// warm reads all that is there into the cache.
func (w *writer) warm(ctx context.Context) error {
	name := stream
	if w.load.Inserts {
		name = documents
	}
	// There is no index on it, so that the documents are read and not only keys.
	_, err := w.m.Database().Collection(name).CountDocuments(ctx, bson.D{{Key: "absent", Value: true}})
	if err != nil {
		return fmt.Errorf("read what is stored: %w", err)
	}
	return nil
}

// lasting lets a writer write for so long.
func lasting(d time.Duration) func(context.Context, time.Time) error {
	return func(ctx context.Context, _ time.Time) error { return machine.Pause(ctx, d) }
}
