package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/brim-telemetry/brim/internal/scrape"
)

// A WritePath is how long updates take to be stored, beside how long they
// usually take. A resource at its limit explains nothing while the two agree.
type WritePath struct {
	Seconds  float64 // mean round trip of an update; NaN or 0: unknown, or idle
	Baseline float64 // the median while writes were not slow; NaN or 0: unknown yet
	Idle     bool    // next to nothing is written, and nothing waits
	Why      string  // Seconds and Baseline are unknown

	writes Writes // of the daemon
}

// MarshalJSON writes what is unknown as null.
func (p WritePath) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Seconds  *float64 `json:"seconds"`
		Baseline *float64 `json:"baseline_seconds"`
		Slowdown *float64 `json:"slowdown"`
		Idle     bool     `json:"idle"`
		PastDue  float64  `json:"past_due_seconds"`
		SealLag  float64  `json:"seal_lag_seconds"`
		Why      string   `json:"why,omitempty"`
	}{finite(p.Seconds), finite(p.Baseline), finite(p.slowdown()), p.Idle, p.writes.Overdue, p.writes.SealLag, p.Why})
}

func unknownPath(why string) WritePath {
	return WritePath{Seconds: math.NaN(), Baseline: math.NaN(), Why: why}
}

const (
	// slowAnyway caps the baseline: a path that has been slow since the start has
	// not shown how fast it can be.
	slowAnyway = 0.1
	// leastDelay in seconds is the least that counts as slower: a round trip of 3 ms
	// instead of 1 is chance on a busy machine.
	leastDelay = 0.01
	// fewUpdates between two samples say nothing about how long one takes.
	fewUpdates = 5
	// overdue is how many seconds late updates must be, while nothing is stored, to
	// conclude that writes hang.
	overdue = 2
)

// usual is the baseline within its cap.
func (p WritePath) usual() float64 {
	if !(p.Baseline > 0) {
		return slowAnyway
	}
	return min(p.Baseline, slowAnyway)
}

// slowdown is how many times as long as usual an update takes; 1 if nothing is
// written; NaN: unknown.
func (p WritePath) slowdown() float64 {
	switch {
	case p.Idle:
		return 1
	case !(p.Seconds > 0):
		return math.NaN()
	default:
		return p.Seconds / p.usual()
	}
}

// measure is the value of the signal write_slowdown.
func (p WritePath) measure() measured {
	m := known(p.slowdown(), p.Why)
	switch {
	case !(m.value >= leastSlowdown):
	case p.Seconds-p.usual() < leastDelay:
		m.harmless = p.String() + ", which is too short to matter"
	default:
		m.about = p.String()
	}
	return m
}

// String gives the times, as in "updates take 31 ms, usually 5 ms".
func (p WritePath) String() string {
	switch {
	case p.Idle:
		return "next to nothing is written, and nothing waits"
	case !(p.Seconds > 0):
		return ""
	case !(p.Baseline > 0):
		return fmt.Sprintf("updates take %s ms", round(p.Seconds/millis))
	default:
		return fmt.Sprintf("updates take %s ms, usually %s ms", round(p.Seconds/millis), round(p.Baseline/millis))
	}
}

// Writes are the totals of a daemon's writes since its start, and what is late now.
type Writes struct {
	Updates  float64            // stored
	Seconds  float64            // sum of their round trips
	Overdue  float64            // how late the most overdue update is, in seconds; 0: none is late, or unknown
	SealLag  float64            // for how long ended windows may have been due to be sealed, in seconds; 0: none is due, or unknown
	readings float64            // in updates that were sent
	triggers map[string]float64 // updates that the queue sent, by trigger
}

// Metrics of a daemon from which the write path is read.
const (
	metricWriteSeconds  = "brim_store_write_seconds"
	metricWriteBaseline = "brim_store_write_baseline_seconds"
	metricWriteMean     = "brim_store_write_mean_seconds"
)

// WritesOf reads the metrics of a daemon. Streams in memory have no write path.
func WritesOf(l scrape.Sample) Writes {
	w := Writes{Overdue: orZero(l.Value("brim_queue_past_due_seconds", nil)), triggers: make(map[string]float64)}
	memory := make(map[string]bool)
	for _, m := range l.Metrics(metricWriteSeconds, nil) {
		if scrape.Label(m, "storage") == "memory" {
			memory[scrape.Label(m, "stream")] = true
		} else {
			w.Updates += float64(m.GetHistogram().GetSampleCount())
			w.Seconds += m.GetHistogram().GetSampleSum()
		}
	}
	for _, m := range l.Metrics("brim_queue_updates_total", nil) {
		if !memory[scrape.Label(m, "stream")] {
			w.triggers[scrape.Label(m, "trigger")] += m.GetCounter().GetValue()
		}
	}
	for _, m := range l.Metrics("brim_queue_updated_readings_total", nil) {
		if !memory[scrape.Label(m, "stream")] {
			w.readings += m.GetCounter().GetValue()
		}
	}
	for _, m := range l.Metrics("brim_seal_lag_seconds", nil) { // of the stream that is furthest behind
		w.SealLag = max(w.SealLag, m.GetGauge().GetValue())
	}
	return w
}

// WritePathOf is the write path as a daemon's own doctor sees it.
func WritePathOf(l scrape.Sample) WritePath {
	p := WritePath{Seconds: l.Value(metricWriteMean, nil), Baseline: l.Value(metricWriteBaseline, nil), writes: WritesOf(l)}
	p.Idle = p.Seconds == 0
	if math.IsNaN(p.Seconds) {
		p.Why = whyNoWrites
	}
	return p
}

const (
	whyNoWrites   = "the daemon has not reported yet how long its writes take"
	whyFewAtFirst = "MongoDB has done too few writes to know how long one usually takes"
)

// A Pace learns how long a daemon's updates usually take.
//
//	last 3 samples ─▶ mean round trip ─▶ not slow? ─▶ median of the last hour = baseline
//
// Only what was not slow is learned, so that a slow hour does not become usual.
type Pace struct {
	read    func() (Writes, error)
	samples []Writes  // the last, oldest first
	learned []float64 // means, oldest first
}

const (
	// paceSamples smooth a single slow command, as at a checkpoint.
	paceSamples = 3
	// leastLearned are learned whatever they are, since there is nothing yet to
	// compare them with.
	leastLearned = 6
	// mostLearned are an hour of samples, 5 s apart.
	mostLearned = 720
)

// NewPace makes one that has learned nothing yet.
func NewPace(read func() (Writes, error)) *Pace { return &Pace{read: read} }

// Sample takes one more sample of the daemon's writes. It is for one goroutine.
func (p *Pace) Sample(context.Context) WritePath {
	now, err := p.read()
	if err != nil {
		return unknownPath("the daemon's metrics cannot be read: " + err.Error())
	}
	path := p.learn(now)
	path.writes = now
	return path
}

// learn compares a sample with the last ones.
func (p *Pace) learn(now Writes) WritePath {
	p.samples = append(p.samples, now)
	if len(p.samples) == 1 {
		return unknownPath(whyFirst)
	}
	before := p.samples[0]
	if len(p.samples) > paceSamples {
		p.samples = slices.Delete(p.samples, 0, 1)
	}
	path := WritePath{Baseline: p.baseline()}
	updates := now.Updates - before.Updates
	switch {
	case updates >= fewUpdates:
		path.Seconds = (now.Seconds - before.Seconds) / updates
	case now.Overdue > overdue:
		path.Seconds = now.Overdue // an update that hangs
		return path
	default:
		path.Idle = true
		return path
	}
	if m := path.measure(); len(p.learned) < leastLearned || m.harmless != "" || m.value < leastSlowdown {
		p.learned = append(p.learned, path.Seconds)
		p.learned = slices.Delete(p.learned, 0, max(0, len(p.learned)-mostLearned))
	}
	return path
}

// baseline is NaN until enough is learned.
func (p *Pace) baseline() float64 {
	if len(p.learned) < leastLearned {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(p.learned))
	return sorted[len(sorted)/2]
}

// pathOfServer uses the server's own counters, where no daemon tells more: what a
// write operation takes now, beside what it took since the server's start.
func pathOfServer(before, now sample, r rates) WritePath {
	writes := r.value(rateWrites) * r.over.Seconds()
	inside := now.server.value(writesInUse) + now.server.value(writesQueued)
	n, seconds := before.server.value(operationsWrite), before.server.value("operation_seconds_total write")
	switch {
	case math.IsNaN(writes):
		return unknownPath(whyNaN(writes, r.serverWhy))
	case writes < 1 && inside > 0:
		return WritePath{Seconds: r.over.Seconds(), Baseline: mean(seconds, n)}
	case writes < 1:
		return WritePath{Idle: true, Baseline: math.NaN()}
	case n < fewUpdates:
		return unknownPath(whyFewAtFirst)
	}
	return WritePath{Seconds: r.value(rateWriteTime) * millis, Baseline: seconds / n}
}
