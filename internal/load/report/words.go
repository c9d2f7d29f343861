package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/brim-telemetry/brim/internal/chart"
	"github.com/brim-telemetry/brim/internal/load"
)

// tenths is how many rows by_fill has.
const tenths = 10

// enough is the part of the asked rate from which on a run kept up.
const enough = 0.99

// A verdict says in words whether the figures are those of the load that was
// asked for.
type verdict struct {
	Good  bool
	Head  string   // a sentence
	Notes []string // sentences
}

func judge(r *load.Result, x Extras) verdict {
	rate := fmt.Sprintf("%s readings a second of %s that were asked for (%s).", count(int64(math.Round(r.AchievedRate))), count(int64(math.Round(r.OfferedRate))), share(r.AchievedRate, r.OfferedRate))
	v := verdict{Good: r.AchievedRate >= enough*r.OfferedRate && r.Dropped == 0 && r.Failed == 0 && r.Sent > 0}
	switch {
	case r.Sent == 0:
		v.Head = "Nothing was sent."
	case v.Good:
		v.Head = "The load was taken as asked: " + rate + " Nothing was dropped, nothing failed."
	case r.AchievedRate < enough*r.OfferedRate:
		v.Head = "The load was not taken as asked: " + rate
	default:
		v.Head = "The load was not taken whole: " + rate
	}
	if r.Dropped > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("%s readings (%s of those due) were dropped: the generator or the daemon could not keep up, and no time below holds them.",
			count(r.Dropped), share(float64(r.Dropped), float64(r.Sent+r.Dropped))))
	}
	if r.Failed > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("%s readings (%s of those sent) failed: %s. Times are of requests that were taken.",
			count(r.Failed), share(float64(r.Failed), float64(r.Sent)), reasons(r)))
	}
	if r.Rejected > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("%s readings (%s of those sent) were refused one by one.", count(r.Rejected), share(float64(r.Rejected), float64(r.Sent))))
	}
	if x.Interrupted {
		v.Good = false
		v.Notes = append(v.Notes, "The run was interrupted and ended before its time.")
	}
	return v
}

// reasons names why requests failed, the most frequent first.
func reasons(r *load.Result) string {
	var parts []string
	for _, name := range byCount(r.Failures) {
		n := r.Failures[name]
		parts = append(parts, fmt.Sprintf("%s %s (%s)", count(n), plural(n, "request"), name))
	}
	return strings.Join(parts, ", ")
}

func byCount(failures map[string]int64) []string {
	names := slices.Sorted(maps.Keys(failures))
	slices.SortStableFunc(names, func(a, b string) int { return int(failures[b] - failures[a]) })
	return names
}

// A fact is a line of the setup.
type fact struct{ Name, Value string }

// facts tells what was asked for.
func facts(r *load.Result) []fact {
	s := &r.Setup
	target := s.Target + ", stream " + s.Stream
	if s.Storage != "" {
		target += fmt.Sprintf(" (%s, windows of %s)", s.Storage, span(float64(s.GranularitySeconds)))
	}
	ack := s.Ack
	if ack == "" {
		ack = "the daemon's default"
	}
	source := fmt.Sprintf("%s sensors, a reading each %s of event time, %s", count(int64(s.Sensors)), span(s.IntervalSeconds), speed(s.Speedup))
	if s.From != "" {
		source = "replay of " + s.From + ", " + speed(s.Speedup)
	}
	if s.Rate != "" {
		source += ", --rate " + s.Rate
		if s.Steps > 0 {
			source += fmt.Sprintf(" in %d steps", s.Steps)
		}
	}
	how := fmt.Sprintf("%s a request, ack %s, %s %s, at most %s in flight", readings(s.Batch), ack, count(int64(s.Connections)), plural(int64(s.Connections), "connection"), count(int64(s.MaxInFlight)))
	if s.Fields > 0 && s.From == "" {
		how = fmt.Sprintf("%d %s, ", s.Fields, plural(int64(s.Fields), "field")) + how + fmt.Sprintf(", seed %d", s.Seed)
	}
	const format = "2006-01-02 15:04:05"
	out := []fact{
		{"target", target},
		{"load", source},
		{"requests", how},
		{"began", fmt.Sprintf("%s UTC, due for %s, took %s; brim %s", r.Began.UTC().Format(format), span(s.DurationSeconds), span(r.Seconds), r.Version)},
	}
	if !s.EventStart.IsZero() {
		out = append(out, fact{"event time", s.EventStart.UTC().Format(format) + " to " + s.EventEnd.UTC().Format(format) + " UTC"})
	}
	return out
}

func speed(speedup float64) string {
	if speedup == 1 {
		return "in real time"
	}
	return humanize.Ftoa(speedup) + " times as fast as real time"
}

func readings(n int) string { return count(int64(n)) + " " + plural(int64(n), "reading") }

func plural(n int64, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

func count(n int64) string { return humanize.Comma(n) }

// perSecond tells a rate to the reading: one percent of it matters.
func perSecond(v float64) string {
	if v >= 100 && v < 1e9 {
		return count(int64(math.Round(v))) + "/s"
	}
	return chart.Format(chart.PerSecond, v)
}

func span(seconds float64) string { return chart.Format(chart.Seconds, seconds) }

// latency is span, but where nothing was observed.
func latency(seconds float64, observed bool) string {
	if !observed {
		return "–"
	}
	return span(seconds)
}

// share tells a part of a whole, never rounded to all or nothing where it is not.
func share(part, whole float64) string {
	if whole <= 0 {
		return "–"
	}
	percent := 100 * part / whole
	switch {
	case percent > 0 && percent < 0.01:
		return "<0.01 %"
	case percent > 99.9 && percent < 99.995:
		return fmt.Sprintf("%.2f %%", math.Floor(percent*100)/100)
	case percent >= 99.995 && percent < 100.05: // a rate is a quotient, and 99.999 % of one are all of it
		return "100 %"
	case percent < 1:
		return fmt.Sprintf("%.2f %%", percent)
	}
	return fmt.Sprintf("%.1f %%", percent)
}

// tenth names a row of by_fill.
func tenth(row load.FillRow) string {
	return fmt.Sprintf("%.0f–%.0f %%", row.From*100, row.To*100)
}

func observed(q load.Quantiles) bool { return q.Max > 0 }

// ago tells when a result was made, beside another.
func ago(r *load.Result) string { return r.Began.UTC().Format(time.DateTime) }
