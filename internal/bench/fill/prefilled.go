package fill

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/launch/wire"
	"github.com/brim-telemetry/brim/internal/load"
)

// prefilledPercents are how far buckets are filled before they are written to.
var prefilledPercents = [...]int{5, 50, 95}

func prefilledCell(percent int) string { return fmt.Sprintf("prefilled-%d", percent) }

// prefilled is what came of writes into buckets that were filled beforehand.
type prefilled struct {
	passages map[int][]*Figures // by percent, repeats
	most     map[int][]capacity // when MongoDB gets all that it can take
	// checkpoint is a passage into the fullest buckets with a checkpoint in its
	// middle; nil: not measured.
	checkpoint *Figures
	percent    int // of that passage
}

// A crowd is sensors whose buckets are filled to the same share.
type crowd struct {
	percent int
	sensors *load.Sensors
	prefix  string
	begin   time.Time // of the window
	rows    int       // that each sensor has
}

// readingsOf is how many readings of each sensor a passage into buckets that
// were filled beforehand brings.
func (p plan) readingsOf(duration time.Duration) int {
	return int(math.Ceil(duration.Seconds() * rate / float64(p.prefilledSensors)))
}

// prefilledRepeats are those for which the fullest buckets have room, with the
// passage that has a checkpoint.
func (p plan) prefilledRepeats() int {
	hour := int(time.Hour / interval)
	room := hour - hour*prefilledPercents[len(prefilledPercents)-1]/100 - p.readingsOf(2*p.slot)
	return max(1, min(p.repeats, room/(p.readingsOf(p.slot)+p.burst())))
}

// prefilledSteps is how many steps it takes for so many crowds.
func prefilledSteps(lab *bench.Lab, p plan, crowds int) int {
	if crowds == 0 {
		return 0
	}
	n := crowds * (1 + p.prefilledRepeats())
	if lab.Own() {
		n++
	}
	return n
}

// runPrefilled fills all crowds, then writes to each in turn, again and again.
func runPrefilled(ctx context.Context, lab *bench.Lab, m *bench.MongoDB, p plan, percents []int) (came *prefilled, err error) {
	crowds, err := newCrowds(lab, p, percents)
	if err != nil {
		return nil, err
	}
	if err := fillCrowds(ctx, lab, m, crowds); err != nil {
		return nil, err
	}
	d, err := lab.Daemon(ctx, m, append([]string{"--granularity", "1h"}, ways[0].serve...)...)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err = errors.Join(err, d.Close()); err == nil {
			err = m.Drop(ctx)
		}
	}()
	came = &prefilled{passages: make(map[int][]*Figures), most: make(map[int][]capacity)}
	for i := range p.prefilledRepeats() {
		for _, c := range crowds {
			lab.Step("hourly buckets filled to %d %%, round %d of %d", c.percent, i+1, p.prefilledRepeats())
			f, err := c.next(p, false).run(ctx, lab, m, d)
			if err != nil {
				return came, err
			}
			came.passages[c.percent] = append(came.passages[c.percent], f)
			most, err := c.most(ctx, m, p.burst())
			if err != nil {
				return came, err
			}
			came.most[c.percent] = append(came.most[c.percent], most)
		}
	}
	if !lab.Own() {
		return came, nil
	}
	fullest := crowds[len(crowds)-1]
	lab.Step("hourly buckets filled to %d %%, and a checkpoint meanwhile", fullest.percent)
	came.percent = fullest.percent
	came.checkpoint, err = fullest.next(p, true).run(ctx, lab, m, d)
	return came, err
}

func newCrowds(lab *bench.Lab, p plan, percents []int) ([]*crowd, error) {
	begin := time.Now().Add(-2 * time.Hour).Truncate(time.Hour)
	crowds := make([]*crowd, len(percents))
	for i, percent := range percents {
		c := &crowd{percent: percent, prefix: fmt.Sprintf("p%d-", percent), begin: begin}
		var err error
		c.sensors, err = load.NewSensors(load.SensorsConfig{Count: p.prefilledSensors, Seed: max(lab.Seed, 1), Prefix: c.prefix})
		if err != nil {
			return nil, err
		}
		crowds[i] = c
	}
	return crowds, nil
}

// fillCrowds does it with a daemon that merges, for one reading per update
// would take minutes.
func fillCrowds(ctx context.Context, lab *bench.Lab, m *bench.MongoDB, crowds []*crowd) (err error) {
	d, err := lab.Daemon(ctx, m, "--granularity", "1h")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	for _, c := range crowds {
		lab.Step("fill hourly buckets of %d sensors to %d %%", c.sensors.Len(), c.percent)
		c.rows = c.percent * int(time.Hour/interval) / 100
		if err := (wire.Prefill{Sensors: c.sensors, Begin: c.begin, Interval: interval, To: c.rows}).Run(ctx, d.Daemon); err != nil {
			return err
		}
	}
	return nil
}

// next is the passage that goes on where the crowd's buckets end.
func (c *crowd) next(p plan, checkpoint bool) Passage {
	passage := Passage{
		Granularity: time.Hour, Sensors: c.sensors.Len(), Interval: interval, Prefix: c.prefix,
		Speedup: rate * interval.Seconds() / float64(c.sensors.Len()), Duration: p.slot, Batch: perRequest,
		Start: c.begin.Add(time.Duration(c.rows) * interval), Checkpoint: checkpoint,
	}
	if checkpoint {
		passage.Duration *= 2 // half of it is without
	}
	c.rows += p.readingsOf(passage.Duration)
	return passage
}

// capacities are a figure of the repeats of what MongoDB stores at most.
func (p *prefilled) capacities(percent int, figure func(capacity) float64) bench.Samples {
	out := make(bench.Samples, len(p.most[percent]))
	for i, c := range p.most[percent] {
		out[i] = figure(c)
	}
	return out
}

func rateOf(c capacity) float64         { return c.Rate }
func perProcessorOf(c capacity) float64 { return c.PerProcessor }
