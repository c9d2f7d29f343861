package checkpoint

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/bench/shape"
	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/machine"
)

// A workload is written at a steady rate while checkpoints happen.
type workload struct {
	// Inserts writes a document per reading instead of appending to buckets.
	Inserts           bool
	Sensors           int
	ReadingsPerUpdate int
	ReadingsPerSecond float64 // of all sensors, in wall-clock time
}

const (
	granularity = time.Hour
	interval    = 5 * time.Second // between a sensor's readings
	lanes       = 4               // the daemon's minimum
	// commandsPerSecond is the write rate: high enough that the slowest hundredth during a
	// short checkpoint contains at least one write.
	commandsPerSecond = 200
	// pinnedCacheGB is large enough that dirty data is never evicted, which begins at a
	// twentieth of the cache.
	pinnedCacheGB = 4

	nameAppends, nameInserts = "appends", "inserts"
)

// Revisit returns the time between two updates of a bucket.
func (l workload) Revisit() time.Duration {
	return time.Duration(float64(l.Sensors*l.ReadingsPerUpdate) / l.ReadingsPerSecond * float64(time.Second))
}

// Name is the load in one word.
func (l workload) Name() string {
	if l.Inserts {
		return nameInserts
	}
	return nameAppends
}

// updatesPerCommand returns how many sensors' readings one write carries.
func (l workload) updatesPerCommand() int {
	return max(1, int(math.Round(l.ReadingsPerSecond/float64(l.ReadingsPerUpdate)/commandsPerSecond)))
}

// A subject is a load on a MongoDB that is restarted with one interval after another.
type subject struct {
	lab    *bench.Lab
	load   workload
	m      *bench.MongoDB
	fleet  *shape.Fleet  // continues after a restart where it stopped
	warmUp time.Duration // the time before periods count
}

// newSubject starts a MongoDB and stores the initial data: for appends, one bucket per sensor,
// evenly spread from empty to full, so that the average fill stays constant.
func newSubject(ctx context.Context, lab *bench.Lab, l workload, every time.Duration) *subject {
	lab.Step("%s: store the initial data", l.Name())
	// The last pages of the oplog and of a collection of documents grow until they are split,
	// and every checkpoint rewrites them, so the first few write less. After 15 s the pages
	// have been split.
	s := &subject{lab: lab, load: l, warmUp: min(2*every, 15*time.Second)}
	sensors := bench.Must(load.NewSensors(load.SensorsConfig{Count: l.Sensors, Seed: lab.Seed, Prefix: "s-"}))
	s.m = lab.Start(ctx, bench.Setting{CacheGB: pinnedCacheGB, CheckpointInterval: every})
	of, source := shape.Shape{Kind: shape.Buckets, Granularity: granularity}, shape.Source(sensors)
	if l.Inserts {
		of, source = shape.Shape{Kind: shape.Plain}, shape.Untagged{Source: sensors}
	}
	c := shape.New(ctx, s.m, shape.Config{
		Name: "readings", Shape: of, PerUpdate: l.ReadingsPerUpdate,
		Readings: shape.Readings{Source: source, Sensors: l.Sensors, Begin: shape.Begin(), Interval: interval},
	})
	order := rand.New(rand.NewPCG(lab.Seed, 1)).Perm(l.Sensors) //nolint:gosec // reproducible by seed
	s.fleet = c.Fleet(lanes, l.updatesPerCommand(), order)
	if !l.Inserts {
		var portions []shape.Portion
		for i, sensor := range order {
			if begun := i * int(granularity/interval) / len(order); begun > 0 {
				s.fleet.Workers[i%lanes].Next[i/lanes] = uint64(begun)
				portions = append(portions, shape.Portion{Sensor: sensor, Count: begun})
			}
		}
		c.Write(ctx, portions)
	}
	s.m.Checkpoint(ctx)
	return s
}

// write writes until watch returns, and returns all writes in no particular order.
func (s *subject) write(ctx context.Context, watch func(ctx context.Context, began time.Time)) []shape.Operation {
	s.fleet.Attach(ctx, s.m)
	due := shape.Steadily(s.load.ReadingsPerSecond / float64(s.fleet.PerCommand*s.fleet.PerUpdate))
	return s.fleet.During(ctx, due, func(ctx context.Context, t *shape.Traffic) { watch(ctx, t.Began) }).Operations()
}

// restart starts mongod with a checkpoint interval and reads all data into its cache.
func (s *subject) restart(ctx context.Context, every time.Duration) {
	s.lab.Step("%s: start mongod with a checkpoint every %v", s.load.Name(), every)
	s.m.Restart(ctx, bench.Setting{CacheGB: pinnedCacheGB, CheckpointInterval: every})
	// The field has no index, so this reads every document.
	bench.Must(s.m.Database().Collection("readings").CountDocuments(ctx, bson.D{{Key: "absent", Value: true}}))
}

// observe writes until enough whole periods have passed. The shortest interval gets one more,
// which is quick.
func (s *subject) observe(ctx context.Context, every, shortest time.Duration) {
	s.lab.Step("%s with a checkpoint every %v", s.load.Name(), every)
	w := &watcher{m: s.m, interval: every, periods: s.lab.Repeats, warm: s.warmUp}
	if every == shortest && every < time.Minute {
		w.periods++
	}
	operations := s.write(ctx, w.watch)
	addCost(s.lab, s.load.Name(), every, seenBy{w.samples, operations, s.warmUp})
}

// A sample is a snapshot of the server's counters.
type sample struct {
	At                float64 // seconds since the writing began
	DirtyBytes        float64
	Running           bool // a checkpoint is being written
	Checkpoints       float64
	CheckpointSeconds float64 // of all checkpoints so far
	// Bytes written so far: to the files, by checkpoints (part of the former), and to the
	// journal.
	WrittenBytes, CheckpointWrittenBytes, JournalBytes float64
}

func sampleOf(c doctor.Counters, began time.Time) sample {
	return sample{
		At: c.At.Sub(began).Seconds(), DirtyBytes: c.Value("cache_dirty_bytes"), Running: c.Value("checkpoint_running") > 0,
		Checkpoints: c.Value("checkpoints_total"), CheckpointSeconds: c.Value("checkpoint_seconds_total"),
		WrittenBytes: c.Value("block_written_bytes_total"), CheckpointWrittenBytes: c.Value("block_checkpoint_written_bytes_total"),
		JournalBytes: c.Value("journal_written_bytes_total"),
	}
}

// A sample takes half a millisecond. Long intervals have longer checkpoints and need fewer.
const (
	sampleEvery  = 100 * time.Millisecond
	sampleRarely = 250 * time.Millisecond
	rarelyFrom   = 30 * time.Second
)

const (
	// patience is how many intervals may pass without a checkpoint before the set interval is
	// clearly not in effect.
	patience = 3
	// mostShort is how many early checkpoints are tolerated before the same is clear: one is
	// normal, because mongod's timer started before the writing.
	mostShort = 8
)

var errNoCheckpoint = errors.New("mongod wrote no checkpoint, though several were due")

// A watcher samples the counters until it has seen enough whole periods.
type watcher struct {
	m        *bench.MongoDB
	interval time.Duration
	periods  int
	warm     time.Duration // periods that end earlier do not count
	samples  []sample
}

func (w *watcher) watch(ctx context.Context, began time.Time) {
	for ended, whole := 0, 0; ; {
		w.samples = append(w.samples, sampleOf(w.m.Counters(ctx), began))
		at := ends(w.samples)
		if len(at) > ended {
			ended = len(at)
			whole = len(periodsOf(seenBy{samples: w.samples, warm: w.warm}, w.interval))
		}
		last := began
		if ended > 0 {
			last = began.Add(time.Duration(w.samples[at[ended-1]].At * float64(time.Second)))
		}
		switch {
		case whole >= w.periods || ended-whole >= mostShort:
			return
		case time.Since(last) > patience*w.interval+time.Second:
			bench.Checkf(errNoCheckpoint, "wait for a checkpoint every %v", w.interval)
		}
		pause := sampleEvery
		if w.interval >= rarelyFrom {
			pause = sampleRarely
		}
		bench.Check(machine.Pause(ctx, pause))
	}
}

// A period runs from the end of one checkpoint to the end of the next.
type period struct {
	From, To float64 // seconds since the writing began
	// DirtyBytes is the most the cache held before the checkpoint, and GatheredBytes how much
	// of that is new since the previous one.
	DirtyBytes, GatheredBytes float64
	CheckpointSeconds         float64
	// Bytes written: to the files, by checkpoints (part of the former), and to the journal.
	WrittenBytes, CheckpointWrittenBytes, JournalBytes float64
	// The p99 of writes that overlap the checkpoint and of all others, in seconds; NaN if there
	// were none.
	Inside, Outside float64

	window float64 // the earliest the checkpoint can have begun
}

// Seconds returns the length of the period.
func (p period) Seconds() float64 { return p.To - p.From }

// wholeFrom is the fraction of the interval a period must last to count: the first one begins
// when the writing does.
const wholeFrom = 0.85

// seenBy is what was observed while a load was written.
type seenBy struct {
	samples    []sample
	operations []shape.Operation
	warm       time.Duration // periods that end earlier do not count
}

// periodsOf splits the observations at the checkpoints, and leaves out periods that are partial
// or too early.
func periodsOf(s seenBy, interval time.Duration) []period {
	var periods []period
	first := 0
	for _, end := range ends(s.samples) {
		p := periodOf(s.samples[first : end+1])
		if p.Seconds() >= wholeFrom*interval.Seconds() && p.To >= s.warm.Seconds() {
			p.latencies(s.operations)
			periods = append(periods, p)
		}
		first = end
	}
	return periods
}

// ends returns the indices of the samples that first show a checkpoint finished. The server
// counts a checkpoint as soon as it starts.
func ends(samples []sample) []int {
	var indices []int
	counted := 0.0
	for i, s := range samples {
		if i == 0 {
			counted = s.Checkpoints
		}
		if s.Checkpoints > counted && !s.Running {
			counted = s.Checkpoints
			indices = append(indices, i)
		}
	}
	return indices
}

// counted returns the number of checkpoints after the first and the time they took, which is
// exact even for short runs.
func counted(samples []sample) (checkpoints int, seconds float64) {
	at := ends(samples)
	if len(at) < 2 {
		return 0, 0
	}
	first, last := samples[at[0]], samples[at[len(at)-1]]
	return int(last.Checkpoints - first.Checkpoints), last.At - first.At
}

// periodOf makes a period of samples that end with the first one after a checkpoint.
func periodOf(samples []sample) period {
	from, to := samples[0], samples[len(samples)-1]
	p := period{
		From: from.At, To: to.At, CheckpointSeconds: to.CheckpointSeconds - from.CheckpointSeconds,
		WrittenBytes: to.WrittenBytes - from.WrittenBytes, CheckpointWrittenBytes: to.CheckpointWrittenBytes - from.CheckpointWrittenBytes,
		JournalBytes: to.JournalBytes - from.JournalBytes,
	}
	before := len(samples) - 2 // the last sample before it ended
	p.window = min(samples[before].At, to.At-p.CheckpointSeconds)
	for i := before; i > 0 && samples[i].Running; i-- {
		p.window = min(p.window, samples[i-1].At)
	}
	for _, s := range samples[1:] { // the first may still include the previous checkpoint
		p.DirtyBytes = max(p.DirtyBytes, s.DirtyBytes)
	}
	p.GatheredBytes = max(0, p.DirtyBytes-from.DirtyBytes)
	return p
}

// latencies splits the writes into those that overlapped the checkpoint and the others.
func (p *period) latencies(operations []shape.Operation) {
	var in, out bench.Samples
	for _, o := range operations {
		switch due, done := o.Due.Seconds(), o.Done.Seconds(); {
		case due < p.To && done > p.window:
			in = append(in, o.Latency())
		case due >= p.From && done <= p.window:
			out = append(out, o.Latency())
		}
	}
	p.Inside, p.Outside = in.Quantile(0.99), out.Quantile(0.99)
}
