package storage

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/bench/lane"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
)

// A step offers writes at a rate for a time.
type step struct {
	rate   float64 // writes/s
	length time.Duration
}

// A schedule says when each write is due, whatever became of those before.
type schedule []step

// due returns when write n is, counted from 0 and from the schedule's beginning;
// false: the schedule has ended before.
func (s schedule) due(n int) (at time.Duration, ok bool) {
	left, from := float64(n), time.Duration(0)
	for _, step := range s {
		if count := step.rate * step.length.Seconds(); left >= count {
			left, from = left-count, from+step.length
			continue
		}
		return from + time.Duration(left/step.rate*float64(time.Second)), true
	}
	return 0, false
}

// at returns the rate at a moment, in writes/s; 0 after the end.
func (s schedule) at(moment time.Duration) float64 {
	for _, step := range s {
		if moment < step.length {
			return step.rate
		}
		moment -= step.length
	}
	return 0
}

func (s schedule) length() (all time.Duration) {
	for _, step := range s {
		all += step.length
	}
	return all
}

// Each paced write is a command of so many updates with so many readings each:
// small ones, so that there are enough of them to tell their p99 in a second.
const (
	updatesPerWrite   = 5
	readingsPerUpdate = 10
	readingsPerWrite  = updatesPerWrite * readingsPerUpdate
)

// interval is that of the published workload.
const interval = 5 * time.Second

// A writersConfig says what writers write.
type writersConfig struct {
	database    *mongo.Database
	stream      string // also the collection
	prefix      string // of the sensors' ids
	sensors     int
	lanes       int
	granularity time.Duration
	seed        uint64
}

// writers write as so many lanes of daemons do, through the store of
// production: each has sensors of its own.
type writers struct {
	collection *mongo.Collection
	all        []*writer
}

type writer struct {
	lane     *lane.Lane
	sensors  []int
	next     []uint64 // reading of each of the sensors
	cursor   int      // into sensors
	portions []lane.Portion
}

// newWriters makes the collection, unless it is there, and its writers.
func newWriters(ctx context.Context, c writersConfig) (*writers, error) {
	source, err := load.NewSensors(load.SensorsConfig{Count: c.sensors, Seed: c.seed, Prefix: c.prefix})
	if err != nil {
		return nil, err
	}
	target, err := bucket.New(bucket.Config{
		Database: c.database, Stream: c.stream, Granularity: c.granularity, MaxReadings: 1000, MaxBytes: 256 << 10,
		Registerer: prometheus.NewRegistry(), // of nobody
	})
	if err != nil {
		return nil, err
	}
	if err := target.Prepare(ctx); err != nil {
		return nil, err
	}
	w := &writers{collection: c.database.Collection(c.stream)}
	for i := range c.lanes {
		one := &writer{lane: lane.New(lane.Config{
			Store: target, Source: source, Stream: c.stream, Granularity: c.granularity, Interval: interval,
			Begin: time.UnixMilli(store.WindowStart(time.Now().Add(-24*time.Hour).UnixMilli(), time.Hour)),
		})}
		for sensor := i; sensor < c.sensors; sensor += c.lanes {
			one.sensors = append(one.sensors, sensor)
		}
		one.next = make([]uint64, len(one.sensors))
		w.all = append(w.all, one)
	}
	return w, nil
}

// fill gives every sensor a bucket with so many readings, which are all of one
// window.
func (w *writers) fill(ctx context.Context, readings int) error {
	group, filling := errgroup.WithContext(ctx)
	group.SetLimit(fillers)
	for _, one := range w.all {
		group.Go(func() error {
			model, err := one.lane.Model(filling, w.collection, lane.Portion{Sensor: one.sensors[0], First: one.next[0], Count: readings})
			if err != nil {
				return err
			}
			for i := range one.next {
				one.next[i] += uint64(readings) //nolint:gosec // of an hour
			}
			_, err = one.lane.Copy(filling, model, one.sensors, time.Time{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return w.connect(ctx)
}

const (
	fillers    = 4 // at a time: more make a small mongod no faster
	firstTries = 5
)

// connect writes a little from all writers at once, so that each finds a
// connection when it is measured.
func (w *writers) connect(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, one := range w.all {
		group.Go(func() error {
			for range firstTries {
				if err := one.write(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// write gives the next of the sensors their next readings.
func (w *writer) write(ctx context.Context) error {
	w.portions = w.portions[:0]
	for range min(updatesPerWrite, len(w.sensors)) {
		w.portions = append(w.portions, lane.Portion{Sensor: w.sensors[w.cursor], First: w.next[w.cursor], Count: readingsPerUpdate})
		w.next[w.cursor] += readingsPerUpdate
		w.cursor = (w.cursor + 1) % len(w.sensors)
	}
	_, err := w.lane.Write(ctx, w.portions)
	return err
}

// traffic is writers at work.
type traffic struct {
	began time.Time
	took  latencies
	ctx   context.Context // ends when a writer cannot go on, with the reason as its cause
	stop  chan struct{}
	group *errgroup.Group
}

// begin starts to write by a schedule. Whoever calls it calls end.
func (w *writers) begin(ctx context.Context, s schedule) *traffic {
	t := &traffic{began: time.Now(), stop: make(chan struct{})}
	t.group, t.ctx = errgroup.WithContext(ctx)
	for i, one := range w.all {
		t.group.Go(func() error { return t.pace(one, s, i, len(w.all)) })
	}
	return t
}

// pace makes every so-many-th write of a schedule.
func (t *traffic) pace(w *writer, s schedule, first, every int) error {
	p := lane.Pace{Began: t.began, Due: s.due, First: first, Every: every, Stop: t.stop}
	return p.Run(t.ctx, func(_ int, due time.Duration) error {
		if err := w.write(t.ctx); err != nil {
			return err
		}
		done := time.Since(t.began)
		t.took.add(done, done-due)
		return nil
	})
}

// now is the time since the traffic began.
func (t *traffic) now() time.Duration { return time.Since(t.began) }

// end lets the writes under way finish, and returns why a writer could not go
// on.
func (t *traffic) end() error {
	close(t.stop)
	return t.group.Wait()
}
