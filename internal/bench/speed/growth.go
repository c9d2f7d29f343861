package speed

import (
	"cmp"
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

// A point of the growth is what is written.
type point struct{ sensors, perUpdate, fields, writers int }

func (s point) String() string {
	return fmt.Sprintf("%d, %d, %d, %d", s.sensors, s.perUpdate, s.fields, s.writers)
}

// A grid is the points to measure: each dimension by itself with the others at the centre, and
// every combination of sensors and readings per update.
type grid struct {
	sensors, perUpdate, fields, writers []int
	centre                              point
	length                              time.Duration // writing time per point
}

func fullGrid() grid {
	return grid{
		sensors: []int{1_000, 10_000, 100_000, 1_000_000}, perUpdate: []int{1, 5, 12, 60}, fields: []int{1, 10, 50}, writers: []int{1, 2, 4},
		centre: point{10_000, 12, 10, 4}, length: 5 * time.Second,
	}
}

// points returns all points to measure, each once, fewest sensors first.
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

// grow measures how the cost of storing grows. This process writes the way lanes do, which sets
// every number exactly and leaves out ingest and journal.
func (t *trial) grow(ctx context.Context, g grid) {
	points := g.points()
	t.onMongoDB(ctx, ordinary(), func(m *bench.MongoDB) {
		for i, s := range points {
			t.lab.Step("growth %d of %d: %v", i+1, len(points), s)
			w := t.write(ctx, m, writing{s, hourlyBuckets(store.Documents), interval, g.length})
			n, done := float64(w.readings), float64(w.updates)
			t.lab.Row("growth", s.String(), n/w.spent.Seconds, done/w.spent.Seconds, w.spent.CPU/n, w.spent.CPU/done, w.spent.Own/n,
				w.took.Quantile(0.5), w.took.Quantile(0.99), float64(min(w.created, s.sensors)))
		}
	})
	t.concludeGrowth(g)
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
			t.lab.Row("merging", row, line.Base, line.BaseError, line.Each, line.EachError, knee(line))
		}
	}
	brim := t.lab.Table("lines").Median(lineProtocol, brimOf)
	for _, rate := range []float64{1e6, 1e7} {
		for _, perUpdate := range g.perUpdate {
			row := fmt.Sprintf("%.0f, %d", rate, perUpdate)
			mongod := points.Median(point{g.centre.sensors, perUpdate, g.centre.fields, g.centre.writers}.String(), "mongod CPU a reading")
			brimCores, mongodCores := rate*brim, rate*mongod // brim is NaN without the cell lines
			t.lab.Row("hosts", row, brimCores, hostsFor(brimCores), mongodCores, hostsFor(mongodCores))
		}
	}
}

// knee is the number of readings per update from which doubling it gains less than a tenth g: a
// reading costs base/K + each, and going from K to 2K gains base/2K : (base/2K + each), which
// is below g from each·K = base·(1-g)/2g on.
func knee(l bench.Line) float64 {
	const g = 0.10
	if l.Base <= 0 || l.Each <= 0 {
		return math.NaN()
	}
	return l.Base * (1 - g) / (2 * g) / l.Each
}

// hostsFor returns how many 16-core hosts provide a number of busy cores at 60 % utilization,
// which leaves room for peaks and failovers.
func hostsFor(cores float64) float64 { return math.Ceil(cores/(16*0.60) - 1e-9) }

// warmUp limits the creation of a point's buckets, as a multiple of its writing time.
const warmUp = 20

func hourlyBuckets(format store.Format) shape.Shape {
	return shape.Shape{Kind: shape.Buckets, Granularity: time.Hour, Format: format}
}

// A writing describes what lanes write for a while.
type writing struct {
	point

	shape    shape.Shape
	interval time.Duration // of event time, between a sensor's readings
	length   time.Duration
}

// A written is what was written and what it cost.
type written struct {
	readings, updates int
	created           int // buckets created before the clock started
	spent             bench.Spent
	took              bench.Samples // per command, in seconds
}

// write writes percentages the way lanes do. In a bucket collection each sensor already has a
// bucket with one reading.
func (t *trial) write(ctx context.Context, m *bench.MongoDB, s writing) (w written) {
	c := shape.New(ctx, m, shape.Config{
		Name: collection, Shape: s.shape, Compressor: store.Snappy, PerUpdate: s.perUpdate,
		Readings: shape.Readings{Source: t.percentages(s.fields), Sensors: s.sensors, Begin: time.Now().Truncate(time.Hour).AddDate(-1, 0, 0), Interval: s.interval},
	})
	order := rand.New(rand.NewPCG(t.lab.Seed, 1)).Perm(s.sensors) //nolint:gosec // like the lanes' hashing
	f := c.Fleet(s.writers, shape.PerCommand(s.perUpdate), order)
	each := any(1)
	if s.shape.Kind == shape.Buckets {
		each = "$count"
		f.Fill(ctx, 1, time.Now().Add(warmUp*s.length))
		for _, one := range f.Workers {
			w.created += len(one.Sensors)
			for i := range one.Next {
				one.Next[i] = uint64(s.perUpdate) //nolint:gosec // an hour then ends with an update
			}
		}
	}
	m.Settle(ctx)
	c.Took() // discards the filling
	sensors := 0
	w.spent = m.Measure(ctx, func(ctx context.Context) {
		until := time.Now().Add(s.length)
		sensors, w.updates = f.Run(ctx, func(w *shape.Worker, _ int) bool { return time.Now().Before(until) && len(w.Sensors) > 0 })
	})
	w.took, w.readings = c.Took(), sensors*s.perUpdate
	expect(sumOf(ctx, m.Database().Collection(collection), each), int64(w.readings+w.created), "readings", "written")
	m.Drop(ctx)
	return w
}

// percentages returns a source with this number of fields.
func (t *trial) percentages(fields int) shape.Numbers {
	var names []string
	for f := range fields {
		names = append(names, fmt.Sprintf("usage_%02d", f))
	}
	return shape.Numbers{Names: names, Number: func(random uint64) float64 { return float64(random % (mostUsage + 1)) }, Seed: t.lab.Seed}
}

// A bend configures the measurement of the curve.
type bend struct {
	perUpdate                []int
	sensors, fields, writers int
	length                   time.Duration // writing time per point
}

// bendInterval makes an hour end with an update, for any number of readings per update.
const bendInterval = 6 * time.Second

// fullBend has few sensors, so that a command of one-reading updates does not take seconds: a
// timeout would send it again and distort the cost.
func fullBend() bend {
	return bend{perUpdate: []int{1, 2, 5, 12, 60, 300}, sensors: 1000, fields: 4, writers: 4, length: 5 * time.Second}
}

// Columns of the curve.
const bucketsOf, seriesOf = "buckets", "time series"

// curve measures MongoDB's cost per reading by readings per update, and compares it with a
// document per reading.
func (t *trial) curve(ctx context.Context, b bend) {
	t.onMongoDB(ctx, ordinary(), func(m *bench.MongoDB) {
		for i := range t.lab.Repeats {
			t.curveOnce(ctx, m, b, fmt.Sprintf("%d of %d", i+1, t.lab.Repeats))
		}
	})
	table, k := t.lab.Table("curve"), make([]float64, len(b.perUpdate))
	for _, of := range []string{bucketsOf, seriesOf} {
		cost, raw := make([]float64, len(k)), math.NaN()
		for i, perUpdate := range b.perUpdate {
			row := strconv.Itoa(perUpdate)
			k[i], cost[i], raw = float64(perUpdate), table.Median(row, of), table.Median(row, insertedRaw)
		}
		t.lab.Add("crossing", of, perUpdateOf, crossing(k, cost, raw))
	}
}

// curveOnce measures each point once, and the raw inserts, which all points share.
func (t *trial) curveOnce(ctx context.Context, m *bench.MongoDB, b bend, round string) {
	t.lab.Step("curve %s: insertMany, a document per reading", round)
	m.Settle(ctx)
	in := besideLoad(t.percentages(b.fields), bendInterval)
	documents, raw := in.measure(ctx, m, time.Now(), b.length)
	for _, perUpdate := range b.perUpdate {
		row := strconv.Itoa(perUpdate)
		for _, of := range []struct {
			name  string
			shape shape.Shape
		}{{bucketsOf, hourlyBuckets(store.Documents)}, {seriesOf, shape.Shape{Kind: shape.TimeSeries, Granularity: time.Hour}}} {
			t.lab.Step("curve %s: %d readings per update, %s", round, perUpdate, of.name)
			w := t.write(ctx, m, writing{point{b.sensors, perUpdate, b.fields, b.writers}, of.shape, bendInterval, b.length})
			t.lab.Add("curve", row, of.name, w.spent.CPU/float64(w.readings))
		}
		t.lab.Add("curve", row, insertedRaw, raw.CPU/float64(documents))
	}
}

// crossing returns the x at which a falling cost crosses a level, interpolated between the
// measured points on logarithmic axes; NaN if it never does.
func crossing(x, cost []float64, level float64) float64 {
	for i := 1; i < len(x); i++ {
		if above, below := cost[i-1], cost[i]; above >= level && below < level {
			part := math.Log(above/level) / math.Log(above/below)
			return x[i-1] * math.Pow(x[i]/x[i-1], part)
		}
	}
	return math.NaN()
}

func curveTables() []bench.Table {
	return []bench.Table{
		{
			Name: "curve", Title: "MongoDB's CPU per reading, by readings per update", Variant: "readings per update", Measures: bench.In(bench.Seconds, bucketsOf, seriesOf, insertedRaw),
			Note: "Four fields, 1,000 sensors written in turn, hourly windows, four lanes in one process, as fast as they can; each sensor has a bucket with one reading before the clock starts. " +
				"insertMany: a document per reading, 100 per call, three writers, as fast as they can; it is the same in all rows.",
			Plots: []bench.Plot{{
				Title: "MongoDB's CPU per reading, by readings per update", Caption: "Where a line is below that of insertMany, Brim takes less of MongoDB's CPU than a program that inserts each reading.",
				LogX: true, LogY: true,
			}},
		},
		{
			Name: "crossing", Title: "Readings per update above which Brim costs less than a document per reading", Variant: "storage", Measures: bench.In(bench.Count, perUpdateOf),
			Note: "Interpolated between the measured points.",
		},
	}
}

// inserts are what a program without Brim does: insert a document per reading with the driver,
// using three unordered writers and write concern majority.
type inserts struct {
	source   shape.Source
	interval time.Duration // of event time, between a sensor's readings
	kind     shape.Kind    // empty: shape.Plain
	// sensors are as many as a round of calls needs, so that all calls have the same size.
	sensors, perSensor, perCall int     // perSensor is how many readings of one sensor are adjacent
	rate                        float64 // documents per second; 0: as fast as possible
	// checkpointed measurements include a checkpoint of the inserted documents.
	checkpointed bool
}

const (
	rawWriters = 3
	perCall    = 100 // readings per request of brim load, and documents per call compared with it
	together   = 60  // readings of a sensor in a group
)

// besideLoad are the inserts to compare with brim load. Their number of sensors does not
// matter, because the only index is that of _id.
func besideLoad(source shape.Source, interval time.Duration) inserts {
	return inserts{source: source, interval: interval, sensors: 10 * rawWriters * perCall, perSensor: 1, perCall: perCall}
}

// rawSides insert what the hosts send. The first has a step of all hosts in each call. The
// second, into a time-series collection, has whole groups in each call and separate hosts per
// writer, because two writers sharing a group would make two buckets of it.
func rawSides(of hosts) map[string]inserts {
	return map[string]inserts{
		rawDocuments: {source: named{of}, interval: interval, sensors: rawWriters * len(of), perSensor: 1, perCall: len(of)},
		rawSeries:    {source: of, interval: interval, kind: shape.Native, sensors: len(of), perSensor: together, perCall: 16 * together},
	}
}

// measure inserts for a while, from an event time on, into a collection that it then drops.
func (in inserts) measure(ctx context.Context, m *bench.MongoDB, begin time.Time, length time.Duration) (documents int64, spent bench.Spent) {
	c := shape.New(ctx, m, shape.Config{
		Name: rawCollection, Shape: shape.Shape{Kind: cmp.Or(in.kind, shape.Plain)}, Compressor: store.Snappy, Unordered: true, PerUpdate: in.perSensor,
		Readings: shape.Readings{Source: in.source, Sensors: in.sensors, Begin: begin, Interval: in.interval},
	})
	f := c.Fleet(rawWriters, in.perCall/in.perSensor, nil)
	spent = m.Measure(ctx, func(ctx context.Context) {
		if in.rate > 0 {
			traffic := f.During(ctx, shape.Steadily(in.rate/float64(in.perCall)).For(length), nil)
			documents = int64(len(traffic.Operations()) * in.perCall)
		} else {
			until := time.Now().Add(length)
			_, n := f.Run(ctx, func(*shape.Worker, int) bool { return time.Now().Before(until) })
			documents = int64(n)
		}
		if in.checkpointed {
			m.Checkpoint(ctx)
		}
	})
	expect(sumOf(ctx, m.Database().Collection(rawCollection), 1), documents, "documents", "inserted")
	c.Drop(ctx)
	return documents, spent
}
