package compression

import (
	"context"
	"errors"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/lane"
	"github.com/brim-telemetry/brim/internal/bench/shape"
)

const (
	// tick is how often a command is due.
	tick = 10 * time.Millisecond
	// together is how many readings of a sensor each has.
	together = 5

	checkpointInterval = "syncdelay"
	defaultInterval    = 60 // seconds
)

// writes writes at a fixed rate, and many readings for a checkpoint, compressor
// by compressor in each repeat.
func (t *trial) writes(ctx context.Context) (err error) {
	if t.lab.Own() { // checkpoints are ours alone
		if err := t.m.Set(ctx, map[string]any{checkpointInterval: 0}); err != nil {
			return err
		}
		defer func() {
			err = errors.Join(err, t.m.Set(context.WithoutCancel(ctx), map[string]any{checkpointInterval: defaultInterval}))
		}()
	}
	for _, at := range t.scale.paced {
		for by, c := range compressors() {
			t.data.Writes = append(t.data.Writes, WriteData{Shape: shapes()[at].String(), Compressor: c, at: at, by: by})
		}
	}
	for _, c := range compressors() {
		t.data.Checkpoints = append(t.data.Checkpoints, CheckpointData{Compressor: c})
	}
	for repeat := range t.lab.Repeats {
		for by, c := range compressors() {
			t.lab.Step("write at %d readings/s, and a checkpoint, with %s, repeat %d", t.scale.rate, c, repeat+1)
			for _, at := range t.scale.paced {
				if err := t.pace(ctx, at, by); err != nil {
					return err
				}
			}
			if err := t.checkpoint(ctx, by); err != nil {
				return err
			}
		}
	}
	return nil
}

// pace writes at the fixed rate: command n is due n ticks after the first.
func (t *trial) pace(ctx context.Context, at, by int) error {
	perTick := t.scale.rate * int(tick) / int(time.Second)
	group := max(perTick/together, 1) // sensors in a command
	ticks := int(t.scale.write / tick)
	rounds := 20 // commands until a sensor's turn comes again
	readings := t.readings(Walk, 0)
	readings.Sensors, readings.Count = group*rounds, (ticks/rounds+1)*together
	c, err := shape.New(ctx, t.m, shape.Config{Name: "paced", Shape: shapes()[at], Compressor: compressors()[by], Readings: readings, PerUpdate: together})
	if err != nil {
		return err
	}
	if err := t.m.Settle(ctx); err != nil {
		return err
	}
	before, err := t.m.Counters(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	var took bench.Samples
	var portions []lane.Portion
	pace := lane.Pace{Began: began, Due: func(n int) (time.Duration, bool) { return time.Duration(n) * tick, n < ticks }, Every: 1}
	err = pace.Run(ctx, func(n int, due time.Duration) error {
		portions = portions[:0]
		for i := range group {
			portions = append(portions, lane.Portion{Sensor: n%rounds*group + i, First: uint64(n / rounds * together), Count: together}) //nolint:gosec // counts from 0
		}
		if err := c.Write(ctx, portions); err != nil {
			return err
		}
		took = append(took, (time.Since(began) - due).Seconds())
		return nil
	})
	if err != nil {
		return err
	}
	elapsed := time.Since(began)
	if err := t.m.Checkpoint(ctx); err != nil {
		return err
	}
	after, err := t.m.Counters(ctx)
	if err != nil {
		return err
	}
	written := float64(ticks * group * together)
	d := t.data.write(at, by)
	d.P50, d.P99 = append(d.P50, took.Quantile(0.5)), append(d.P99, took.Quantile(0.99))
	d.Rate = append(d.Rate, written/elapsed.Seconds())
	d.CPU = append(d.CPU, shape.CPU(before, after)/written)
	d.Blocks = append(d.Blocks, after.Since(before, "block_written_bytes_total")/written)
	d.Journal = append(d.Journal, after.Since(before, "journal_written_bytes_total")/written)
	return c.Drop(ctx)
}

// checkpoint measures those that write nothing but readings which were just
// stored, a document each: after every hour of them, so that none is written
// before because it fills the cache.
func (t *trial) checkpoint(ctx context.Context, by int) error {
	readings := t.readings(Walk, t.scale.checkpoint)
	c, err := shape.New(ctx, t.m, shape.Config{
		Name: "checkpointed", Shape: shapes()[documents], Compressor: compressors()[by], Readings: readings, PerUpdate: perUpdate,
	})
	if err != nil {
		return err
	}
	if err := t.m.Checkpoint(ctx); err != nil {
		return err
	}
	var sum spent
	for h := range t.scale.checkpoint {
		for first := h * hour; first < (h+1)*hour; first += perUpdate {
			if err := c.Write(ctx, portions(readings.Sensors, first)); err != nil {
				return err
			}
		}
		if err := t.checkpointed(ctx, &sum); err != nil {
			return err
		}
	}
	d := &t.data.Checkpoints[by]
	d.Count, d.Readings = t.scale.checkpoint, t.scale.checkpoint*hour*readings.Sensors
	d.Seconds, d.CPU, d.Bytes = append(d.Seconds, sum.wall), append(d.CPU, sum.cpu), append(d.Bytes, sum.bytes)
	return c.Drop(ctx)
}

// portions are a number of readings of every sensor, from the same on.
func portions(sensors, first int) []lane.Portion {
	var out []lane.Portion
	for sensor := range sensors {
		out = append(out, lane.Portion{Sensor: sensor, First: uint64(first), Count: perUpdate}) //nolint:gosec // counts from 0
	}
	return out
}

// spent is what checkpoints took in all.
type spent struct{ wall, cpu, bytes float64 }

func (t *trial) checkpointed(ctx context.Context, sum *spent) error {
	before, err := t.m.Counters(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := t.m.Checkpoint(ctx); err != nil {
		return err
	}
	sum.wall += time.Since(began).Seconds()
	after, err := t.m.Counters(ctx)
	if err != nil {
		return err
	}
	sum.cpu += shape.CPU(before, after)
	sum.bytes += after.Since(before, "block_written_bytes_total")
	return nil
}
