package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brim-telemetry/brim/internal/journal"
)

// replayed is what `brim journal replay` did.
type replayed struct {
	Journal string          `json:"journal"` // its folder
	Taken   []replayedShare `json:"taken"`   // what was not known to be stored when it began
	Keys    int             `json:"keys"`    // idempotency keys that the journal remembers, and nobody else does

	Stored  uint64  `json:"stored"`       // or found to be stored already
	Found   uint64  `json:"found"`        // of Stored: stored already when they were about to be sent, or to be sent again
	Letters uint64  `json:"dead_letters"` // of Stored: refused by MongoDB, and kept in the dead-letter file
	Left    int     `json:"left"`         // in the journal still
	Seconds float64 `json:"seconds"`
}

// replayedShare are the readings of one stream that one process took.
type replayedShare struct {
	Session  string `json:"session"`
	Stream   string `json:"stream"`
	Readings uint64 `json:"readings"`
}

// replayedOf is what there is to do.
func replayedOf(r *journal.Report) replayed {
	done := replayed{Journal: r.Dir, Taken: []replayedShare{}, Keys: r.Keys}
	for _, u := range r.Unapplied {
		done.Taken = append(done.Taken, replayedShare{Session: u.Session, Stream: u.Stream, Readings: u.Readings})
	}
	return done
}

// count takes what the queue brought to rest, and how, from its metrics.
func (r *replayed) count(released uint64, from prometheus.Gatherer) error {
	families, err := from.Gather()
	if err != nil {
		return fmt.Errorf("count what was replayed: %w", err)
	}
	r.Stored = released
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "brim_store_duplicates_prevented_total":
				r.Found += uint64(m.GetCounter().GetValue())
			case "brim_queue_dead_letters_total":
				r.Letters += uint64(m.GetCounter().GetValue())
			}
		}
	}
	return nil
}

// printReplayed tells people what was done.
func printReplayed(w io.Writer, r *replayed) error {
	took := time.Duration(r.Seconds * float64(time.Second)).Round(time.Millisecond)
	lines := []string{fmt.Sprintf("%d readings stored in %v, %d left in the journal", r.Stored, took, r.Left)}
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, s := range r.Taken {
		add("  session %s, stream %s: %d readings were not known to be stored", s.Session, s.Stream, s.Readings)
	}
	if r.Found > 0 {
		add("  %d of them were stored already", r.Found)
	}
	if r.Letters > 0 {
		add("  %d were refused by MongoDB, see `brim deadletter list`", r.Letters)
	}
	switch {
	case r.Left > 0:
	case r.Keys > 0:
		add("Nothing in %s is needed any more, but for %d idempotency keys: a request repeated elsewhere is taken again.", r.Journal, r.Keys)
	default:
		add("Nothing in %s is needed any more.", r.Journal)
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}
