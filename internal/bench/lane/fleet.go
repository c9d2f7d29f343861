package lane

import (
	"context"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/bench"
)

// FleetConfig says how several lanes write together. Each lane has sensors of its
// own, as in the daemon.
type FleetConfig struct {
	Config

	Order      []int // the sensors, in the order in which their turn comes
	Lanes      int
	PerUpdate  int // readings of an update
	PerCommand int // updates of a write
	// Write replaces the store; nil: the store.
	Write func(ctx context.Context, portions []Portion) error
}

// A Fleet is lanes that write their sensors in turn.
type Fleet struct {
	FleetConfig
	Writers       []*Writer
	DocumentBytes int // of a bucket that Fill made, before compression
}

// A Writer is one lane of a fleet.
type Writer struct {
	Lane    *Lane
	Sensors []int
	Next    []uint64 // the next reading of each of the sensors

	fleet    *Fleet
	cursor   int
	portions []Portion
}

// NewFleet deals out the sensors to lanes.
func NewFleet(c FleetConfig) *Fleet {
	f := &Fleet{FleetConfig: c}
	for i := range c.Lanes {
		w := &Writer{fleet: f, Lane: New(c.Config)}
		for at := i; at < len(c.Order); at += c.Lanes {
			w.Sensors = append(w.Sensors, c.Order[at])
		}
		w.Next = make([]uint64, len(w.Sensors))
		f.Writers = append(f.Writers, w)
	}
	return f
}

// Each runs a function for all lanes at once.
func (f *Fleet) Each(ctx context.Context, do func(ctx context.Context, w *Writer) error) error {
	group, under := errgroup.WithContext(ctx)
	for _, w := range f.Writers {
		group.Go(func() error { return do(under, w) })
	}
	return group.Wait()
}

// Write gives the next sensors their next readings. It never wraps around in a
// command, which would have two updates of a bucket. It returns how many sensors
// got readings, and in how many updates.
func (w *Writer) Write(ctx context.Context) (sensors, updates int, err error) {
	w.portions = w.portions[:0]
	for range min(w.fleet.PerCommand, len(w.Sensors)-w.cursor) {
		w.portions = append(w.portions, Portion{Sensor: w.Sensors[w.cursor], First: w.Next[w.cursor], Count: w.fleet.PerUpdate})
		w.Next[w.cursor] += uint64(w.fleet.PerUpdate) //nolint:gosec // counts from 1
		w.cursor++
	}
	if w.cursor == len(w.Sensors) {
		w.cursor = 0
	}
	if w.fleet.Write != nil {
		return len(w.portions), len(w.portions), w.fleet.Write(ctx, w.portions)
	}
	updates, err = w.Lane.Write(ctx, w.portions)
	return len(w.portions), updates, err
}

// Held is how many readings the sensor whose turn is next has got.
func (w *Writer) Held() uint64 { return w.Next[w.cursor] }

// An Operation is one write, in time since its traffic began. Its latency counts
// from when it was due, so that a write that waited for the one before shows it.
type Operation struct{ Due, Done time.Duration }

// Latency is in seconds.
func (o Operation) Latency() float64 { return (o.Done - o.Due).Seconds() }

// Traffic is a fleet that writes on a schedule.
type Traffic struct {
	Began time.Time
	Ctx   context.Context // ends when a lane fails, with the reason as its cause

	stop  chan struct{}
	group *errgroup.Group
	mu    sync.Mutex
	all   []Operation
}

// Start writes when writes are due, until Stop. due is that of a Pace.
func (f *Fleet) Start(ctx context.Context, due func(n int) (at time.Duration, ok bool)) *Traffic {
	t := &Traffic{Began: time.Now(), stop: make(chan struct{})}
	t.group, t.Ctx = errgroup.WithContext(ctx)
	for i, w := range f.Writers {
		t.group.Go(func() error {
			p := Pace{Began: t.Began, Due: due, First: i, Every: len(f.Writers), Stop: t.stop}
			return p.Run(t.Ctx, func(_ int, due time.Duration) error {
				if _, _, err := w.Write(t.Ctx); err != nil {
					return err
				}
				done := t.Now()
				t.mu.Lock()
				defer t.mu.Unlock()
				t.all = append(t.all, Operation{due, done})
				return nil
			})
		})
	}
	return t
}

// Steadily is a schedule of so many writes a second, without an end.
func Steadily(rate float64) func(n int) (time.Duration, bool) {
	return func(n int) (time.Duration, bool) {
		return time.Duration(float64(n) / rate * float64(time.Second)), true
	}
}

// Now is the time since the traffic began.
func (t *Traffic) Now() time.Duration { return time.Since(t.Began) }

// Stop lets the writes in flight finish, and returns why a lane failed.
func (t *Traffic) Stop() error {
	close(t.stop)
	return t.group.Wait()
}

// Operations returns the writes so far, in no order.
func (t *Traffic) Operations() []Operation {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Operation(nil), t.all...)
}

// Between returns the latencies of the writes that were done in a part of the
// time, in seconds.
func (t *Traffic) Between(from, to time.Duration) (s bench.Samples) {
	for _, o := range t.Operations() {
		if o.Done >= from && o.Done < to {
			s = append(s, o.Latency())
		}
	}
	return s
}

// fillers is how many lanes fill buckets at a time: more make a small mongod no
// faster.
const fillers = 4

// Fill gives every sensor a bucket with so many readings, which are all of one
// window: one that the store wrote, and copies of it. Sensors that have none by
// the given time, unless it is zero, are dropped from the fleet.
func (f *Fleet) Fill(ctx context.Context, coll *mongo.Collection, readings int, until time.Time) error {
	group, under := errgroup.WithContext(ctx)
	group.SetLimit(fillers)
	for _, w := range f.Writers {
		group.Go(func() error {
			if len(w.Sensors) == 0 {
				return nil
			}
			model, err := w.Lane.Model(under, coll, Portion{Sensor: w.Sensors[0], First: w.Next[0], Count: readings})
			if err != nil {
				return err
			}
			if w == f.Writers[0] {
				f.DocumentBytes = model.Bytes()
			}
			created, err := w.Lane.Copy(under, model, w.Sensors, until)
			w.Sensors, w.Next = w.Sensors[:created], w.Next[:created]
			for i := range w.Next {
				w.Next[i] += uint64(readings) //nolint:gosec // of a window
			}
			return err
		})
	}
	return group.Wait()
}

// Order is the sensors in the order of their numbers.
func Order(sensors int) []int {
	order := make([]int, sensors)
	for i := range order {
		order[i] = i
	}
	return order
}
