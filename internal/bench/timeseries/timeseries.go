// Package timeseries is the experiment that compares native time series, ordinary collections
// and Brim's buckets: one series, a reading per minute and one field, as in the published
// comparison. All shapes share readings, compressor, cache, write concern and readings per
// command.
package timeseries

import (
	"cmp"
	"context"
	"errors"
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

const (
	interval  = time.Minute
	pinned    = store.Snappy
	queryTime = 6 * time.Hour
	// published is the number of readings in the published comparison.
	published = 10_000_000
	// serverSortLimit is the server's memory limit for a sort, in bytes.
	serverSortLimit = 100 << 20

	loadOf, bsonOf, dataOf, indexOf, totalOf = "load", "BSON", "data on disk", "indexes on disk", "both on disk"
	findOf, tenthOf, halfOf, allOf           = "point finds", "a tenth of the means", "half of them", "all"
	failedOf                                 = "failed for memory"
)

// shapes to compare. All windows are an hour long, the shortest that servers before 6.3
// support.
func shapes() []shape.Shape {
	return []shape.Shape{
		{Kind: shape.Documents}, {Kind: shape.Buckets, Granularity: time.Hour}, {Kind: shape.Series}, {Kind: shape.TimeSeries, Granularity: time.Hour},
		{Kind: shape.Buckets, Granularity: time.Hour, Format: store.Columns}, {Kind: shape.Buckets, Granularity: time.Hour, Format: store.Columns, Sealed: true},
	}
}

const spaceInAll = "data and indexes take 70 % less in all" // a claim

// Experiment returns the timeseries experiment.
func Experiment() *bench.Experiment {
	sizes := bench.In(bench.Bytes, bsonOf, dataOf, indexOf, totalOf)
	return &bench.Experiment{
		Name: "timeseries",
		Answers: []bench.Answer{
			{Claim: spaceInAll, AtMost: 0.75, Says: "Use a time-series collection where duplicates may be stored, because it takes %s of the space of a document per reading."},
			{Claim: spaceInAll, Says: "Do not choose a time-series collection for its size, because it takes %s of the space of a document per reading."},
		},
		Question: "Does a native time-series collection load faster, take less space and answer faster than an ordinary one?",
		Full:     8 * time.Minute,
		Quick:    75 * time.Second,
		Restarts: "the sort, which needs its memory limit set",
		Cells:    (*trial)(nil).cells(),
		Tables: []bench.Table{
			{
				Name: "load", Title: "Load and size", Variant: "shape",
				Measures: slices.Concat(bench.In(bench.Seconds, loadOf), bench.In(bench.PerSecond, "readings/s"), bench.In(bench.Count, "documents"), sizes),
				Note:     "On disk: the files after a checkpoint, without what is free in them. Documents of a time series are its buckets. The time to load sealed buckets includes sealing.",
				Plots:    []bench.Plot{{Title: "Bytes on disk", Caption: "All with the same compressor: what differs is due to the shape.", Bars: true, Measures: []string{dataOf, indexOf}}},
			},
			{
				Name: "reads", Title: "Reads, one after another", Variant: "shape", Unit: bench.Seconds,
				Note: "The same finds and means in every shape, the shapes by turns; the means of all shapes agree. Brim's shapes are read as a daemon reads them; their finds decode the bucket in the client. " +
					"By stats: a bucket inside the window gives its sum and count, those at its ends their readings. Means of columns and of sealed buckets are summaries as a daemon makes them.",
				Plots: []bench.Plot{{Title: "Means over 6 hours", Caption: "Lower is better. 360 readings are in each window.", Bars: true, Measures: []string{allOf}}},
			},
			{
				Name: "sort", Title: "Everything sorted by time, without an index", Variant: "shape",
				Measures: append(bench.In(bench.Count, failedOf), bench.In(bench.Seconds, "allowDiskUse false", "allowDiskUse true")...),
				Note:     "The limit of memory is the server's 100 MiB, reduced as the readings are fewer than the published 10,000,000. Since 6.0 a server spills to disk unless told otherwise (allowDiskUseByDefault).",
			},
			{
				Name: "late", Title: "Buckets, compared with no late readings", Variant: "late readings", Unit: bench.Times,
				Note:  "Late readings arrive 12 to 36 hours after the others. A server before 7.0 does not reopen a closed bucket of a time series, so a late reading begins a new one, and the next in time another.",
				Plots: []bench.Plot{{Title: "Buckets, compared with no late readings", Caption: "Where sensors deliver late, buckets by key do not multiply."}},
			},
			{Name: "late-bytes", Title: "Data on disk a reading, with late readings", Variant: "late readings", Unit: bench.Bytes},
			{
				Name: "defaults", Title: "Where a saving comes from: the shape, or its default compressor", Variant: "shape and compressor",
				Measures: append(slices.Clone(sizes), bench.Measure{Name: "of a document per reading with snappy", Unit: bench.Times}),
				Note:     "The server's default is zstd for a time series and snappy for other collections.",
			},
		},
		Claims: claims(),
		Run:    func(ctx context.Context, lab *bench.Lab) { run(ctx, lab, scaleOf(lab.Quick)) },
	}
}

func compressed(s shape.Shape, c store.Compressor) string { return s.String() + ", " + string(c) }

// claims are about MongoDB 5.0.3.
func claims() (all []bench.Claim) {
	const (
		becauseColumns = "Since 5.2 a time-series bucket keeps its readings column by column, packed; the published server did not."
		becauseMixed   = "The published figure compares zstd with snappy, on 5.0.3; here the compressor is the same, and buckets are packed by column."
		becauseMeans   = "All that is read is in the cache here, and a server since 5.2 reads packed columns."
		// alikeMeans is wide: the published factor itself ranges from 0.77 to 0.52 with the
		// number of queries.
		alikeMeans = 1.75
	)
	documents, series := shapes()[0], shapes()[2]
	for _, c := range []struct {
		table, measure string
		bench.Claim
	}{
		{"load", loadOf, bench.Claim{
			Says: "a time series loads faster than a document per reading", Published: 0.75, PublishedAs: "279.5 → 210.1 s", Rule: bench.PairedFactor,
			Because: "It depends on the server's version, on the number of writers, and on how many readings a bucket takes.",
		}},
		{"load", bsonOf, bench.Claim{Says: "its data is larger before compression", Published: 1.31, PublishedAs: "570 → 748 MB", Unit: bench.Bytes, Rule: bench.Factor, Because: becauseColumns}},
		{"load", dataOf, bench.Claim{Says: "its data is smaller on disk", Published: 0.68, PublishedAs: "snappy 175 → zstd 119 MB", Unit: bench.Bytes, Rule: bench.Factor, Because: becauseMixed}},
		{"load", indexOf, bench.Claim{Says: "a time series needs no index on time", Published: 0, PublishedAs: "233 → 0 MB", Unit: bench.Bytes, Rule: bench.AtMost, Because: "This server makes an index by itself."}},
		{"load", totalOf, bench.Claim{Says: spaceInAll, Published: 0.30, PublishedAs: "175 + 233 → 119 + 0 MB", Unit: bench.Bytes, Rule: bench.Factor, Because: becauseMixed}},
		{"reads", findOf, bench.Claim{
			Says: "point finds take as long in a time series", PublishedAs: "1 M finds: 16.9 → 16.0 s", Rule: bench.PairedSame,
			Because: "A find in a time series unpacks the bucket that the reading is in; an index leads straight to a document.",
		}},
		{"reads", tenthOf, bench.Claim{Says: "means over 6 hours are faster in a time series: a tenth of the queries", Published: 0.77, PublishedAs: "10 K: 21.9 → 16.8 s", Rule: bench.PairedFactor, Alike: alikeMeans, Because: becauseMeans}},
		{"reads", halfOf, bench.Claim{Says: "means over 6 hours are faster in a time series: half of them", Published: 0.73, PublishedAs: "50 K: 97.0 → 71.2 s", Rule: bench.PairedFactor, Alike: alikeMeans, Because: becauseMeans}},
		{"reads", allOf, bench.Claim{Says: "means over 6 hours are faster in a time series: all", Published: 0.52, PublishedAs: "100 K: 273.3 → 141.4 s", Rule: bench.PairedFactor, Alike: alikeMeans, Because: becauseMeans}},
	} {
		c.From, c.Of, c.Unit = bench.At(c.table, documents.String(), c.measure), bench.At(c.table, series.String(), c.measure), cmp.Or(c.Unit, bench.Seconds)
		all = append(all, c.Claim)
	}
	return append(all,
		bench.Claim{
			Says: "a sort by time without an index fails for memory", Published: 1, PublishedAs: "failed", Of: bench.At("sort", documents.String(), failedOf),
			Because: "All readings fit in the memory that a sort is given.",
		},
		bench.Claim{
			Says: "each with its default compressor: a time series takes 70 % less in all", Published: 0.30, PublishedAs: "snappy 175 + 233 MB → zstd 119 + 0 MB", Unit: bench.Bytes, Rule: bench.Factor,
			From: bench.At("defaults", compressed(documents, store.Snappy), totalOf), Of: bench.At("defaults", compressed(series, store.Zstd), totalOf), Because: becauseColumns,
		})
}

// scale is how much is done.
type scale struct {
	readings, finds int
	// means is the number of queries in the longest run; the published 10,000 and 50,000 are a
	// tenth and a half of it.
	means int
	late  int // readings
}

func scaleOf(quick bool) scale {
	if quick {
		return scale{readings: 100_000, finds: 1500, means: 800, late: 3000}
	}
	return scale{readings: 1_000_000, finds: 10_000, means: 3000, late: 10_000}
}

// A trial is one run of the experiment.
type trial struct {
	lab      *bench.Lab
	m        *bench.MongoDB
	scale    scale
	subjects []*subject
}

// A subject is a measured shape with its collection, once loaded.
type subject struct {
	shape.Shape
	name string
	coll *shape.Collection
}

func (t *trial) cells() []bench.Cell {
	return []bench.Cell{
		{Name: "load", What: "time to load, bytes of data and of indexes", Run: t.loads},
		{Name: "finds", What: "readings found by their time, one after another", Run: t.finds},
		{Name: "aggregate", What: "the mean over random 6-hour windows", Run: t.means},
		{Name: "sort", What: "a sort of everything by time, without an index", Own: true, Run: t.sorts},
		{Name: "late", What: "readings that arrive 12 to 36 hours late, and the number of buckets", Run: t.lates},
		{Name: "defaults", What: "bytes with each compressor, to see how much of the published saving is the compressor's", Run: t.defaults},
	}
}

func run(ctx context.Context, lab *bench.Lab, s scale) {
	lab.Pin("compressor %s for every collection, time series included (their default is zstd), except where compressors are compared", pinned)
	lab.Pin("the same %d readings {ts, rating}, one a minute of one series, ratings 0.5 to 5.0 at random, by the seed", s.readings)
	lab.Pin("%d readings a command, one client, write concern majority with journal; index prefix compression as by default", shape.CommandReadings)
	lab.Pin("windows of 1h in buckets and in time series (a server before 6.3 has none shorter), so 60 readings a document")
	lab.Pin("point finds, means and sorts with everything in the cache")
	lab.Pin("%d readings for the published 10,000,000; %d point finds for 1,000,000; %d queries for 100,000: factors are compared, not seconds", s.readings, s.finds, s.means)
	if all := scaleOf(false); s != all {
		lab.Reduce("%d readings, %d point finds and %d queries; a full run has %d, %d and %d", s.readings, s.finds, s.means, all.readings, all.finds, all.means)
	}
	lab.On(ctx, bench.Setting{}, func(m *bench.MongoDB) {
		t := &trial{lab: lab, m: m, scale: s}
		for _, one := range shapes() {
			t.subjects = append(t.subjects, &subject{Shape: one, name: fmt.Sprintf("shape_%d", len(t.subjects))})
		}
		lab.RunCells(ctx, t.cells())
	})
}

// loads loads every shape once per repeat, in turn.
func (t *trial) loads(ctx context.Context) {
	for repeat := range t.lab.Repeats {
		for _, s := range t.subjects {
			t.lab.Step("load %d readings as %s, repeat %d", t.scale.readings, s.Shape, repeat+1)
			took := t.load(ctx, s)
			size := t.size(ctx, s.coll)
			t.lab.Row("load", s.String(), took.Seconds(), float64(t.scale.readings)/took.Seconds(), float64(size.Documents),
				float64(size.Logical), float64(size.Data()), float64(size.Index()), float64(size.Data()+size.Index()))
		}
	}
}

// loadOnce loads the collections that do not exist yet.
func (t *trial) loadOnce(ctx context.Context) {
	for _, s := range t.subjects {
		if s.coll == nil {
			t.load(ctx, s)
		}
	}
}

func (t *trial) load(ctx context.Context, s *subject) (took time.Duration) {
	s.coll = t.empty(ctx, s.name, s.Shape, pinned)
	t.m.Settle(ctx)
	return s.coll.Load(ctx)
}

// empty creates an empty collection for all readings.
func (t *trial) empty(ctx context.Context, name string, of shape.Shape, c store.Compressor) *shape.Collection {
	return shape.New(ctx, t.m, shape.Config{Name: name, Shape: of, Compressor: c, Readings: t.readings(t.scale.readings), PerUpdate: shape.CommandReadings})
}

// readings returns the first n readings, the same for all shapes.
func (t *trial) readings(n int) shape.Readings {
	return shape.Readings{Source: shape.Ratings(t.lab.Seed), Sensors: 1, Count: n, Begin: shape.Begin(), Interval: interval}
}

// size returns a collection's size after a checkpoint.
func (t *trial) size(ctx context.Context, c *shape.Collection) shape.Size {
	t.m.Checkpoint(ctx)
	return c.Size(ctx)
}

// defaults compares the pinned compressor with zstd, once: bytes do not vary between runs.
func (t *trial) defaults(ctx context.Context) {
	t.loadOnce(ctx)
	base := 0.0
	for _, s := range t.subjects {
		t.lab.Step("load %d readings as %s with %s", t.scale.readings, s.Shape, store.Zstd)
		packed := t.empty(ctx, "compressed", s.Shape, store.Zstd)
		packed.Load(ctx)
		for _, c := range []*shape.Collection{s.coll, packed} {
			size := t.size(ctx, c)
			data, index := float64(size.Data()), float64(size.Index())
			base = cmp.Or(base, data+index)
			t.lab.Row("defaults", compressed(s.Shape, c.Compressor), float64(size.Logical), data, index, data+index, (data+index)/base)
		}
	}
}

const (
	lateFrom = 12 * interval * 60
	lateTo   = 36 * interval * 60
	// lateTogether is how many timely readings arrive together: an hour's.
	lateTogether = 60
)

// lates loads readings in order of arrival, some of them late. Only buckets and bytes are
// counted, so all shapes load at once.
func (t *trial) lates(ctx context.Context) {
	t.lab.Step("load %d readings, some of them late", t.scale.late)
	parts := []float64{0, 0.01, 0.10, 0.30}
	subjects := slices.DeleteFunc(slices.Clone(t.subjects), func(s *subject) bool {
		return s.Kind == shape.Documents // always a document per reading
	})
	sizes := make([]shape.Size, len(parts)*len(subjects))
	bench.Together(ctx, len(sizes), func(ctx context.Context, i int) {
		s, part := subjects[i/len(parts)], parts[i%len(parts)]
		readings := t.readings(t.scale.late)
		readings.Late = shape.Late{Part: part, From: lateFrom, To: lateTo, Seed: t.lab.Seed}
		c := shape.New(ctx, t.m, shape.Config{Name: fmt.Sprintf("late_%d", i), Shape: s.Shape, Compressor: pinned, Readings: readings, PerUpdate: lateTogether})
		c.Load(ctx)
		sizes[i] = t.size(ctx, c)
		c.Drop(ctx)
	})
	for i, size := range sizes {
		s, none := subjects[i/len(parts)], sizes[i-i%len(parts)]
		row := strconv.FormatFloat(parts[i%len(parts)], 'g', -1, 64)
		t.lab.Add("late", row, s.String(), float64(size.Documents)/float64(none.Documents))
		t.lab.Add("late-bytes", row, s.String(), float64(size.Data())/float64(t.scale.late))
	}
}

const (
	warmUp = 50 // uncounted finds or means at the start
	turns  = 10 // rounds of all shapes per repeat
)

// finds looks up single readings by time, the same ones in every shape.
func (t *trial) finds(ctx context.Context) {
	t.loadOnce(ctx)
	for repeat := range t.lab.Repeats {
		t.lab.Step("find %d readings in every shape, repeat %d", t.scale.finds, repeat+1)
		places := t.places(repeat, t.scale.finds, 1)
		took := make([]float64, len(t.subjects))
		find := func(i int, some []shape.Portion) {
			began := time.Now()
			for _, at := range some {
				t.subjects[i].coll.ReadAll(ctx, at)
			}
			took[i] += time.Since(began).Seconds()
		}
		bench.InTurns(len(t.subjects), places[:min(warmUp, len(places))], warmUp, find)
		clear(took)
		bench.InTurns(len(t.subjects), places, len(places)/turns, find)
		for i, s := range t.subjects {
			t.lab.Add("reads", s.String(), findOf, took[i])
		}
	}
}

// places returns random portions with that many readings.
func (t *trial) places(repeat, n, readings int) []shape.Portion {
	random := rand.New(rand.NewPCG(t.lab.Seed, uint64(repeat))) //nolint:gosec // no secret, and counts from 0
	out := make([]shape.Portion, n)
	for i := range out {
		out[i] = shape.Portion{First: uint64(random.IntN(t.scale.readings - readings + 1)), Count: readings} //nolint:gosec // counts from 0
	}
	return out
}

// A meanWay is a way to compute means in one shape.
type meanWay struct {
	*subject
	name string // row name
	way  shape.Way
	took float64   // seconds in this repeat so far
	got  []float64 // means in this repeat so far
}

// means queries means over random windows, the same ones in every shape, and checks that the
// answers agree.
func (t *trial) means(ctx context.Context) {
	t.loadOnce(ctx)
	for repeat := range t.lab.Repeats {
		t.lab.Step("mean over %d windows of 6 hours in every shape, repeat %d", t.scale.means, repeat+1)
		windows := t.places(repeat, t.scale.means, int(queryTime/interval))
		var ways []*meanWay
		for _, s := range t.subjects {
			ways = append(ways, &meanWay{subject: s, name: s.String(), way: shape.Unwind})
			if s.Kind == shape.Buckets && !s.Packed() {
				ways = append(ways, &meanWay{subject: s, name: s.String() + ", by stats", way: shape.Stats})
			}
		}
		for _, w := range ways {
			w.query(ctx, windows[:min(warmUp, len(windows))])
			w.took, w.got = 0, nil
		}
		bench.InTurns(len(ways), windows, len(windows)/turns, func(i int, some []shape.Portion) {
			w := ways[i]
			w.query(ctx, some)
			if measure := map[int]string{len(windows) / 10: tenthOf, len(windows) / 2: halfOf, len(windows): allOf}[len(w.got)]; measure != "" {
				t.lab.Add("reads", w.name, measure, w.took)
			}
		})
		for _, w := range ways[1:] {
			if err := agree(ways[0].got, w.got); err != nil {
				bench.Check(fmt.Errorf("compare the means of %s: %w", w.name, err))
			}
		}
	}
}

// query computes means one by one.
func (w *meanWay) query(ctx context.Context, windows []shape.Portion) {
	began := time.Now()
	for _, span := range windows {
		w.got = append(w.got, w.coll.Mean(ctx, span, shape.RatingField, w.way))
	}
	w.took += time.Since(began).Seconds()
}

var errDisagree = errors.New("the shapes give different answers")

func agree(a, b []float64) error {
	for i := range a {
		if math.Abs(a[i]-b[i]) > 1e-9*math.Abs(a[i]) {
			return fmt.Errorf("%w: %v and %v for query %d", errDisagree, a[i], b[i], i)
		}
	}
	return nil
}

const sortLimit = "internalQueryMaxBlockingSortMemoryUsageBytes"

// sorts sorts everything by time, with the server's memory limit scaled down like the number of
// readings.
func (t *trial) sorts(ctx context.Context) {
	t.loadOnce(ctx)
	t.lab.Step("sort everything by time without an index")
	limit := int(float64(serverSortLimit) * float64(t.scale.readings) / published)
	t.m.Set(ctx, map[string]any{sortLimit: limit})
	for _, s := range t.subjects {
		if s.Packed() { // MongoDB cannot see readings in blocks
			continue
		}
		for _, disk := range []bool{false, true} {
			began := time.Now()
			fits := s.coll.Sort(ctx, disk)
			if fits {
				t.lab.Add("sort", s.String(), fmt.Sprintf("allowDiskUse %v", disk), time.Since(began).Seconds())
			}
			if !disk {
				t.lab.Add("sort", s.String(), failedOf, bench.Flag(!fits))
			}
		}
	}
	t.m.Set(ctx, map[string]any{sortLimit: serverSortLimit})
}
