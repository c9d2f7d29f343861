package doctor

import (
	"fmt"
	"math"
	"time"
)

// merging is what a daemon sent between two samples.
type merging struct {
	updates  float64 // a second
	readings float64 // per update; NaN: unknown
	trigger  string  // of most updates
	share    float64 // of the updates that it triggered
	cut      bool    // --max-readings-per-update split updates
}

func mergingBetween(before, now Writes, over time.Duration) merging {
	updates := now.Updates - before.Updates
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

// CPU time that MongoDB spends on an update, however many readings it carries:
// mongod 6.0.5, four fields, journaled. See docs/benchmarks.md.
const updateSeconds = 300e-6

const (
	few       = 5   // readings per update, below which most of the cost is the update itself
	leastCost = 0.2 // of a core: what such updates must use before a change is worthwhile
)

// triggerRemedies say, per trigger, why updates carry few readings, what to do about it,
// and what that costs.
var triggerRemedies = map[string]struct{ why, action, cost string }{
	"request": {
		"a client waits until its readings are stored",
		"use ack=journaled (--ack) for clients that need not wait for MongoDB, or send more readings of a sensor in one request",
		"losing the daemon's disk loses readings that are journaled and not stored yet: up to --flush-max",
	},
	"flush":    {"a program calls /flush, or deletes sensors", "call /flush less often: queries through Brim also return readings that are not stored yet", "none"},
	"readings": {"buckets have --merge-readings readings", "raise --merge-readings of the stream (60 by default)", costOfWaiting},
	"age": {
		"readings have waited for --flush-max, or for the bucket's window if that is shorter",
		"raise --flush-max of the stream (5m by default, 1h at most), and --granularity if that is shorter", costOfWaiting,
	},
	"budget":  {"--flush-budget allows it", "lower --flush-budget of the stream (2% by default; 0%: none are sent early)", costOfWaiting},
	"memory":  {"the memory for waiting readings is full", "raise --queue-max-bytes (by default a sixteenth of the memory limit, 128MiB to 1GiB)", "a restart of the daemon, and more memory"},
	"journal": {"the journal is nearly full", "raise --journal-max-bytes", "a restart of the daemon, and disk space"},
	"retry":   {"earlier writes failed", "find out why: brim_queue_retries_total and the daemon's log", "none"},
}

const costOfWaiting = "a restart of the daemon; programs that read MongoDB directly see readings later, and losing the daemon's disk loses more of them. Queries through Brim return them at once"

// fewReadings finds updates so small that MongoDB spends most of its time on the
// updates themselves.
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
	evidence := fmt.Sprintf("updates carry %s on average, %s of them a second, and each takes about 300 µs of MongoDB's CPU however many it carries: %s %% of a core",
		carried, round(m.updates), round(percent*cost))
	if used := f.view.rates.value(rateProcessors); used > 0 {
		evidence += fmt.Sprintf(" (mongod uses %s CPUs)", round(used))
	}
	action, price := remedy.action, remedy.cost
	if m.cut {
		evidence += "; --max-readings-per-update splits them"
		action, price = "set --max-readings-per-update 0", "none"
	} else {
		evidence += fmt.Sprintf("; %s %% are sent because %s", round(percent*m.share), remedy.why)
	}
	return advice("merging", "merging: updates carry few readings", evidence, action, price)
}

func (s *Seen) mergesLittle() bool { return s.merging.readings < few }
