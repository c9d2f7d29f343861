// Package speed is the experiment that checks Brim's speed promises with real daemons and
// mongods on this machine. `make bench` runs it.
//
//	               ┌ inserts  driver, insertMany ────────────────────────┐
//	hosts ─ sides ─┤                                                     ├─▶ the same mongod
//	               └ sender   POST /write ─▶ brim serve ─▶ all is stored ┘
//
// The two sides of a ratio run one after the other on the same mongod in a fresh directory. A
// reading sent through Brim counts once stored, so the clock runs until the journal has nothing
// left to store.
package speed

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/influxdata/line-protocol/v2/lineprotocol"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/launch"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/store"
)

const (
	hostsOf       = 1000 // one request is one step of all hosts
	hourly        = "1h"
	connections   = 3
	storedTimeout = 15 * time.Minute // for all accepted readings to be stored
	quietTimeout  = 30 * time.Second
	collection    = "readings" // the daemon's default stream
	rawCollection = "raw"
	mib           = 1 << 20
)

// Names in tables.
const (
	lineProtocol, compactGRPC, ndjson = "line protocol", "compact gRPC", "NDJSON"
	rawDocuments, rawSeries           = "insertMany", "insertMany, grouped by sensor"
	decodedOnly                       = "decoding by influxdata/line-protocol, one thread"
	hourlyColumns                     = hourly + ", columns"

	rateOf, perUpdateOf           = "readings/s", "readings an update"
	brimOf, mongodOf, generatorOf = "brim CPU", "mongod CPU", "generator CPU"
	allocationsOf                 = "allocations"
	lagGrowsOf, peakOf, lateOf    = "lag grows", "peak of RSS", "left after a minute"
	firstTenthOf, lastTenthOf     = "p99, first tenth", "p99, last tenth"
	p99Of, mostUnseenOf, heldOf   = "p99", "unseen at most", "held"
)

// besideInserts is the claim that decides the answer.
const besideInserts = "TSBS cpu-only over line protocol, stored in hourly buckets, compared with raw insertMany of a document per reading"

// A trial is one run of the experiment.
type trial struct {
	lab    *bench.Lab
	length time.Duration  // how long each side of a pair sends
	m      *bench.MongoDB // shared by all rigs and emptied after each; nil: one per rig
}

func (t *trial) cells() []bench.Cell {
	const minutes, tenMinutes = "it takes minutes", "it takes some ten minutes"
	compare := func(table string, flags []string, sides ...string) func(context.Context) {
		return func(ctx context.Context) { t.compare(ctx, table, flags, sides...) }
	}
	cells := []bench.Cell{
		{Name: "lines", What: "line protocol until stored and raw insertMany; Brim's CPU time and allocations", Run: compare("lines", nil, rawDocuments, lineProtocol, decodedOnly)},
		{Name: "grpc", What: "compact gRPC and line protocol; allocations", Run: compare("grpc", nil, compactGRPC, lineProtocol)},
		{Name: "ndjson", What: "NDJSON and line protocol", Run: compare("ndjson", nil, ndjson, lineProtocol)},
		{Name: "timeseries", What: "line protocol into a time-series collection and raw insertMany into one", Run: compare("timeseries", inSeries(), rawSeries, lineProtocol)},
		{Name: "columns", What: "line protocol stored in columns, raw insertMany, and raw insertMany into a time-series collection; MongoDB's CPU in both formats", Run: func(ctx context.Context) {
			t.compare(ctx, "columns", inColumns(), lineProtocol, rawDocuments, rawSeries)
			t.formats(ctx)
		}},
		{Name: "single", What: "single-reading JSON requests at 15,000/s", Slow: minutes, Run: t.single},
		{Name: "requests", What: "CPU and times of single readings at several rates, over HTTP, gRPC and TLS", Slow: minutes, Run: func(ctx context.Context) { t.requests(ctx, 20*time.Second, requestRates, securedRates) }},
		{Name: "tails", What: "the slowest answers through checkpoints, sealing and compaction, and without them", Slow: tenMinutes, OnRequest: true, Run: func(ctx context.Context) { t.tails(ctx, fullTails()) }},
		{Name: "fill", What: "time of writes into full and into empty buckets", Slow: minutes, Run: func(ctx context.Context) { t.fill(ctx, hourly) }},
		{Name: "columns-fill", What: "the same in columns", Slow: minutes, Run: func(ctx context.Context) { t.fill(ctx, hourlyColumns, inColumns()...) }},
		{Name: "memory", What: "RSS at full rate, and of a million sensors", Slow: minutes, Run: t.memory},
		{Name: "journal", What: "journal append rate without fsync", Run: t.journal},
		{Name: "merge", What: "10,000 sensors every 5 s and raw insertMany at the same rate, time sped up", Slow: minutes, Run: func(ctx context.Context) { t.merge(ctx, often().faster()) }},
		{Name: "minute", What: "the same for 100,000 sensors each minute", Slow: minutes, Run: func(ctx context.Context) { t.merge(ctx, eachMinute().faster()) }},
		{Name: "rate", What: "the highest rate of sensors that report every 5 s, time sped up", Slow: minutes, Run: func(ctx context.Context) { t.rate(ctx, climbing(climbers().faster(), heldSped)) }},
		{Name: "waiting", What: "queries while 1,000,000 acknowledged readings wait", Slow: minutes, Run: func(ctx context.Context) { t.waiting(ctx, fullBacklog(t.lab.Quick)) }},
		{Name: "queries", What: "a day of a sensor's readings, its summary, and the newest values of 10,000 sensors", Slow: tenMinutes, OnRequest: true, Run: func(ctx context.Context) { t.queries(ctx, aDay()) }},
		{Name: "curve", What: "MongoDB's CPU per reading, by readings per update", Slow: tenMinutes, OnRequest: true, Run: func(ctx context.Context) { t.curve(ctx, fullBend()) }},
		{Name: "real-time", What: "merge, minute and rate without speeding up time", Slow: "it takes hours", OnRequest: true, Run: func(ctx context.Context) {
			t.merge(ctx, often())
			t.merge(ctx, eachMinute())
			t.rate(ctx, climbing(climbers(), held))
		}},
		{Name: "growth", What: "how the cost grows with sensors, readings an update, fields and writers", Slow: tenMinutes, OnRequest: true, Run: func(ctx context.Context) { t.grow(ctx, fullGrid()) }},
	}
	for i := range cells {
		cells[i].Own = true
	}
	return cells
}

// Experiment returns the speed experiment.
func Experiment() *bench.Experiment {
	return &bench.Experiment{
		Name:     "speed",
		Question: "How fast is Brim, compared with raw inserts into the same mongod and with what it promises?",
		Full:     60 * time.Minute,
		Quick:    90 * time.Second,
		Restarts: "all of it, which needs mongods of the experiment's own",
		Extra:    true,
		Cells:    (*trial)(nil).cells(),
		Tables:   tables(),
		Claims:   claims(),
		Answers: []bench.Answer{
			{Claim: besideInserts, AtMost: 0.9, Says: "Let more readings gather for an update (--flush-max, --merge-readings), because Brim stores line protocol at only %s the rate of raw insertMany into the same mongod."},
			{Claim: besideInserts, Says: "Send batches of line protocol, because Brim stores them at %s the rate of raw insertMany into the same mongod."},
			{Claim: mergedCPU(often().faster()), AtMost: 1, Says: "Let readings gather for minutes, because MongoDB then spends %s of the CPU per reading that raw insertMany costs."},
			{Claim: mergedCPU(often().faster()), Says: "Let readings gather for longer than here, because MongoDB spends %s of the CPU per reading that raw insertMany costs."},
		},
		Run: func(ctx context.Context, lab *bench.Lab) {
			length := 10 * time.Second
			if lab.Quick {
				length = 2 * time.Second
				lab.Reduce("each side of a pair sends for %v, not for 10s", length)
			}
			(&trial{lab: lab, length: length}).run(ctx)
		},
	}
}

func tables() []bench.Table {
	passes := slices.Concat(bench.In(bench.PerSecond, rateOf), bench.In(bench.Count, perUpdateOf), bench.In(bench.Seconds, brimOf, mongodOf, generatorOf), bench.In(bench.Count, allocationsOf))
	var all []bench.Table
	for _, t := range [][3]string{
		{"lines", "Line protocol, stored in hourly buckets, and raw insertMany", "Raw: the Go driver with three writers, 1,000 documents a call, unordered, write concern majority. " +
			"The readings of an update depend on how many readings of a sensor come while Brim waits: here 1,000 sensors report much faster than the clock."},
		{"grpc", "Compact gRPC and line protocol", "Over HTTP each connection has one unanswered request of 1,000 readings; over gRPC it has one call with several unanswered requests. All ask for the ack `journaled`."},
		{"ndjson", "NDJSON and line protocol", "Three connections with one unanswered request of 1,000 readings each."},
		{"timeseries", "Line protocol into a time-series collection, and raw insertMany into one", "Raw: the same readings grouped by sensor, 60 each, in whole groups, into a collection with the same options."},
		{"columns", "Line protocol, stored in hourly buckets of columns, and raw insertMany", "Raw: as in the tables of lines and of time series."},
	} {
		all = append(all, bench.Table{Name: t[0], Title: t[1], Variant: "way", Measures: passes, Note: t[2] + " CPU and allocations are for each reading; generator: this process."})
	}
	all = append(all,
		bench.Table{
			Name: "formats", Title: "Updates of 60 readings in both formats", Variant: "bucket format",
			Measures: slices.Concat(bench.In(bench.PerSecond, rateOf), bench.In(bench.Seconds, mongodOf, "CPU of this process", "write p50", "write p99")),
			Note:     "Ten fields, 1,000 sensors written in turn, hourly windows, three lanes in one process, as fast as they can. CPU is per reading.",
		},
		bench.Table{
			Name: "single", Title: "Single-reading JSON requests for a minute: open loop, 15,000/s, 64 connections, 1,000 sensors", Variant: "requests",
			Measures: slices.Concat(bench.In(bench.PerSecond, rateOf), bench.In(bench.Count, "dropped"),
				bench.In(bench.Seconds, "response p50", "response p99", "past due, first third", "past due, last third"), bench.In(bench.Count, lagGrowsOf)),
			Note: "Past due: how late the most overdue update is. Lag grows: 1 if it is later in the last third than in the first, by a quarter and by half a second.",
		},
		bench.Table{
			Name: "fill", Title: "store_write_seconds by the fill of hourly buckets: 720 readings a bucket, 2,004 readings/s, default settings", Variant: "buckets",
			Measures: bench.In(bench.Seconds, "p50, first tenth", "p50, last tenth", firstTenthOf, lastTenthOf),
		},
		bench.Table{
			Name: "memory", Title: "Memory of the daemon", Variant: "load",
			Measures: slices.Concat(bench.In(bench.Bytes, peakOf), bench.In(bench.PerSecond, rateOf), bench.In(bench.Count, lateOf)),
			Note:     "--queue-max-bytes is 128 MiB, the default up to 2 GiB of memory; readings that wait take up to 1 GiB on larger machines. Peak: VmHWM. Left: readings that were not stored a minute after the load.",
		},
		bench.Table{
			Name: "journal", Title: "Journal append without fsync, in the page cache, four writers", Variant: "files",
			Measures: slices.Concat(bench.In(bench.Bytes, "written a second"), bench.In(bench.PerSecond, rateOf), bench.In(bench.Bytes, "a reading"), bench.In(bench.Seconds, "CPU a reading")),
			Note:     "Readings of ten fields and ten tags, 1,000 a batch; segments are trimmed to 256 MiB.",
		},
		bench.Table{
			Name: "growth", Title: "How the cost grows: lanes in one process hand updates to the bucket store", Variant: "sensors, readings an update, fields, writers",
			Measures: slices.Concat(bench.In(bench.PerSecond, rateOf, "updates/s"),
				bench.In(bench.Seconds, "mongod CPU a reading", "mongod CPU an update", "CPU of this process a reading", "write p50", "write p99"), bench.In(bench.Count, "sensors written")),
			Note: "Hourly buckets, a reading every 10 s of event time, each sensor has a bucket with one reading before the clock starts; sensors are written in turn. Each row is measured once.",
		},
		bench.Table{
			Name: "merging", Title: "An update of K readings costs mongod a + b K of CPU", Variant: "sensors",
			Measures: append(bench.In(bench.Seconds, "a", "error of a", "b", "error of b"), bench.Measure{Name: "knee at K", Unit: bench.Count}),
			Note:     "Lines of least squares, with standard errors. From the knee on, a doubling of K gains less than a tenth.",
		},
		bench.Table{
			Name: "hosts", Title: "Past one machine, by arithmetic: hosts of 16 such cores, 60 % of them in use", Variant: "readings/s, readings an update",
			Measures: bench.In(bench.Count, "brim cores", "daemons", "mongod cores", "shards"),
			Note:     "A shard counts as its primary. Only CPU time is counted; network and disks are not.",
		})
	return slices.Concat(all, []bench.Table{requestsTable(), tailsTable(), queriesTable()}, mergeTables(), rateTables(), waitingTables(), curveTables())
}

func claims() (all []bench.Claim) {
	sign := map[bench.Rule]string{bench.AtMost: "<= ", bench.FactorAtMost: "<= ", bench.AtLeast: ">= ", bench.FactorAtLeast: ">= "}
	figure := func(says string, rule bench.Rule, bound float64, unit bench.Unit, of bench.Figure) *bench.Claim {
		all = append(all, bench.Claim{Says: says, Published: bound, PublishedAs: sign[rule] + unit.Format(bound), Unit: unit, Rule: rule, Of: of})
		return &all[len(all)-1]
	}
	factor := func(says string, rule bench.Rule, bound float64, from, of bench.Figure) {
		c := figure(says, rule, bound, bench.Seconds, of)
		if c.From, c.PublishedAs = from, fmt.Sprintf("%s%gx", sign[rule], bound); rule == bench.FactorAtLeast {
			c.Unit = bench.PerSecond
		}
	}
	rate := func(table, row string) bench.Figure { return bench.At(table, row, rateOf) }

	factor(besideInserts, bench.FactorAtLeast, 1, rate("lines", rawDocuments), rate("lines", lineProtocol))
	figure("Brim's own CPU per line of ten fields, user and system, until stored", bench.AtMost, 3e-6, bench.Seconds, bench.At("lines", lineProtocol, brimOf))
	factor("the same compared with decoding the line by influxdata/line-protocol", bench.FactorAtMost, 2, bench.At("lines", decodedOnly, generatorOf), bench.At("lines", lineProtocol, brimOf))
	figure("allocations per reading, line protocol, all of the daemon", bench.AtMost, 2, bench.Count, bench.At("lines", lineProtocol, allocationsOf))
	factor("the same over gRPC streaming, compact form, compared with line protocol", bench.FactorAtLeast, 0.9, rate("grpc", lineProtocol), rate("grpc", compactGRPC))
	figure("allocations per reading, compact gRPC, all of the daemon", bench.AtMost, 2, bench.Count, bench.At("grpc", compactGRPC, allocationsOf))
	factor("the same as NDJSON, compared with line protocol", bench.FactorAtLeast, 0.6, rate("ndjson", lineProtocol), rate("ndjson", ndjson))
	factor("the same into a time-series collection, compared with raw insertMany of the same readings grouped by sensor", bench.FactorAtLeast, 0.9, rate("timeseries", rawSeries), rate("timeseries", lineProtocol))
	// Exactly 15,000/s are offered, so not all can be answered within the minute.
	figure("single-reading JSON requests", bench.AtLeast, 0.995*singleRate, bench.PerSecond, rate("single", "all")).PublishedAs = ">= 15,000/s"
	figure("the queue lag of single readings does not grow", bench.AtMost, 0, bench.Count, bench.At("single", "all", lagGrowsOf)).PublishedAs = "not growing"
	factor("p99 of writes in the last tenth of an hourly bucket compared with the first", bench.FactorAtMost, 1.25, bench.At("fill", hourly, firstTenthOf), bench.At("fill", hourly, lastTenthOf))
	factor("the same in columns", bench.FactorAtMost, 1.25, bench.At("fill", hourlyColumns, firstTenthOf), bench.At("fill", hourlyColumns, lastTenthOf))
	factor("line protocol, stored in columns, compared with raw insertMany of a document per reading", bench.FactorAtLeast, 2.2, rate("columns", rawDocuments), rate("columns", lineProtocol))
	factor("line protocol, stored in columns, compared with raw insertMany into a time-series collection, grouped by sensor", bench.FactorAtLeast, 2.5, rate("columns", rawSeries), rate("columns", lineProtocol))
	factor("MongoDB's CPU per reading at 60 readings an update, columns compared with documents", bench.FactorAtMost, 0.4, bench.At("formats", string(store.Documents), mongodOf), bench.At("formats", string(store.Columns), mongodOf))
	figure("RSS at full rate, 10,000 sensors, line protocol", bench.AtMost, 256*mib, bench.Bytes, bench.At("memory", fullRateRow, peakOf)).PublishedAs = "<= 256 MiB"
	figure("RSS with 1,000,000 active sensors at 20,000 readings/s, four fields", bench.AtMost, 1024*mib, bench.Bytes, bench.At("memory", millionRow, peakOf)).PublishedAs = "<= 1 GiB"
	figure("journal append without fsync: bytes written in its files", bench.AtLeast, 1e9, bench.Bytes, bench.At("journal", "page cache", "written a second")).PublishedAs = ">= 1 GB/s"

	requests := func(way string, rate int, measure string) bench.Figure {
		return bench.At("requests", requestsRow(way, rate), measure)
	}
	for i, most := range []float64{120e-6, 80e-6, 50e-6} {
		figure(fmt.Sprintf("Brim's CPU for a request of one JSON reading, until stored, at %d/s", requestRates[i]), bench.AtMost, most, bench.Seconds, requests(overHTTP, requestRates[i], brimOf))
	}
	factor("single readings as messages of a gRPC stream compared with HTTP requests", bench.FactorAtLeast, 1.5, requests(overHTTP, unpaced, rateOf), requests(overGRPC, unpaced, rateOf))
	factor("single readings over HTTP with TLS compared with those without", bench.FactorAtLeast, 0.8, requests(overHTTP, unpaced, rateOf), requests(overTLS, unpaced, rateOf))
	factor("p99 of a journaled answer at 2,000 requests/s compared with the p99 of an fsync of the journal", bench.FactorAtMost, 4, requests(overHTTP, 2000, fsyncOf), requests(overHTTP, 2000, responseOf))
	factor("p99.9 of a journaled answer through checkpoints, sealing and compaction compared with that without", bench.FactorAtMost, 2, bench.At("tails", withoutWork, p999Of), bench.At("tails", withWork, p999Of))
	for i, query := range []string{dayQuery, daySummary, newestQuery} {
		figure(query+" over HTTP", bench.AtMost, []float64{40e-3, 3e-3, 200e-3}[i], bench.Seconds, bench.At("queries", queriesRow(query, store.Documents), p50Of))
	}
	for _, as := range []func(course) course{course.faster, func(c course) course { return c }} {
		for i, c := range []course{as(often()), as(eachMinute())} {
			factor(mergedCPU(c), bench.FactorAtMost, []float64{0.7, 0.8}[i], bench.At("merge", c.row(insertedRaw), mongodOf), bench.At("merge", c.row(throughBrim), mongodOf))
		}
		c := as(climbers())
		figure("the highest rate at which no update is more than 10 s late: "+c.row(throughBrim), bench.AtLeast, 30_000, bench.PerSecond, rate("highest", c.row(throughBrim))).PublishedAs = ">= 30,000/s"
	}
	figure("a page of a sensor's readings, read back while 1,000,000 wait, p99", bench.AtMost, 20e-3, bench.Seconds, bench.At("waiting", pageQuery, p99Of))
	return all
}

func (t *trial) run(ctx context.Context) {
	t.lab.Pin("the load of TSBS' use case cpu-only: hosts with ten tags report ten integers every 10 s of event time; daemon, mongod and generator on the same machine")
	t.lab.Pin("merge, minute, rate and waiting: the sensors of brim load, four fields and two tags, over HTTP with 100 readings per request unless the table says otherwise")
	t.lab.Pin("the cache is mongod's own default")
	t.lab.RunCells(ctx, t.cells())
}

// Daemon flags for time series and for column buckets.
func inSeries() []string  { return []string{"--storage", string(store.TimeSeries)} }
func inColumns() []string { return []string{"--bucket-format", string(store.Columns)} }

// A rig is a daemon and its mongod.
type rig struct {
	*bench.Daemon
	lab   *bench.Lab
	m     *bench.MongoDB
	begun int // number of measurements begun
	each  any // readings per document of the default stream, as an expression
}

// on measures on a fresh mongod and daemon.
func (t *trial) on(ctx context.Context, flags []string, measure func(ctx context.Context, r *rig)) {
	t.onMongoDB(ctx, ordinary(), func(m *bench.MongoDB) { t.rig(ctx, m, flags, measure) })
}

// rig measures on a new daemon that writes to m.
func (t *trial) rig(ctx context.Context, m *bench.MongoDB, flags []string, measure func(ctx context.Context, r *rig)) {
	t.measure(ctx, m, t.lab.Daemon(ctx, m, flags...), flags, measure)
}

// measure measures on a daemon started with these flags, and then closes it.
func (t *trial) measure(ctx context.Context, m *bench.MongoDB, d *bench.Daemon, flags []string, measure func(ctx context.Context, r *rig)) {
	r := &rig{Daemon: d, lab: t.lab, m: m, each: "$count"}
	if slices.Contains(flags, string(store.TimeSeries)) {
		r.each = 1 // one document per reading
	}
	r.settle(ctx)
	measure(ctx, r)
	bench.Check(d.Close())
}

// ordinary is a mongod with its default cache.
func ordinary() bench.Setting { return bench.Setting{CacheGB: bench.DefaultCache} }

func (t *trial) onMongoDB(ctx context.Context, s bench.Setting, measure func(m *bench.MongoDB)) {
	if t.m != nil {
		measure(t.m)
		t.m.Drop(ctx)
		return
	}
	t.lab.On(ctx, s, measure)
}

// begin returns the start of the next measurement's event time. Measurements are a month apart
// and all in the past, so that no two share a bucket.
func (r *rig) begin() time.Time {
	const monthsBack, month = 12, 30 * 24 * time.Hour
	begin := time.Now().Truncate(time.Hour).Add(month * time.Duration(r.begun-monthsBack))
	r.begun++
	return begin
}

// settle makes mongod write a checkpoint and waits until it and the daemon are quiet, so that a
// measurement does not pay for the previous one.
func (r *rig) settle(ctx context.Context) {
	r.m.Quiet(ctx, machine.Quiet{Share: 0.16, Looks: 3, Most: quietTimeout}, r.Daemon)
}

// sumOf adds up an expression over all documents.
func sumOf(ctx context.Context, coll *mongo.Collection, expression any) int64 {
	sums := bench.Aggregate[struct{ N int64 }](ctx, coll, mongo.Pipeline{{{Key: "$group", Value: bson.D{
		{Key: "_id", Value: nil}, {Key: "n", Value: bson.D{{Key: "$sum", Value: expression}}},
	}}}})
	if len(sums) == 0 {
		return 0
	}
	return sums[0].N
}

// expect fails unless MongoDB has as many as were sent. what and how word the error.
func expect(has, sent int64, what, how string) {
	if has != sent {
		bench.Check(fmt.Errorf("MongoDB has %d %s of %d that were %s", has, what, sent, how))
	}
}

// stored counts the readings in the default stream.
func (r *rig) stored(ctx context.Context) int64 {
	return sumOf(ctx, r.m.Database().Collection(collection), r.each)
}

// pass sends through Brim, with the clock running until the daemon has stored everything. It
// fails unless MongoDB has what was sent.
func (r *rig) pass(ctx context.Context, s *sender, length time.Duration, table, row string) {
	before := r.stored(ctx)
	readings := int64(0)
	spent := r.Measure(ctx, r.m, func(ctx context.Context) {
		readings = s.send(ctx, r.Daemon, r.begin(), length)
		bench.Check(r.Flush(ctx, storedTimeout))
	})
	expect(r.stored(ctx)-before, readings, "readings", "acknowledged")
	n := float64(readings)
	const mallocs = "go_memstats_mallocs_total"
	if table == "memory" {
		r.lab.Add(table, row, rateOf, n/spent.Seconds)
		return
	}
	r.lab.Row(table, row, n/spent.Seconds, updatesIn(&spent).Mean(),
		spent.Brim/n, spent.CPU/n, spent.Own/n, (spent.After.Value(mallocs, nil)-spent.Before.Value(mallocs, nil))/n)
}

// raw measures raw inserts.
func (r *rig) raw(ctx context.Context, in inserts, length time.Duration, table, row string) {
	documents, spent := in.measure(ctx, r.m, r.begin(), length)
	n := float64(documents)
	r.lab.Row(table, row, n/spent.Seconds, math.NaN(), math.NaN(), spent.CPU/n, spent.Own/n)
}

// decode repeatedly decodes the lines of a request and discards the result.
func (r *rig) decode(ctx context.Context, s *sender, length time.Duration, table, row string) {
	text, n := s.bodies[0][0][0].text, 0
	spent := r.m.Measure(ctx, func(ctx context.Context) {
		for end := time.Now().Add(length); time.Now().Before(end); n += linesOf {
			bench.Check(context.Cause(ctx))
			decodeLines(text)
		}
	})
	r.lab.Row(table, row, float64(n)/spent.Seconds, math.NaN(), math.NaN(), math.NaN(), spent.Own/float64(n))
}

// decodeLines decodes every part of each line.
func decodeLines(text []byte) {
	d := lineprotocol.NewDecoderWithBytes(text)
	for d.Next() {
		bench.Must(d.Measurement())
		for key := []byte{}; key != nil; {
			var err error
			key, _, err = d.NextTag()
			bench.Checkf(err, "decode a tag")
		}
		for key := []byte{}; key != nil; {
			var err error
			key, _, err = d.NextField()
			bench.Checkf(err, "decode a field")
		}
		bench.Must(d.Time(lineprotocol.Nanosecond, time.Time{}))
	}
}

// compare measures its sides, formats sent through Brim or raw inserts, one after another on a
// quiet rig. Their order rotates from repeat to repeat.
func (t *trial) compare(ctx context.Context, table string, flags []string, sides ...string) {
	hosts, senders := newHosts(hostsOf), map[string]*sender{}
	for _, side := range sides {
		if of, ok := formats[side]; ok {
			senders[side] = bench.Must(newSender(of, hosts))
		}
	}
	for i := range t.lab.Repeats {
		t.lab.Step("%s %d of %d", table, i+1, t.lab.Repeats)
		t.on(ctx, append([]string{"--granularity", hourly}, flags...), func(ctx context.Context, r *rig) {
			for n := range sides {
				switch side := sides[(i+n)%len(sides)]; {
				case senders[side] != nil:
					r.pass(ctx, senders[side], t.length, table, side)
				case side == decodedOnly:
					r.decode(ctx, senders[lineProtocol], t.length, table, side)
				default:
					r.raw(ctx, rawSides(hosts)[side], t.length, table, side)
				}
				r.settle(ctx)
			}
			r.sameSensors(ctx)
		})
	}
}

// sameSensors fails unless all formats gave the sensors the same IDs, and so stored the same.
func (r *rig) sameSensors(ctx context.Context) {
	key := "sensorId"
	if r.each != "$count" {
		key = "sensor.id"
	}
	var ids []string
	bench.Check(r.m.Database().Collection(collection).Distinct(ctx, key, bson.D{}).Decode(&ids))
	if len(ids) != hostsOf {
		bench.Check(fmt.Errorf("MongoDB has readings of %d sensors, and %d were sent", len(ids), hostsOf))
	}
}

// formats measures the cost of 60-reading updates in both bucket formats, written by lanes.
func (t *trial) formats(ctx context.Context) {
	formats := []store.Format{store.Documents, store.Columns}
	for i := range t.lab.Repeats {
		t.lab.Step("columns and documents, 60 readings an update, %d of %d", i+1, t.lab.Repeats)
		t.onMongoDB(ctx, ordinary(), func(m *bench.MongoDB) {
			for k := range formats {
				format := formats[(i+k)%len(formats)]
				w := t.write(ctx, m, writing{point{hostsOf, together, fieldsOf, rawWriters}, hourlyBuckets(format), interval, t.length})
				n := float64(w.readings)
				t.lab.Row("formats", string(format), n/w.spent.Seconds, w.spent.CPU/n, w.spent.Own/n, w.took.Quantile(0.5), w.took.Quantile(0.99))
			}
		})
	}
}

const (
	singleRate  = 15_000
	singleFlags = "--sensors 1000 --interval 1s --speedup 15 --batch 1 --connections 64 --ack journaled --duration 60s"
	// fillFlags make 2,004 readings/s and 720 readings per sensor in an hour of event time,
	// which takes a minute.
	fillFlags = "--sensors 167 --interval 5s --speedup 60 --duration 60s"
	// A million sensors every 50 s make 20,000 readings/s; in 80 s the first ones report again.
	millionFlags = "--sensors 1000000 --interval 50s --sensor-prefix s- --batch 1000 --duration 80s"

	fullRateRow = "line protocol at full rate, 10,000 sensors"
	millionRow  = "1,000,000 sensors, 20,000 readings/s"
)

// grows reports whether values grow: the last third exceeds the first by a quarter, and by more
// than the timing of a flush explains.
func grows(values bench.Samples) (first, last float64, grows bool) {
	third := max(1, len(values)/3)
	if len(values) == 0 {
		return math.NaN(), math.NaN(), false
	}
	first, last = values[:third].Median(), values[len(values)-third:].Median()
	return first, last, last > 1.25*first && last-first > 0.5
}

// single sends single readings at the promised rate.
func (t *trial) single(ctx context.Context) {
	for i := range t.lab.Repeats {
		t.lab.Step("single readings for a minute, %d of %d", i+1, t.lab.Repeats)
		t.on(ctx, nil, func(ctx context.Context, r *rig) {
			var late bench.Samples
			until := time.Now().Add(time.Minute) // excludes what comes after the load
			stop := bench.Every(ctx, time.Second, func(ctx context.Context) {
				if sample := bench.Must(r.Look(ctx)); time.Now().Before(until) {
					late = append(late, known(sample.Value("brim_queue_past_due_seconds", nil)))
				}
			})
			result := r.Load(ctx, append(strings.Fields(singleFlags), "--admin", r.Admin)...)
			bench.Check(stop())
			first, last, growing := grows(late)
			r.lab.Row("single", "all", result.AchievedRate, float64(result.Dropped), result.Response.P50, result.Response.P99, first, last, bench.Flag(growing))
		})
	}
}

// fill compares writes into full buckets with writes into empty ones.
func (t *trial) fill(ctx context.Context, row string, flags ...string) {
	for i := range t.lab.Repeats {
		t.lab.Step("fill, %s: %d of %d, a minute", row, i+1, t.lab.Repeats)
		t.on(ctx, append([]string{"--granularity", hourly}, flags...), func(ctx context.Context, r *rig) {
			result := r.Load(ctx, append(strings.Fields(fillFlags), "--admin", r.Admin)...)
			tenths := result.StoreByFill
			if len(tenths) != 10 || tenths[0].Count == 0 || tenths[9].Count == 0 {
				bench.Check(errors.New("the daemon reports no writes in the first or the last tenth"))
			}
			t.lab.Row("fill", row, tenths[0].P50, tenths[9].P50, tenths[0].P99, tenths[9].P99)
		})
	}
}

// addPeak adds the daemon's peak memory.
func (r *rig) addPeak(row string) {
	_, peak := r.memory()
	r.lab.Add("memory", row, peakOf, peak)
}

// memory returns the daemon's current and peak memory in bytes.
func (r *rig) memory() (now, peak float64) {
	is, was, err := machine.Memory(r.Pid())
	bench.Check(err)
	return float64(is), float64(was)
}

// memory measures how much memory the daemon needs.
func (t *trial) memory(ctx context.Context) {
	const length = 20 * time.Second
	fewWait := []string{"--queue-max-bytes", "128MiB"}
	poster := bench.Must(newSender(formats[lineProtocol], newHosts(10_000)))
	for i := range t.lab.Repeats {
		t.lab.Step("memory at full rate, 10,000 hosts, %v, %d of %d", length, i+1, t.lab.Repeats)
		t.on(ctx, append([]string{"--granularity", hourly}, fewWait...), func(ctx context.Context, r *rig) {
			r.pass(ctx, poster, length, "memory", fullRateRow)
			r.addPeak(fullRateRow)
		})
		t.lab.Step("memory of a million sensors, 80 s, %d of %d", i+1, t.lab.Repeats)
		t.on(ctx, fewWait, func(ctx context.Context, r *rig) { r.million(ctx) })
	}
}

// million measures memory with a million sensors.
func (r *rig) million(ctx context.Context) {
	start := time.Now()
	result := r.Load(ctx, strings.Fields(millionFlags)...)
	left := 0.
	if err := r.Flush(ctx, time.Minute); errors.Is(err, launch.ErrNotInTime) {
		left = bench.Must(r.Look(ctx)).Value("brim_queue_readings", nil)
	} else {
		bench.Check(err)
	}
	took := time.Since(start)
	r.addPeak(millionRow)
	if left == 0 {
		expect(r.stored(ctx), result.Acked, "readings", "acknowledged")
	}
	r.lab.Add("memory", millionRow, rateOf, (float64(result.Acked)-left)/took.Seconds())
	r.lab.Add("memory", millionRow, lateOf, left)
}
