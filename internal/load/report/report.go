// Package report shows the result of a load run: as Markdown text, as JSON, and as a page with
// plots.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"google.golang.org/grpc/codes"

	"github.com/brim-telemetry/brim/internal/chart"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/load"
	"github.com/brim-telemetry/brim/internal/load/send"
	"github.com/brim-telemetry/brim/internal/report"
)

// JSON writes the result with its verdict, as Read reads it.
func JSON(w io.Writer, r *load.Result) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	why := Saturation(r)
	err := e.Encode(struct {
		Saturated    bool   `json:"saturated"`
		SaturatedWhy string `json:"saturated_why,omitempty"`
		*load.Result
	}{why != "", why, r})
	if err != nil {
		return fmt.Errorf("write the result as JSON: %w", err)
	}
	return nil
}

// A run is saturated if more was requested than could be processed: readings were dropped, 1 %
// of the requests was turned away or not answered in time, or the median request waited several
// times its service time to be sent. Single stalls, and requests refused for other reasons, do
// not count.
const (
	saturatedHead   = "SATURATED: "
	turnedAwayRatio = 0.01
	waitFactor      = 3     // median response time over median service time
	leastWait       = 0.050 // seconds between the two
	busyRatio       = 0.8   // of the connections, from which all count as busy
)

// Saturation explains how a run was saturated and what to do; empty if it was not.
func Saturation(r *load.Result) string {
	var why []string
	if r.Dropped > 0 {
		why = append(why, fmt.Sprintf("%s of %s readings (%s) were dropped", count(r.Dropped), count(r.Sent+r.Dropped), percent(float64(r.Dropped), float64(r.Sent+r.Dropped))))
	}
	turnedAway := int64(0)
	for _, reason := range []string{send.FailureTimeout, "503", "504", codes.Unavailable.String(), codes.ResourceExhausted.String(), codes.DeadlineExceeded.String()} {
		turnedAway += r.Failures[reason]
	}
	if turnedAway > 0 && float64(turnedAway) >= turnedAwayRatio*float64(r.Requests) {
		why = append(why, fmt.Sprintf("%s of %s requests (%s) were turned away or not answered in time", count(turnedAway), count(r.Requests), percent(float64(turnedAway), float64(r.Requests))))
	}
	if wait := r.Response.P50 - r.Service.P50; r.Service.P50 > 0 && wait >= leastWait && r.Response.P50 >= waitFactor*r.Service.P50 {
		// By Little's law, the average number of busy connections is the requests sent in the
		// time that one takes.
		reason := "there was too little CPU for the generator and its target"
		if busy := float64(r.Requests) * r.Service.Mean / max(r.Seconds, 1e-9); busy >= busyRatio*float64(r.Setup.Connections) {
			reason = fmt.Sprintf("all %s connections were waiting for answers", count(int64(r.Setup.Connections)))
		}
		why = append(why, fmt.Sprintf("the median response took %s and the median service %s, because requests waited to be sent: %s", span(r.Response.P50), span(r.Service.P50), reason))
	}
	if len(why) == 0 {
		return ""
	}
	return strings.Join(why, "; ") + ". Response times of this run include time in a queue. Lower the load (--rate, --sensors or --speedup) or send larger requests (--batch)."
}

// A verdict is whether the figures are valid for the requested load.
type verdict struct {
	Good      bool
	Saturated string // see Saturation
	Head      string
	Notes     []string
}

func judge(r *load.Result) verdict {
	const enough = 0.99                                           // of the requested rate
	late := r.DrainSeconds > max(1, 0.05*r.Setup.DurationSeconds) // answers came long after the schedule
	slow := r.AchievedRate < enough*r.OfferedRate
	v := verdict{Saturated: Saturation(r)}
	v.Good = !slow && !late && r.Dropped+r.Failed == 0 && v.Saturated == "" && !r.Interrupted && r.Sent > 0
	rate := fmt.Sprintf("%s of %s readings a second were acknowledged (%s)", rateNumber(r.AchievedRate), rateNumber(r.OfferedRate), percent(r.AchievedRate, r.OfferedRate))
	if ramp(r) {
		rate += ", on average over the ramp"
	}
	switch {
	case r.Sent == 0:
		v.Head = "Nothing was sent."
	case r.Interrupted:
		v.Head = "The run was interrupted; until then " + rate + "."
	case v.Good:
		v.Head = "The load was sustained: " + rate + ", none dropped, none failed."
	case late:
		v.Head = fmt.Sprintf("The load was not sustained: the last answer came %s after the end of the schedule; %s.", span(r.DrainSeconds), rate)
	case slow || r.Dropped+r.Failed > 0:
		v.Head = "The load was not sustained: " + rate + "."
	default:
		v.Head = "The load was sustained, but with delay: " + rate + "."
	}
	if r.Dropped > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("Dropped readings: %s (%s of those due). The generator or the daemon could not keep up.", count(r.Dropped), percent(float64(r.Dropped), float64(r.Sent+r.Dropped))))
	}
	if r.Failed > 0 {
		var reasons []string
		for _, name := range byCount(r.Failures) {
			reasons = append(reasons, name+" "+count(r.Failures[name]))
		}
		v.Notes = append(v.Notes, fmt.Sprintf("Failed readings: %s (%s of those sent). Requests by reason: %s.", count(r.Failed), percent(float64(r.Failed), float64(r.Sent)), strings.Join(reasons, ", ")))
	}
	if r.Rejected > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("Rejected readings: %s (%s of those sent), in requests that were answered.", count(r.Rejected), percent(float64(r.Rejected), float64(r.Sent))))
	}
	return v
}

// byCount returns the reasons for failures, the most frequent first.
func byCount(failures map[string]int64) []string {
	names := slices.Sorted(maps.Keys(failures))
	slices.SortStableFunc(names, func(a, b string) int { return int(failures[b] - failures[a]) })
	return names
}

// setup describes the requested load and its target.
func setup(r *load.Result) []report.Fact {
	s := &r.Setup
	target := s.Target + ", stream " + s.Stream
	if s.Storage != "" {
		target += fmt.Sprintf(" (%s, windows of %s)", s.Storage, config.FormatDuration(windowOf(r)))
	}
	ack := s.Ack
	if ack == "" {
		ack = "as the daemon's default"
	}
	what := fmt.Sprintf("sensors %s, interval %s of event time", count(int64(s.Sensors)), span(s.IntervalSeconds))
	if s.AskedIntervalSeconds > 0 {
		what += fmt.Sprintf(" (%s requested)", span(s.AskedIntervalSeconds))
	}
	what += fmt.Sprintf(", speed-up %s, fields %d, seed %d", humanize.Ftoa(s.Speedup), s.Fields, s.Seed)
	if s.Rate != "" {
		what += ", --rate " + s.Rate
	}
	if s.Steps > 0 {
		what += fmt.Sprintf(" in %d steps", s.Steps)
	}
	out := []report.Fact{
		{Name: "target", Value: target},
		{Name: "load", Value: what},
		{Name: "requests", Value: fmt.Sprintf("batch %s, ack %s, connections %s, in flight at most %s", count(int64(s.Batch)), ack, count(int64(s.Connections)), count(int64(s.MaxInFlight)))},
		{Name: "began", Value: fmt.Sprintf("%s UTC, due for %s, took %s; brim %s", r.Began.UTC().Format(time.DateTime), span(s.DurationSeconds), span(r.Seconds), r.Version)},
	}
	if !s.EventStart.IsZero() {
		out = append(out, report.Fact{Name: "event time", Value: s.EventStart.UTC().Format(time.DateTime) + " to " + s.EventEnd.UTC().Format(time.DateTime) + " UTC"})
	}
	return out
}

const (
	ackNote  = "A request is answered before MongoDB is written to, unless the ack is stored: only then does the response time include the write."
	rampNote = "The rate changed during the run, so differences between tenths may come from it."
)

// ackedEarly reports whether responses say nothing about writes to MongoDB.
func ackedEarly(r *load.Result) bool { return r.Setup.Ack != "stored" && r.Setup.Storage != "memory" }

// ramp reports whether the rate changed during the run.
func ramp(r *load.Result) bool { return strings.Contains(r.Setup.Rate, "..") }

// fillNotes explain how to read the tables by fill.
func fillNotes(r *load.Result) []string {
	var notes []string
	covered := r.Setup.EventEnd.Sub(r.Setup.EventStart)
	if window := windowOf(r); covered > 0 && float64(covered) < 0.9*float64(window) {
		notes = append(notes, fmt.Sprintf("The readings cover %s of a window of %s: raise --speedup or --duration for whole windows. Unless --start is given, they lie at the end of the window, where even a new bucket counts as full.",
			config.FormatDuration(covered.Round(time.Second)), config.FormatDuration(window)))
	}
	for i := range r.StoreByFill {
		if r.StoreByFill[i].Count == 0 && i < len(r.ByFill) && r.ByFill[i].Count > 0 {
			notes = append(notes, "Some tenths have readings but no updates, because readings gather before they are written: use a lower --speedup, a longer granularity, or a shorter --flush-max of the daemon.")
			break
		}
	}
	if ramp(r) {
		notes = append(notes, rampNote)
	}
	if ackedEarly(r) {
		notes = append(notes, ackNote)
	}
	return notes
}

// times returns the table of quantiles.
func times(r *load.Result) *report.Table {
	t := &report.Table{Head: []string{"time"}}
	for _, f := range quantileFigures {
		t.Head = append(t.Head, f.name)
	}
	t.Head = append(t.Head, "counted")
	row := func(name string, q load.Quantiles, of string) {
		cells := []string{name}
		for _, f := range quantileFigures {
			cells = append(cells, latency(f.of(q), observed(q)))
		}
		t.Add(append(cells, of)...)
	}
	row("response", r.Response, "from when a request was due")
	row("service", r.Service, "from when it was sent, if it was answered")
	return t
}

// A step is a part of a ramp.
type step struct {
	From, To        float64 // seconds of the run
	Asked, Achieved float64 // readings a second
	P50, P99        float64 // response time of the slowest second; 0: nothing was answered
	Dropped         int64   // readings
}

// maxSteps is the most steps shown; a ramp with more, or without steps, is shown in ten equal
// parts.
const maxSteps = 50

// steps returns the steps of a ramp; none if the rate was constant.
func steps(r *load.Result) []step {
	if !ramp(r) || r.Setup.DurationSeconds <= 0 {
		return nil
	}
	n := r.Setup.Steps
	if n < 2 || n > maxSteps || r.Interrupted { // ended before the last step
		n = 10
	}
	all := make([]step, n)
	length := r.Setup.DurationSeconds / float64(n)
	for k := range all {
		s := &all[k]
		s.From, s.To = length*float64(k), length*float64(k+1)
		inside, middle, began := 0.0, -1, 0.0
		for i := range r.Intervals {
			end := r.Intervals[i].Second
			if began <= (s.From+s.To)/2 && (s.From+s.To)/2 <= end {
				middle = i
			}
			if at := (began + end) / 2; s.From <= at && (at < s.To || k == n-1) { // the last also includes what came after the end
				s.Dropped += r.Intervals[i].Dropped
			}
			const late = 0.05 // of a tick
			if began >= s.From-late && end <= s.To+late {
				s.add(&r.Intervals[i], end-began)
				inside += end - began
			}
			began = end
		}
		if inside == 0 && middle >= 0 { // no full second lies within it
			s.add(&r.Intervals[middle], 1)
			inside = 1
		}
		if inside > 0 {
			s.Asked, s.Achieved = s.Asked/inside, s.Achieved/inside
		}
	}
	return all
}

func (s *step) add(i *load.Interval, seconds float64) {
	s.Asked += i.Offered * seconds
	s.Achieved += i.Achieved * seconds
	s.P50, s.P99 = max(s.P50, i.P50), max(s.P99, i.P99)
}

// ramped shows the steps of a ramp; nothing if the rate was constant.
func ramped(r *load.Result) report.Block {
	all := steps(r)
	if len(all) == 0 {
		return report.Block{}
	}
	part := "step"
	if len(all) != r.Setup.Steps {
		part = "tenth"
	}
	t := &report.Table{Head: []string{"seconds", "requested", "achieved", "p50", "p99", "dropped"}}
	for _, s := range all {
		t.Add(fmt.Sprintf("%.4g–%.4g s", s.From, s.To), requested(s.Asked), perSecond(s.Achieved), orDash(s.P50), orDash(s.P99), count(s.Dropped))
	}
	return report.Block{Title: "By " + part + " of the ramp; p50 and p99 are those of its slowest second", Table: t}
}

// fills shows times by fill, next to the daemon's own.
func fills(r *load.Result) report.Block {
	b := report.Block{Title: "Response time by elapsed part of the window", Table: &report.Table{Head: []string{"part", "readings", "p50", "p99"}}, Notes: fillNotes(r)}
	store := len(r.StoreByFill) == len(r.ByFill)
	if store {
		b.Title += ", and the daemon's own time to write an update"
		b.Table.Head = append(b.Table.Head, "updates", "p50", "p99")
	}
	cells := func(row load.FillRow) []string {
		return []string{count(row.Count), latency(row.P50, row.Count > 0), latency(row.P99, row.Count > 0)}
	}
	for i, row := range r.ByFill {
		line := append([]string{tenth(row)}, cells(row)...)
		if store {
			line = append(line, cells(r.StoreByFill[i])...)
		}
		b.Table.Add(line...)
	}
	return b
}

// blocks returns the content of the report, including the drawn plots.
func blocks(r *load.Result, drawn []report.Plot) []report.Block {
	v := judge(r)
	said := report.Block{Box: "bad", Text: append([]string{v.Head}, v.Notes...)}
	if v.Good {
		said.Box = "good"
	}
	if v.Saturated != "" {
		said.Text = append([]string{saturatedHead + v.Saturated}, said.Text...)
	}
	counts := &report.Table{Head: []string{"", "sent", "acked", "rejected", "failed", "dropped", "requests"}}
	counts.Add("readings", count(r.Sent), count(r.Acked), count(r.Rejected), count(r.Failed), count(r.Dropped), count(r.Requests))
	var notes []string
	if r.Failed+r.Dropped > 0 {
		notes = []string{"Failed and dropped readings were never answered, so each percentile of the response time is a lower bound."}
	}
	return []report.Block{
		said, {Table: counts}, {Title: "Times", Table: times(r), Notes: notes}, {Plots: drawn}, fills(r), ramped(r), {Title: "First errors", List: r.FirstErrors},
		{Title: "Setup", Facts: setup(r)},
	}
}

// Text writes the report for a terminal.
func Text(w io.Writer, r *load.Result) error {
	return report.Text(w, 0, &report.Document{Sections: []report.Section{{Blocks: blocks(r, nil)}}})
}

// HTML writes the report as one self-contained page.
func HTML(w io.Writer, r *load.Result) error {
	return report.HTML(w, &report.Document{
		Title: "brim load: " + r.Setup.Target, Heading: "Load on " + r.Setup.Target,
		Intro:    "Response time counts from when a request was due, whether or not the previous one was answered. Service time counts from when it was sent, and covers answered requests only.",
		Sections: []report.Section{{Blocks: blocks(r, plots(r))}},
	})
}

func windowOf(r *load.Result) time.Duration {
	return time.Duration(max(r.Setup.GranularitySeconds, 1)) * time.Second
}

func observed(q load.Quantiles) bool { return q.Max > 0 }

func count(n int64) string { return humanize.Comma(n) }

// tenth names a row of by_fill.
func tenth(row load.FillRow) string {
	return fmt.Sprintf("%.0f–%.0f %%", row.From*100, row.To*100)
}

func perSecond(v float64) string { return rateNumber(v) + "/s" }

// requested formats a rate; a dash if none was requested.
func requested(v float64) string {
	if v <= 0 {
		return "–"
	}
	return perSecond(v)
}

// rateNumber is exact to the reading, because one percent of a rate matters.
func rateNumber(v float64) string {
	if v >= 100 && v < 1e9 {
		return count(int64(math.Round(v)))
	}
	return chart.Format(chart.Count, v)
}

func span(seconds float64) string { return chart.Format(chart.Seconds, seconds) }

func latency(seconds float64, observed bool) string {
	if !observed {
		return "–"
	}
	return span(seconds)
}

// orDash formats a time that is 0 if nothing was observed.
func orDash(seconds float64) string { return latency(seconds, seconds > 0) }

// percent never rounds to all, nothing, or the missed bound of 99 %.
func percent(part, whole float64) string {
	if whole <= 0 {
		return "–"
	}
	p := 100 * part / whole
	switch {
	case p > 0 && p < 0.01:
		return "<0.01 %"
	case p > 98 && p <= 99.9:
		p = math.Floor(p*10) / 10
	case p > 99.9 && p < 99.995:
		return fmt.Sprintf("%.2f %%", math.Floor(p*100)/100)
	case p >= 99.995 && p < 100.05: // a rate is a quotient: 99.999 % of one is all of it
		return "100 %"
	case p < 1:
		return fmt.Sprintf("%.2f %%", p)
	}
	return fmt.Sprintf("%.1f %%", p)
}
