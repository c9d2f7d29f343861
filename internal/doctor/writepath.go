package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/brim-telemetry/brim/internal/scrape"
)

// A WritePath is how long updates take to be stored, compared with how long
// they usually take. While the two agree, a resource at its limit explains
// nothing.
type WritePath struct {
	Seconds  float64 // mean round trip of an update; NaN or 0: unknown, or idle
	Baseline float64 // the median while writes were not slow; NaN or 0: not known yet
	Idle     bool    // almost nothing is written, and nothing waits
	Why      string  // why Seconds and Baseline are unknown

	writes Writes
}

// MarshalJSON writes unknown values as null.
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
	// slowAnyway caps the baseline: a path that was slow from the start has not
	// shown how fast it can be.
	slowAnyway = 0.1
	// leastDelay in seconds is the least that counts as slower: 3 ms instead of 1 is
	// chance on a busy machine.
	leastDelay = 0.01
	// fewUpdates between two samples do not say how long one takes.
	fewUpdates = 5
	// overdue is how many seconds late updates must be, with nothing stored, before
	// writes count as hung.
	overdue = 2
)

// usual is the capped baseline.
func (p WritePath) usual() float64 {
	if !(p.Baseline > 0) {
		return slowAnyway
	}
	return min(p.Baseline, slowAnyway)
}

// slowdown is the factor by which updates take longer than usual; 1 if nothing
// is written; NaN: unknown.
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

// Writes are the totals of a daemon's writes since its start, and its current
// delays.
type Writes struct {
	Updates  float64            // stored
	Seconds  float64            // sum of their round trips
	Overdue  float64            // delay of the most overdue update, in seconds; 0: none is late, or unknown
	SealLag  float64            // how long ended windows may have been due to be sealed, in seconds; 0: none is due, or unknown
	readings float64            // sum over the updates sent
	triggers map[string]float64 // updates sent by the queue, by trigger
}

// Metrics of a daemon that describe the write path.
const (
	metricWriteSeconds  = "brim_store_write_seconds"
	metricWriteBaseline = "brim_store_write_baseline_seconds"
	metricWriteMean     = "brim_store_write_mean_seconds"
)

// WritesOf reads a daemon's metrics. In-memory streams have no write path.
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
	for _, m := range l.Metrics("brim_seal_lag_seconds", nil) { // of the stream furthest behind
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
// Slow samples are not learned, so that a slow hour does not become the baseline.
type Pace struct {
	read    func() (Writes, error)
	samples []Writes  // the most recent, oldest first
	learned []float64 // means, oldest first
}

const (
	// paceSamples smooth out a single slow command, for example during a
	// checkpoint.
	paceSamples = 3
	// leastLearned are learned unconditionally, since there is no baseline yet.
	leastLearned = 6
	// mostLearned are an hour of samples at 5 s intervals.
	mostLearned = 720
)

// NewPace returns a Pace that has learned nothing yet.
func NewPace(read func() (Writes, error)) *Pace { return &Pace{read: read} }

// Sample takes a sample of the daemon's writes. Not safe for concurrent use.
func (p *Pace) Sample(context.Context) WritePath {
	now, err := p.read()
	if err != nil {
		return unknownPath("the daemon's metrics cannot be read: " + err.Error())
	}
	path := p.learn(now)
	path.writes = now
	return path
}

// learn compares a sample with the previous ones.
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
		path.Seconds = now.Overdue // an update hangs
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

// baseline is NaN until enough samples are learned.
func (p *Pace) baseline() float64 {
	if len(p.learned) < leastLearned {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(p.learned))
	return sorted[len(sorted)/2]
}

// pathOfServer uses the server's own counters where no daemon reports: the
// current time of a write operation compared with the mean since the server's
// start.
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
