package granularity

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/fit"
)

// standalone is the topology of a server that belongs to no replica set.
const standalone = "standalone"

// topologyOf tells a MongoDB's in words.
func topologyOf(ctx context.Context, m *bench.MongoDB) (string, error) {
	counters, err := m.Counters(ctx)
	if err != nil {
		return "", err
	}
	return strings.ReplaceAll(counters.Topology, "_", " "), nil
}

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
	Journal       bench.Samples `json:"bulk_journal_bytes"`
}

// curves measures one for each number of readings an append.
func (t *trial) curves(ctx context.Context, m *bench.MongoDB, g grid) error {
	topology, err := topologyOf(ctx, m)
	if err != nil {
		return err
	}
	if t.Topology == "" {
		t.Topology = topology
	}
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
		if err := t.repeat(ctx, m, c, pairs); err != nil {
			return err
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
	if p.timed, err = newStock(ctx, t.fit(c, t.lab.Repeats*t.slices, t.single)); err != nil {
		return p, err
	}
	c.database, c.collection = m.Database(), collection+"_bulk"
	p.bulk, err = newStock(ctx, t.fit(c, t.lab.Repeats*t.slices, t.bulk))
	return p, err
}

// repeat measures all points once, each in slices that take turns with those of
// the others, so that a slow moment hits all.
func (t *trial) repeat(ctx context.Context, m *bench.MongoDB, c *curve, pairs []pair) error {
	all := make([]sums, len(pairs))
	for range t.slices {
		for i, p := range pairs {
			if err := all[i].add(ctx, m, p, t.lab.Repeats*t.slices); err != nil {
				return err
			}
		}
	}
	for i := range all {
		all[i].conclude(c.Points[i])
	}
	return nil
}

// sums are what a repeat of a point gave so far.
type sums struct {
	held, heldBulk, times        bench.Samples
	timedCPU, bulk, cpu, journal float64 // sums
	timedAppends, passes         int
}

// add measures one of so many slices of all repeats.
func (s *sums) add(ctx context.Context, m *bench.MongoDB, p pair, of int) error {
	appends := p.timed.appends / of
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
	s.held, s.times = append(s.held, (held+p.timed.held())/2), append(s.times, times...)
	s.timedCPU, s.timedAppends = s.timedCPU+(after-before).Seconds(), s.timedAppends+appends

	start, err := m.Counters(ctx)
	if err != nil {
		return err
	}
	cost, err := bulkCost(ctx, m, p.bulk, p.bulk.appends/of)
	if err != nil {
		return err
	}
	end, err := m.Counters(ctx)
	if err != nil {
		return err
	}
	s.heldBulk, s.bulk, s.cpu = append(s.heldBulk, cost.Residents), s.bulk+cost.Time, s.cpu+cost.CPU
	s.journal += end.Since(start, "journal_written_bytes_total") / float64(p.bulk.appends/of)
	s.passes++
	return nil
}

// conclude tells the point what the repeat gave.
func (s *sums) conclude(of *point) {
	passes := float64(s.passes)
	of.Held, of.HeldBulk = append(of.Held, mean(s.held)), append(of.HeldBulk, mean(s.heldBulk))
	of.Time, of.TimeCPU = append(of.Time, s.times.Median()), append(of.TimeCPU, s.timedCPU/float64(s.timedAppends))
	of.Bulk, of.CPU = append(of.Bulk, s.bulk/passes), append(of.CPU, s.cpu/passes)
	if !math.IsNaN(s.journal) { // a user's server need not tell
		of.Journal = append(of.Journal, s.journal/passes)
	}
}

func mean(s bench.Samples) (m float64) {
	for _, v := range s {
		m += v / float64(len(s))
	}
	return m
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

// off is the largest deviation of a point's median from a line, as a part of it.
func (c *curve) off(l *fit.Line, held, of func(*point) bench.Samples) (most float64) {
	for _, p := range c.Points {
		most = max(most, math.Abs(of(p).Median()/l.At(held(p).Median())-1))
	}
	return most
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
func journalOf(p *point) bench.Samples  { return p.Journal }
func heldBulkOf(p *point) bench.Samples { return p.HeldBulk }

// times are those of an append to a bucket with so many readings.
func (c *curve) times(residents float64) bench.Samples { return c.at(residents, heldOf, timeOf) }

// cpus is mongod's CPU for one in bulk.
func (c *curve) cpus(residents float64) bench.Samples { return c.at(residents, heldBulkOf, cpuOf) }

// ones returns a topology's with one reading an append; nil if it was not
// measured.
func (f *found) ones(topology string) *curve {
	for _, c := range f.Curves {
		if c.Topology == topology && c.PerUpdate == 1 {
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

// topologies are those that there are curves of.
func (f *found) topologies() (all []string) {
	for _, c := range f.Curves {
		if !slices.Contains(all, c.Topology) {
			all = append(all, c.Topology)
		}
	}
	return all
}
