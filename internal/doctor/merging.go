package doctor

import (
	"fmt"
	"math"
	"time"

	"github.com/brim-telemetry/brim/internal/scrape"
)

// sent is what a daemon has sent to MongoDB since its start.
type sent struct {
	updates  float64            // that were stored
	readings float64            // in updates that were sent
	triggers map[string]float64 // updates that the queue sent, by what triggered them
}

// sentOf reads the metrics of a daemon, without streams in memory.
func sentOf(l scrape.Sample) sent {
	s := sent{triggers: make(map[string]float64)}
	memory := make(map[string]bool)
	for _, m := range l.Metrics(metricWriteSeconds, nil) {
		if scrape.Label(m, "storage") == "memory" {
			memory[scrape.Label(m, "stream")] = true
		} else {
			s.updates += float64(m.GetHistogram().GetSampleCount())
		}
	}
	for _, m := range l.Metrics("brim_queue_updates_total", nil) {
		if !memory[scrape.Label(m, "stream")] {
			s.triggers[scrape.Label(m, "trigger")] += m.GetCounter().GetValue()
		}
	}
	for _, m := range l.Metrics("brim_queue_updated_readings_total", nil) {
		if !memory[scrape.Label(m, "stream")] {
			s.readings += m.GetCounter().GetValue()
		}
	}
	return s
}

// merging is what a daemon sent between two samples.
type merging struct {
	updates  float64 // a second
	readings float64 // in an update; NaN: unknown
	trigger  string  // of most updates
	share    float64 // of the updates that it triggered
	cut      bool    // --max-readings-per-update cuts updates
}

func mergingBetween(before, now sent, over time.Duration) merging {
	updates := now.updates - before.updates
	if !(updates >= fewUpdates) || over <= 0 || before.triggers == nil || now.readings < before.readings {
		return merging{readings: math.NaN()}
	}
	m := merging{updates: updates / over.Seconds(), readings: (now.readings - before.readings) / updates}
	all, most := 0.0, 0.0
	for trigger, n := range now.triggers {
		n -= before.triggers[trigger]
		all += n
		if n > most || n == most && trigger < m.trigger {
			most, m.trigger = n, trigger
		}
	}
	m.share = most / all
	m.cut = updates > 1.5*all
	return m
}

// What MongoDB works on an update, whatever it carries: mongod 6.0.5, four fields,
// journaled. See docs/benchmarks.md.
const updateSeconds = 300e-6

const (
	few       = 5   // readings an update, below which most of its cost is the update's own
	leastCost = 0.2 // of a core, that such updates must take to be worth a change
)

// triggerRemedies say, for each trigger of updates, why they carry few readings, what to
// do about it, and what that costs.
var triggerRemedies = map[string]struct{ why, action, cost string }{
	"request": {
		"a client waits until its readings are stored",
		"let clients that can do with the journal ask for ack=journaled (--ack), or send more readings of a sensor in one request",
		"what is journaled and not stored is lost with the daemon's disk: up to --flush-max",
	},
	"flush":    {"a program calls /flush, or deletes sensors", "call /flush less often: queries through Brim see readings that are not stored, too", "none"},
	"readings": {"buckets have gathered --merge-readings", "raise --merge-readings of the stream (60 by default)", costOfWaiting},
	"age": {
		"readings have waited for --flush-max, or for the bucket's window if that is shorter",
		"raise --flush-max of the stream (5m by default, 1h at most), and --granularity if that is shorter", costOfWaiting,
	},
	"budget":  {"--flush-budget allows it", "lower --flush-budget of the stream (2% by default; 0%: nothing is sent early)", costOfWaiting},
	"memory":  {"memory for readings that gather is full", "raise --queue-max-bytes (128MiB by default)", "a restart of the daemon, and its memory"},
	"journal": {"the journal is nearly full", "raise --journal-max-bytes", "a restart of the daemon, and space on its disk"},
	"retry":   {"they are repeated", "find out why writes fail: brim_queue_retries_total and the daemon's log", "none"},
}

const costOfWaiting = "a restart of the daemon; programs that read MongoDB themselves see readings later, and a lost disk of the daemon costs more of them. Queries through Brim see them at once"

// fewReadings: MongoDB's work is mostly that of updates, and not of readings.
func fewReadings(f *facts) []Finding {
	m := f.view.merging
	cost := m.updates * updateSeconds
	remedy, known := triggerRemedies[m.trigger]
	if !(m.readings < few) || cost < leastCost || !known {
		return nil
	}
	carried := "one reading"
	if figure := round(m.readings); figure != "1" {
		carried = figure + " readings"
	}
	evidence := fmt.Sprintf("updates carry %s on average, %s of them a second, and MongoDB works some 300 µs on each whatever it carries: %s %% of a core",
		carried, round(m.updates), round(percent*cost))
	if used := f.view.rates.value(rateProcessors); used > 0 {
		evidence += fmt.Sprintf(" (mongod uses %s CPUs)", round(used))
	}
	action, price := remedy.action, remedy.cost
	if m.cut {
		evidence += "; --max-readings-per-update cuts them"
		action, price = "set --max-readings-per-update 0", "none"
	} else {
		evidence += fmt.Sprintf("; %s %% are sent because %s", round(percent*m.share), remedy.why)
	}
	return advice("merging", "merging: updates carry few readings", evidence, action, price)
}

// How late updates are, in seconds, until the alerts BrimLagHigh and BrimJournalExposed
// are raised. See deploy/prometheus/alerts.yml.
const (
	latePast    = 10
	exposedPast = 60
)

// updatesLate: readings are not stored when they should be.
func updatesLate(s *Seen) Class {
	switch {
	case s.WritePath.PastDue > exposedPast:
		return Bottleneck
	case s.WritePath.PastDue > latePast:
		return Degrading
	}
	return Healthy
}

func (s *Seen) mergesLittle() bool { return s.merging.readings < few }
