package speed

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/launch"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/machine"
	"github.com/brim-telemetry/brim/internal/scrape"
)

// A course is a load of many sensors that each report rarely, the case that merging is for.
type course struct {
	name     string // in tables
	sensors  int
	interval time.Duration // between a sensor's readings
	flushMax time.Duration
	flags    []string // for brim serve; none: its defaults
	// speedup is how much faster than the clock event time runs. Sensors, their interval and
	// --flush-max are divided by it, so that readings/s, updates/s and readings per update stay
	// the same.
	speedup int
}

// often is the most common installation, which Brim's defaults suit.
func often() course {
	return course{name: "10,000 sensors every 5 s", sensors: 10_000, interval: 5 * time.Second, flushMax: 5 * time.Minute, speedup: 1}
}

func eachMinute() course {
	return course{
		name: "100,000 sensors each minute", sensors: 100_000, interval: time.Minute, flushMax: 15 * time.Minute, speedup: 1,
		flags: []string{"--granularity", "1h", "--flush-max", "15m"},
	}
}

// waits returns how long a reading may wait.
func (c *course) waits() time.Duration { return c.flushMax / time.Duration(c.speedup) }

// length of a measurement: three times the wait.
func (c *course) length() time.Duration { return 3 * c.waits() }

// running returns how many sensors report.
func (c *course) running() int { return (c.sensors + c.speedup - 1) / c.speedup }

// rate is in readings per second.
func (c *course) rate() float64 {
	return float64(c.running()*c.speedup) / c.interval.Seconds()
}

func (c *course) serve() []string {
	if c.speedup == 1 {
		return c.flags
	}
	return append(append([]string{}, c.flags...), "--flush-max", c.waits().String()) // the last value of a flag wins
}

// load returns flags for brim load.
func (c *course) load(length time.Duration, more ...string) []string {
	return append([]string{
		"--sensors", strconv.Itoa(c.running()), "--interval", c.interval.String(), "--speedup", strconv.Itoa(c.speedup),
		"--batch", strconv.Itoa(perCall), "--duration", length.String(),
	}, more...)
}

// row names one side in tables.
func (c *course) row(side string) string {
	if c.speedup == 1 {
		return c.name + ": " + side
	}
	return fmt.Sprintf("%s, time %d times as fast: %s", c.name, c.speedup, side)
}

// mostRaw caps how long raw inserts are measured. Their cost is constant, and mongod
// checkpoints every minute.
const mostRaw = 5 * time.Minute

// Sides of a course.
const (
	throughBrim = "Brim"
	insertedRaw = rawDocuments
	nothingDone = "mongod idle"
)

// merge compares the cost of a course through Brim with raw inserts at the same rate. The
// daemon does not run during the inserts, because it polls mongod's counters.
func (t *trial) merge(ctx context.Context, c course) {
	for i := range t.lab.Repeats {
		step := func(what string, takes time.Duration) {
			t.lab.Step("%s, %d of %d: %s, %v", c.name, i+1, t.lab.Repeats, what, takes)
		}
		sides := [...]func(*bench.MongoDB){
			func(m *bench.MongoDB) {
				step(insertedRaw, min(c.length(), mostRaw))
				t.mergeRaw(ctx, m, c)
			},
			func(m *bench.MongoDB) {
				step(throughBrim, c.waits()+c.length())
				t.mergeBrim(ctx, m, c)
			},
		}
		t.onMongoDB(ctx, ordinary(), func(m *bench.MongoDB) {
			if i == 0 {
				step(nothingDone, t.length)
				t.idle(ctx, m, c)
			}
			sides[i%2](m)
			sides[1-i%2](m)
		})
	}
}

// idle measures an idle mongod's CPU, which is part of the cost of both sides.
func (t *trial) idle(ctx context.Context, m *bench.MongoDB, c course) {
	m.Settle(ctx)
	spent := m.Measure(ctx, func(ctx context.Context) { bench.Check(machine.Pause(ctx, t.length)) })
	t.lab.Add("merge", c.row(nothingDone), mongodOf, spent.CPU/(c.rate()*spent.Seconds))
}

// rawPrefix makes sensor IDs as long as brim load's.
const rawPrefix = "load-mi8dk3f2-"

// mergeRaw measures raw inserts.
func (t *trial) mergeRaw(ctx context.Context, m *bench.MongoDB, c course) {
	sensors := shape.Untagged{Source: bench.Must(load.NewSensors(load.SensorsConfig{Count: 10 * rawWriters * perCall, Seed: t.lab.Seed, Prefix: rawPrefix}))}
	m.Settle(ctx)
	in := besideLoad(sensors, c.interval)
	in.rate, in.checkpointed = c.rate(), true
	documents, spent := in.measure(ctx, m, time.Now(), min(c.length(), mostRaw))
	n := float64(documents)
	row := c.row(insertedRaw)
	t.lab.Add("merge", row, rateOf, n/spent.Seconds)
	t.lab.Add("merge", row, mongodOf, spent.CPU/n)
}

// mergeBrim measures Brim. The clock starts once the load has run for as long as readings may
// wait, and stops once all are stored and a checkpoint is written.
func (t *trial) mergeBrim(ctx context.Context, m *bench.MongoDB, c course) {
	t.rig(ctx, m, c.serve(), func(ctx context.Context, r *rig) {
		wait := r.StartLoad(ctx, c.load(c.waits()+c.length())...)
		bench.Check(machine.Pause(ctx, c.waits()))
		w := r.watch(ctx)
		var result *load.Result
		spent := r.Measure(ctx, m, func(ctx context.Context) {
			result = wait()
			bench.Check(r.Flush(ctx, storedTimeout))
			m.Checkpoint(ctx)
		})
		bench.Check(w.stop())
		r.allStored(ctx, result)
		updates, row := updatesIn(&spent), c.row(throughBrim)
		n := updates.Sum
		t.lab.Row("merge", row, result.AchievedRate, updates.Mean(), spent.CPU/n, spent.Brim/n,
			w.memory.Max(), w.journal.Max(), w.unseen.Median(), w.unseen.Max())
		r.addTriggers(row, &spent)
	})
}

// allStored fails unless all readings of a load were acknowledged and MongoDB has exactly
// those.
func (r *rig) allStored(ctx context.Context, sent *load.Result) {
	if lost := sent.Dropped + sent.Failed + sent.Rejected; lost > 0 {
		bench.Check(fmt.Errorf("%d readings of the load were not acknowledged; this machine may be too busy: %v", lost, sent.FirstErrors))
	}
	expect(r.stored(ctx), sent.Acked, "readings", "acknowledged")
}

// addTriggers adds each trigger's share of the readings sent in a measurement.
func (r *rig) addTriggers(row string, s *bench.DaemonSpent) {
	sent, all := make([]float64, len(triggers)), 0.
	for i, trigger := range triggers {
		const carried = "brim_queue_updated_readings_total"
		of := scrape.Labels{"trigger": trigger}
		sent[i] = known(s.After.Value(carried, of)) - known(s.Before.Value(carried, of))
		all += sent[i]
	}
	for i, trigger := range triggers {
		r.lab.Add("triggers", row, trigger, sent[i]/all)
	}
}

// watchEvery is short compared with how long readings wait, and long compared with a scrape.
const watchEvery = 2 * time.Second

// triggers are what causes the daemon's updates.
var triggers = [...]string{"budget", "readings", "age", "memory", "journal", "flush", "request", "retry"}

// known returns a value, or 0 while the daemon does not report it yet.
func known(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}

// A watch periodically samples a daemon: bytes of memory and journal, the age of the oldest
// reading not yet in MongoDB, and the lateness of updates, in seconds.
type watch struct {
	memory, journal, unseen, pastDue bench.Samples
	stop                             func() error
}

func (r *rig) watch(ctx context.Context) *watch {
	w := &watch{}
	w.stop = bench.Every(ctx, watchEvery, func(ctx context.Context) {
		sample := bench.Must(r.Look(ctx))
		now, _ := r.memory()
		w.memory = append(w.memory, now)
		w.journal = append(w.journal, known(sample.Value("brim_journal_bytes", nil)))
		w.unseen = append(w.unseen, known(sample.Value("brim_queue_oldest_seconds", nil)))
		w.pastDue = append(w.pastDue, known(sample.Value("brim_queue_past_due_seconds", nil)))
	})
	return w
}

// updatesIn returns the updates stored in a measurement, by number of readings.
func updatesIn(s *bench.DaemonSpent) scrape.Histogram {
	const updates = "brim_store_update_readings"
	return s.After.Histogram(updates, nil).Since(s.Before.Histogram(updates, nil))
}

// sped is the longest wait of a reading in sped-up time.
const sped = 20 * time.Second

// faster returns the course with time sped up.
func (c course) faster() course {
	c.speedup = int(c.flushMax / sped)
	return c
}

func mergeTables() []bench.Table {
	return []bench.Table{
		{
			Name: "merge", Title: "Sensors that report at their own pace, through Brim and inserted directly", Variant: "sensors and way",
			Measures: slices.Concat(bench.In(bench.PerSecond, rateOf), bench.In(bench.Count, perUpdateOf), bench.In(bench.Seconds, mongodOf, brimOf),
				bench.In(bench.Bytes, "RSS at most", "journal at most"), bench.In(bench.Seconds, "unseen", mostUnseenOf)),
			Note: "CPU is per reading, and includes checkpoints and what an idle mongod uses in that time, which is in the row of idle. " +
				"Brim: after the load has run for --flush-max, measured for three times as long and until everything is stored, per reading stored. " +
				"insertMany: a document per reading, 100 per call, at the same rate. Unseen: age of the oldest reading that is not in MongoDB yet, sampled every 2 s. " +
				"Where time is N times as fast, the number of sensors, their interval and --flush-max are divided by N. Rates, readings per update and --flush-interval stay the same, " +
				"but MongoDB has fewer open buckets.",
		},
		{
			Name: "triggers", Title: "Share of the readings sent by each trigger", Variant: "sensors and way", Measures: bench.In(bench.Ratio, triggers[:]...),
			Note: "Including repeated updates. flush: at the end of the measurement.",
		},
	}
}

// mergedCPU words the claim about MongoDB's CPU on a course.
func mergedCPU(c course) string {
	return "MongoDB's CPU per reading, checkpoints included, compared with raw insertMany of a document per reading at the same rate: " + c.row(throughBrim)
}

const (
	mostPastDue = 10              // seconds that an update may be late
	held        = 5 * time.Minute // how long a rate is held after the wait
	heldSped    = 40 * time.Second
	// defaultQueue is the default of --queue-max-bytes.
	defaultQueue = 1 << 30
)

// A climb tries increasing rates of a course.
type climb struct {
	course

	rates  []int         // readings a second
	length time.Duration // of each rate, after the wait
}

// climbers is a course of sensors every 5 s, whose number depends on the rate.
func climbers() course {
	c := often()
	c.name = "sensors that report every 5 s"
	return c
}

// climbing returns the rates to try. Sped-up time keeps fewer readings waiting, so the memory
// for them is reduced by the same factor.
func climbing(c course, length time.Duration) climb {
	if c.speedup > 1 {
		c.flags = []string{"--queue-max-bytes", strconv.Itoa(defaultQueue / c.speedup)}
	}
	return climb{course: c, rates: []int{6_000, 12_000, 20_000, 30_000, 45_000, 60_000}, length: length}
}

// rate finds the highest rate at which no update is late.
func (t *trial) rate(ctx context.Context, c climb) {
	highest := 0
	for _, rate := range c.rates {
		c.sensors = int(float64(rate) * c.interval.Seconds())
		t.lab.Step("rate of %d readings/s, %v", rate, c.waits()+c.length)
		ok := false
		t.on(ctx, slices.Concat(c.serve(), []string{"--stop-timeout", "1s"}), func(ctx context.Context, r *rig) { ok = r.hold(ctx, &c) })
		if !ok {
			break
		}
		highest = rate
	}
	t.lab.Add("highest", c.row(throughBrim), rateOf, float64(highest))
}

// hold applies a load and reports whether the daemon keeps up.
func (r *rig) hold(ctx context.Context, c *climb) (ok bool) {
	wait := r.StartLoad(ctx, c.load(c.waits()+c.length, "--target", "grpc://"+r.GRPC, "--http", "http://"+r.HTTP)...)
	bench.Check(machine.Pause(ctx, c.waits()))
	w := r.watch(ctx)
	var result *load.Result
	spent := r.Measure(ctx, r.m, func(context.Context) {
		result = wait()
		bench.Check(w.stop())
	})
	row := c.row(bench.PerSecond.Format(float64(c.sensors) / c.interval.Seconds()))
	first, last, growing := grows(w.pastDue)
	lost := result.Dropped + result.Failed + result.Rejected
	ok = lost == 0 && w.pastDue.Max() <= mostPastDue && !growing
	if err := r.Flush(ctx, time.Minute); errors.Is(err, launch.ErrNotInTime) {
		ok = false
	} else {
		bench.Check(err)
	}
	_, peak := r.memory()
	r.lab.Row("rates", row, result.AchievedRate, float64(lost), first, last, w.pastDue.Max(), updatesIn(&spent).Mean(),
		spent.CPU/spent.Seconds, spent.Brim/spent.Seconds, peak, w.journal.Max(), w.unseen.Max(), bench.Flag(ok))
	r.addTriggers(row, &spent)
	return ok
}

func rateTables() []bench.Table {
	return []bench.Table{
		{
			Name: "rates", Title: "Rates that were tried, 100 readings a request over gRPC", Variant: "rate",
			Measures: slices.Concat(bench.In(bench.PerSecond, rateOf), bench.In(bench.Count, "refused"), bench.In(bench.Seconds, "late, first third", "late, last third", "late at most"),
				bench.In(bench.Count, perUpdateOf, "mongod cores", "brim cores"), bench.In(bench.Bytes, peakOf, "journal"), bench.In(bench.Seconds, mostUnseenOf), bench.In(bench.Count, heldOf)),
			Note: "Late: how late the most overdue update was, in the first and the last third of the time, and at most. Held: 1 if no update was more than 10 s late, lateness did not grow, no reading was refused, and all were stored a minute later.",
		},
		{
			Name: "highest", Title: "The highest rate that was held", Variant: "sensors", Measures: bench.In(bench.PerSecond, rateOf),
			Note: "Among the rates that were tried.",
		},
	}
}
