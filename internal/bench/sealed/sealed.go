// Package sealed is the experiment that compares sealed buckets with native time series, whose
// buckets are closed: bytes of a reading, a summary of a day, and a day of readings.
package sealed

import (
	"bytes"
	"context"
	"encoding/json"
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

// row is the name of a shape of a recording with a compressor.
func row(recording string, s shape.Shape, c store.Compressor) string {
	return recording + ", " + string(c) + ": " + s.String()
}

// Experiment returns it.
func Experiment() *bench.Experiment {
	return &bench.Experiment{
		Name:     "sealed",
		Question: "How much smaller are sealed buckets than a native time-series collection, and how much faster are they to read?",
		Full:     6 * time.Minute,
		Quick:    80 * time.Second,
		Extra:    true, // the figures are not published ones, but what Brim promises
		Cells: []bench.Cell{
			{Name: "size", What: "bytes of a reading in files, window after window"},
			{Name: "read", What: "a summary of 24 hours and 24 hours of readings of a sensor that reports every 5 s"},
		},
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

func sizeClaim(recording string, c store.Compressor) string {
	return "bytes of a reading compared with a native time series, " + string(c) + ": " + recording
}

func claims() (all []bench.Claim) {
	for _, recording := range allSets {
		window, published, as := windowOf(recording), 0.75, "<= 0.75x"
		if window == day {
			published, as = 0.7, "<= 0.7x"
		}
		for _, c := range compressors() {
			all = append(all, bench.Claim{
				Says: sizeClaim(recording, c), Published: published, PublishedAs: as, Unit: bench.Bytes, Rule: bench.FactorAtMost,
				From: bench.At("size", row(recording, nativeShape(), c), totalOf), Of: bench.At("size", row(recording, sealedShape(window), c), totalOf),
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
	sensors int           // of generated recordings
	ecg     int           // readings of the generated ECG
	periods int           // how often a recording is written
	reading int           // sensors to read
	span    time.Duration // of their readings
	queries int           // of each kind, in a repeat
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

func run(ctx context.Context, lab *bench.Lab, s scale) {
	lab.Pin("recordings are generated by the seed, or read from the folder in %s; each is written %d times, one period after the other", dataFolder, s.periods)
	lab.Pin("sealing without the pauses that a daemon makes; blocks are compressed with zstd where that helps")
	if lab.Quick {
		lab.Reduce("fewer sensors, periods and queries")
	}
	lab.On(ctx, bench.Setting{}, func(m *bench.MongoDB) {
		t := &trial{lab: lab, m: m, scale: s}
		lab.RunCells(ctx, map[string]func(context.Context){"size": t.sizes, "read": t.reads})
	})
}

// sizes measures each recording once, because that takes minutes.
func (t *trial) sizes(ctx context.Context) {
	all := bench.Must(recordings(t.lab.Seed, t.scale))
	for _, r := range all {
		for _, c := range compressors() {
			for _, s := range []shape.Shape{sealedShape(r.window), nativeShape()} {
				t.lab.Step("write %s, %d times %d readings", row(r.name, s, c), t.scale.periods, len(r.ids)*r.each())
				t.size(ctx, r, s, c)
			}
		}
	}
}

// size writes a recording period by period, and seals each.
func (t *trial) size(ctx context.Context, r *recording, s shape.Shape, compressor store.Compressor) {
	c := bench.Must(shape.New(ctx, t.m, shape.Config{Name: "size", Shape: s, Compressor: compressor, Readings: r.readings(), PerUpdate: r.together}))
	var mongod, own float64
	for period := range t.scale.periods {
		t.write(ctx, c, r, period)
		bench.Check(t.m.Checkpoint(ctx))
		if s.Sealed {
			spent := t.m.Measure(ctx, c.Seal)
			mongod, own = mongod+spent.CPU, own+spent.Own
			bench.Check(t.m.Checkpoint(ctx))
		}
	}
	// The next reading of each sensor closes the last bucket of a time series.
	bench.Check(c.Write(ctx, shape.Portions(len(r.ids), t.scale.periods*r.each(), 1)))
	bench.Check(t.m.Checkpoint(ctx))
	size := bench.Must(c.Size(ctx))
	n, name := float64(t.scale.periods*r.each()*len(r.ids)), row(r.name, s, compressor)
	t.lab.Row("size", name, float64(size.File)/n, float64(size.Data())/n, float64(size.IndexFile)/n, float64(size.File+size.IndexFile)/n)
	if s.Sealed {
		t.lab.Add("size", name, sealCPUOf, mongod/n)
		t.lab.Add("size", name, sealOwnOf, own/n)
	}
	bench.Check(c.Drop(ctx))
}

// write writes a period, some readings of each sensor at a time.
func (t *trial) write(ctx context.Context, c *shape.Collection, r *recording, period int) {
	each := r.each()
	for first := 0; first < each; first += r.together {
		bench.Check(c.Write(ctx, shape.Portions(len(r.ids), period*each+first, min(r.together, each-first))))
	}
}

// reads compares what a daemon answers, and what the driver gets from a time series.
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
		c := bench.Must(shape.New(ctx, t.m, shape.Config{Name: s.stream, Shape: s.Shape, Compressor: store.Snappy, Readings: readings, PerUpdate: 60}))
		bench.Must(c.Load(ctx))
	}
	for repeat := range t.lab.Repeats {
		for i := range sides {
			s := sides[(i+repeat)%len(sides)]
			t.lab.Step("read from %s, repeat %d", s.Shape, repeat+1)
			if s.Kind == shape.Native {
				c := t.m.Database().Collection(s.stream)
				t.ask(ctx, s.Shape, readings, repeat, answerer{aggregated(c, summaryStage()), aggregated(c, sortStage())})
				continue
			}
			d := bench.Must(t.lab.Daemon(ctx, t.m, "--stream", s.stream, "--granularity", "1h", "--bucket-format", string(s.Format)))
			client := &http.Client{Transport: &http.Transport{}}
			t.ask(ctx, s.Shape, readings, repeat, answerer{asked(client, d, "summary?every="+t.scale.span.String()+"&", countOfSummary), asked(client, d, fmt.Sprintf("readings?limit=%d&", day/time.Second), countOfReadings)})
			client.CloseIdleConnections()
			bench.Check(d.Close())
		}
	}
}

// An answerer answers about a sensor and a span of time: the number of readings, and the bytes
// of the answer, if it knows them.
type answerer struct {
	summary, readings func(ctx context.Context, sensor string, from, to time.Time) (readings, bytes int, err error)
}

// ask asks for all of the readings of random sensors.
func (t *trial) ask(ctx context.Context, s shape.Shape, r shape.Readings, repeat int, a answerer) {
	random := rand.New(rand.NewPCG(t.lab.Seed, uint64(repeat))) //nolint:gosec // which sensors
	var summary, all bench.Samples
	size := 0
	from, to := r.Begin, r.Begin.Add(t.scale.span)
	expect := func(n int) {
		if n != r.Count {
			bench.Check(fmt.Errorf("read from %s: the answer is about %d readings, not %d", s, n, r.Count))
		}
	}
	for i := range t.scale.queries + r.Sensors {
		sensor := r.Source.ID(i % r.Sensors) // once all of them, which does not count
		if i >= r.Sensors {
			sensor = r.Source.ID(random.IntN(r.Sensors))
		}
		began := time.Now()
		n, _, err := a.summary(ctx, sensor, from, to)
		bench.Check(err)
		expect(n)
		between := time.Now()
		n, length, err := a.readings(ctx, sensor, from, to)
		bench.Check(err)
		expect(n)
		if i >= r.Sensors {
			summary, all, size = append(summary, between.Sub(began).Seconds()), append(all, time.Since(between).Seconds()), length
		}
	}
	t.lab.Row("read", s.String(), summary.Quantile(0.5), all.Quantile(0.5))
	if size > 0 {
		t.lab.Add("read", s.String(), dayBytesOf, float64(size))
	}
}

// asked is the answer of a daemon over HTTP, in which count counts the readings.
func asked(client *http.Client, d *bench.Daemon, what string, count func(body []byte) (int, error)) func(ctx context.Context, sensor string, from, to time.Time) (readings, bytes int, err error) {
	return func(ctx context.Context, sensor string, from, to time.Time) (readings, bytes int, err error) {
		span := url.Values{"from": {from.Format(time.RFC3339)}, "to": {to.Format(time.RFC3339)}}
		body, err := bench.Query(ctx, client, "http://"+d.HTTP+"/v1/sensors/"+url.PathEscape(sensor)+"/"+what+span.Encode())
		if err != nil {
			return 0, 0, err
		}
		readings, err = count(body)
		return readings, len(body), err
	}
}

func countOfSummary(body []byte) (int, error) {
	var answer struct {
		Summary []struct{ Count int }
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return 0, fmt.Errorf("read a summary: %w", err)
	}
	if len(answer.Summary) != 1 {
		return 0, fmt.Errorf("read a summary: it has %d steps, not one", len(answer.Summary))
	}
	return answer.Summary[0].Count, nil
}

// countOfReadings does not decode the answer, which would take longer than the answer itself.
func countOfReadings(body []byte) (int, error) { return bytes.Count(body, []byte(`"ts":`)), nil }

// aggregated is what the driver gets from a time-series collection: readings, or one document
// with their number.
func aggregated(coll *mongo.Collection, stage bson.D) func(ctx context.Context, sensor string, from, to time.Time) (readings, bytes int, err error) {
	return func(ctx context.Context, sensor string, from, to time.Time) (readings, bytes int, err error) {
		match := bson.D{
			{Key: "sensor.id", Value: sensor},
			{Key: store.TimeKey, Value: bson.D{{Key: "$gte", Value: bson.NewDateTimeFromTime(from)}, {Key: "$lt", Value: bson.NewDateTimeFromTime(to)}}},
		}
		cursor, err := coll.Aggregate(ctx, mongo.Pipeline{{{Key: "$match", Value: match}}, stage})
		if err != nil {
			return 0, 0, fmt.Errorf("aggregate: %w", err)
		}
		var all []bson.Raw
		if err := cursor.All(ctx, &all); err != nil {
			return 0, 0, fmt.Errorf("aggregate: %w", err)
		}
		if len(all) == 1 {
			if n, ok := all[0].Lookup("n").AsInt64OK(); ok {
				return int(n), 0, nil
			}
		}
		return len(all), 0, nil
	}
}

func sortStage() bson.D {
	return bson.D{{Key: "$sort", Value: bson.D{{Key: store.TimeKey, Value: 1}}}}
}

// summaryStage makes of readings what a daemon's summary has.
func summaryStage() bson.D {
	group := bson.D{{Key: "_id", Value: nil}, {Key: "n", Value: bson.D{{Key: "$sum", Value: 1}}}}
	for _, field := range []string{"t", "h", "p", "v"} {
		for _, of := range []string{"min", "max", "avg"} {
			group = append(group, bson.E{Key: field + "_" + of, Value: bson.D{{Key: "$" + of, Value: "$" + field}}})
		}
	}
	return bson.D{{Key: "$group", Value: group}}
}
