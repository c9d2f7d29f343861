package fill

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/lane"
	"github.com/brim-telemetry/brim/internal/launch/wire"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/store"
	"github.com/brim-telemetry/brim/internal/store/bucket"
)

// prefilledPercents are how far buckets are filled before they are written to.
var prefilledPercents = [...]int{5, 50, 95}

func prefilledCell(percent int) string { return fmt.Sprintf("prefilled-%d", percent) }

// A group is sensors whose buckets are filled to the same percentage.
type group struct {
	percent int
	sensors *load.Sensors
	prefix  string
	begin   time.Time // of the window
	rows    int       // that each sensor has
}

// readingsOf is how many readings of each sensor a phase into buckets that
// were filled beforehand brings.
func (p plan) readingsOf(duration time.Duration) int {
	return int(math.Ceil(duration.Seconds() * rate / float64(p.prefilledSensors)))
}

// prefilledRepeats are those for which the fullest buckets have room, with the
// phase that has a checkpoint.
func (p plan) prefilledRepeats() int {
	hour := int(time.Hour / interval)
	room := hour - hour*prefilledPercents[len(prefilledPercents)-1]/100 - p.readingsOf(2*p.slot)
	return max(1, min(p.repeats, room/(p.readingsOf(p.slot)+p.burst())))
}

// runPrefilled fills all groups, then writes to each in turn, again and again.
func runPrefilled(ctx context.Context, lab *bench.Lab, m *bench.MongoDB, p plan, percents []int) (err error) {
	groups, err := newGroups(lab, p, percents)
	if err != nil {
		return err
	}
	if err := fillGroups(ctx, lab, m, groups); err != nil {
		return err
	}
	d, err := lab.Daemon(ctx, m, append([]string{"--granularity", "1h"}, ways[0].serve...)...)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, d.Close()); err == nil {
			err = m.Drop(ctx)
		}
	}()
	for i := range p.prefilledRepeats() {
		for _, c := range groups {
			lab.Step("hourly buckets filled to %d %%, round %d of %d", c.percent, i+1, p.prefilledRepeats())
			f, err := c.next(p, false).run(ctx, lab, m, d)
			if err != nil {
				return err
			}
			add(lab, prefilledCell(c.percent), f, false)
			rate, perProcessor, err := c.capacity(ctx, m, p.burst())
			if err != nil {
				return err
			}
			lab.Add("capacity", prefilledCell(c.percent), "readings/s", rate)
			lab.Add("capacity", prefilledCell(c.percent), "for each processor of mongod", perProcessor)
		}
	}
	if !lab.Own() {
		return nil
	}
	fullest := groups[len(groups)-1]
	lab.Step("hourly buckets filled to %d %%, and a checkpoint meanwhile", fullest.percent)
	f, err := fullest.next(p, true).run(ctx, lab, m, d)
	if err != nil {
		return err
	}
	add(lab, prefilledCell(fullest.percent)+", with a checkpoint", f, false)
	return nil
}

func newGroups(lab *bench.Lab, p plan, percents []int) ([]*group, error) {
	begin := time.Now().Add(-2 * time.Hour).Truncate(time.Hour)
	groups := make([]*group, len(percents))
	for i, percent := range percents {
		c := &group{percent: percent, prefix: fmt.Sprintf("p%d-", percent), begin: begin}
		var err error
		c.sensors, err = load.NewSensors(load.SensorsConfig{Count: p.prefilledSensors, Seed: max(lab.Seed, 1), Prefix: c.prefix})
		if err != nil {
			return nil, err
		}
		groups[i] = c
	}
	return groups, nil
}

// fillGroups does it with a daemon that merges, for one reading per update
// would take minutes.
func fillGroups(ctx context.Context, lab *bench.Lab, m *bench.MongoDB, groups []*group) (err error) {
	d, err := lab.Daemon(ctx, m, "--granularity", "1h")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	for _, c := range groups {
		lab.Step("fill hourly buckets of %d sensors to %d %%", c.sensors.Len(), c.percent)
		c.rows = c.percent * int(time.Hour/interval) / 100
		if err := (wire.Prefill{Sensors: c.sensors, Begin: c.begin, Interval: interval, To: c.rows}).Run(ctx, d.Daemon); err != nil {
			return err
		}
	}
	return nil
}

// next is the phase that goes on where the group's buckets end.
func (c *group) next(p plan, checkpoint bool) Phase {
	phase := Phase{
		Granularity: time.Hour, Sensors: c.sensors.Len(), Interval: interval, Prefix: c.prefix,
		Speedup: rate * interval.Seconds() / float64(c.sensors.Len()), Duration: p.slot, Batch: perRequest,
		Start: c.begin.Add(time.Duration(c.rows) * interval), Checkpoint: checkpoint,
	}
	if checkpoint {
		phase.Duration *= 2 // half of it is without
	}
	c.rows += p.readingsOf(phase.Duration)
	return phase
}

const (
	lanes      = 4   // as many as the daemon has
	perCommand = 250 // updates, each of another bucket
	leastBurst = 4000

	// collection is that of the daemon's default stream.
	collection = "readings"
)

// burst is how many readings of each sensor are written at once to see what
// MongoDB can store.
func (p plan) burst() int { return max(1, (leastBurst+p.prefilledSensors-1)/p.prefilledSensors) }

// capacity writes readings of all sensors, one per update, as fast as MongoDB
// takes them, and returns the rate, and that for each second that mongod used a
// processor: other work on the machine does not count in it. The daemon is idle
// meanwhile: lanes write with its store.
func (c *group) capacity(ctx context.Context, m *bench.MongoDB, rows int) (rate, perProcessor float64, err error) {
	s, err := bucket.New(bucket.Config{
		Database: m.Database(), Stream: collection, Granularity: time.Hour, MaxReadings: 1000, MaxBytes: 256 << 10,
		Compressor: store.Snappy, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		return 0, 0, err
	}
	if err := s.Prepare(ctx); err != nil {
		return 0, 0, err
	}
	if err := m.Settle(ctx); err != nil {
		return 0, 0, err
	}
	fleet := lane.NewFleet(lane.FleetConfig{
		Config: lane.Config{Store: s, Source: c.sensors, Stream: collection, Granularity: time.Hour, Begin: c.begin, Interval: interval},
		Order:  lane.Order(c.sensors.Len()), Lanes: lanes, PerUpdate: 1, PerCommand: perCommand,
	})
	spent, err := m.Measure(ctx, func(ctx context.Context) error {
		return fleet.Each(ctx, func(ctx context.Context, w *lane.Writer) error {
			for i := range w.Next {
				w.Next[i] = uint64(c.rows) //nolint:gosec // counts from 0
			}
			for left := rows * len(w.Sensors); left > 0; {
				n, _, err := w.Write(ctx)
				if err != nil {
					return err
				}
				left -= n
			}
			return nil
		})
	})
	if err != nil {
		if ctx.Err() != nil {
			return 0, 0, context.Cause(ctx)
		}
		return 0, 0, err
	}
	c.rows += rows
	readings := float64(rows * c.sensors.Len())
	return readings / spent.Seconds, readings / spent.CPU, nil
}
