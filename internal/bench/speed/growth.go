package speed

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/store"
)

// A point of the growth says what is written.
type point struct{ sensors, perUpdate, fields, writers int }

func (s point) String() string {
	return fmt.Sprintf("%d, %d, %d, %d", s.sensors, s.perUpdate, s.fields, s.writers)
}

// A grid is what the growth is measured at: each dimension by itself with the
// others at the centre, and every number of readings an update with every number
// of sensors.
type grid struct {
	sensors, perUpdate, fields, writers []int
	centre                              point
	length                              time.Duration // of writing at a point
}

func fullGrid() grid {
	return grid{
		sensors: []int{1_000, 10_000, 100_000, 1_000_000}, perUpdate: []int{1, 5, 12, 60}, fields: []int{1, 10, 50}, writers: []int{1, 2, 4},
		centre: point{10_000, 12, 10, 4}, length: 5 * time.Second,
	}
}

// points are all that are to be measured, each once, the ones with the fewest
// sensors first.
func (g *grid) points() []point {
	var all []point
	for _, sensors := range g.sensors {
		for _, perUpdate := range g.perUpdate {
			all = append(all, point{sensors, perUpdate, g.centre.fields, g.centre.writers})
		}
	}
	for _, fields := range g.fields {
		all = append(all, point{g.centre.sensors, g.centre.perUpdate, fields, g.centre.writers})
	}
	for _, writers := range g.writers {
		all = append(all, point{g.centre.sensors, g.centre.perUpdate, g.centre.fields, writers})
	}
	slices.SortStableFunc(all, func(a, b point) int { return a.sensors - b.sensors })
	var once []point
	for _, s := range all {
		if !slices.Contains(once, s) {
			once = append(once, s)
		}
	}
	return once
}

// growth measures how the cost of what is stored grows: this process writes as
// lanes do, so that every number is set exactly and neither ingest nor journal is
// in the way.
func (t *trial) growth(ctx context.Context) error { return t.grow(ctx, fullGrid()) }

func (t *trial) grow(ctx context.Context, g grid) error {
	points := g.points()
	err := t.onMongoDB(ctx, func(m *bench.MongoDB) error {
		for i, s := range points {
			t.lab.Step("growth %d of %d: %v", i+1, len(points), s)
			if err := t.point(ctx, m, s, g.length); err != nil {
				return fmt.Errorf("write %d readings an update for %d sensors: %w", s.perUpdate, s.sensors, err)
			}
		}
		return nil
	})
	if err == nil {
		t.concludeGrowth(g)
	}
	return err
}

// concludeGrowth computes what follows from the points.
func (t *trial) concludeGrowth(g grid) {
	points := t.lab.Table("growth")
	for _, sensors := range g.sensors {
		var k, cpu []float64
		for _, perUpdate := range g.perUpdate {
			k = append(k, float64(perUpdate))
			cpu = append(cpu, points.Median(point{sensors, perUpdate, g.centre.fields, g.centre.writers}.String(), "mongod CPU an update"))
		}
		if line, ok := bench.FitLine(k, cpu); ok {
			row := strconv.Itoa(sensors)
			t.lab.Row("merging", row, line.Base, line.Each)
			if line.Base > 0 && line.Each > 0 {
				t.lab.Add("merging", row, "knee at K", knee(line))
			}
		}
	}
	brim := t.lab.Table("lines").Median(lineProtocol, brimOf)
	for _, rate := range []float64{1e6, 1e7} {
		for _, perUpdate := range g.perUpdate {
			row := fmt.Sprintf("%.0f, %d", rate, perUpdate)
			mongod := points.Median(point{g.centre.sensors, perUpdate, g.centre.fields, g.centre.writers}.String(), "mongod CPU a reading")
			brimCores, mongodCores := rate*brim, rate*mongod // of brim NaN without the cell lines
			t.lab.Row("hosts", row, brimCores, hostsFor(brimCores), mongodCores, hostsFor(mongodCores))
		}
	}
}

// knee is the number of readings an update from which on a doubling gains less
// than a tenth g: a reading costs base/K + each, and from K to 2K the rate gains
// base/2K : (base/2K + each), which is less than g from each·K = base·(1-g)/2g on.
func knee(l bench.Line) float64 {
	const g = 0.10
	return l.Base * (1 - g) / (2 * g) / l.Each
}

// hostsFor returns how many hosts so many busy cores take: hosts of 16 cores, 60 %
// of them in use, so that peaks and failovers have room.
func hostsFor(cores float64) float64 { return math.Ceil(cores/(16*0.60) - 1e-9) }

// warmUp is for how many times the time of a point its buckets are created at
// most.
const warmUp = 20

// point writes a shape into a fresh collection, in which each sensor has a bucket.
func (t *trial) point(ctx context.Context, m *bench.MongoDB, s point, length time.Duration) error {
	var fields []string
	for f := range s.fields {
		fields = append(fields, fmt.Sprintf("usage_%02d", f))
	}
	percentages := shape.Numbers{Names: fields, Number: func(random uint64) float64 { return float64(random % (mostUsage + 1)) }, Seed: t.lab.Seed}
	c, err := shape.New(ctx, m, shape.Config{
		Name: collection, Shape: shape.Shape{Kind: shape.Buckets, Granularity: time.Hour}, Compressor: store.Snappy, PerUpdate: s.perUpdate,
		Readings: shape.Readings{Source: percentages, Sensors: s.sensors, Begin: time.Now().Truncate(time.Hour).AddDate(-1, 0, 0), Interval: interval},
	})
	if err != nil {
		return err
	}
	order := rand.New(rand.NewPCG(t.lab.Seed, 1)).Perm(s.sensors) //nolint:gosec // as lanes have sensors by hash
	f := c.Fleet(s.writers, shape.PerCommand(s.perUpdate), order)
	if err := f.Fill(ctx, 1, time.Now().Add(warmUp*length)); err != nil {
		return err
	}
	created := 0
	for _, w := range f.Workers {
		created += len(w.Sensors)
		for i := range w.Next {
			w.Next[i] = uint64(s.perUpdate) //nolint:gosec // so that an hour ends with an update
		}
	}
	if err := m.Settle(ctx); err != nil {
		return err
	}
	c.Took() // by filling
	var sensors, updates int
	spent, err := m.Measure(ctx, func(ctx context.Context) (err error) {
		until := time.Now().Add(length)
		sensors, updates, err = f.Run(ctx, func(w *shape.Worker, _ int) bool { return time.Now().Before(until) && len(w.Sensors) > 0 })
		return err
	})
	if err != nil {
		return err
	}
	readings, done := int64(sensors*s.perUpdate), float64(updates)
	stored, err := sumOf(ctx, m.Database().Collection(collection), "$count")
	if err != nil {
		return err
	}
	if sent := readings + int64(created); stored != sent {
		return fmt.Errorf("MongoDB has %d readings of %d that were written", stored, sent)
	}
	n, took := float64(readings), c.Took()
	t.lab.Row("growth", s.String(), n/spent.Seconds, done/spent.Seconds, spent.CPU/n, spent.CPU/done, spent.Own/n,
		took.Quantile(0.5), took.Quantile(0.99), float64(min(created, sensors)))
	return m.Drop(ctx)
}
