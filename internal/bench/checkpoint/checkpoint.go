// Package checkpoint is the experiment about WiredTiger's checkpoints and journal: what an
// interval costs and buys, and whether it takes effect.
//
//	settings ─▶ mongods side by side, their checkpoints counted
//	interval ─▶ one mongod, restarted with each interval, under a steady load ─▶ periods from checkpoint to checkpoint
//	recovery ─▶ killed late after a checkpoint, and timed until it takes writes
//	journal  ─▶ one write after the other, journaled and not, at each commit interval
package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/machine"
)

// Names in tables.
const (
	ofDue                                 = "of each that was due"
	dirtyOf, gatheredOf, durationOf       = "dirty before", "of it since the last", "duration"
	duringOf, betweenOf                   = "p99 during", "p99 between"
	hourOf                                = "files, an hour"
	bareRow, lateRow, replayOf            = "right after a checkpoint", "late after a checkpoint", "to replay a second of writes"
	relaxed, waiting, majority            = "w:1, j:false", "w:1, j:true", "w:majority, j:true"
	commitOf, journalFileOf, ownIntervals = "commit interval", "journal file", "every interval"

	wayPeriod  = "storage.syncPeriodSecs: 1"
	wayEngine  = `configString: "checkpoint=(wait=1)", syncPeriodSecs: 2`
	wayStart   = "--setParameter syncdelay=1"
	wayRuntime = "syncPeriodSecs: 2, setParameter syncdelay: 1 at run time"
)

const bytesOfAppends = "appends: bytes written to the files an hour are the same" // a claim

// Experiment returns the checkpoint experiment.
func Experiment() *bench.Experiment {
	return &bench.Experiment{
		Name: "checkpoint",
		Answers: []bench.Answer{
			{Claim: bytesOfAppends + ", 1 s → 4 s", AtMost: 0.9, Says: "Leave the interval at MongoDB's own 60 s, because four times the interval writes only %s of the bytes."},
			{Claim: bytesOfAppends + ", 1 s → 4 s", Says: "The interval does not decide here, because four times the interval writes %s of the bytes."},
		},
		Question: "What does a checkpoint interval cost and buy, and what does waiting for the journal?",
		Full:     400 * time.Second,
		Quick:    75 * time.Second,
		Restarts: "checkpoint intervals, recovery, commit intervals",
		Cells:    (*plan)(nil).cells(nil),
		Tables:   tables(),
		Claims:   claims(),
		Run:      run,
	}
}

func tables() []bench.Table {
	all := []bench.Table{
		{
			Name: "settings", Title: "Ways to ask for a checkpoint every second", Variant: "way",
			Measures: slices.Concat(bench.In(bench.Seconds, "syncdelay as reported"), bench.In(bench.Count, "checkpoints"), bench.In(bench.Seconds, "in"), bench.In(bench.Times, ofDue)),
			Note:     "A way below 1x does not take effect, whatever the server reports; above 1x a second clock runs.",
		},
		{
			Name: "interval", Title: "Checkpoints by interval", Variant: "load and interval",
			Measures: slices.Concat(bench.In(bench.Bytes, dirtyOf, gatheredOf), bench.In(bench.Seconds, durationOf, duringOf, betweenOf), bench.In(bench.Times, ofDue)),
			Note:     "Dirty before: what WiredTiger's cache holds that no checkpoint has written, at its most. p99: of writes that overlap a checkpoint, and of the others. The interval of the last row is the one that is farthest off.",
		},
		{
			Name: "written", Title: "Bytes written, by the server's counters, at the observed rate", Variant: "load and interval",
			Measures: bench.In(bench.Bytes, "files, each checkpoint", hourOf, "by checkpoints, an hour", "journal, an hour"),
			Note:     "No acknowledged write depends on the interval: the journal has it. Choose the interval by the bytes written and by the time of recovery.",
		},
		{Name: "both", Title: "p99 of writes during a checkpoint, of both loads", Variant: "interval", Unit: bench.Seconds},
		{
			Name: "recovery", Title: "From kill -9 to the first write", Variant: "killed",
			Measures: slices.Concat(bench.In(bench.Seconds, "took"), bench.In(bench.Bytes, "journal since the checkpoint"), bench.In(bench.Seconds, "writing since the checkpoint"), bench.In(bench.Times, replayOf)),
			Note:     "A shorter interval buys a shorter recovery: what was written since the last checkpoint is replayed.",
		},
		{
			Name: "journal", Title: "One small insert after the other: latency by write concern and commit interval", Variant: "topology and commit interval", Unit: bench.Seconds,
			Note: "The median of each repeat; each write that waits for the journal waits for a sync of its own. The interval bounds what a write without j:true can lose.",
		},
		{
			Name: "default", Title: "The server's own commit interval", Variant: "topology",
			Measures: append(bench.In(bench.Seconds, commitOf, waiting), bench.Measure{Name: journalFileOf, Unit: bench.Bytes}),
		},
	}
	for _, load := range []string{nameAppends, nameInserts} {
		all = append(all, bench.Table{
			Name: "dirty, " + load, Title: "Dirty data, " + load, Variant: "seconds since the writing began", Unit: bench.Bytes, Hidden: true,
			Plots: []bench.Plot{{
				Title:   "Dirty data, " + load,
				Caption: "Data in the cache that no checkpoint has written yet. A checkpoint does not bring it to zero: pages that are written to all the time are dirty again at once.",
			}},
		})
	}
	return all
}

// seconds formats an interval: 6 s.
func seconds(d time.Duration) string { return bench.Seconds.Format(d.Seconds()) }

// rowOf names a row: a load, empty for both, and an interval.
func rowOf(load string, interval time.Duration) string {
	if load == "" {
		return seconds(interval)
	}
	return load + ", " + seconds(interval)
}

// obeyedWithin tells 1.5 checkpoints per due one apart from one.
const obeyedWithin = 1.2

func claims() []bench.Claim {
	const each = " makes a checkpoint a second: counted of each that was due"
	all := []bench.Claim{
		{
			Says: "every interval takes effect: checkpoints counted of each that was due", Published: 1, PublishedAs: "one every interval", Unit: bench.Times, Alike: obeyedWithin,
			Of: bench.At("interval", ownIntervals, ofDue), Because: "A checkpoint that takes longer than its interval delays the next, and others may ask for checkpoints, too.",
		},
		{Says: wayPeriod + each, Published: 1, PublishedAs: "one every interval", Unit: bench.Times, Alike: obeyedWithin, Of: bench.At("settings", wayPeriod, ofDue)},
		{
			Says: wayEngine + each, Published: 1, PublishedAs: `configString "checkpoint=(wait=30)": one every 30 s`, Unit: bench.Times, Alike: obeyedWithin, Of: bench.At("settings", wayEngine, ofDue),
			Because: "It starts a checkpointer in the engine in addition to mongod's own, which keeps its interval.",
		},
	}
	// A run's intervals stand for published ones that are as far apart.
	type ratio struct {
		published   float64
		publishedAs string
	}
	dirty, took, p99 := ratio{160. / 40, "40 → 160 MB for 30 → 120 s"}, ratio{3.5 / 0.8, "0.8 → 3.5 s for 30 → 120 s"}, ratio{150. / 45, "45 → 150 ms for 30 → 120 s"}
	same := ratio{0, "the same for 30 to 300 s"}
	for _, p := range []struct {
		short, long      time.Duration
		dirty, took, p99 ratio
	}{
		{time.Second, 4 * time.Second, dirty, took, p99},
		{6 * time.Second, 24 * time.Second, dirty, took, p99},
		{60 * time.Second, 300 * time.Second, ratio{400. / 80, "80 → 400 MB for 60 → 300 s"}, ratio{8.2 / 1.8, "1.8 → 8.2 s for 60 → 300 s"}, ratio{280. / 85, "85 → 280 ms for 60 → 300 s"}},
	} {
		for _, c := range []struct {
			says, table, load, measure string
			unit                       bench.Unit
			rule                       bench.Rule
			ratio
			because string
		}{
			{"inserts: dirty data gathers with the interval", "interval", nameInserts, gatheredOf, bench.Bytes, bench.Factor, p.dirty, "Pages that are written before the checkpoint no longer count."},
			{"inserts: a checkpoint takes longer with the interval", "interval", nameInserts, durationOf, bench.Seconds, bench.Factor, p.took, "A checkpoint takes some time however little there is to write."},
			{"the p99 of writes during a checkpoint grows with the interval", "both", "", duringOf, bench.Seconds, bench.Factor, p.p99, "A checkpoint of this size leaves enough of the disk and the processors to the writes."},
			{"inserts: bytes written to the files an hour are the same", "written", nameInserts, hourOf, bench.Bytes, bench.Same, same, "Each checkpoint writes again the last pages of the oplog and of the collection, which are not full yet."},
			{bytesOfAppends, "written", nameAppends, hourOf, bench.Bytes, bench.Same, same, "Each checkpoint writes again, whole, every bucket that got an append since the one before."},
		} {
			all = append(all, bench.Claim{
				Says: fmt.Sprintf("%s, %s → %s", c.says, seconds(p.short), seconds(p.long)), Published: c.published, PublishedAs: c.publishedAs, Unit: c.unit, Rule: c.rule,
				From: bench.At(c.table, rowOf(c.load, p.short), c.measure), Of: bench.At(c.table, rowOf(c.load, p.long), c.measure), Because: c.because,
			})
		}
	}
	return append(all,
		bench.Claim{
			Says: "recovery takes at most the interval: seconds to replay a second of writes", Published: 1, PublishedAs: "at most the interval", Unit: bench.Times, Rule: bench.AtMost,
			Of: bench.At("recovery", lateRow, replayOf), Because: "Replaying is slower than writing was.",
		},
		bench.Claim{Says: "the commit interval that the server has by itself", Published: 0.1, PublishedAs: "100 ms", Unit: bench.Seconds, Alike: 1.01, Of: bench.At("default", "replica_set", commitOf)},
		bench.Claim{
			Says: "a write with j:true waits at most the commit interval", Published: 0.1, PublishedAs: "100 ms", Unit: bench.Seconds, Rule: bench.AtMost, Of: bench.At("default", "replica_set", waiting),
			Because: "A sync of the disk takes longer.",
		},
		bench.Claim{Says: "size of a journal file", Published: 100e6, PublishedAs: "100 MB", Unit: bench.Bytes, Alike: 1.1, Of: bench.At("default", "replica_set", journalFileOf)})
}

// A plan is what is measured, and at what scale.
type plan struct {
	intervals        []time.Duration // ascending
	appends, inserts workload
	settingsFor      time.Duration // how long checkpoints are counted
	writing          time.Duration // how long before mongod is killed
	bare             int           // kills right after a checkpoint
	batch            time.Duration // how long writes go into one latency sample
}

func planOf(lab *bench.Lab) *plan {
	p := &plan{
		appends:     workload{Sensors: 500, ReadingsPerUpdate: 4, ReadingsPerSecond: 2000},
		settingsFor: 6 * time.Second, writing: 8 * time.Second, bare: lab.Repeats, batch: 400 * time.Millisecond,
	}
	p.inserts = p.appends
	p.inserts.Inserts, p.inserts.ReadingsPerSecond = true, 4000
	intervals := []time.Duration{6 * time.Second, 12 * time.Second, 24 * time.Second}
	if lab.Quick {
		// At a sixth of the interval, rates are higher and sensors fewer, so that as much
		// gathers between checkpoints.
		p.appends.Sensors, p.inserts.ReadingsPerSecond = 250, 16_000
		intervals = []time.Duration{time.Second, 4 * time.Second}
		p.settingsFor, p.writing, p.bare, p.batch = 4*time.Second, 3*time.Second, 1, 100*time.Millisecond
	}
	if lab.Has("interval") {
		p.intervals = intervals
	}
	for cell, interval := range map[string]time.Duration{"interval-60": time.Minute, "interval-300": 5 * time.Minute} {
		if lab.Has(cell) {
			p.intervals = append(p.intervals, interval)
		}
	}
	slices.Sort(p.intervals)
	return p
}

// forInserts returns the intervals without the one in the middle.
func (p *plan) forInserts() []time.Duration {
	return slices.DeleteFunc(slices.Clone(p.intervals), func(d time.Duration) bool { return d == 12*time.Second })
}

func run(ctx context.Context, lab *bench.Lab) {
	p := planOf(lab)
	p.tell(lab)
	lab.RunCells(ctx, p.cells(lab))
}

func (p *plan) cells(lab *bench.Lab) []bench.Cell {
	intervals := func(ctx context.Context) {
		appends, inserts := p.intervals, p.forInserts()
		p.intervals = nil // the first of these cells measures for all of them
		compare(ctx, lab, p.appends, appends)
		compare(ctx, lab, p.inserts, inserts)
	}
	journal := func(ctx context.Context) {
		for _, standalone := range []bool{false, true} {
			if lab.Own() || !standalone {
				lab.On(ctx, bench.Setting{Standalone: standalone}, func(m *bench.MongoDB) { journals(ctx, lab, m, p.batch) })
			}
		}
	}
	const what = "dirty data, duration, write latency and bytes written "
	return []bench.Cell{
		{Name: "settings", What: "which settings the checkpoint interval obeys", Own: true, Run: func(ctx context.Context) { settings(ctx, lab, p.settingsFor) }},
		{Name: "interval", What: what + "by checkpoint interval", Own: true, Run: intervals},
		{Name: "interval-60", What: what + "at an interval of 60 s", Slow: "it takes seven minutes", Own: true, OnRequest: true, Run: intervals},
		{Name: "interval-300", What: what + "at an interval of 300 s", Slow: "it takes half an hour", Own: true, OnRequest: true, Run: intervals},
		{Name: "recovery", What: "the time from kill -9 to the first write", Own: true, Run: func(ctx context.Context) { recovery(ctx, lab, p) }},
		{Name: "journal", What: "the latency of journaled writes by commit interval", Run: journal},
	}
}

// tell records what is held constant, scaled down and left out.
func (p *plan) tell(lab *bench.Lab) {
	lab.Pin("readings of 4 fields by the seed, written by %d lanes, %d writes a second, each with what is due; latency counts from when a write was due", lanes, commandsPerSecond)
	lab.Pin("write concern majority and journaled, as in production, unless the write concern varies")
	if len(p.intervals) == 0 {
		return
	}
	lab.Pin("appends: hourly buckets of %d sensors, %.0f readings/s, %d to an update, through the store of production: each bucket gets one every %v",
		p.appends.Sensors, p.appends.ReadingsPerSecond, p.appends.ReadingsPerUpdate, p.appends.Revisit())
	lab.Pin("inserts: a document per reading, %.0f readings/s, no index but _id's", p.inserts.ReadingsPerSecond)
	lab.Pin("cache of %d GB, large enough that dirty data is not evicted; compressor snappy; repeats of an interval are its successive checkpoints", pinnedCacheGB)
	if lab.Has("interval") {
		lab.Reduce("shorter intervals stand for the published ones; the cells interval-60 and interval-300 have two of those")
		lab.LeaveOut("intervals of 30 s and 120 s", "they follow the same law as the others and take several times as long to observe")
	}
	if lab.Quick {
		lab.Reduce("rates are higher than in a full run, so that as much comes together from one checkpoint to the next")
	}
}

// settings counts the checkpoints of near-idle mongods side by side, one for each way to ask
// for a checkpoint every second.
func settings(ctx context.Context, lab *bench.Lab, length time.Duration) {
	ways := []struct {
		name    string
		setting bench.Setting
		runtime map[string]any // set afterwards
	}{
		{wayPeriod, bench.Setting{Standalone: true, CheckpointInterval: time.Second}, nil},
		{wayEngine, bench.Setting{Standalone: true, CheckpointInterval: 2 * time.Second, EngineConfig: "checkpoint=(wait=1)"}, nil},
		{wayStart, bench.Setting{Standalone: true, Parameters: map[string]string{"syncdelay": "1"}}, nil},
		{wayRuntime, bench.Setting{Standalone: true, CheckpointInterval: 2 * time.Second}, map[string]any{"syncdelay": 1}},
	}
	lab.Step("start a mongod for each way to set the interval")
	open := make([]*bench.MongoDB, 0, len(ways))
	for _, w := range ways {
		m := lab.Start(ctx, w.setting)
		open = append(open, m)
		if w.runtime != nil {
			m.Set(ctx, w.runtime)
		}
	}
	lab.Step("count the checkpoints of each for %v", length)
	began := time.Now()
	samples := make([][]sample, len(open))
	for until := began.Add(length); ; {
		for i, m := range open { // without writes mongod skips the checkpoint
			samples[i] = append(samples[i], sampleOf(m.Counters(ctx), began))
			bench.Must(m.Database().Collection("documents").InsertOne(ctx, bson.D{{Key: "a", Value: 1}}))
		}
		if time.Now().After(until) {
			break
		}
		bench.Check(machine.Pause(ctx, sampleEvery))
	}
	for i, w := range ways {
		n, in := counted(samples[i])
		if n == 0 { // fewer than two checkpoints: use all samples
			first, last := samples[i][0], samples[i][len(samples[i])-1]
			n, in = int(last.Checkpoints-first.Checkpoints), last.At-first.At
		}
		lab.Row("settings", w.name, open[i].Parameter(ctx, "syncdelay"), float64(n), in, float64(n)/in)
	}
	for _, m := range open {
		bench.Check(m.Close())
	}
}

// compare writes a load with each checkpoint interval, the shortest first.
func compare(ctx context.Context, lab *bench.Lab, l workload, intervals []time.Duration) {
	if len(intervals) == 0 {
		return
	}
	s := newSubject(ctx, lab, l, intervals[0])
	for i, interval := range intervals {
		// The last oplog page still holds the large updates of the initial data; restarting
		// mongod begins a new page.
		if i > 0 || !l.Inserts {
			s.restart(ctx, interval)
		}
		s.observe(ctx, interval, intervals[0])
	}
	bench.Check(s.m.Close())
}

// addCost adds what a load costs at an interval.
func addCost(lab *bench.Lab, load string, interval time.Duration, s seenBy) {
	row := rowOf(load, interval)
	for _, p := range periodsOf(s, interval) {
		anHour := 3600 / p.Seconds()
		lab.Row("interval", row, p.DirtyBytes, p.GatheredBytes, p.CheckpointSeconds, p.Inside, p.Outside)
		lab.Add("both", seconds(interval), duringOf, p.Inside)
		lab.Row("written", row, p.WrittenBytes, anHour*p.WrittenBytes, anHour*p.CheckpointWrittenBytes, anHour*p.JournalBytes)
	}
	for _, one := range s.samples {
		lab.Add("dirty, "+load, fmt.Sprintf("%.2f", one.At), "every "+seconds(interval), one.DirtyBytes)
	}
	n, over := counted(s.samples)
	if over == 0 {
		return
	}
	obeyed := float64(n) * interval.Seconds() / over
	lab.Add("interval", row, ofDue, obeyed)
	t := lab.Table("interval")
	if worst := t.Median(ownIntervals, ofDue); math.IsNaN(worst) || math.Abs(math.Log(obeyed)) > math.Abs(math.Log(worst)) {
		t.Rows = slices.DeleteFunc(t.Rows, func(v *bench.Variant) bool { return v.Name == ownIntervals })
		t.Add(ownIntervals, ofDue, obeyed)
	}
}

// Timed checkpoints are so far apart that only requested ones happen.
const noCheckpoints = 10 * time.Minute

var errCheckpoint = errors.New("mongod wrote a checkpoint before it was killed")

// recovery kills a mongod right after a checkpoint, and again long after one.
func recovery(ctx context.Context, lab *bench.Lab, p *plan) {
	s := newSubject(ctx, lab, p.appends, noCheckpoints)
	for n := range max(p.bare, lab.Repeats) {
		if n < p.bare {
			lab.Step("kill mongod right after a checkpoint")
			s.m.Checkpoint(ctx)
			lab.Add("recovery", bareRow, "took", s.m.Kill(ctx).Seconds())
		}
		if n < lab.Repeats {
			lab.Step("kill mongod %v after a checkpoint", p.writing)
			s.killLate(ctx, p.writing)
		}
	}
	bench.Check(s.m.Close())
	t := lab.Table("recovery")
	written := t.Samples(lateRow, "writing since the checkpoint")
	for i, late := range t.Samples(lateRow, "took") {
		t.Add(lateRow, replayOf, max(0, late-t.Median(bareRow, "took"))/written[i])
	}
}

// killLate writes for a while after a checkpoint, and then kills mongod.
func (s *subject) killLate(ctx context.Context, writing time.Duration) {
	s.m.Checkpoint(ctx)
	spent := s.m.Measure(ctx, func(ctx context.Context) {
		s.write(ctx, func(ctx context.Context, _ time.Time) { bench.Check(machine.Pause(ctx, writing)) })
	})
	if spent.Since("checkpoints_total") > 0 {
		bench.Check(fmt.Errorf("write for %v: %w", writing, errCheckpoint))
	}
	s.lab.Row("recovery", lateRow, s.m.Kill(ctx).Seconds(), spent.Since("journal_written_bytes_total"), spent.Seconds)
}

// commitParameter is the commit interval in milliseconds.
const commitParameter = "journalCommitInterval"

func concernOf(name string) *writeconcern.WriteConcern {
	journaled := name != relaxed
	if name == majority {
		return &writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journaled}
	}
	return &writeconcern.WriteConcern{W: 1, Journal: &journaled}
}

// journals measures a topology with each commit interval, including the server's own, and each
// write concern.
func journals(ctx context.Context, lab *bench.Lab, m *bench.MongoDB, batch time.Duration) {
	own := m.Parameter(ctx, commitParameter)
	c := m.Counters(ctx)
	tried, concerns := []int{10, 100, 300}, []string{relaxed, waiting}
	if !lab.Own() {
		tried = []int{int(own)}
	}
	if c.Topology != "standalone" {
		concerns = append(concerns, majority)
	}
	for range lab.Repeats {
		lab.Step("write journaled and not, by commit interval, %s", c.Topology)
		for _, commit := range tried {
			if lab.Own() {
				m.Set(ctx, map[string]any{commitParameter: commit})
			}
			for _, name := range concerns {
				took := oneByOne(ctx, m.Database().Collection("documents", options.Collection().SetWriteConcern(concernOf(name))), batch)
				lab.Add("journal", fmt.Sprintf("%s, %d ms", c.Topology, commit), name, took.Median())
				if name == waiting && float64(commit) == own && lab.Own() {
					lab.Add("default", c.Topology, waiting, took.Median())
				}
			}
		}
	}
	if lab.Own() {
		lab.Add("default", c.Topology, commitOf, own/1000)
		lab.Add("default", c.Topology, journalFileOf, journalFile(m))
	}
}

// oneByOne inserts small documents sequentially: nothing is merged, so each waits for its own
// journal sync.
func oneByOne(ctx context.Context, coll *mongo.Collection, length time.Duration) (took bench.Samples) {
	const least = 15 // enough for a median that one slow write does not move
	for until := time.Now().Add(length); len(took) < least || time.Now().Before(until); {
		began := time.Now()
		bench.Must(coll.InsertOne(ctx, bson.D{{Key: "a", Value: len(took)}}))
		took = append(took, time.Since(began).Seconds())
	}
	return took
}

// journalFile returns the size of the newest journal file; NaN if there is none.
func journalFile(m *bench.MongoDB) (bytes float64) {
	entries, err := os.ReadDir(filepath.Join(m.DBPath(), "journal"))
	bench.Checkf(err, "list the journal's files")
	bytes = math.NaN()
	for _, e := range entries { // sorted by name
		if strings.HasPrefix(e.Name(), "WiredTigerLog.") {
			bytes = float64(bench.Must(e.Info()).Size())
		}
	}
	return bytes
}
