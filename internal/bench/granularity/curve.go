package granularity

import (
	"context"
	"errors"
	"fmt"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/fit"
)

// The topologies, as they are told.
const (
	replicaSet = "replica set"
	standalone = "standalone"
)

// A curve is what an append of so many readings costs by those that its bucket
// holds.
type curve struct {
	Topology  string   `json:"topology"`
	PerUpdate int      `json:"per_update"`
	Points    []*point `json:"points"`
	// The lines through all repeats of all points, against the readings held; in
	// seconds an append. nil: none could be drawn.
	Time *fit.Line `json:"time_line"`
	CPU  *fit.Line `json:"mongod_cpu_line"`
}

// A point is what was measured at one size of buckets, by repeat, in seconds an
// append.
type point struct {
	Residents     int           `json:"residents"` // before the first append
	Buckets       int           `json:"buckets"`
	DocumentBytes int           `json:"document_bytes"` // before the first append
	Held          bench.Samples `json:"held"`           // mean number of readings in a bucket, before an append, when timed
	HeldBulk      bench.Samples `json:"held_bulk"`      // and in bulk
	Time          bench.Samples `json:"time"`           // median of appends of one writer, one a command
	TimeCPU       bench.Samples `json:"time_mongod_cpu"`
	Bulk          bench.Samples `json:"bulk_time"` // mean of an append among many in a command
	CPU           bench.Samples `json:"bulk_mongod_cpu"`
}

// curves measures one for each number of readings an append.
func (t *trial) curves(ctx context.Context, m *bench.MongoDB, topology string, g grid) error {
	for _, k := range g.perUpdate {
		c := &curve{Topology: topology, PerUpdate: k}
		t.Curves = append(t.Curves, c)
		if err := t.curve(ctx, m, c, g.residents); err != nil {
			return err
		}
	}
	return nil
}

// A pair is two stocks of the same buckets: one for appends that are timed, one
// for appends in bulk.
type pair struct{ timed, bulk *stock }

func (t *trial) curve(ctx context.Context, m *bench.MongoDB, c *curve, residents []int) (err error) {
	t.lab.Step("%s, %s an append: make buckets", c.Topology, several(c.PerUpdate, "reading"))
	pairs := make([]pair, 0, len(residents))
	for _, n := range residents {
		p, err := t.pair(ctx, m, fmt.Sprintf("append_%d_%d", n, c.PerUpdate), stockConfig{
			fields: publishedFields, residents: n, perUpdate: c.PerUpdate, seed: t.lab.Seed,
		})
		if err != nil {
			return err
		}
		pairs = append(pairs, p)
		c.Points = append(c.Points, &point{Residents: n, Buckets: p.timed.count + p.bulk.count, DocumentBytes: p.timed.bytes})
	}
	if err := m.Settle(ctx); err != nil {
		return err
	}
	for repeat := range t.lab.Repeats {
		t.lab.Step("%s, %s an append: repeat %d of %d", c.Topology, several(c.PerUpdate, "reading"), repeat+1, t.lab.Repeats)
		for i, p := range pairs {
			if err := p.measure(ctx, m, c.Points[i], t.lab.Repeats); err != nil {
				return err
			}
		}
	}
	c.draw()
	for _, p := range pairs {
		err = errors.Join(err, p.timed.drop(ctx), p.bulk.drop(ctx))
	}
	return err
}

func (t *trial) pair(ctx context.Context, m *bench.MongoDB, collection string, c stockConfig) (p pair, err error) {
	c.database, c.collection = acknowledged(m), collection+"_timed"
	if p.timed, err = newStock(ctx, t.fit(c, t.lab.Repeats, t.single)); err != nil {
		return p, err
	}
	c.database, c.collection = m.Database(), collection+"_bulk"
	p.bulk, err = newStock(ctx, t.fit(c, t.lab.Repeats, t.bulk))
	return p, err
}

// measure does one repeat of a point.
func (p pair) measure(ctx context.Context, m *bench.MongoDB, of *point, repeats int) error {
	appends := p.timed.appends / repeats
	held := p.timed.held()
	before, err := m.CPU(ctx)
	if err != nil {
		return err
	}
	times, err := p.timed.single(ctx, appends)
	if err != nil {
		return err
	}
	after, err := m.CPU(ctx)
	if err != nil {
		return err
	}
	of.Held = append(of.Held, (held+p.timed.held())/2)
	of.Time = append(of.Time, times.Median())
	of.TimeCPU = append(of.TimeCPU, (after-before).Seconds()/float64(appends))
	cost, err := bulkCost(ctx, m, p.bulk, p.bulk.appends/repeats)
	if err != nil {
		return err
	}
	of.HeldBulk, of.Bulk, of.CPU = append(of.HeldBulk, cost.Residents), append(of.Bulk, cost.Time), append(of.CPU, cost.CPU)
	return nil
}

// draw draws the lines through what was measured.
func (c *curve) draw() {
	var held, took, heldBulk, cpu []float64
	for _, p := range c.Points {
		held, took = append(held, p.Held...), append(took, p.Time...)
		heldBulk, cpu = append(heldBulk, p.HeldBulk...), append(cpu, p.CPU...)
	}
	c.Time, c.CPU = through(held, took), through(heldBulk, cpu)
}

func through(x, y []float64) *fit.Line {
	if l, ok := fit.Through(x, y); ok {
		return &l
	}
	return nil
}

// at returns what an append to a bucket with so many readings costs by the line
// of each repeat: through the points of all sizes it is less at the mercy of
// single ones, and repeats do not share it.
func (c *curve) at(residents float64, held, of func(*point) bench.Samples) (s bench.Samples) {
	if c == nil || len(c.Points) == 0 {
		return nil
	}
	for repeat := range of(c.Points[len(c.Points)-1]) { // the last one is measured last
		var x, y []float64
		for _, p := range c.Points {
			x, y = append(x, held(p)[repeat]), append(y, of(p)[repeat])
		}
		if l := through(x, y); l != nil {
			s = append(s, l.At(residents))
		}
	}
	return s
}

func timeOf(p *point) bench.Samples     { return p.Time }
func heldOf(p *point) bench.Samples     { return p.Held }
func cpuOf(p *point) bench.Samples      { return p.CPU }
func heldBulkOf(p *point) bench.Samples { return p.HeldBulk }

// times are those of an append to a bucket with so many readings.
func (c *curve) times(residents float64) bench.Samples { return c.at(residents, heldOf, timeOf) }

// cpus is mongod's CPU for one in bulk.
func (c *curve) cpus(residents float64) bench.Samples { return c.at(residents, heldBulkOf, cpuOf) }

// curveOf returns that of a topology and a number of readings an append; nil if
// it was not measured.
func (f *found) curveOf(topology string, perUpdate int) *curve {
	for _, c := range f.Curves {
		if c.Topology == topology && c.PerUpdate == perUpdate {
			return c
		}
	}
	return nil
}

// most returns the one with the most readings an append.
func (f *found) most(topology string) (c *curve) {
	for _, each := range f.Curves {
		if each.Topology == topology && (c == nil || each.PerUpdate > c.PerUpdate) {
			c = each
		}
	}
	return c
}
