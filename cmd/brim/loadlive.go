package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/brim-telemetry/brim/internal/chart"
	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/load"
)

// A liveLine tells how a run goes: on a terminal in one line that changes each
// second, elsewhere in a line every few seconds.
type liveLine struct {
	statusLine
	windows float64 // that event time goes through in a second

	// Of a line that stays, until it is written.
	since  time.Duration // the end of the last
	gather gathered
}

// gathered is how a run went since a line was written.
type gathered struct {
	seconds, asked, achieved float64 // asked and achieved are readings
	p50, p99                 float64 // of the slowest second
	inFlight                 int     // the most
}

// plainEvery is how many seconds are between two lines that stay.
const plainEvery = 5

func newLiveLine(w io.Writer, windows float64) *liveLine {
	return &liveLine{statusLine: newStatusLine(w), windows: windows}
}

// show tells about a second of the run.
func (l *liveLine) show(p load.Progress) {
	l.add(&p)
	if l.terminal {
		l.set(l.text(&p))
		return
	}
	if int(p.Elapsed/time.Second)%plainEvery == 0 {
		_, _ = fmt.Fprintln(l.w, l.text(&p))
	}
}

// add gathers a second of the run.
func (l *liveLine) add(p *load.Progress) {
	g := &l.gather
	second := (p.Elapsed - l.since).Seconds() - g.seconds
	g.seconds += second
	g.asked += p.Offered * second
	g.achieved += p.Achieved * second
	g.p50, g.p99, g.inFlight = max(g.p50, p.P50), max(g.p99, p.P99), max(g.inFlight, p.InFlight)
}

// text is the line, of what was gathered since the last. What matters most stands
// in front, for a narrow terminal cuts it.
func (l *liveLine) text(p *load.Progress) string {
	g := l.gather
	l.since, l.gather = p.Elapsed, gathered{}
	seconds := max(g.seconds, 1e-6)
	asked := g.asked / seconds
	if l.terminal {
		asked = p.Asked // now
	}
	var line strings.Builder
	add := func(format string, args ...any) { _, _ = fmt.Fprintf(&line, format, args...) }
	add("%s", p.Elapsed.Round(time.Second))
	if p.Duration > 0 {
		add("/%s", config.FormatDuration(p.Duration.Round(time.Second)))
	}
	if p.Draining {
		add("  waiting for the last answers")
	} else {
		add("  asked %s got %s", chart.Format(chart.PerSecond, asked), chart.Format(chart.PerSecond, g.achieved/seconds))
	}
	for _, wrong := range []struct {
		what string
		n    int64
	}{{"failed", p.TotalFailed}, {"dropped", p.TotalDropped}} {
		if wrong.n > 0 {
			add("  %s %s", humanize.Comma(wrong.n), wrong.what)
		}
	}
	times, most := "", ""
	if !l.terminal {
		times, most = "slowest second ", "up to "
	}
	add("  %sp50 %s p99 %s  %s  in flight %s%d", times, timeOrDash(g.p50), timeOrDash(g.p99), l.window(p.Fill, seconds), most, g.inFlight)
	return line.String()
}

// window draws how far event time is in its window; where it goes through whole
// ones from line to line, that would be chance, and it counts them.
func (l *liveLine) window(fill, seconds float64) string {
	passed := math.Round(l.windows*seconds*10) / 10
	switch {
	case passed < 1:
		return bar(fill)
	case passed == 1:
		return "1 window"
	}
	return chart.Format(chart.Count, passed) + " windows"
}

// timeOrDash tells a time, or that there was none.
func timeOrDash(seconds float64) string {
	if seconds <= 0 {
		return "–"
	}
	return chart.Format(chart.Seconds, seconds)
}

// bar draws a part of 1.
func bar(part float64) string {
	const cells = 10
	full := min(max(int(math.Round(part*cells)), 0), cells)
	return strings.Repeat("█", full) + strings.Repeat("░", cells-full) + fmt.Sprintf(" %3.0f %%", 100*part)
}
