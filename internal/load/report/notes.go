package report

import (
	"fmt"
	"math"
	"time"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/load"
)

// fillNotes says, in sentences, how the tables by fill must be read.
func fillNotes(r *load.Result) []string {
	var notes []string
	for _, note := range []string{windowNote(r), writesNote(r), rampNote(r), ackNote(r)} {
		if note != "" {
			notes = append(notes, note)
		}
	}
	return notes
}

// windowNote tells why some tenths of the window have no readings.
func windowNote(r *load.Result) string {
	const nearly = 0.9 // of a window
	covered, window := eventSpan(r), windowOf(r)
	if covered <= 0 || float64(covered) >= nearly*float64(window) {
		return ""
	}
	note := fmt.Sprintf("Event time covers %s of windows of %s: for whole ones raise --speedup or --duration (together %.0f times).",
		config.FormatDuration(covered.Round(time.Second)), config.FormatDuration(window), math.Ceil(window.Seconds()/covered.Seconds()))
	// As it does by default.
	if r.Setup.From == "" && r.Setup.EventEnd.UnixMilli()%window.Milliseconds() == 0 {
		note += fmt.Sprintf(" Readings lie at the end of their window: a bucket counts as %s full there, however new it is. --start puts them elsewhere.",
			lastTenths(covered, window))
	}
	return note
}

// lastTenths names the tenths that the end of a window lies in.
func lastTenths(covered, window time.Duration) string {
	from := 10 * int(10*(window-covered)/window)
	return fmt.Sprintf("%d–100 %%", from)
}

// uneven is how many times the updates of a tenth are those of its neighbour
// where they are not spread over the window.
const uneven = 5

// writesNote tells that updates fall in few tenths, as they do where the daemon
// writes a few times in a window only.
func writesNote(r *load.Result) string {
	if len(r.StoreByFill) != tenths || len(r.ByFill) != tenths || !clustered(r.ByFill, r.StoreByFill) {
		return ""
	}
	often := "a large part of a window"
	if part := writeInterval(r); part > 0 {
		often = fmt.Sprintf("about %.0f %% of a window", 100*part)
	}
	return fmt.Sprintf("Updates fall in few tenths of the window: writes are made each flush interval, which is %s at this speed-up. Use a smaller --speedup or a longer granularity.", often)
}

// clustered reports whether updates are missing, or much more frequent than
// beside, in a tenth where readings are not.
func clustered(readings, updates []load.FillRow) bool {
	const few = 20 // updates of a tenth, that chance spreads as unevenly
	most := int64(0)
	for _, row := range updates {
		most = max(most, row.Count)
	}
	if most < few {
		return false
	}
	for i := range updates {
		if readings[i].Count > 0 && updates[i].Count == 0 && !onBorder(readings, i) {
			return true
		}
		if i > 0 && differ(updates[i-1].Count, updates[i].Count) && !differ(readings[i-1].Count, readings[i].Count) {
			return true
		}
	}
	return false
}

func differ(a, b int64) bool { return max(a, b) >= uneven*min(a, b) && max(a, b) > 0 }

// onBorder reports whether a tenth has far fewer readings than one beside it:
// the load did not cover the whole of it.
func onBorder(readings []load.FillRow, i int) bool {
	return i > 0 && readings[i].Count*uneven <= readings[i-1].Count || i+1 < len(readings) && readings[i].Count*uneven <= readings[i+1].Count
}

// writeInterval is the part of a window from one update of a bucket to the next,
// on average; 0 where that cannot be told.
func writeInterval(r *load.Result) float64 {
	updates := int64(0)
	for _, row := range r.StoreByFill {
		updates += row.Count
	}
	windows := eventSpan(r).Seconds() / float64(max(r.Setup.GranularitySeconds, 1))
	if updates == 0 || ramp(r) {
		return 0
	}
	part := float64(r.Setup.Sensors) * windows / float64(updates)
	if part > 1 {
		return 0
	}
	return part
}

func rampNote(r *load.Result) string {
	if !ramp(r) {
		return ""
	}
	return "The rate changed in the course of the run, and the fill with it: what changes from tenth to tenth can come of either."
}

// ackNote tells what a response says nothing about.
func ackNote(r *load.Result) string {
	if r.Setup.Ack == "stored" || r.Setup.Storage == "memory" {
		return ""
	}
	who := "A request is answered"
	if r.Setup.Ack == "" {
		who = "Unless the daemon's --ack is stored, a request is answered"
	}
	return who + " when it is in the journal, before MongoDB is written to: only with --ack stored does the response time contain the write."
}

func eventSpan(r *load.Result) time.Duration { return r.Setup.EventEnd.Sub(r.Setup.EventStart) }

func windowOf(r *load.Result) time.Duration {
	return time.Duration(max(r.Setup.GranularitySeconds, 1)) * time.Second
}
