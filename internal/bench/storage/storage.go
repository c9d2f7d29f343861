// Package storage is the experiment on which signals show that the storage is at its limit: it
// samples the doctor's signals under rising load, compacts a collection while it is written to,
// and times serverStatus.
package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/machine"
)

// Names in tables.
const (
	scattered, contiguous = "every fourth document", "a quarter in one piece" // patterns of deletion
	bothPatterns          = "both"

	ordinary, small                  = "ordinary", "small" // caches
	diskFirst                        = "disk first"
	placeOf, overOf                  = "place", "over its threshold"
	leftOf                           = "of the file after deleting"
	p99Before, p99During, p99Later   = "p99 before", "p99 during", "p99 after"
	fullForm, doctorForm, idle, busy = "as a whole", "as the doctor asks", ", idle", ", under load"
)

const afterCompaction = "write p99 falls when a collection was compacted" // a claim

// Experiment returns the storage experiment.
func Experiment() *bench.Experiment {
	return &bench.Experiment{
		Name: "storage",
		Answers: []bench.Answer{
			{Claim: afterCompaction, AtMost: 0.9, Says: "Compact after large deletions, because the p99 of writes is then %s of what it was."},
			{Claim: afterCompaction, Says: "Do not compact for speed, because the p99 of writes is then %s of what it was."},
		},
		Question: "Which signal shows first that the storage is at its limit, and what does compaction give back?",
		Full:     6 * time.Minute,
		Quick:    80 * time.Second,
		Restarts: "the ramp with a small cache",
		Cells:    size{}.cells(nil),
		Tables:   tables(),
		Claims:   claims(),
		Run:      func(ctx context.Context, lab *bench.Lab) { sizeOf(lab.Quick).run(ctx, lab) },
	}
}

func tables() (all []bench.Table) {
	for _, cache := range []string{ordinary, small} {
		all = append(all,
			bench.Table{
				Name: "signals, " + cache, Title: "The doctor's signals when p99 was ten times idle, with the " + cache + " cache", Variant: "signal",
				Measures: slices.Concat(bench.In(bench.Count, "before the ramp", "worst until then", "then"), bench.In(bench.Seconds, "degrading after"), bench.In(bench.Count, placeOf, overOf)),
				Note: "In the doctor's units. Place: in the order in which signals began to degrade, in two samples at least, and of a rate in two in a row; behind all others if it did not. " +
					"Over its threshold, and disk first: 1 if so. None of the published signals covers the CPU: see the table of the ramp.",
			},
			bench.Table{
				Name: "ramp, " + cache, Title: "The ramp, with the " + cache + " cache", Variant: "readings/s offered",
				Measures: slices.Concat(
					bench.In(bench.PerSecond, "stored"), bench.In(bench.Seconds, "p50", "p99"), bench.In(bench.Count, "CPUs of mongod", "of all"),
					bench.In(bench.Ratio, "disk busy"), bench.In(bench.Seconds, "await"), bench.In(bench.Count, "operations/s"), bench.In(bench.Bytes, "bytes/s")),
				Note: "Times count from when a write was due. The ramp ends when p99 has been ten times its first step's for two seconds. " +
					"A busy disk with operations below 128 KiB on average is bound by operations, above by throughput; long waits on a disk that is not busy are bound by latency.",
			},
			bench.Table{
				Name: "p99, " + cache, Title: "Write p99 while the load rises, with the " + cache + " cache", Variant: "seconds", Unit: bench.Seconds, Hidden: true,
				Plots: []bench.Plot{{Title: "Write p99 while the load rises, with the " + cache + " cache", Caption: "p99 of the last second, and where it is ten times idle.", LogY: true}},
			})
	}
	return append(all,
		bench.Table{
			Name: "compact", Title: "Compaction while writing", Variant: "deleted",
			Measures: slices.Concat(
				bench.In(bench.Bytes, "file when full", "after deleting", "free in it", "after compaction"), bench.In(bench.Times, leftOf), bench.In(bench.Seconds, "took"),
				bench.In(bench.Bytes, "file larger by", "all files larger by"), bench.In(bench.Seconds, p99Before, p99During, p99Later)),
			Note: "200 writes/s of 50 readings to the same collection; a time counts from when the write was due. Larger by: at most, while it was compacted; all files are those of mongod, with the journal and the oplog.",
		},
		bench.Table{
			Name: "status", Title: "What serverStatus costs", Variant: "form and load",
			Measures: append(bench.In(bench.Seconds, "p50", "p99"), bench.Measure{Name: "answer", Unit: bench.Bytes}),
			Note:     "As measured by the client. The load is 200 writes/s of 50 readings.",
		})
}

func claims() (all []bench.Claim) {
	const alerts = "place 1: alert at disk busy > 60 %, await > 1 ms (NVMe) or 5 ms (SSD)"
	for _, cache := range []string{ordinary, small} {
		of := func(signal string) bench.Figure { return bench.At("signals, "+cache, signal, overOf) }
		with := ", with the " + cache + " cache"
		all = append(all, bench.Claim{
			Says: "the disk is the first to show that writes become slow" + with, Published: 1, PublishedAs: alerts, Of: of(diskFirst),
			Because: "Something else reaches its limit first here: see the table of signals.",
		})
		for _, s := range []struct{ signal, says, published string }{
			{"disk_busy", "disk busy warns before p99 is ten times idle", "< 50 % healthy, 50 to 80 % degrading, > 80 % bottleneck"},
			{"disk_await", "disk await warns before p99 is ten times idle", "NVMe < 0.5 ms healthy, > 2 ms bottleneck; SSD < 2 ms, > 10 ms"},
			{"cache_dirty", "cache dirty warns before p99 is ten times idle", "< 5 % healthy, 5 to 15 % degrading, > 15 % bottleneck"},
			{"checkpoint_duration", "checkpoints take long when p99 is ten times idle", "< 5 s healthy, 5 to 15 s degrading, > 15 s bottleneck"},
		} {
			if cache == small && strings.HasPrefix(s.signal, "disk") {
				continue // unrelated to the cache
			}
			all = append(all, bench.Claim{
				Says: s.says + with, Published: 1, PublishedAs: s.published, Of: of(s.signal),
				Because: "It stayed within the published threshold until then.",
			})
		}
	}
	for _, pattern := range []string{scattered, contiguous} {
		all = append(all, bench.Claim{
			Says: "compaction takes the file to 0.77x after deleting " + pattern, Published: 460.0 / 600, PublishedAs: "600 → 460 GB for 450 GB live", Unit: bench.Times,
			Of:      bench.At("compact", pattern, leftOf),
			Alike:   1.15, // narrow: 0.77 is only 1.3x away from the whole file
			Because: "Compaction moves data from the end of the file into free space before it, which depends on where that space is; pages with scattered deletions are first rewritten next to the old ones.",
		})
	}
	return append(all,
		bench.Claim{
			Says: afterCompaction, Published: 10.0 / 35, PublishedAs: "35 → 10 ms", Unit: bench.Seconds, Rule: bench.Factor,
			From: bench.At("compact", bothPatterns, p99Before), Of: bench.At("compact", bothPatterns, p99Later), Because: "An append changes a page in the cache, and does not wait for free space inside the file.",
		},
		bench.Claim{
			Says: "serverStatus takes less than 1 ms (p50, idle)", Published: 1e-3, PublishedAs: "< 1 ms", Unit: bench.Seconds, Rule: bench.AtMost,
			Of: bench.At("status", fullForm+idle, "p50"), Because: "The answer is put together and sent anew each time, and how long that takes depends on the CPU.",
		})
}

// A size is the scale of a run.
type size struct {
	ramp    rampConfig
	ramps   int // with each cache; 0: lab.Repeats
	compact compactConfig
	calls   int // of serverStatus, per repeat
}

func sizeOf(quick bool) size {
	s := size{
		ramp:    rampConfig{idle: 6 * time.Second, step: 3500 * time.Millisecond, steps: 16, sensors: 8000, readings: 400},
		compact: compactConfig{documents: 12_000, readings: 360, window: 4 * time.Second, patterns: []string{scattered, contiguous}},
		calls:   200,
	}
	if quick {
		s.ramps = 1
		s.ramp.idle, s.ramp.step = 4*time.Second, 1500*time.Millisecond
		s.compact.documents, s.compact.window = 4000, time.Second
	}
	return s
}

func (s size) run(ctx context.Context, lab *bench.Lab) {
	if lab.Quick {
		lab.Reduce("one ramp with each cache, with steps of %s", s.ramp.step)
		lab.Reduce("%d buckets to compact, and %s of writing before and after", s.compact.documents, s.compact.window)
	}
	lab.RunCells(ctx, s.cells(lab))
}

func (s size) cells(lab *bench.Lab) []bench.Cell {
	on := func(measure func(context.Context, *bench.Lab, *bench.MongoDB)) func(context.Context) {
		return func(ctx context.Context) {
			lab.On(ctx, bench.Setting{}, func(m *bench.MongoDB) { measure(ctx, lab, m) })
		}
	}
	return []bench.Cell{
		{Name: "ramp", What: "which of the doctor's signals crosses its threshold first while the load rises", Run: func(ctx context.Context) { s.runRamp(ctx, lab) }},
		{Name: "compact", What: "what compaction gives back, and what it does to writes meanwhile", Run: on(s.compact.run)},
		{Name: "status", What: "what serverStatus costs", Run: on(s.status)},
	}
}

const smallCacheGB = 0.25 // the smallest that mongod accepts

func (s size) runRamp(ctx context.Context, lab *bench.Lab) {
	caches := []string{ordinary, small}
	if !lab.Own() {
		if !lab.Asked("ramp") {
			lab.LeaveOut("which signal crosses its threshold first while the load rises", "it would take a user's MongoDB to its limit; ask for it with --cells ramp")
			return
		}
		lab.LeaveOut("the ramp with a small cache", bench.OwnOnly)
		caches = caches[:1]
	}
	lab.Pin("the ramp: %d sensors with hourly buckets of %d readings at the beginning; writes of %d updates with %d readings each, from %d lanes of the production store, paced from %d writes/s on, %gx from step to step",
		s.ramp.sensors, s.ramp.readings, updatesPerWrite, readingsPerUpdate, rampLanes, idleRate, rateFactor)
	repeats := lab.Repeats
	if s.ramps > 0 {
		repeats = min(s.ramps, repeats)
	}
	for repeat := range repeats {
		for _, cache := range caches {
			lab.Step("ramp: raise the load until p99 is ten times idle, %s cache", cache)
			climb(ctx, lab, s.ramp, cache).add(lab, cache, repeat == 0)
		}
	}
}

// Each paced write is a command of a few small updates, so that there are enough writes for a
// p99 within a second.
const (
	updatesPerWrite   = 5
	readingsPerUpdate = 10
	readingsPerWrite  = updatesPerWrite * readingsPerUpdate
	moderate          = 200 // writes/s: while something else is measured
	writerLanes       = 4   // as one daemon has
	writerSensors     = 500
	interval          = 5 * time.Second // as in the published workload
)

// writers are sensors, the number of readings already in each one's bucket, and the lanes that
// write them.
type writers struct {
	load.SensorsConfig

	lanes, readings int
}

// newFleet opens or creates a collection of hourly buckets and returns lanes that write to it.
// Each sensor has a bucket with w.readings readings, and each lane a warm connection.
func newFleet(ctx context.Context, m *bench.MongoDB, stream string, w writers) *shape.Fleet {
	source := bench.Must(load.NewSensors(w.SensorsConfig))
	c := shape.Open(ctx, m, shape.Config{
		Name: stream, Shape: shape.Shape{Kind: shape.Buckets, Granularity: time.Hour}, PerUpdate: readingsPerUpdate,
		Readings: shape.Readings{Source: source, Sensors: w.Count, Begin: time.Now().Truncate(time.Hour).Add(-24 * time.Hour), Interval: interval},
	})
	f := c.Fleet(w.lanes, updatesPerWrite, nil)
	f.Fill(ctx, w.readings, time.Time{})
	f.Run(ctx, func(_ *shape.Worker, written int) bool { return written < 5*updatesPerWrite })
	return f
}

// background returns writers for a moderate load on a collection.
func background(ctx context.Context, m *bench.MongoDB, stream string, seed uint64) *shape.Fleet {
	return newFleet(ctx, m, stream, writers{load.SensorsConfig{Count: writerSensors, Seed: seed, Prefix: "w-"}, writerLanes, readingsPerUpdate})
}

// A compactConfig is how much to compact.
type compactConfig struct {
	documents int
	readings  int           // in each
	window    time.Duration // before and after
	patterns  []string
}

const (
	warm        = 500 * time.Millisecond // writing before it counts
	sampleEvery = 50 * time.Millisecond
)

// run fills a collection, deletes a quarter and compacts, for each pattern in turn.
func (c compactConfig) run(ctx context.Context, lab *bench.Lab, m *bench.MongoDB) {
	lab.Pin("compaction: %d hourly buckets of %d readings, each in a collection of its own", c.documents, c.readings)
	if !lab.Own() {
		lab.LeaveOut("how much more disk compaction takes meanwhile", "the files of a MongoDB that is not the experiment's own cannot be seen")
	}
	for i := range lab.Repeats {
		for j, pattern := range c.patterns {
			lab.Step("compact: fill %d buckets, delete %s, compact while writing", c.documents, pattern)
			if err := (&compaction{c, lab, m, pattern, fmt.Sprintf("compact_%d_%d", i+1, j+1)}).once(ctx); err != nil {
				lab.LeaveOut("what compaction gives back", err.Error())
				return
			}
		}
	}
}

// A compaction compacts a collection after a pattern of deletions.
type compaction struct {
	compactConfig

	lab             *bench.Lab
	m               *bench.MongoDB
	pattern, stream string
}

// once compacts in the middle of a moderate load. It returns why the server refused.
func (c *compaction) once(ctx context.Context) (refused error) {
	lab, m, pattern, stream := c.lab, c.m, c.pattern, c.stream
	newFleet(ctx, m, stream, writers{load.SensorsConfig{Count: c.documents, Seed: lab.Seed, Prefix: "s-"}, writerLanes, c.readings})
	writers := background(ctx, m, stream, lab.Seed)
	coll := m.Database().Collection(stream)
	if lab.Own() { // sizes cover only what a checkpoint has written
		m.Checkpoint(ctx)
	}
	full := shape.SizeOf(ctx, m.Database(), stream, false)
	deleteQuarter(ctx, coll, pattern)
	m.Settle(ctx) // frees the space for reuse
	deleted := shape.SizeOf(ctx, m.Database(), stream, false)
	lab.Row("compact", pattern, float64(full.File), float64(deleted.File), float64(deleted.Free))
	writers.During(ctx, shape.Steadily(moderate), func(ctx context.Context, t *shape.Traffic) {
		refused = c.whileWriting(ctx, t, deleted)
	})
	if refused != nil {
		return refused
	}
	m.Settle(ctx)
	after := shape.SizeOf(ctx, m.Database(), stream, false)
	lab.Add("compact", pattern, "after compaction", float64(after.File))
	lab.Add("compact", pattern, leftOf, float64(after.File)/float64(deleted.File))
	// The same writes as before the compaction, whose backlog is gone by now.
	writers.During(ctx, shape.Steadily(moderate), func(ctx context.Context, t *shape.Traffic) {
		bench.Check(machine.Pause(ctx, warm+c.window))
		p99 := t.Between(warm, warm+c.window).Quantile(0.99)
		lab.Add("compact", pattern, p99Later, p99)
		lab.Add("compact", bothPatterns, p99Later, p99)
	})
	bench.Check(coll.Drop(ctx))
	return nil
}

// whileWriting compacts a collection, of known size, in the middle of a moderate load, and
// samples file sizes unless the MongoDB is a user's. It returns why the server refused.
func (c *compaction) whileWriting(ctx context.Context, t *shape.Traffic, before shape.Size) error {
	lab := c.lab
	bench.Check(machine.Pause(ctx, warm+c.window))
	var one, all bench.Samples
	stop := func() error { return nil }
	if lab.Own() {
		stop = bench.Every(ctx, sampleEvery, func(context.Context) {
			file, files := sizes(c.m.DBPath(), before.URI)
			one, all = append(one, file), append(all, files)
		})
	}
	begin := t.Now()
	err := c.m.Compact(ctx, c.stream)
	end := t.Now()
	bench.Check(stop())
	if errors.Is(err, bench.ErrNotCompacted) {
		return err
	}
	bench.Check(err)
	bench.Check(machine.Pause(ctx, c.window/2))
	lab.Add("compact", c.pattern, "took", (end - begin).Seconds())
	if len(all) > 0 {
		lab.Add("compact", c.pattern, "file larger by", max(one.Max()-float64(before.File), 0))
		lab.Add("compact", c.pattern, "all files larger by", all.Max()-all[0])
	}
	p99 := t.Between(warm, begin).Quantile(0.99)
	lab.Add("compact", c.pattern, p99Before, p99)
	lab.Add("compact", bothPatterns, p99Before, p99)
	lab.Add("compact", c.pattern, p99During, t.Between(begin, end).Quantile(0.99))
	return nil
}

// sizes returns the size of a collection's file and of all files of its mongod.
func sizes(dir, uri string) (file, all float64) {
	info, err := os.Stat(filepath.Join(dir, strings.TrimPrefix(uri, "statistics:table:")+".wt"))
	bench.Checkf(err, "read the size of a collection's file")
	bench.Check(filepath.WalkDir(dir, func(_ string, entry os.DirEntry, err error) error {
		var info os.FileInfo
		if err == nil && !entry.IsDir() {
			if info, err = entry.Info(); err == nil {
				all += float64(info.Size())
			}
		}
		if errors.Is(err, os.ErrNotExist) { // removed by mongod meanwhile
			return nil
		}
		return err
	}))
	return float64(info.Size()), all
}

// deleteQuarter deletes a quarter of the documents, chosen by their order in the file.
func deleteQuarter(ctx context.Context, coll *mongo.Collection, pattern string) {
	var found []bson.Raw
	cursor, err := coll.Find(ctx, bson.D{}, options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}).SetHint(bson.D{{Key: "$natural", Value: 1}}))
	if err == nil {
		err = cursor.All(ctx, &found)
	}
	bench.Checkf(err, "list the buckets")
	var ids []bson.RawValue
	for i, one := range found {
		if inQuarter(pattern, i, len(found)) {
			ids = append(ids, one.Lookup("_id"))
		}
	}
	for some := range slices.Chunk(ids, 1000) {
		_, err := coll.DeleteMany(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: some}}}})
		bench.Checkf(err, "delete buckets")
	}
}

// inQuarter reports whether a pattern deletes document i of n.
func inQuarter(pattern string, i, n int) bool {
	if pattern == contiguous {
		return i >= n/4 && i < n/2
	}
	return i%4 == 1
}

// status times serverStatus, alternating its forms, idle and under load.
func (s size) status(ctx context.Context, lab *bench.Lab, m *bench.MongoDB) {
	calls := s.calls
	writers := background(ctx, m, "status", lab.Seed)
	ask := func(ctx context.Context, load string) {
		for range lab.Repeats {
			for _, form := range []string{fullForm, doctorForm} {
				took := make(bench.Samples, calls)
				for i := range took {
					began := time.Now()
					if form == fullForm {
						raw, err := m.Client().Database("admin").RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}, options.RunCmd().SetReadPreference(readpref.Primary())).Raw()
						bench.Checkf(err, "run serverStatus")
						if i == 0 {
							lab.Add("status", form+load, "answer", float64(len(raw)))
						}
					} else {
						m.Counters(ctx)
					}
					took[i] = time.Since(began).Seconds()
				}
				lab.Add("status", form+load, "p50", took.Quantile(0.5))
				lab.Add("status", form+load, "p99", took.Quantile(0.99))
			}
		}
	}
	lab.Step("status: %d calls of serverStatus in two forms, idle", calls*lab.Repeats)
	m.Settle(ctx)
	ask(ctx, idle)
	lab.Step("status: %d calls of serverStatus in two forms, under load", calls*lab.Repeats)
	writers.During(ctx, shape.Steadily(moderate), func(ctx context.Context, _ *shape.Traffic) { ask(ctx, busy) })
}
