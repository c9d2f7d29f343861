package console

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/chart"
	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/internal/store"
)

// live is what the live part of the page shows.
type live struct {
	At       string // time of the last look; empty before the first
	State    state
	Empty    bool // no reading was ever taken, as far as is known
	Scheme   string
	HTTPAddr string // where to send one
	Stream   string // that is shown; empty: all
	Figures  []figure
	Drawings drawings
	Tenths   []tenthRow
	Marks    bool // the drawings show starts
	Signals  []signalRow
	Found    Diagnosis
	Streams  []streamRow
	Refused  []refusal
	Events   []figureRow
}

// A figure stands at the top of the page.
type figure struct{ Name, Value, Note string }

type tenthRow struct{ Fill, Count, P50, P99 string }

type signalRow struct {
	Signal
	Shown string // value and unit
}

type streamRow struct {
	Stream
	Window       string // elapsed part
	WindowMeter  float64
	Rate, P99    string
	WindowIsSeen bool
}

type refusal struct{ What, Reason, Recent, Total string }

type figureRow struct{ Name, Recent, Total, Meaning string }

// A glance is a copy of what a rendering needs of the history.
type glance struct {
	seconds   []second
	stretches []stretch
	stream    int // in names
	last      scrape.Look
	places    map[string]int // of streams
	at        time.Time
}

// glance copies under the lock, so that looks need not wait for drawings. What
// it points to does not change any more.
func (c *Console) glance(stream string) glance {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.history
	g := glance{
		seconds: slices.Clone(h.seconds), stretches: h.stretches(), last: h.last, at: h.lastAt,
		stream: h.stream(stream), places: make(map[string]int, len(h.names)),
	}
	for i, name := range h.names {
		g.places[name] = i
	}
	return g
}

// live puts together what the page shows of a stream, all of them if it is
// empty.
func (c *Console) live(v view) (*live, error) {
	g := c.glance(v.stream)
	now := c.cfg.Now()
	t := newTimeline(g.seconds, now.UnixMilli(), c.cfg.Interval.Seconds(), v.width())
	by := byTenth(g.stretches, v.stream)
	drawn, err := draw(&t, g.stream, by)
	if err != nil {
		return nil, fmt.Errorf("draw the live page: %w", err)
	}
	in := total(g.stretches, g.last, metricIngested, "")
	out := &live{
		State: g.state(c.cfg.Parts(), c.cfg.late()), Stream: v.stream, Scheme: c.cfg.Scheme, HTTPAddr: c.cfg.HTTPAddr(),
		Empty: in.Recent == 0 && in.Total == 0, Drawings: drawn, Marks: len(t.marks) > 0,
		Figures: g.figures(), Streams: g.table(c.cfg.Streams()), Refused: g.refused(), Events: g.events(), Signals: signalRows(c.cfg.Signals()),
		Found: c.cfg.Diagnosis(),
	}
	if g.last != nil {
		out.At = g.at.Format("15:04:05")
	}
	for i, h := range by {
		out.Tenths = append(out.Tenths, tenthRow{
			Fill: store.Fills[i] + " %", Count: chart.Format(chart.Count, h.Count),
			P50: chart.Format(chart.Seconds, h.Quantile(0.5)), P99: chart.Format(chart.Seconds, h.Quantile(0.99)),
		})
	}
	return out, nil
}

// recent are the seconds that "now" is told from: a mean of five is steady
// enough to be read.
func (g *glance) recent() []second {
	return g.seconds[max(0, len(g.seconds)-5):]
}

// mean of a figure over the recent seconds where it is known.
func (g *glance) mean(value func(*second) float32) float64 {
	sum, n := 0.0, 0
	recent := g.recent()
	for i := range recent {
		if v := float64(value(&recent[i])); !math.IsNaN(v) {
			sum, n = sum+v, n+1
		}
	}
	return sum / float64(n)
}

// newest known value of a figure within the last ten seconds.
func (g *glance) newest(value func(*second) float32) float64 {
	for i := len(g.seconds) - 1; i >= max(0, len(g.seconds)-10); i-- {
		if v := float64(value(&g.seconds[i])); !math.IsNaN(v) {
			return v
		}
	}
	return math.NaN()
}

func (g *glance) figures() []figure {
	of := func(value func(writes) float32) float64 {
		return g.newest(func(s *second) float32 { return value(s.of(g.stream)) })
	}
	journal := chart.Format(chart.Bytes, g.newest(func(s *second) float32 { return s.Journal }))
	note := "on disk, or in memory without one"
	if limit := g.last.Value(metricJournalMax, nil); limit > 0 {
		note = "of " + chart.Format(chart.Bytes, limit)
	}
	return []figure{
		{"Taken in", chart.Format(chart.PerSecond, g.mean(func(s *second) float32 { return s.In })), "readings"},
		{"Stored", chart.Format(chart.PerSecond, g.mean(func(s *second) float32 { return s.Stored })), "readings"},
		{"Write p50", chart.Format(chart.Seconds, of(func(w writes) float32 { return w.P50 })), "round trip to MongoDB"},
		{"Write p99", chart.Format(chart.Seconds, of(func(w writes) float32 { return w.P99 })), "round trip to MongoDB"},
		{"Fill", chart.Format(chart.Ratio, of(func(w writes) float32 { return w.Fill })), "of the buckets being written"},
		{"Merging", chart.Format(chart.Count, g.newest((*second).merging)), "readings per update"},
		{"Lag p99", chart.Format(chart.Seconds, g.newest(func(s *second) float32 { return s.LagP99 })), "receipt to stored"},
		{"Waiting", chart.Format(chart.Count, g.newest(func(s *second) float32 { return s.Queue })), "readings not stored yet"},
		{"Oldest", chart.Format(chart.Seconds, g.newest(func(s *second) float32 { return s.Oldest })), "reading not stored yet"},
		{"Journal", journal, note},
	}
}

// table has a row for each stream.
func (g *glance) table(streams []Stream) []streamRow {
	out := make([]streamRow, 0, len(streams))
	for _, s := range streams {
		row := streamRow{Stream: s, Window: "–"}
		if ratio := g.last.Value(metricWindow, scrape.Labels{"stream": s.Name}); !math.IsNaN(ratio) {
			row.Window, row.WindowMeter, row.WindowIsSeen = chart.Format(chart.Ratio, math.Floor(ratio*100)/100), ratio, true
		}
		index, known := g.places[s.Name]
		if !known {
			index = -1
		}
		row.Rate = chart.Format(chart.PerSecond, g.mean(func(x *second) float32 { return x.of(index).Rate }))
		row.P99 = chart.Format(chart.Seconds, g.newest(func(x *second) float32 { return x.of(index).P99 }))
		out = append(out, row)
	}
	return out
}

// refused tells what was not taken, by reason.
func (g *glance) refused() []refusal {
	var out []refusal
	add := func(what string, counts []count) {
		for _, c := range counts {
			out = append(out, refusal{what, c.Name, chart.Format(chart.Count, c.Recent), chart.Format(chart.Count, c.Total)})
		}
	}
	add("readings", counts(g.stretches, g.last, metricRejected, "reason"))
	add("requests, by the journal", counts(g.stretches, g.last, metricRefused, "reason"))
	answers := counts(g.stretches, g.last, metricRequests, "protocol", "code")
	add("requests, by their answer", slices.DeleteFunc(answers, func(c count) bool { return !refuses(c.Name) }))
	return out
}

// refuses reports whether a protocol and the code of an answer, "http 503" or
// "grpc Unavailable", say that a request was refused as a whole.
func refuses(answer string) bool {
	_, code, _ := strings.Cut(answer, " ")
	status, err := strconv.Atoi(code)
	if err != nil {
		return code != "OK"
	}
	return status >= 400
}

// events tells how often something happened that is not a refusal.
func (g *glance) events() []figureRow {
	out := make([]figureRow, 0, 8)
	for _, e := range []struct{ name, family, meaning string }{
		{"Unknown outcomes", metricUnknown, "updates cut off in between; each was looked up or sent again"},
		{"Duplicates prevented", metricDuplicates, "readings found stored when they were about to be sent again"},
		{"Repeated requests", metricRepeated, "answered as before, by their idempotency key"},
		{"Writes put off", metricRetries, "buckets that had to be written again"},
		{"Dead letters", metricDeadLetters, "readings that MongoDB refused for their content; see brim deadletter list"},
		{"MongoDB restarts", metricRestarts, "the embedded mongod died and was started again"},
		{"Tag conflicts", metricConflicts, "readings whose tags differ from those of their bucket; each keeps its own"},
	} {
		c := total(g.stretches, g.last, e.family, e.name)
		if e.family == metricRestarts && g.last[e.family] == nil {
			continue // there is no embedded one
		}
		out = append(out, figureRow{e.name, chart.Format(chart.Count, c.Recent), chart.Format(chart.Count, c.Total), e.meaning})
	}
	aside := g.last.Value(metricSetAside, nil)
	return append(out, figureRow{"Set aside now", "", chart.Format(chart.Count, aside), "buckets that cannot be written while others can; they wait in the journal"})
}

// signalRows puts what is worst first; what cannot be seen may be bad.
func signalRows(signals []Signal) []signalRow {
	order := []string{Bottleneck, Degrading, Unknown, Healthy}
	out := make([]signalRow, len(signals))
	for i, s := range signals {
		if !slices.Contains(order, s.Class) {
			s.Class = Unknown
		}
		out[i] = signalRow{Signal: s, Shown: strings.TrimSpace(chart.Format(chart.Count, s.Value) + " " + s.Unit)}
		switch {
		case math.IsNaN(s.Value):
			out[i].Shown = "–"
		case s.Value > 0 && s.Value < 0.01:
			out[i].Shown = strings.TrimSpace("< 0.01 " + s.Unit) // no threshold is that low
		}
	}
	slices.SortStableFunc(out, func(a, b signalRow) int {
		return cmp.Compare(slices.Index(order, a.Class), slices.Index(order, b.Class))
	})
	return out
}
