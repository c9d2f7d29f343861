// Package granularity measures what an append costs as its bucket fills, and what that implies
// for the length of a window:
//
//	stock    equal buckets, made by the store and copied, that appends are spread over
//	append   an append's time and mongod's CPU by the readings that the bucket holds, and the line through them
//	variants the same at one size, with further indexes or another history window
//	sizes    documents and bytes of the published workload, counted in a small run
package granularity

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/store"
)

// The workload of the published tables: sensors that report {ts, t, h, p, v}.
const (
	publishedSensors  = 10_000
	publishedFields   = 4
	publishedInterval = 5 * time.Second
)

// published is the published table, by granularity.
var published = [...]struct {
	granularity   time.Duration
	held          int // readings in a bucket when the append was timed
	latency       string
	seconds       float64
	documentBytes float64
	documents     float64 // a day
}{
	{time.Minute, 12, "85 µs", 85e-6, 0.5e3, 14.4e6},
	{5 * time.Minute, 60, "180 µs", 180e-6, 2.4e3, 2.88e6},
	{15 * time.Minute, 180, "350 µs", 350e-6, 7.2e3, 960e3},
	{time.Hour, 360, "650 µs", 650e-6, 28e3, 240e3},
}

// inWindow returns the readings per window in the workload.
func inWindow(g time.Duration) int { return int(g / publishedInterval) }

const (
	// Suffixes of table names and titles.
	standalone = ", standalone"
	inColumns  = ", columns"

	timeOf, cpuOf           = "time", "mongod CPU"
	noIndex, threeIndexes   = "0 further indexes", "3 further indexes"
	documentOf, documentsOf = "document", "documents a day"
	bytesOf, savedOf        = "bytes a day, uncompressed", "saved of the bytes at 5m"

	becauseFixed   = "An append has a fixed price (a command, the guard, an oplog entry) and one that grows with the bucket; machines differ in how much each of them weighs."
	becauseDoubles = "Every reading has its fields' names and 64-bit numbers here, and the document has its key twice, statistics of each field and the write guard."
)

// Experiment returns the granularity experiment.
func Experiment() *bench.Experiment {
	e := &bench.Experiment{
		Name:     "granularity",
		Question: "What does an append cost as its bucket fills, and which granularity follows from that?",
		Full:     6*time.Minute + 30*time.Second,
		Quick:    50 * time.Second,
		Restarts: "the standalone and the history windows, which need mongods of the experiment's own",
		Cells:    (&trial{}).cells(),
		Tables: []bench.Table{
			{
				Name: "indexes", Title: "Further indexes: an append of a reading to a bucket of 60", Variant: "indexes", Unit: bench.Seconds,
				Note: "Among many in a command. Appends leave the keys of further indexes alone, unless the row says otherwise.",
			},
			{
				Name: "history", Title: "History window: an append of a reading to a bucket of 180, and the checkpoint after it", Variant: "window",
				Measures: slices.Concat(bench.In(bench.Seconds, cpuOf, timeOf), bench.In(bench.Count, "old versions kept"), bench.In(bench.Bytes, "written to data files")),
				Note:     "The checkpoint is in mongod's CPU, not in the time.",
			},
			{
				Name: "sizes", Title: "The workload by granularity: 10,000 sensors, a reading every 5 s", Variant: "granularity and format",
				Measures: slices.Concat(bench.In(bench.Bytes, documentOf), bench.In(bench.Count, documentsOf), bench.In(bench.Bytes, bytesOf, "on disk, snappy", "index on disk"), bench.In(bench.Ratio, savedOf)),
				Note:     "Counted after a small run through the store, and scaled. The bytes on disk of so small a run are rough.",
			},
			{
				Name: "rewritten", Title: "Arithmetic: bytes of document versions that appends make in a day", Variant: "granularity", Unit: bench.Bytes,
				Note: "About (appends + 1)/2 times the final size of each bucket: how many readings an append brings counts for more than the minutes of its bucket. " +
					"This is copying in memory, and on a standalone it goes through the journal; a checkpoint writes only what changed to the data files.",
			},
		},
		Run: func(ctx context.Context, lab *bench.Lab) {
			if lab.Quick {
				lab.Reduce("fewer sizes of buckets and of appends, fewer appends for each, fewer sensors and hours in the run that documents are counted in")
			}
			(&trial{lab: lab, numbers: *numbersOf(lab.Quick)}).run(ctx)
		},
	}
	for _, on := range []string{"", standalone, inColumns} {
		e.Tables = append(e.Tables,
			bench.Table{
				Name: timeOf + on, Title: "Time of an append" + on, Variant: "readings in the bucket", Unit: bench.Seconds,
				Plots: []bench.Plot{{Title: "Time of an append" + on, Caption: "Time that one writer waits for an append, by the readings that the bucket holds."}},
			},
			bench.Table{
				Name: cpuOf + on, Title: "mongod's CPU for an append among many in a command" + on, Variant: "readings in the bucket", Unit: bench.Seconds,
				Plots: []bench.Plot{{Title: "mongod's CPU for an append" + on, Caption: "The server's CPU for an append among many in a command."}},
			},
			bench.Table{
				Name: "journal" + on, Title: "Bytes of the journal for an append" + on, Variant: "readings in the bucket", Unit: bench.Bytes,
				Note: "A standalone journals the whole document with each append; a replica set journals what changed, and an oplog entry.",
			},
			bench.Table{
				Name: "line" + on, Title: "An append costs a + b · readings in the bucket" + on, Variant: "readings an append", Unit: bench.Seconds,
				Note: "The line of least squares through each repeat, each point weighted by its own cost. While b · readings is far less than a, a shorter granularity saves little.",
			},
			bench.Table{
				Name: "fit" + on, Title: "An append of one reading, by the line through each repeat" + on, Variant: "readings in the bucket", Unit: bench.Seconds,
			})
	}
	e.Claims, e.Answers = claims(), answers()
	return e
}

// answers recommend the longest window whose appends cost little more than in the shortest.
func answers() (all []bench.Answer) {
	const littleMore = 1.25
	for i := len(published) - 1; i > 0; i-- {
		p := published[i]
		all = append(all, bench.Answer{
			Claim: timeClaim(i), AtMost: littleMore,
			Says: "Use " + config.FormatDuration(p.granularity) + ", because an append into such a bucket takes only %s as long as into one of 1m, and longer windows have fewer documents.",
		})
	}
	return append(all, bench.Answer{Claim: timeClaim(1), Says: "Use 1m, because an append into a bucket of 5m already takes %s as long."})
}

// timeClaim compares an append's time between the shortest granularity and another.
func timeClaim(i int) string {
	first, to := published[0], published[i]
	return fmt.Sprintf("time of an append, %s to %s (%d to %d readings in the bucket)", config.FormatDuration(first.granularity), config.FormatDuration(to.granularity), first.held, to.held)
}

func claims() (all []bench.Claim) {
	first, hour := published[0], published[len(published)-1]
	fit := func(held int, measure string) bench.Figure { return bench.At("fit", strconv.Itoa(held), measure) }
	for i, to := range published[1:] {
		all = append(all, bench.Claim{
			Says:      timeClaim(i + 1),
			Published: to.seconds / first.seconds, PublishedAs: first.latency + " → " + to.latency, Unit: bench.Seconds,
			Rule: bench.PairedFactor, From: fit(first.held, timeOf), Of: fit(to.held, timeOf), Because: becauseFixed,
		})
	}
	all = append(all,
		bench.Claim{
			Says: "mongod's CPU for an append among many in a command, 1m to 1h", Published: hour.seconds / first.seconds, PublishedAs: first.latency + " → " + hour.latency + " (time)", Unit: bench.Seconds,
			Rule: bench.PairedFactor, From: fit(first.held, cpuOf), Of: fit(hour.held, cpuOf), Because: becauseFixed,
		},
		bench.Claim{
			Says: "an append costs more with 3 further indexes", PublishedAs: "documents grow and move, and every index with them", Unit: bench.Seconds,
			Rule: bench.PairedFactor, From: bench.At("indexes", noIndex, cpuOf), Of: bench.At("indexes", threeIndexes, cpuOf),
			Because: "WiredTiger keeps a document's place in the indexes when the document grows, and an append leaves indexes alone if their keys do not change.",
		})
	for _, p := range published {
		g := config.FormatDuration(p.granularity)
		all = append(all,
			bench.Claim{
				Says: "a full document at " + g + ", before compression", Published: p.documentBytes, PublishedAs: bench.Bytes.Format(p.documentBytes), Unit: bench.Bytes,
				Of: bench.At("sizes", g, documentOf), Because: becauseDoubles,
			},
			bench.Claim{
				Says: "documents a day at " + g, Published: p.documents, PublishedAs: bench.Count.Format(p.documents), Alike: 1.01,
				Of: bench.At("sizes", g, documentsOf), Because: "Buckets begin with the hour, and each sensor has its own.",
			})
	}
	return append(all,
		bench.Claim{Says: "bytes of documents a day at 5m, before compression", Published: 8.2e9, PublishedAs: "8.20 GB", Unit: bench.Bytes, Of: bench.At("sizes", "5m", bytesOf), Because: becauseDoubles},
		bench.Claim{Says: "bytes of documents a day at 1h, before compression", Published: 6.72e9, PublishedAs: "6.72 GB", Unit: bench.Bytes, Of: bench.At("sizes", "1h", bytesOf), Because: becauseDoubles},
		// Not a factor: 1.2x is within tolerance of both no change and the opposite.
		bench.Claim{
			Says: "part of the bytes a day at 5m that 1h saves", Published: 1 - 6.72/8.2, PublishedAs: "8.20 GB → 6.72 GB (18 % less)", Unit: bench.Ratio,
			Of: bench.At("sizes", "1h", savedOf), Because: "Only a document's overhead beyond its readings is saved.",
		})
}

// A grid combines bucket sizes with append sizes.
type grid struct {
	residents []int // readings in a bucket before an append
	perUpdate []int // readings per append
}

// numbers are how much to measure.
type numbers struct {
	appends, alone grid
	columns        grid
	slices         int   // per repeat of a curve; points take turns
	single, bulk   int   // appends per slice: one per command, and many
	indexed        []int // numbers of further indexes
	turns, varied  int   // slices per repeat of a variant, and appends per slice
	sensors, hours int   // in the run that counts documents
	stockBytes     int   // limit of a stock
}

func numbersOf(quick bool) *numbers {
	if quick {
		few := []int{1, 12, 60, 180, 720}
		return &numbers{
			appends: grid{few, []int{1, 12}}, alone: grid{few, []int{1}}, columns: grid{[]int{1, 60, 720}, []int{1, 12}}, slices: 3, single: 50, bulk: 100,
			indexed: []int{0, 3}, turns: 8, varied: 120, sensors: 20, hours: 2, stockBytes: 16 << 20,
		}
	}
	all := grid{[]int{1, 12, 30, 60, 120, 180, 360, 720, 1500, 3600}, []int{1, 5, 12, 60}}
	return &numbers{
		appends: all, alone: all, columns: grid{[]int{1, 60, 360, 720}, []int{1, 12, 60}}, slices: 3, single: 70, bulk: 180, indexed: []int{0, 1, 3}, turns: 8, varied: 250, sensors: 50, hours: 4, stockBytes: 64 << 20,
	}
}

// fewestAppends makes a slice worth measuring.
const fewestAppends = 10

// fit sets how many appends the slices make together: fewer than wanted if their buckets would
// exceed the limit of a stock.
func (n *numbers) fit(c stockConfig, slices, appends int) stockConfig {
	const beside, reading = 500, 70 // approximate bytes of a document
	most := n.stockBytes / (beside + reading*(c.residents+c.perUpdate)) * c.each() / slices
	c.appends = slices * min(appends, max(most, fewestAppends))
	return c
}

// A trial is a run of the experiment.
type trial struct {
	lab *bench.Lab
	numbers
}

func (t *trial) run(ctx context.Context) {
	t.lab.Pin("a reading is {ts, t, h, p, v}: four doubles, by the seed; buckets of a stock are copies of one that the store wrote, and snappy compresses them")
	t.lab.Pin("an append is Brim's own: guarded by its session and the part's caps, with statistics; the caps are out of reach")
	t.lab.Pin("appends take turns over equal buckets, so that each gets at most 5 %% fuller; if one append is more than that, each bucket gets one")
	t.lab.Pin("time: one writer, one append a command, write concern w:1 without waiting for the disk, as in the published latencies; the median of the appends of a repeat")
	t.lab.Pin("CPU: mongod's, for appends as the daemon's lanes write them, %d buckets a call, majority and journaled", together)
	if t.lab.Own() {
		t.lab.Pin("the history window is 0 s, as in the daemon's own mongod, unless it varies")
	}
	t.lab.RunCells(ctx, t.cells())
}

func (t *trial) cells() []bench.Cell {
	var m *bench.MongoDB // shared by cells with the same setting; the lab closes the last one
	alone := false
	on := func(standalone bool, measure func(context.Context, *bench.MongoDB)) func(context.Context) {
		return func(ctx context.Context) {
			if m != nil && alone != standalone {
				bench.Check(m.Close())
				m = nil
			}
			if m == nil {
				m, alone = t.lab.Start(ctx, bench.Setting{Standalone: standalone}), standalone
			}
			measure(ctx, m)
		}
	}
	curves := func(g grid, on string) func(context.Context, *bench.MongoDB) {
		return func(ctx context.Context, m *bench.MongoDB) {
			for _, k := range g.perUpdate {
				t.curve(ctx, m, g.residents, k, on)
			}
		}
	}
	return []bench.Cell{
		{Name: "append", What: "an append by the readings that its bucket holds, on a replica set", Run: on(false, curves(t.appends, ""))},
		{Name: "columns", What: "an append to buckets of columns by the readings that they hold, on a replica set", Run: on(false, curves(t.columns, inColumns))},
		{Name: "indexes", What: "an append with further secondary indexes", Run: on(false, t.indexes)},
		{Name: "history", What: "an append with a history window of 300 s and of 0 s", Own: true, Run: on(false, t.history)},
		{Name: "sizes", What: "documents and bytes a day, by granularity", Run: on(false, t.sizes)},
		{Name: "standalone", What: "an append by the readings that its bucket holds, on a standalone", Own: true, Run: on(true, curves(t.alone, standalone))},
	}
}

func readings(n int) string {
	if n == 1 {
		return "1 reading"
	}
	return fmt.Sprintf("%d readings", n)
}

// Caps of a part, out of reach of all buckets here.
const (
	capReadings = 1_000_000
	capBytes    = 2 << 20
)

const (
	// grown is how much fuller a bucket may get while measured, unless one update exceeds that.
	grown = 0.05
	// fewestBuckets spreads the appends, so that they do not keep hitting the same page.
	fewestBuckets = 32
	// together is the most updates a lane hands to the store at once.
	together = 250
)

// A stockConfig describes identical buckets.
type stockConfig struct {
	m          *bench.MongoDB
	collection string
	residents  int // readings per bucket
	perUpdate  int // readings per append
	appends    int // total appends to make
	seed       uint64
	relaxed    bool // as for the published latencies
	format     store.Format
}

// each returns how often a bucket may be appended to.
func (c *stockConfig) each() int {
	return max(1, int(grown*float64(c.residents)/float64(c.perUpdate)))
}

// buckets returns how many buckets are needed.
func (c *stockConfig) buckets() int {
	return max(fewestBuckets, (c.appends+c.each()-1)/c.each())
}

// interval returns the time between a sensor's readings: as published, or less if a bucket's
// readings would not fit its window.
func (c *stockConfig) interval() time.Duration {
	most := c.residents + c.perUpdate*c.each()
	return min(publishedInterval, (time.Hour / time.Duration(most+1)).Truncate(time.Millisecond))
}

// A stock is identical buckets that are appended to in turn, so that they fill evenly.
type stock struct {
	stockConfig
	*shape.Collection
	fleet *shape.Fleet // one lane
}

// newStock makes the buckets: one written by the store, and copies of it.
func newStock(ctx context.Context, c stockConfig) *stock {
	sensors := bench.Must(load.NewSensors(load.SensorsConfig{Count: c.buckets(), Fields: publishedFields, Seed: c.seed, Prefix: c.collection + "-"}))
	s := &stock{stockConfig: c}
	s.Collection = shape.New(ctx, c.m, shape.Config{
		Name: c.collection, Shape: shape.Shape{Kind: shape.Buckets, Granularity: time.Hour, Format: c.format}, Compressor: store.Snappy,
		Readings:  shape.Readings{Source: sensors, Sensors: c.buckets(), Begin: shape.Begin(), Interval: c.interval()},
		PerUpdate: c.perUpdate, MaxReadings: capReadings, MaxBytes: capBytes, Relaxed: c.relaxed,
	})
	s.fleet = s.Fleet(1, 1, nil)
	s.fleet.Fill(ctx, c.residents, time.Time{})
	return s
}

// single makes n appends, one per command and one after another, and returns the seconds each
// took.
func (s *stock) single(ctx context.Context, n int) bench.Samples {
	s.fleet.PerCommand = 1
	s.Took()
	for range n {
		s.fleet.Workers[0].Turn(ctx)
	}
	return s.Took()
}

// bulk makes n appends like a lane with many buckets to write.
func (s *stock) bulk(ctx context.Context, n int) {
	for n > 0 {
		s.fleet.PerCommand = min(n, together)
		done, _ := s.fleet.Workers[0].Turn(ctx)
		n -= done
	}
}

// measure makes n appends in bulk and returns their cost.
func (s *stock) measure(ctx context.Context, n int) bench.Spent {
	return s.m.Measure(ctx, func(ctx context.Context) { s.bulk(ctx, n) })
}

// A point is two stocks of equal buckets, one for timed and one for bulk appends, and the
// current repeat's measurements.
type point struct {
	residents            int
	timed, bulk          *stock
	times, cpu, journals bench.Samples
}

// curve measures appends of k readings by the readings their buckets hold.
func (t *trial) curve(ctx context.Context, m *bench.MongoDB, residents []int, k int, on string) {
	t.lab.Step("%s an append%s: make buckets", readings(k), on)
	slices := t.lab.Repeats * t.slices
	points := make([]*point, len(residents))
	for i, n := range residents {
		c := stockConfig{m: m, residents: n, perUpdate: k, seed: t.lab.Seed, relaxed: true, collection: fmt.Sprintf("append_%d_%d_timed", n, k)}
		if on == inColumns {
			c.format = store.Columns
		}
		points[i] = &point{residents: n}
		points[i].timed = newStock(ctx, t.fit(c, slices, t.single))
		c.relaxed, c.collection = false, fmt.Sprintf("append_%d_%d_bulk", n, k)
		points[i].bulk = newStock(ctx, t.fit(c, slices, t.bulk))
		if t.lab.Table("journal"+on).Samples(strconv.Itoa(n), documentOf) == nil {
			t.lab.Add("journal"+on, strconv.Itoa(n), documentOf, float64(points[i].timed.fleet.DocumentBytes))
		}
	}
	m.Settle(ctx)
	for repeat := range t.lab.Repeats {
		t.lab.Step("%s an append%s: repeat %d of %d", readings(k), on, repeat+1, t.lab.Repeats)
		for range t.slices { // in turns, so that a slow moment hits all points
			for _, p := range points {
				p.measure(ctx, slices)
			}
		}
		t.conclude(points, k, on)
	}
	for _, p := range points {
		p.timed.Drop(ctx)
		p.bulk.Drop(ctx)
	}
}

// measure measures one of all repeats' slices.
func (p *point) measure(ctx context.Context, of int) {
	p.times = append(p.times, p.timed.single(ctx, p.timed.appends/of)...)
	n := p.bulk.appends / of
	s := p.bulk.measure(ctx, n)
	p.cpu, p.journals = append(p.cpu, s.CPU/float64(n)), append(p.journals, s.Since("journal_written_bytes_total")/float64(n))
}

// conclude adds a repeat to the tables, with the fitted lines.
func (t *trial) conclude(points []*point, k int, on string) {
	column := readings(k) + " an append"
	var held, took, cpu []float64
	for _, p := range points {
		row := strconv.Itoa(p.residents)
		held, took, cpu = append(held, float64(p.residents)), append(took, p.times.Median()), append(cpu, p.cpu.Mean())
		t.lab.Add(timeOf+on, row, column, p.times.Median())
		t.lab.Add(cpuOf+on, row, column, p.cpu.Mean())
		t.lab.Add("journal"+on, row, column, p.journals.Mean())
		p.times, p.cpu, p.journals = nil, nil, nil
	}
	for i, y := range [][]float64{took, cpu} {
		measure := []string{timeOf, cpuOf}[i]
		line, ok := bench.FitLine(held, y)
		if !ok {
			continue
		}
		t.lab.Add("line"+on, strconv.Itoa(k), measure+": a", line.Base)
		t.lab.Add("line"+on, strconv.Itoa(k), measure+": b", line.Each)
		for _, p := range published {
			if k == 1 {
				t.lab.Add("fit"+on, strconv.Itoa(p.held), measure, line.At(float64(p.held)))
			}
		}
	}
}

// A variant is a stock appended to under one of several conditions.
type variant struct {
	name    string
	indexes []bson.D
	window  int // history window in seconds
	*stock
}

// stocks creates each variant's stock.
func (t *trial) stocks(ctx context.Context, m *bench.MongoDB, variants []*variant, residents int) {
	for i, v := range variants {
		c := stockConfig{m: m, collection: fmt.Sprintf("variant_%d_%d", residents, i), residents: residents, perUpdate: 1, seed: t.lab.Seed}
		v.stock = newStock(ctx, t.fit(c, t.lab.Repeats*t.turns, t.varied))
		for _, keys := range v.indexes {
			v.Index(ctx, keys, nil)
		}
	}
	m.Settle(ctx)
}

func dropAll(ctx context.Context, variants []*variant) {
	for _, v := range variants {
		v.Drop(ctx)
	}
}

// indexes measures appends with further indexes that an append leaves alone, and with one that
// every append changes.
func (t *trial) indexes(ctx context.Context, m *bench.MongoDB) {
	t.lab.Step("further secondary indexes")
	unchanged := []bson.D{{{Key: "sensorId", Value: 1}}, {{Key: "bucketStart", Value: 1}}, {{Key: "tags.site", Value: 1}}}
	var variants []*variant
	for _, n := range t.indexed {
		variants = append(variants, &variant{name: fmt.Sprintf("%d further indexes", n), indexes: unchanged[:n]})
	}
	variants = append(variants, &variant{name: `an index on "last", which appends change`, indexes: []bson.D{{{Key: "last", Value: 1}}}})
	t.stocks(ctx, m, variants, 60)
	for range t.lab.Repeats {
		sums := make([]bench.Spent, len(variants))
		for range t.turns {
			for i, v := range variants {
				n := v.appends / t.lab.Repeats / t.turns
				s := v.measure(ctx, n)
				sums[i].CPU, sums[i].Seconds = sums[i].CPU+s.CPU/float64(n), sums[i].Seconds+s.Seconds/float64(n)
			}
		}
		for i, v := range variants {
			t.lab.Add("indexes", v.name, cpuOf, sums[i].CPU/float64(t.turns))
			t.lab.Add("indexes", v.name, timeOf, sums[i].Seconds/float64(t.turns))
		}
	}
	dropAll(ctx, variants)
}

// windowParameter is how long old document versions are kept for snapshot reads.
const windowParameter = "minSnapshotHistoryWindowInSeconds"

// history measures appends and the checkpoint after them, which moves old versions to the
// history store.
func (t *trial) history(ctx context.Context, m *bench.MongoDB) {
	t.lab.Step("history windows of 300 s and 0 s")
	variants := []*variant{{name: "300 s", window: 300}, {name: "0 s"}}
	t.stocks(ctx, m, variants, 180)
	for range t.lab.Repeats {
		for _, v := range variants {
			m.Set(ctx, map[string]any{windowParameter: v.window})
			m.Settle(ctx)
			n := v.appends / t.lab.Repeats
			began, took := time.Now(), time.Duration(0)
			s := m.Measure(ctx, func(ctx context.Context) {
				v.bulk(ctx, n)
				took = time.Since(began)
				m.Checkpoint(ctx)
			})
			each := float64(n)
			t.lab.Row("history", v.name, s.CPU/each, took.Seconds()/each, s.Since("history_store_inserts_total")/each, s.Since("block_written_bytes_total")/each)
		}
	}
	m.Set(ctx, map[string]any{windowParameter: 0})
	dropAll(ctx, variants)
}

// sizes stores a few sensors' hours of the workload at each granularity, and scales up to all
// sensors and a day.
func (t *trial) sizes(ctx context.Context, m *bench.MongoDB) {
	t.lab.Step("documents and bytes of %d sensors in %d hours", t.sensors, t.hours)
	scale := publishedSensors / float64(t.sensors) * 24 / float64(t.hours)
	fiveMinutes := 0.0
	sensors := bench.Must(load.NewSensors(load.SensorsConfig{Count: t.sensors, Fields: publishedFields, Seed: t.lab.Seed, Prefix: "sensor-"}))
	for _, p := range published {
		seen := t.sizeOf(ctx, m, sensors, shape.Shape{Kind: shape.Buckets, Granularity: p.granularity})
		t.addSize(config.FormatDuration(p.granularity), seen, scale, fiveMinutes)
		t.addRewritten(p.granularity, seen, scale)
		if p.granularity == 5*time.Minute {
			fiveMinutes = float64(seen.Logical)
		}
	}
	for _, g := range []time.Duration{5 * time.Minute, time.Hour} {
		for _, sealed := range []bool{false, true} {
			s, name := shape.Shape{Kind: shape.Buckets, Granularity: g, Format: store.Columns, Sealed: sealed}, inColumns
			if sealed {
				name = ", sealed"
			}
			t.addSize(config.FormatDuration(g)+name, t.sizeOf(ctx, m, sensors, s), scale, fiveMinutes)
		}
	}
}

// sizeOf stores the workload in a shape and returns its size.
func (t *trial) sizeOf(ctx context.Context, m *bench.MongoDB, sensors *load.Sensors, s shape.Shape) shape.Size {
	c := shape.New(ctx, m, shape.Config{
		Name: "size", Shape: s, Compressor: store.Snappy, MaxReadings: capReadings, MaxBytes: capBytes, Relaxed: true,
		Readings:  shape.Readings{Source: sensors, Sensors: t.sensors, Count: t.hours * inWindow(time.Hour), Begin: shape.Begin(), Interval: publishedInterval},
		PerUpdate: 60,
	})
	c.Load(ctx)
	if t.lab.Own() { // only checkpointed data is on disk
		m.Checkpoint(ctx)
	}
	seen := c.Size(ctx)
	c.Drop(ctx)
	return seen
}

func (t *trial) addSize(g string, seen shape.Size, scale, fiveMinutes float64) {
	logical := float64(seen.Logical)
	t.lab.Add("sizes", g, documentOf, logical/float64(seen.Documents))
	t.lab.Add("sizes", g, documentsOf, float64(seen.Documents)*scale)
	t.lab.Add("sizes", g, bytesOf, logical*scale)
	if t.lab.Own() {
		t.lab.Add("sizes", g, "on disk, snappy", float64(seen.Data())*scale)
		t.lab.Add("sizes", g, "index on disk", float64(seen.Index())*scale)
	}
	if fiveMinutes > 0 {
		t.lab.Add("sizes", g, savedOf, 1-logical/fiveMinutes)
	}
}

func (t *trial) addRewritten(granularity time.Duration, seen shape.Size, scale float64) {
	g, document := config.FormatDuration(granularity), float64(seen.Logical)/float64(seen.Documents)
	for _, k := range []int{1, 5, 12, 60, 720} {
		if n := inWindow(granularity); k <= n {
			t.lab.Add("rewritten", g, readings(k)+" an append", rewritten(n, k, document)*float64(seen.Documents)*scale)
		}
	}
}

// rewritten returns the bytes of all versions of a bucket with n readings, k per append:
// versions average half of the final size.
func rewritten(n, k int, document float64) float64 {
	appends := (n + k - 1) / k
	return float64(appends+1) / 2 * document
}
