package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// growthName stands for the growth in --rows. It is not measured unless named.
const growthName = "growth"

// growthTime is how long a point of the growth is written, unless --time says
// otherwise.
const growthTime = 5 * time.Second

// A grid is what the growth is measured at: each dimension by itself with the
// others at the centre, and every number of readings an update with every
// number of sensors.
type grid struct {
	sensors, perUpdate, fields, writers []int
	centre                              shape
}

// A shape is what a point of the growth writes.
type shape struct {
	Sensors   int `json:"sensors"`
	PerUpdate int `json:"per_update"` // readings of an update
	Fields    int `json:"fields"`     // integers
	Writers   int `json:"writers"`
}

func fullGrid() grid {
	return grid{
		sensors: []int{1_000, 10_000, 100_000, 1_000_000}, perUpdate: []int{1, 5, 12, 60}, fields: []int{1, 10, 50}, writers: []int{1, 2, 4},
		centre: shape{Sensors: 10_000, PerUpdate: 12, Fields: 10, Writers: 4},
	}
}

// shapes are all that are to be measured, each once, the ones with the fewest
// sensors first.
func (g *grid) shapes() []shape {
	shapes := []shape{g.centre}
	for _, d := range g.sweeps() {
		shapes = append(shapes, d.shapes...)
	}
	for _, sensors := range g.sensors {
		shapes = append(shapes, g.merges(sensors)...)
	}
	slices.SortStableFunc(shapes, func(a, b shape) int { return a.Sensors - b.Sensors })
	var once []shape
	for _, s := range shapes {
		if !slices.Contains(once, s) {
			once = append(once, s)
		}
	}
	return once
}

// A sweep is one dimension of the grid.
type sweep struct {
	name   string
	of     func(s shape) int
	shapes []shape
}

func (g *grid) sweeps() []sweep {
	along := func(numbers []int, set func(s *shape, n int)) []shape {
		shapes := make([]shape, len(numbers))
		for i, n := range numbers {
			shapes[i] = g.centre
			set(&shapes[i], n)
		}
		return shapes
	}
	return []sweep{
		{"sensors", func(s shape) int { return s.Sensors }, along(g.sensors, func(s *shape, n int) { s.Sensors = n })},
		{"readings an update", func(s shape) int { return s.PerUpdate }, along(g.perUpdate, func(s *shape, n int) { s.PerUpdate = n })},
		{"fields", func(s shape) int { return s.Fields }, along(g.fields, func(s *shape, n int) { s.Fields = n })},
		{"writers", func(s shape) int { return s.Writers }, along(g.writers, func(s *shape, n int) { s.Writers = n })},
	}
}

// merges are all numbers of readings an update for a number of sensors.
func (g *grid) merges(sensors int) []shape {
	shapes := make([]shape, len(g.perUpdate))
	for i, k := range g.perUpdate {
		shapes[i] = g.centre
		shapes[i].Sensors, shapes[i].PerUpdate = sensors, k
	}
	return shapes
}

// A growth is how the cost grows.
type growth struct {
	grid   grid
	Time   string        `json:"time"` // of a point, at least
	Points []growthPoint `json:"points"`
	// Lines is what a reading costs that goes the whole way through the daemon.
	Lines passage    `json:"lines"`
	Fits  []mergeFit `json:"fits"`
	Plan  []planRow  `json:"plan"`
}

// growth measures how the cost of what is stored grows: this process writes
// shares as lanes would into an embedded mongod, so that every number is set
// exactly and neither door nor journal is in the way.
func (y *yardstick) growth(ctx context.Context) ([]row, error) {
	var err error
	y.grown, err = y.measureGrowth(ctx, fullGrid())
	return nil, err
}

func (y *yardstick) measureGrowth(ctx context.Context, g grid) (*growth, error) {
	grown := &growth{grid: g, Time: y.growthTime.String()}
	through, err := y.throughDaemon(ctx)
	if err != nil {
		return nil, err
	}
	grown.Lines = *through
	if grown.Points, err = y.growthPoints(ctx, g.shapes()); err != nil {
		return nil, err
	}
	grown.conclude()
	return grown, nil
}

// throughDaemon sends line protocol for a moment.
func (y *yardstick) throughDaemon(ctx context.Context) (p *passage, err error) {
	y.note("line protocol through the daemon, for Brim's CPU a reading\n")
	sender, err := newLinePoster(y.connections, newFleet(hostsOf))
	if err != nil {
		return nil, err
	}
	r, err := y.newRig(ctx, "--granularity", hourly)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.settle(ctx); err != nil {
		return nil, err
	}
	if p, err = r.pass(ctx, sender, y.growthTime); err != nil {
		return nil, err
	}
	y.note("  %s readings/s, %.1f an update; us CPU: brim %.2f, mongod %.2f\n", thousands(p.Rate, 0), p.Merged, p.BrimCPU, p.MongodCPU)
	return p, nil
}

func (y *yardstick) growthPoints(ctx context.Context, shapes []shape) (points []growthPoint, err error) {
	m, err := y.startGrowthMongod(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	for i, s := range shapes {
		y.note("%d of %d: %s\n", i+1, len(shapes), s.words())
		p, err := m.measure(ctx, s, y.growthTime)
		if err != nil {
			return nil, fmt.Errorf("write %d readings an update for %d sensors: %w", s.PerUpdate, s.Sensors, err)
		}
		y.note("  %s readings/s; us CPU a reading: mongod %.2f, this process %.2f\n", thousands(p.Rate, 0), p.MongodReading, p.ClientReading)
		points = append(points, *p)
	}
	return points, nil
}

// point returns that of a shape; nil if it was not measured.
func (g *growth) point(s shape) *growthPoint {
	for i := range g.Points {
		if g.Points[i].shape == s {
			return &g.Points[i]
		}
	}
	return nil
}

// pointsOf returns those of shapes.
func (g *growth) pointsOf(shapes []shape) []growthPoint {
	var points []growthPoint
	for _, s := range shapes {
		if p := g.point(s); p != nil {
			points = append(points, *p)
		}
	}
	return points
}

// conclude computes what follows from the points.
func (g *growth) conclude() {
	for _, sensors := range g.grid.sensors {
		if f, ok := fitMerges(g.pointsOf(g.grid.merges(sensors))); ok {
			g.Fits = append(g.Fits, f)
		}
	}
	g.Plan = g.plan()
}
