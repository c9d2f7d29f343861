package console

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/chart"
	"github.com/brim-telemetry/brim/internal/doctor"
	"github.com/brim-telemetry/brim/internal/scrape"
	"github.com/brim-telemetry/brim/internal/store"
)

// live is the content of the page's live parts.
type live struct {
	At       time.Time // of the last sample; zero before the first
	State    state
	Empty    bool // no reading is known to have been ingested
	Scheme   string
	HTTPAddr string // that accepts readings
	Stream   string // that is shown; empty: all
	Figures  []figure
	Tenths   []tenthRow
	Marks    bool // the charts show restarts
	Signals  []signalRow
	Healthy  []signalRow
	Causes   []cause
	Note     string // see Diagnosis
	Streams  []streamRow
	Refused  []refusal
	Events   []eventRow
}

// A figure is at the top of the page.
type figure struct{ Name, Value, Note string }

type tenthRow struct{ Fill, Count, P50, P99 string }

type signalRow struct {
	doctor.Signal

	Shown string // value and unit
}

// A cause has all findings of one name: the evidence is the same, the actions differ.
type cause struct {
	doctor.Finding

	Actions []doctor.Finding
}

type streamRow struct {
	Stream

	Elapsed      string // part of the window
	WindowMeter  float64
	Rate, P99    string
	WindowIsSeen bool
}

type refusal struct{ What, Reason, Recent, Total string }

type eventRow struct{ Name, Recent, Total, Meaning string }

// A glance is a copy of what a rendering needs of the history, so that sampling
// need not wait for it.
type glance struct {
	seconds []second
	totals  map[counter]float64 // since the process was started
	recent  map[counter]float64 // within the span
	byFill  map[bucketFill]scrape.Histogram
	stream  string
	last    scrape.Sample
	at      time.Time
}

func (c *Console) glance(stream string) glance {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.history
	g := glance{seconds: slices.Clone(h.seconds), totals: countersOf(h.last), recent: make(map[counter]float64), last: h.last, at: h.lastAt, stream: stream}
	var before scrape.Sample
	if len(h.minutes) > 0 {
		before = h.minutes[0].sample
	}
	old := countersOf(before)
	for c, n := range g.totals {
		g.recent[c] = n - old[c]
	}
	g.byFill = updatesBetween(before, h.last)
	return g
}

func (c *Console) live(stream string) *live {
	g := c.glance(stream)
	in := g.total(metricIngested)
	out := &live{
		State: g.state(c.cfg.Parts()), Stream: stream, Scheme: c.cfg.Scheme, HTTPAddr: c.cfg.HTTPAddr(),
		Empty: in.Recent == 0 && in.Total == 0, Marks: slices.ContainsFunc(g.seconds, func(s second) bool { return s.Restarted }),
		Figures: g.figures(), Streams: g.streams(c.cfg.Streams()), Refused: g.refused(), Events: g.events(),
	}
	out.Signals, out.Healthy = signalRows(c.cfg.Signals())
	found := c.cfg.Diagnosis()
	out.Note = found.Note
	for _, f := range found.Findings {
		if n := len(out.Causes); n == 0 || out.Causes[n-1].Name != f.Name {
			out.Causes = append(out.Causes, cause{Finding: f})
		}
		last := &out.Causes[len(out.Causes)-1]
		last.Actions = append(last.Actions, f)
	}
	if g.last != nil {
		out.At = g.at
	}
	for i, h := range g.tenths() {
		out.Tenths = append(out.Tenths, tenthRow{
			Fill: store.Fills[i] + " %", Count: chart.Format(chart.Count, h.Count),
			P50: chart.Format(chart.Seconds, h.Quantile(0.5)), P99: chart.Format(chart.Seconds, h.Quantile(0.99)),
		})
	}
	return out
}

// state says whether readings are accepted and stored, and what does not work.
type state struct {
	Class doctor.Class
	Words string
	Parts []Part // that are not ready
}

// late is how many seconds late an update must be to be reported, as by the alert
// BrimLagHigh. No round trip to a healthy MongoDB takes that long.
const late = 10

// state derives from the parts whether readings are accepted, and from the metrics
// whether they are stored: the connections to a MongoDB that hangs stay open.
func (g *glance) state(parts []Part) state {
	const mqttPart = "mqtt " // and the name of a subscription
	s := state{Class: doctor.Healthy, Words: "Readings are accepted and stored"}
	accepted := "Readings are accepted"
	if slices.ContainsFunc(parts, func(p Part) bool { return p.Optional }) {
		accepted += " into the journal"
	}
	degrade := func(words string) {
		if s.Class == doctor.Healthy {
			s.Class, s.Words = doctor.Degrading, accepted+words
		}
	}
	for _, p := range parts {
		if !p.Ready && !p.Optional {
			s.Class, s.Words = doctor.Bottleneck, "No readings can be accepted"
		}
		if !p.Ready {
			s.Parts = append(s.Parts, p)
		}
	}
	if due := g.newest(func(x *second) float32 { return x.PastDue }); due > late {
		degrade("; an update is " + chart.Format(chart.Seconds, due) + " late")
	}
	switch {
	case slices.ContainsFunc(s.Parts, func(p Part) bool { return !strings.HasPrefix(p.Name, mqttPart) }):
		degrade("; not all can be stored at present")
	case len(s.Parts) > 0:
		degrade("; an MQTT subscription accepts no messages")
	}
	if g.last.Value(metricUp, nil) == 0 {
		degrade("; MongoDB does not answer")
		s.Parts = append(s.Parts, Part{Name: "health of MongoDB", Reason: "it does not answer"})
	}
	if aside := g.last.Value(metricSetAside, nil); aside > 0 {
		degrade("; not all can be stored at present")
		s.Parts = append(s.Parts, Part{Name: "set aside", Reason: chart.Format(chart.Count, aside) + " buckets cannot be written while others can"})
	}
	return s
}

// mean of a value over the last five seconds where it is known: steady enough to read.
func (g *glance) mean(value func(*second) float32) float64 {
	sum, n := 0.0, 0
	for i := max(0, len(g.seconds)-5); i < len(g.seconds); i++ {
		if v := float64(value(&g.seconds[i])); !math.IsNaN(v) {
			sum, n = sum+v, n+1
		}
	}
	return sum / float64(n)
}

// newest known value within the last ten seconds.
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
	note := "kept on disk, or in memory without one"
	if limit := g.last.Value(metricJournalMax, nil); limit > 0 {
		note = "kept, of at most " + chart.Format(chart.Bytes, limit)
	}
	return []figure{
		{"Ingested", chart.Format(chart.PerSecond, g.mean(func(s *second) float32 { return s.In })), "readings"},
		{"Stored", chart.Format(chart.PerSecond, g.mean(func(s *second) float32 { return s.Stored })), "readings"},
		{"Lag", chart.Format(chart.Seconds, oldestOf(g.last, g.stream)), "age of the oldest reading not in MongoDB yet"},
		{"Past due", chart.Format(chart.Seconds, g.newest(func(s *second) float32 { return s.PastDue })), "how late updates are"},
		{"Pending", chart.Format(chart.Count, g.newest(func(s *second) float32 { return s.Queue })), "readings not stored yet"},
		{"Journal", journal, note},
		{"Write p50", chart.Format(chart.Seconds, of(func(w writes) float32 { return w.P50 })), "round trip to MongoDB"},
		{"Write p99", chart.Format(chart.Seconds, of(func(w writes) float32 { return w.P99 })), "round trip to MongoDB"},
		{"Fill", chart.Format(chart.Ratio, of(func(w writes) float32 { return w.Fill })), "of the buckets being written"},
		{"Merging", chart.Format(chart.Count, g.newest((*second).merging)), "readings per update"},
	}
}

func (g *glance) streams(streams []Stream) []streamRow {
	out := make([]streamRow, 0, len(streams))
	for _, s := range streams {
		row := streamRow{Stream: s, Elapsed: "–"}
		if ratio := g.last.Value(metricWindow, scrape.Labels{"stream": s.Name}); !math.IsNaN(ratio) {
			row.Elapsed, row.WindowMeter, row.WindowIsSeen = chart.Format(chart.Ratio, math.Floor(ratio*100)/100), ratio, true
		}
		row.Rate = chart.Format(chart.PerSecond, g.mean(func(x *second) float32 { return x.of(s.Name).Rate }))
		row.P99 = chart.Format(chart.Seconds, g.newest(func(x *second) float32 { return x.of(s.Name).P99 }))
		out = append(out, row)
	}
	return out
}

// A count is how often something happened.
type count struct {
	Name   string  // the values of the labels
	Recent float64 // see glance
	Total  float64
}

// counts returns a counter's nonzero values by the values of its labels.
func (g *glance) counts(family string) []count {
	var out []count
	for c, n := range g.recent {
		if c.Family == family && n+g.totals[c] > 0 {
			out = append(out, count{c.Labels, n, g.totals[c]})
		}
	}
	slices.SortFunc(out, func(a, b count) int {
		return cmp.Or(cmp.Compare(b.Recent, a.Recent), cmp.Compare(b.Total, a.Total), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// total is the value of a counter without labels.
func (g *glance) total(family string) (out count) {
	for _, c := range g.counts(family) {
		out = c
	}
	return out
}

func (g *glance) refused() []refusal {
	var out []refusal
	for _, of := range []struct {
		what, family string
		shown        func(labels string) bool
	}{
		{"readings", metricRejected, nil},
		{"requests, by the journal", metricRefused, nil},
		{"requests, by status", metricRequests, refuses},
	} {
		for _, c := range g.counts(of.family) {
			if of.shown == nil || of.shown(c.Name) {
				out = append(out, refusal{of.what, c.Name, chart.Format(chart.Count, c.Recent), chart.Format(chart.Count, c.Total)})
			}
		}
	}
	return out
}

// refuses reports whether a protocol and a status code, "http 503" or
// "grpc Unavailable", say that a whole request was refused.
func refuses(answer string) bool {
	_, code, _ := strings.Cut(answer, " ")
	status, err := strconv.Atoi(code)
	if err != nil {
		return code != "OK"
	}
	return status >= 400
}

// events are noteworthy events other than refusals.
func (g *glance) events() []eventRow {
	out := make([]eventRow, 0, 8)
	for _, e := range []struct{ name, family, meaning string }{
		{"Unknown outcomes", metricUnknown, "updates whose reply was lost; each was looked up or sent again"},
		{"Duplicates prevented", metricDuplicates, "found to be stored already before being sent again"},
		{"Repeated requests", metricRepeated, "recognised by their idempotency key and answered as before"},
		{"Retried writes", metricRetries, "bucket updates that had to be sent again"},
		{"Dead letters", metricDeadLetters, "readings that MongoDB refused for their content; see brim deadletter list"},
		{"MongoDB restarts", metricRestarts, "the embedded mongod died and was restarted"},
		{"Tag conflicts", metricConflicts, "readings whose tags differ from those of their bucket; each keeps its own"},
	} {
		if e.family == metricRestarts && g.last[e.family] == nil {
			continue // there is no embedded one
		}
		c := g.total(e.family)
		out = append(out, eventRow{e.name, chart.Format(chart.Count, c.Recent), chart.Format(chart.Count, c.Total), e.meaning})
	}
	aside := g.last.Value(metricSetAside, nil)
	return append(out, eventRow{"Set aside now", "", chart.Format(chart.Count, aside), "buckets that cannot be written while others can; they wait in the journal"})
}

// signalRows returns the signals that are not healthy, the worst first (unknown ones may
// be bad), and the healthy ones.
func signalRows(signals []doctor.Signal) (other, healthy []signalRow) {
	for _, s := range signals {
		row := signalRow{Signal: s, Shown: strings.TrimSpace(chart.Format(chart.Count, s.Value) + " " + s.Unit)}
		switch {
		case math.IsNaN(s.Value):
			row.Shown = "–"
		case s.Value > 0 && s.Value < 0.01:
			row.Shown = strings.TrimSpace("< 0.01 " + s.Unit) // no threshold is that low
		}
		if s.Class == doctor.Healthy {
			healthy = append(healthy, row)
		} else {
			other = append(other, row)
		}
	}
	order := []doctor.Class{doctor.Bottleneck, doctor.Degrading, doctor.Unknown}
	slices.SortStableFunc(other, func(a, b signalRow) int {
		return cmp.Compare(slices.Index(order, a.Class), slices.Index(order, b.Class))
	})
	return other, healthy
}
