// Package sealed is the experiment that compares sealed buckets with native time series (closed
// buckets): bytes per reading, reading a day's summary, and reading a whole day.
package sealed

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/store"
)

// Names in tables.
const (
	dataOf, indexOf, totalOf     = "data files", "index files", "all files"
	liveOf                       = "data without free space"
	sealCPUOf, sealOwnOf         = "sealing: mongod CPU", "sealing: CPU of this process"
	summaryOf, dayOf, dayBytesOf = "a summary of 24 h, p50", "24 h of readings, p50", "bytes of the answer"
)

const day = 24 * time.Hour

func documents() shape.Shape {
	return shape.Shape{Kind: shape.Buckets, Granularity: time.Hour, Format: store.Documents}
}

func sealedShape(window time.Duration) shape.Shape {
	return shape.Shape{Kind: shape.Buckets, Granularity: window, Format: store.Columns, Sealed: true}
}

func nativeShape() shape.Shape        { return shape.Shape{Kind: shape.Native} }
func compressors() []store.Compressor { return []store.Compressor{store.Snappy, store.Zstd} }

// row names a dataset stored in a shape with a compressor.
func row(dataset string, s shape.Shape, c store.Compressor) string {
	return dataset + ", " + string(c) + ": " + s.String()
}

// Experiment returns the sealed experiment.
func Experiment() *bench.Experiment {
	return &bench.Experiment{
		Name:     "sealed",
		Question: "How much smaller are sealed buckets than a native time-series collection, and how much faster are they to read?",
		Full:     6 * time.Minute,
		Quick:    80 * time.Second,
		Extra:    true, // it checks Brim's own promises, not published figures
		Cells:    (*trial)(nil).cells(),
		Tables: []bench.Table{
			{
				Name: "size", Title: "Bytes for each reading", Variant: "readings", Measures: slices.Concat(bench.In(bench.Bytes, dataOf, liveOf, indexOf, totalOf), bench.In(bench.Seconds, sealCPUOf, sealOwnOf)),
				Note: "Files after a checkpoint, with the free space in them, which sealing leaves: windows are written and sealed one after another, 60 readings of a sensor per update (ECG 600, weather 24). " +
					"Buckets: columns, hourly or daily, the index of _id. Time series: the same readings by insertMany, 60 of a sensor together, each sensor's last bucket has one reading and all others are closed; the index of sensor and time, which later servers make by themselves.",
				Plots: []bench.Plot{{Title: "Bytes for each reading", Caption: "Files of data and of indexes.", Bars: true, Measures: []string{totalOf}}},
			},
			{
				Name: "read", Title: "Reads of a sensor that reports every 5 s, one after the other", Variant: "storage",
				Measures: slices.Concat(bench.In(bench.Seconds, summaryOf, dayOf), bench.In(bench.Bytes, dayBytesOf)),
				Note: "Brim: over HTTP, JSON, everything in MongoDB's cache. A summary has count, minimum, maximum and mean of four fields in one step. " +
					"Time series: an aggregation of the same, or a find sorted by time, both by the driver.",
			},
		},
		Claims: claims(),
		Answers: []bench.Answer{
			{Claim: sizeClaim(fourSet, store.Snappy), AtMost: 1, Says: "Use columns, because sealed buckets take %s of the space of a native time-series collection."},
			{Claim: sizeClaim(fourSet, store.Snappy), Says: "Do not use columns for their size here, because sealed buckets take %s of the space of a native time-series collection."},
		},
		Run: func(ctx context.Context, lab *bench.Lab) { run(ctx, lab, scaleOf(lab.Quick)) },
	}
}

func sizeClaim(dataset string, c store.Compressor) string {
	return "bytes of a reading compared with a native time series, " + string(c) + ": " + dataset
}

func claims() (all []bench.Claim) {
	for _, dataset := range allSets {
		window, published, as := windowOf(dataset), 0.75, "<= 0.75x"
		if window == day {
			published, as = 0.7, "<= 0.7x"
		}
		for _, c := range compressors() {
			all = append(all, bench.Claim{
				Says: sizeClaim(dataset, c), Published: published, PublishedAs: as, Unit: bench.Bytes, Rule: bench.FactorAtMost,
				From: bench.At("size", row(dataset, nativeShape(), c), totalOf), Of: bench.At("size", row(dataset, sealedShape(window), c), totalOf),
			})
		}
	}
	return append(all,
		bench.Claim{
			Says: "a summary of 24 hours compared with an aggregation on a native time series", Published: 0.1, PublishedAs: "<= 0.1x", Unit: bench.Seconds, Rule: bench.FactorAtMost,
			From: bench.At("read", nativeShape().String(), summaryOf), Of: bench.At("read", sealedShape(time.Hour).String(), summaryOf),
		},
		bench.Claim{
			Says: "24 hours of readings over HTTP compared with buckets of documents", Published: 0.5, PublishedAs: "<= 0.5x", Unit: bench.Seconds, Rule: bench.FactorAtMost,
			From: bench.At("read", documents().String(), dayOf), Of: bench.At("read", sealedShape(time.Hour).String(), dayOf),
		})
}

// scale is how much is done.
type scale struct {
	sensors int           // per generated dataset
	ecg     int           // readings in the ECG dataset
	periods int           // how often a dataset is written
	reading int           // sensors to read
	span    time.Duration // of their readings
	queries int           // of each kind, per repeat
}

func scaleOf(quick bool) scale {
	if quick {
		return scale{sensors: 20, ecg: 20_000, periods: 4, reading: 4, span: day, queries: 10}
	}
	return scale{sensors: 100, ecg: 108_000, periods: 10, reading: 20, span: day, queries: 50}
}

// A trial is one run of the experiment.
type trial struct {
	lab   *bench.Lab
	m     *bench.MongoDB
	scale scale
}

func (t *trial) cells() []bench.Cell {
	return []bench.Cell{
		{Name: "size", What: "bytes of a reading in files, window after window", Run: t.sizes},
		{Name: "read", What: "a summary of 24 hours and 24 hours of readings of a sensor that reports every 5 s", Run: t.reads},
	}
}

func run(ctx context.Context, lab *bench.Lab, s scale) {
	lab.Pin("datasets are generated from the seed; each is written %d times, one period after the other", s.periods)
	lab.Pin("sealing without the pauses that a daemon makes; blocks are compressed with zstd where that helps")
	if lab.Quick {
		lab.Reduce("fewer sensors, periods and queries")
	}
	lab.On(ctx, bench.Setting{}, func(m *bench.MongoDB) {
		t := &trial{lab: lab, m: m, scale: s}
		lab.RunCells(ctx, t.cells())
	})
}

// sizes measures each dataset only once, because that takes minutes.
func (t *trial) sizes(ctx context.Context) {
	for _, r := range datasets(t.lab.Seed, t.scale) {
		for _, c := range compressors() {
			for _, s := range []shape.Shape{sealedShape(r.window), nativeShape()} {
				t.lab.Step("write %s, %d times %d readings", row(r.name, s, c), t.scale.periods, len(r.ids)*r.each())
				t.size(ctx, r, s, c)
			}
		}
	}
}

// size writes a dataset period by period, and seals each.
func (t *trial) size(ctx context.Context, r *dataset, s shape.Shape, compressor store.Compressor) {
	c := shape.New(ctx, t.m, shape.Config{Name: "size", Shape: s, Compressor: compressor, Readings: r.readings(), PerUpdate: r.together})
	var mongod, own float64
	for period := range t.scale.periods {
		each := r.each()
		for first := 0; first < each; first += r.together {
			c.Write(ctx, shape.Portions(len(r.ids), period*each+first, min(r.together, each-first)))
		}
		t.m.Checkpoint(ctx)
		if s.Sealed {
			spent := t.m.Measure(ctx, c.Seal)
			mongod, own = mongod+spent.CPU, own+spent.Own
			t.m.Checkpoint(ctx)
		}
	}
	// One more reading per sensor closes the last bucket of a time series.
	c.Write(ctx, shape.Portions(len(r.ids), t.scale.periods*r.each(), 1))
	t.m.Checkpoint(ctx)
	size := c.Size(ctx)
	n, name := float64(t.scale.periods*r.each()*len(r.ids)), row(r.name, s, compressor)
	t.lab.Row("size", name, float64(size.File)/n, float64(size.Data())/n, float64(size.IndexFile)/n, float64(size.File+size.IndexFile)/n)
	if s.Sealed {
		t.lab.Add("size", name, sealCPUOf, mongod/n)
		t.lab.Add("size", name, sealOwnOf, own/n)
	}
	c.Drop(ctx)
}

// reads compares a daemon's answers with those of the driver from a time series.
func (t *trial) reads(ctx context.Context) {
	const interval = 5 * time.Second
	sensors := bench.Must(load.NewSensors(load.SensorsConfig{Count: t.scale.reading, Seed: t.lab.Seed, Prefix: "s-"}))
	readings := shape.Readings{Source: shape.Untagged{Source: sensors}, Sensors: t.scale.reading, Count: int(t.scale.span / interval), Begin: shape.Begin(), Interval: interval}
	sides := []struct {
		shape.Shape
		stream string
	}{{documents(), "documents"}, {sealedShape(time.Hour), "sealed"}, {nativeShape(), "native"}}
	for _, s := range sides {
		t.lab.Step("write 24 hours of %d sensors as %s", t.scale.reading, s.Shape)
		shape.New(ctx, t.m, shape.Config{Name: s.stream, Shape: s.Shape, Compressor: store.Snappy, Readings: readings, PerUpdate: 60}).Load(ctx)
	}
	for repeat := range t.lab.Repeats {
		for i := range sides {
			s := sides[(i+repeat)%len(sides)]
			t.lab.Step("read from %s, repeat %d", s.Shape, repeat+1)
			if s.Kind == shape.Native {
				t.readNative(ctx, t.m.Database().Collection(s.stream), readings, repeat)
				continue
			}
			d := t.lab.Daemon(ctx, t.m, "--stream", s.stream, "--granularity", "1h", "--bucket-format", string(s.Format))
			t.readDaemon(ctx, d, s.Shape, readings, repeat)
			bench.Check(d.Close())
		}
	}
}

// readDaemon queries a daemon over HTTP. It does not decode the answers, which would take
// longer than they do.
func (t *trial) readDaemon(ctx context.Context, d *bench.Daemon, s shape.Shape, r shape.Readings, repeat int) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	get := func(sensor, what string) []byte {
		return d.Get(ctx, client, "/v1/sensors/"+url.PathEscape(sensor)+"/"+what+bench.Between(r.Begin, r.Begin.Add(t.scale.span)))
	}
	size := 0
	summary := t.ask(r, repeat, func(sensor string) (readings int) {
		if bytes.Count(get(sensor, "summary?every="+t.scale.span.String()+"&"), fmt.Appendf(nil, `"count":%d,`, r.Count)) == 1 {
			return r.Count
		}
		return 0
	})
	all := t.ask(r, repeat, func(sensor string) (readings int) {
		body := get(sensor, fmt.Sprintf("readings?limit=%d&", day/time.Second))
		size = len(body)
		return bytes.Count(body, []byte(`"ts":`))
	})
	t.lab.Row("read", s.String(), summary.Quantile(0.5), all.Quantile(0.5), float64(size))
}

// readNative queries a time-series collection through the driver.
func (t *trial) readNative(ctx context.Context, coll *mongo.Collection, r shape.Readings, repeat int) {
	aggregate := func(sensor string, stage bson.D) []bson.Raw {
		from, to := bson.NewDateTimeFromTime(r.Begin), bson.NewDateTimeFromTime(r.Begin.Add(t.scale.span))
		match := bson.D{{Key: "sensor.id", Value: sensor}, {Key: store.TimeKey, Value: bson.D{{Key: "$gte", Value: from}, {Key: "$lt", Value: to}}}}
		return bench.Aggregate[bson.Raw](ctx, coll, mongo.Pipeline{{{Key: "$match", Value: match}}, stage})
	}
	summary := t.ask(r, repeat, func(sensor string) (readings int) {
		for _, one := range aggregate(sensor, summaryStage()) {
			readings = int(one.Lookup("n").AsInt64())
		}
		return readings
	})
	all := t.ask(r, repeat, func(sensor string) (readings int) {
		return len(aggregate(sensor, bson.D{{Key: "$sort", Value: bson.D{{Key: store.TimeKey, Value: 1}}}}))
	})
	t.lab.Row("read", nativeShape().String(), summary.Quantile(0.5), all.Quantile(0.5))
}

// ask queries all readings of random sensors, and returns how long the answers took.
func (t *trial) ask(r shape.Readings, repeat int, query func(sensor string) (readings int)) (took bench.Samples) {
	random := rand.New(rand.NewPCG(t.lab.Seed, uint64(repeat))) //nolint:gosec // picks sensors
	for i := range r.Sensors + t.scale.queries {
		if i >= r.Sensors { // first each sensor once, as an uncounted warm-up
			i = random.IntN(r.Sensors)
		}
		began := time.Now()
		if n := query(r.Source.ID(i)); n != r.Count {
			bench.Check(fmt.Errorf("the answer is about %d readings, not %d", n, r.Count))
		}
		took = append(took, time.Since(began).Seconds())
	}
	return took[r.Sensors:]
}

// summaryStage computes what a daemon's summary contains.
func summaryStage() bson.D {
	group := bson.D{{Key: "_id", Value: nil}, {Key: "n", Value: bson.D{{Key: "$sum", Value: 1}}}}
	for _, field := range []string{"t", "h", "p", "v"} {
		for _, of := range []string{"min", "max", "avg"} {
			group = append(group, bson.E{Key: field + "_" + of, Value: bson.D{{Key: "$" + of, Value: "$" + field}}})
		}
	}
	return bson.D{{Key: "$group", Value: group}}
}
