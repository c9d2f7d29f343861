// Package compression is the experiment on what a block compressor saves and costs. Only three
// compressors, six shapes and two kinds of values vary.
package compression

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/store"
)

var compressors = [...]store.Compressor{store.NoneCompressor, store.Snappy, store.Zstd}

// shapes to compress.
func shapes() []shape.Shape {
	return []shape.Shape{
		{Kind: shape.Documents}, {Kind: shape.Buckets, Granularity: 5 * time.Minute}, {Kind: shape.Buckets, Granularity: time.Hour}, {Kind: shape.TimeSeries, Granularity: time.Hour},
		{Kind: shape.Buckets, Granularity: time.Hour, Format: store.Columns}, {Kind: shape.Buckets, Granularity: time.Hour, Format: store.Columns, Sealed: true},
	}
}

// Indices of the shapes.
const (
	documents = iota
	buckets5m
	buckets1h
	timeSeries
	columns1h
)

// Kinds of values.
const (
	walk   = "random walk"
	random = "random doubles"
)

const (
	interval = 5 * time.Second
	hour     = int(time.Hour / interval) // readings per sensor
	fields   = 4
	// perUpdate is how many readings of a sensor arrive together: five minutes' worth.
	perUpdate = 60
	// readCount is the readings per read.
	readCount = 100
	// tick is the period of paced writes, and together the readings per sensor in each.
	tick     = 10 * time.Millisecond
	together = 5
)

const zstdOfSnappy = "zstd makes them half of what snappy does" // a claim

// Experiment returns the compression experiment.
func Experiment() *bench.Experiment {
	return &bench.Experiment{
		Name: "compression",
		Answers: []bench.Answer{
			{Claim: zstdOfSnappy, AtMost: 0.9, Says: "Use zstd where space costs more than CPU, because it leaves %s of what snappy leaves."},
			{Claim: zstdOfSnappy, Says: "Use snappy, because zstd leaves %s of what snappy leaves."},
		},
		Question: "What do snappy and zstd save, and what do they cost?",
		Full:     8 * time.Minute,
		Quick:    80 * time.Second,
		Restarts: "cold reads, before which it is restarted",
		Cells:    (*trial)(nil).cells(),
		Tables:   tables(),
		Claims:   claims(),
		Run:      func(ctx context.Context, lab *bench.Lab) { run(ctx, lab, scaleOf(lab.Quick)) },
	}
}

func tables() []bench.Table {
	var all []bench.Table
	for _, values := range []string{walk, random} {
		all = append(all, bench.Table{
			Name: "size, " + values, Title: "Bytes for each reading, " + values, Variant: "shape", Unit: bench.Bytes,
			Note:  "Data on disk after a checkpoint, without what is free in the files; BSON is before compression. A time series packs its values column by column before the compressor gets them.",
			Plots: []bench.Plot{{Title: "Data on disk for each reading, " + values, Caption: "What a compressor saves depends on the shape and on the values.", Bars: true, Measures: []string{"none", "snappy", "zstd"}}},
		})
	}
	return append(all,
		bench.Table{
			Name: "read", Title: "Reads of 100 readings of a sensor", Variant: "shape and compressor",
			Measures: append(bench.In(bench.Seconds, "warm p50", "warm p99", "cold p50", "cold p99"), bench.Measure{Name: "bytes from the files, cold", Unit: bench.Bytes}),
			Note: "Warm: what was just read, again. Cold: after a restart, the system's page cache dropped before each read; the disk's own cache is out of reach. " +
				"Brim's buckets are read as a daemon reads them: back to an hour before, since it does not know their granularity.",
			Plots: []bench.Plot{{Title: "Reads of 100 readings, p50", Caption: "Warm, and cold after a restart, with the page cache dropped.", Bars: true, Measures: []string{"warm p50", "cold p50"}}},
		},
		bench.Table{
			Name: "write", Title: "Writes at a fixed rate", Variant: "shape and compressor",
			Measures: slices.Concat(bench.In(bench.PerSecond, "readings/s"), bench.In(bench.Seconds, "p50", "p99", "mongod CPU a reading"), bench.In(bench.Bytes, "files, a reading", "journal, a reading")),
			Note:     "Commands of 5 readings a sensor, one every 10 ms; the checkpoint at the end counts in CPU time and bytes.",
		},
		bench.Table{
			Name: "checkpoint", Title: "Checkpoints that write readings, a document each", Variant: "compressor",
			Measures: append(bench.In(bench.Seconds, "took", "mongod CPU", "CPU a reading"), bench.Measure{Name: "bytes written", Unit: bench.Bytes}),
			Note:     "All of a repeat together. They write the replica set's oplog, too.",
		})
}

func claims() []bench.Claim {
	const (
		becauseSnappy = "How much snappy finds depends on what repeats within a page: here it is the names of the fields, the sensor's, and the first bytes of the numbers."
		becauseZstd   = "How much zstd finds beyond snappy depends on the values: rounded numbers pack well, random ones do not."
		becauseWrites = "A write is acknowledged when it is in the journal; pages are compressed later, when a checkpoint or an eviction writes them."
		// alikeBytes is narrow: bytes hardly depend on the machine.
		alikeBytes = 1.3
	)
	document, five, one := shapes()[documents].String(), shapes()[buckets5m], shapes()[buckets1h].String()
	size := func(of, measure string) bench.Figure { return bench.At("size, "+walk, of, measure) }
	read := func(c store.Compressor, measure string) bench.Figure {
		return bench.At("read", row(shapes()[documents], c), measure)
	}
	write := func(c store.Compressor, measure string) bench.Figure { return bench.At("write", row(five, c), measure) }
	return []bench.Claim{
		{Says: "snappy makes documents smaller", Published: 0.4, PublishedAs: "3.4 → 1.36 GB", Unit: bench.Bytes, Rule: bench.Factor, From: size(document, "none"), Of: size(document, "snappy"), Alike: alikeBytes, Because: becauseSnappy},
		{Says: zstdOfSnappy, Published: 0.5, PublishedAs: "1.36 → 0.68 GB", Unit: bench.Bytes, Rule: bench.Factor, From: size(document, "snappy"), Of: size(document, "zstd"), Alike: alikeBytes, Because: becauseZstd},
		{Says: "indexes stay as they are", PublishedAs: "480 MB each", Unit: bench.Bytes, Rule: bench.Same, From: size(document, "indexes, none"), Of: size(document, "indexes, zstd")},
		{Says: "a collection that moves from snappy to zstd shrinks (hourly buckets)", Published: 0.4, PublishedAs: "68 → 27 GB", Unit: bench.Bytes, Rule: bench.Factor, From: size(one, "snappy"), Of: size(one, "zstd"), Alike: alikeBytes, Because: becauseZstd},
		{Says: "warm reads take as long with every compressor", PublishedAs: "280 → 295 µs", Unit: bench.Seconds, Rule: bench.PairedSame, From: read(store.NoneCompressor, "warm p50"), Of: read(store.Zstd, "warm p50")},
		{
			Says: "cold reads gain a little from zstd, p50", Published: 0.83, PublishedAs: "1.2 → 1.0 ms", Unit: bench.Seconds, Rule: bench.PairedFactor, From: read(store.NoneCompressor, "cold p50"), Of: read(store.Zstd, "cold p50"),
			Because: "With a disk that answers this fast, unpacking and decoding cost as much as the bytes that need not be read.",
		},
		{Says: "zstd makes writes a little slower, p50", Published: 1.17, PublishedAs: "3 → 3.5 ms", Unit: bench.Seconds, Rule: bench.PairedFactor, From: write(store.Snappy, "p50"), Of: write(store.Zstd, "p50"), Because: becauseWrites},
		{Says: "zstd makes writes a little slower, p99", Published: 1.2, PublishedAs: "15 → 18 ms", Unit: bench.Seconds, Rule: bench.PairedFactor, From: write(store.Snappy, "p99"), Of: write(store.Zstd, "p99"), Because: becauseWrites},
		{
			Says: "zstd makes checkpoints use more CPU time", Published: 1.5, PublishedAs: "12 → 18 %", Unit: bench.Seconds, Rule: bench.PairedFactor,
			From: bench.At("checkpoint", string(store.Snappy), "mongod CPU"), Of: bench.At("checkpoint", string(store.Zstd), "mongod CPU"),
			Alike:   2, // the published figure is a share of everything the server did
			Because: "A checkpoint also makes and writes pages, which costs the same with every compressor.",
		},
	}
}

// row names a shape with a compressor.
func row(s shape.Shape, c store.Compressor) string { return s.String() + ", " + string(c) }

// scale is how much is done.
type scale struct {
	sensors, hours int
	rate           int // readings/s of the paced writes
	write          time.Duration
	checkpoint     int   // number of checkpoints, each with an hour of readings
	paced          []int // shapes
}

func scaleOf(quick bool) scale {
	if quick {
		return scale{sensors: 16, hours: 4, rate: 2000, write: 2500 * time.Millisecond, checkpoint: 3, paced: []int{buckets5m}}
	}
	return scale{sensors: 16, hours: 10, rate: 2000, write: 5 * time.Second, checkpoint: 6, paced: []int{documents, buckets5m, timeSeries, columns1h}}
}

// A trial is one run of the experiment.
type trial struct {
	lab     *bench.Lab
	m       *bench.MongoDB
	scale   scale
	sources map[string]shape.Source // by values
	kept    [][]*shape.Collection   // by shape and compressor, for reads; nil until loaded
}

func (t *trial) cells() []bench.Cell {
	return []bench.Cell{
		{Name: "size", What: "bytes of data and indexes: compressors by shapes by values", Run: t.sizes},
		{Name: "read", What: "reads of 100 readings, from the cache and from the disk", Run: t.reads},
		{Name: "write", What: "latency, CPU time and bytes written at a fixed rate, and the CPU time of checkpoints", Run: t.writes},
	}
}

func run(ctx context.Context, lab *bench.Lab, s scale) {
	walking := bench.Must(load.NewSensors(load.SensorsConfig{Count: 1000, Fields: fields, Signal: load.Walk, Seed: lab.Seed, Prefix: "s-"}))
	var names []string
	for _, f := range walking.AppendFields(nil, 0, 0, shape.Begin()) {
		names = append(names, f.Name)
	}
	lab.Pin("the same readings, by the seed, in every shape and compressor: {ts, t, h, p, v} each %v from %d sensors, no tags", interval, s.sensors)
	lab.Pin("random walk: numbers with one or two decimals, as `brim load --signal walk`; random doubles: from 0 to 1, all bits random")
	lab.Pin("up to %d readings of a sensor arrive together, %d readings a command, one client, write concern majority with journal", perUpdate, shape.CommandReadings)
	lab.Pin("indexes are compressed by their prefixes, as by default, whatever the collection's compressor; so is the journal, by snappy")
	lab.Pin("a read asks for %d readings of one sensor, one after another, and decodes them", readCount)
	lab.Pin("writes: open loop, %d readings/s, a command each %v, response time from when it was due; no checkpoint but those that are measured", s.rate, tick)
	lab.Pin("%d readings of each kind for the published 10,000,000; sizes are measured once, since they hardly change from run to run", s.sensors*s.hours*hour)
	if lab.Quick {
		lab.Reduce("fewer readings of each kind, and a fixed rate into fewer shapes for half as long")
	}
	lab.On(ctx, bench.Setting{}, func(m *bench.MongoDB) {
		t := &trial{lab: lab, m: m, scale: s, sources: map[string]shape.Source{walk: shape.Untagged{Source: walking}, random: shape.Doubles(lab.Seed, names...)}}
		lab.RunCells(ctx, t.cells())
	})
}

// readings returns a number of hours, plus one more reading per sensor, which makes the server
// pack the last time-series bucket.
func (t *trial) readings(values string, hours int) shape.Readings {
	return shape.Readings{Source: t.sources[values], Sensors: t.scale.sensors, Count: hours*hour + 1, Begin: shape.Begin(), Interval: interval}
}

// sizes loads every shape with each compressor and both kinds of values, and keeps the random
// walks for the reads.
func (t *trial) sizes(ctx context.Context) {
	for _, values := range []string{random, walk} {
		for at := range shapes() {
			t.loadAll(ctx, at, values, true)
		}
	}
}

// loadAll loads a shape with each compressor.
func (t *trial) loadAll(ctx context.Context, at int, values string, measure bool) {
	t.lab.Step("load %s of %s with each compressor", shapes()[at], values)
	loaded := make([]*shape.Collection, len(compressors))
	for i, compressor := range compressors {
		loaded[i] = shape.New(ctx, t.m, shape.Config{
			Name: fmt.Sprintf("shape%d_%s", at, compressor), Shape: shapes()[at], Compressor: compressor, Readings: t.readings(values, t.scale.hours), PerUpdate: perUpdate,
		})
		loaded[i].Load(ctx)
	}
	t.m.Checkpoint(ctx)
	for i, c := range loaded {
		if measure {
			size := c.Size(ctx)
			table, name, n := "size, "+values, c.Shape.String(), float64(c.Readings.Sensors*c.Readings.Count)
			if i == 0 {
				t.lab.Add(table, name, "BSON", float64(size.Logical)/n)
			}
			t.lab.Add(table, name, string(c.Compressor), float64(size.Data())/n)
			t.lab.Add(table, name, "indexes, "+string(c.Compressor), float64(size.Index())/n)
		}
		if values != walk {
			c.Drop(ctx)
		}
	}
	if values == walk {
		t.kept = append(t.kept, loaded)
	}
}

// reads reads from disk, and then the same again from the cache.
func (t *trial) reads(ctx context.Context) {
	for at := len(t.kept); at < len(shapes()); at++ {
		t.loadAll(ctx, at, walk, false)
	}
	t.lab.LeaveOut("p99 of cold reads (published 8.0 → 6.5 ms)", "it needs thousands of reads, each of pages that no other touched")
	cold := t.coldPossible()
	for repeat := range t.lab.Repeats {
		t.lab.Step("read %d readings at a time, cold and warm, repeat %d", readCount, repeat+1)
		if cold { // empties the server's cache
			t.m.Restart(ctx, bench.Setting{})
			for _, c := range slices.Concat(t.kept...) {
				c.Attach(ctx, t.m)
			}
		}
		spans := t.spans(repeat)
		for _, collections := range t.kept {
			t.readAll(ctx, collections, spans, cold)
		}
	}
}

// coldPossible reports whether cold reads are possible, and records why not.
func (t *trial) coldPossible() bool {
	const what = "cold reads"
	if !t.lab.Own() {
		t.lab.LeaveOut(what, bench.OwnOnly)
		return false
	}
	if err := provesCold(t.lab.Dir); err != nil {
		t.lab.LeaveOut(what, "the system's page cache cannot be dropped here: "+err.Error())
		return false
	}
	return true
}

// readAll reads a shape with each compressor.
func (t *trial) readAll(ctx context.Context, collections []*shape.Collection, spans []shape.Portion, cold bool) {
	for _, c := range collections { // an uncounted read opens the collection's files
		read(ctx, c, spans[:1], "")
	}
	for _, pass := range []string{"cold", "warm"} {
		dir := ""
		if pass == "cold" && cold {
			dir = t.m.DBPath()
		}
		const turn = 6
		took, bytes := make([]bench.Samples, len(collections)), make([]float64, len(collections))
		bench.InTurns(len(collections), spans[1:], turn, func(i int, some []shape.Portion) {
			s := t.m.Measure(ctx, func(ctx context.Context) {
				took[i] = append(took[i], read(ctx, collections[i], some, dir)...)
			})
			bytes[i] += s.Since("block_read_bytes_total")
		})
		if pass == "cold" && !cold {
			continue
		}
		for i, c := range collections {
			name := row(c.Shape, c.Compressor)
			t.lab.Add("read", name, pass+" p50", took[i].Quantile(0.5))
			t.lab.Add("read", name, pass+" p99", took[i].Quantile(0.99))
			if pass == "cold" {
				t.lab.Add("read", name, "bytes from the files, cold", bytes[i]/float64(len(took[i])))
			}
		}
	}
}

// spans returns portions to read in random order: two in every part of the time, of sensors
// written far apart, so that they rarely share a page.
func (t *trial) spans(repeat int) []shape.Portion {
	r := rand.New(rand.NewPCG(t.lab.Seed, uint64(repeat))) //nolint:gosec // no secret, and counts from 0
	half := t.scale.sensors / 2
	var spans []shape.Portion
	for first := 0; first+readCount <= t.scale.hours*hour; first += readCount {
		sensor := r.IntN(half)
		for _, s := range []int{sensor, sensor + half} {
			spans = append(spans, shape.Portion{Sensor: s, First: uint64(first), Count: readCount}) //nolint:gosec // counts from 0
		}
	}
	r.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
	return spans
}

// read reads spans one by one and returns the seconds each took. It drops a directory's page
// cache before each, unless dir is empty.
func read(ctx context.Context, c *shape.Collection, spans []shape.Portion, dir string) (took bench.Samples) {
	for _, s := range spans {
		if dir != "" {
			bench.Check(dropCache(dir))
		}
		began := time.Now()
		c.ReadAll(ctx, s)
		took = append(took, time.Since(began).Seconds())
	}
	return took
}

// checkpointInterval is in seconds; 0: only requested checkpoints.
const checkpointInterval, defaultInterval = "syncdelay", 60

// writes writes at a fixed rate, and then many readings for a checkpoint, for each compressor
// in each repeat.
func (t *trial) writes(ctx context.Context) {
	if t.lab.Own() {
		t.m.Set(ctx, map[string]any{checkpointInterval: 0})
	}
	for repeat := range t.lab.Repeats {
		for _, c := range compressors {
			t.lab.Step("write at %d readings/s, and a checkpoint, with %s, repeat %d", t.scale.rate, c, repeat+1)
			for _, at := range t.scale.paced {
				t.pace(ctx, shapes()[at], c)
			}
			t.checkpoint(ctx, c)
		}
	}
	if t.lab.Own() {
		t.m.Set(ctx, map[string]any{checkpointInterval: defaultInterval})
	}
}

// pace writes at the fixed rate: command n is due n ticks after the first.
func (t *trial) pace(ctx context.Context, s shape.Shape, compressor store.Compressor) {
	group := max(t.scale.rate*int(tick)/int(time.Second)/together, 1) // sensors per command
	ticks := int(t.scale.write / tick)
	const rounds = 20 // commands until a sensor's next turn
	readings := t.readings(walk, 0)
	readings.Sensors = group * rounds
	c := shape.New(ctx, t.m, shape.Config{Name: "paced", Shape: s, Compressor: compressor, Readings: readings, PerUpdate: together})
	t.m.Settle(ctx)
	var took bench.Samples
	var elapsed time.Duration
	spent := t.m.Measure(ctx, func(ctx context.Context) {
		traffic := c.Fleet(1, group, nil).During(ctx, func(n int) (time.Duration, bool) { return time.Duration(n) * tick, n < ticks }, nil)
		elapsed = traffic.Now()
		took = traffic.Between(0, elapsed)
		t.m.Checkpoint(ctx)
	})
	written := float64(ticks * group * together)
	t.lab.Row("write", row(s, compressor), written/elapsed.Seconds(), took.Quantile(0.5), took.Quantile(0.99),
		spent.CPU/written, spent.Since("block_written_bytes_total")/written, spent.Since("journal_written_bytes_total")/written)
	c.Drop(ctx)
}

// checkpoint measures checkpoints that write only readings just stored, a document each: one
// for every hour of readings, so that the cache does not fill up.
func (t *trial) checkpoint(ctx context.Context, compressor store.Compressor) {
	readings := t.readings(walk, t.scale.checkpoint)
	c := shape.New(ctx, t.m, shape.Config{Name: "checkpointed", Shape: shapes()[documents], Compressor: compressor, Readings: readings, PerUpdate: perUpdate})
	t.m.Checkpoint(ctx)
	var seconds, cpu, bytes float64
	for h := range t.scale.checkpoint {
		for first := h * hour; first < (h+1)*hour; first += perUpdate {
			c.Write(ctx, shape.Portions(readings.Sensors, first, perUpdate))
		}
		s := t.m.Measure(ctx, t.m.Checkpoint)
		seconds, cpu, bytes = seconds+s.Seconds, cpu+s.CPU, bytes+s.Since("block_written_bytes_total")
	}
	t.lab.Row("checkpoint", string(compressor), seconds, cpu, cpu/float64(t.scale.checkpoint*hour*readings.Sensors), bytes)
	c.Drop(ctx)
}
