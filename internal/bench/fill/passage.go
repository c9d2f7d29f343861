package fill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/launch"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/machine"
)

// A Passage is load on a daemon for a while, of sensors in step.
type Passage struct {
	Granularity time.Duration
	Sensors     int
	Interval    time.Duration // between two readings of a sensor, event time
	Speedup     float64       // of event time against the clock; 0: 1
	Duration    time.Duration // by the clock
	Start       time.Time     // of event time; zero: so that it ends at the newest boundary of a window
	Prefix      string        // of the sensors' ids; empty: one that no other has
	Fields      int           // of a reading; 0: 4
	Batch       int           // readings of a request; 0: 1
	// Checkpoint makes the mongod write one in the middle; only a mongod of the
	// experiment's own can be made to.
	Checkpoint bool
	// Drain is how long is waited, when the load has ended, until all is stored.
	// What is not by then does not count. 0: two minutes.
	Drain time.Duration
}

// flags are those of `brim load`.
func (p Passage) flags(seed uint64) []string {
	flags := []string{
		"--sensors", strconv.Itoa(p.Sensors), "--interval", p.Interval.String(), "--duration", p.Duration.String(),
		"--seed", strconv.FormatUint(max(seed, 1), 10),
	}
	if p.Speedup != 0 {
		flags = append(flags, "--speedup", strconv.FormatFloat(p.Speedup, 'f', -1, 64))
	}
	if !p.Start.IsZero() {
		flags = append(flags, "--start", p.Start.UTC().Format(time.RFC3339Nano))
	}
	if p.Prefix != "" {
		flags = append(flags, "--sensor-prefix", p.Prefix)
	}
	if p.Fields != 0 {
		flags = append(flags, "--fields", strconv.Itoa(p.Fields))
	}
	if p.Batch != 0 {
		flags = append(flags, "--batch", strconv.Itoa(p.Batch))
	}
	return flags
}

// speedup is the one that is meant.
func (p Passage) speedup() float64 {
	if p.Speedup == 0 {
		return 1
	}
	return p.Speedup
}

// oneWindow reports whether a passage is just one window long, so that a tenth
// of its time is one of the window.
func (p Passage) oneWindow() bool {
	return p.Start.IsZero() && math.Abs(p.Duration.Seconds()*p.speedup()/p.Granularity.Seconds()-1) < 0.001
}

const (
	defaultDrain = 2 * time.Minute
	// stopTimeout keeps a daemon from storing what does not count.
	stopTimeout = "1s"
)

// measure starts a daemon with further flags of `brim serve` on an empty
// database, waits until MongoDB is quiet, puts the load of a passage on it, and
// returns what came. The daemon is gone then, and the database empty.
func measure(ctx context.Context, lab *bench.Lab, m *bench.MongoDB, p Passage, serve ...string) (f *Figures, err error) {
	d, err := lab.Daemon(ctx, m, append([]string{"--granularity", p.Granularity.String(), "--stop-timeout", stopTimeout}, serve...)...)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err = errors.Join(err, d.Close()); err == nil {
			err = m.Drop(ctx)
		}
	}()
	return p.run(ctx, lab, m, d)
}

// run puts the load on a daemon, looks on, and returns when all is stored.
func (p Passage) run(ctx context.Context, lab *bench.Lab, m *bench.MongoDB, d *bench.Daemon) (*Figures, error) {
	if err := m.Settle(ctx); err != nil {
		return nil, err
	}
	w := &watch{daemon: d, mongodb: m}
	if err := w.look(ctx); err != nil {
		return nil, err
	}
	var came *load.Result
	var stored time.Time
	over := make(chan struct{})
	sides, under := errgroup.WithContext(ctx)
	sides.Go(func() (err error) {
		defer close(over)
		if came, err = d.Load(under, p.flags(lab.Seed)...); err != nil {
			return err
		}
		if err = d.Flush(under, cmp.Or(p.Drain, defaultDrain)); errors.Is(err, launch.ErrNotInTime) && p.Drain != 0 {
			err = nil
		}
		stored = time.Now()
		return err
	})
	sides.Go(func() error { return w.run(under, over) })
	if p.Checkpoint {
		sides.Go(func() error {
			if err := machine.Pause(under, p.Duration/2); err != nil {
				return err
			}
			return m.Checkpoint(under)
		})
	}
	if err := sides.Wait(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	if err := w.look(ctx); err != nil {
		return nil, err
	}
	if came.Acked == 0 {
		return nil, fmt.Errorf("measure writes: the daemon took none of %d readings: %v", came.Sent, came.FirstErrors)
	}
	return p.figures(came, w.looks, stored), nil
}
