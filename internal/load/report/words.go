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
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/load"
)

// tenths is how many rows by_fill has.
const tenths = 10

// enough is the part of the asked rate from which on a run kept up.
const enough = 0.99

// slowDrain reports whether what was due was still being answered long after its
// time.
func slowDrain(r *load.Result) bool {
	const seconds, part = 1, 0.05 // of the schedule
	return r.DrainSeconds > max(seconds, part*r.Setup.DurationSeconds)
}

// A verdict says in words whether the figures are those of the load that was
// asked for.
type verdict struct {
	Good      bool
	Saturated string   // sentences; empty: it was not
	Head      string   // a sentence
	Notes     []string // sentences
}

func judge(r *load.Result) verdict {
	rate := rateWords(r)
	slow, late := r.AchievedRate < enough*r.OfferedRate, slowDrain(r)
	v := verdict{Saturated: Saturation(r)}
	whole := r.Dropped == 0 && r.Failed == 0
	v.Good = !slow && !late && whole && v.Saturated == "" && !r.Interrupted && r.Sent > 0
	switch {
	case r.Sent == 0:
		v.Head = "Nothing was sent."
	case r.Interrupted:
		v.Head = "The run was interrupted and ended before its time. Until then: " + rate
	case v.Good:
		v.Head = "The load was taken as asked: " + rate + " Nothing was dropped, nothing failed."
	case late:
		v.Head = fmt.Sprintf("The load was not taken as asked: the last answer came %s after the schedule had ended, with %s", span(r.DrainSeconds), rate)
	case slow:
		v.Head = "The load was not taken as asked: " + rate
	case whole:
		v.Head = "The load was taken, but late: " + rate
	default:
		v.Head = "The load was not taken whole: " + rate
	}
	if r.Dropped > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("%s (%s of those due) %s dropped: the generator or the daemon could not keep up.",
			readings(r.Dropped), share(float64(r.Dropped), float64(r.Sent+r.Dropped)), was(r.Dropped)))
	}
	if r.Failed > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("%s (%s of those sent) failed: %s.",
			readings(r.Failed), share(float64(r.Failed), float64(r.Sent)), reasons(r)))
	}
	if r.Rejected > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("%s (%s of those sent) %s refused in requests that were answered.",
			readings(r.Rejected), share(float64(r.Rejected), float64(r.Sent)), was(r.Rejected)))
	}
	return v
}

// rateWords tells what was taken of what was asked for.
func rateWords(r *load.Result) string {
	if r.OfferedRate <= 0 {
		return fmt.Sprintf("%s of %s that were due at once.", readings(r.Acked), count(r.Sent+r.Dropped))
	}
	achieved, noun := rateNumber(r.AchievedRate), "readings"
	if achieved == "1" {
		noun = "reading"
	}
	mean := ""
	if ramp(r) {
		mean = ", both the mean of the ramp"
	}
	return fmt.Sprintf("%s %s a second of %s asked for (%s)%s.", achieved, noun, rateNumber(r.OfferedRate), share(r.AchievedRate, r.OfferedRate), mean)
}

// boundNote says why response times are lower bounds, empty where they are not.
func boundNote(r *load.Result) string {
	if !lowerBound(r) {
		return ""
	}
	var lost []string
	if r.Failed > 0 {
		lost = append(lost, readings(r.Failed)+" failed")
	}
	if r.Dropped > 0 {
		lost = append(lost, fmt.Sprintf("%s %s dropped", readings(r.Dropped), was(r.Dropped)))
	}
	return strings.Join(lost, " and ") + ", before anybody knew how long they would take: each percentile of the response time is a lower bound."
}

func lowerBound(r *load.Result) bool { return r.Failed+r.Dropped > 0 }

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
		target += fmt.Sprintf(" (%s, windows of %s)", s.Storage, config.FormatDuration(windowOf(r)))
	}
	ack := s.Ack
	if ack == "" {
		ack = "the daemon's default"
	}
	source := fmt.Sprintf("%s %s, a reading each %s of event time%s, %s",
		count(int64(s.Sensors)), plural(int64(s.Sensors), "sensor"), span(s.IntervalSeconds), intervalNote(s), speed(s.Speedup))
	if s.From != "" {
		source = "replay of " + s.From + ", " + speed(s.Speedup)
	}
	if s.Rate != "" {
		source += ", --rate " + s.Rate
		if s.Steps > 0 {
			source += fmt.Sprintf(" in %d steps", s.Steps)
		}
	}
	how := fmt.Sprintf("%s a request, ack %s, %s %s, at most %s in flight", readings(int64(s.Batch)), ack, count(int64(s.Connections)), plural(int64(s.Connections), "connection"), count(int64(s.MaxInFlight)))
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

// intervalNote says where the interval is not the one that was asked for.
func intervalNote(s *load.Setup) string {
	note := ""
	if s.AskedIntervalSeconds > 0 {
		note = fmt.Sprintf(" (%s asked for)", span(s.AskedIntervalSeconds))
	}
	if strings.Contains(s.Rate, "..") {
		note += " at the highest rate"
	}
	return note
}

func speed(speedup float64) string {
	if speedup == 1 {
		return "in real time"
	}
	return humanize.Ftoa(speedup) + " times as fast as real time"
}

func readings(n int64) string { return count(n) + " " + plural(n, "reading") }

func was(n int64) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

func plural(n int64, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

func count(n int64) string { return humanize.Comma(n) }

// perSecond tells a rate to the reading: one percent of it matters.
func perSecond(v float64) string { return rateNumber(v) + "/s" }

func rateNumber(v float64) string {
	if v >= 100 && v < 1e9 {
		return count(int64(math.Round(v)))
	}
	return chart.Format(chart.Count, v)
}

// asked is perSecond, but where no rate was asked for.
func asked(v float64) string {
	if v <= 0 {
		return "–"
	}
	return perSecond(v)
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
	case percent > 98 && percent <= 99.9: // what is judged by 99 % must not be told as that
		return fmt.Sprintf("%.1f %%", math.Floor(percent*10)/10)
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
