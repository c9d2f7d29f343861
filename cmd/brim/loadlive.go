package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/term"

	"github.com/brim-telemetry/brim/internal/chart"
	"github.com/brim-telemetry/brim/internal/load"
)

// A liveLine tells how a run goes: on a terminal in one line that changes each
// second, elsewhere in a line every few seconds.
type liveLine struct {
	w        io.Writer
	terminal bool
	columns  func() int // of the terminal
	written  bool       // the cursor stands behind the line
}

// plainEvery is how many seconds are between two lines that stay.
const plainEvery = 5

func newLiveLine(w io.Writer) *liveLine {
	l := &liveLine{w: w, columns: func() int { return math.MaxInt }}
	if file, ok := w.(*os.File); ok && isTerminal(w) {
		l.terminal = true
		l.columns = func() int {
			if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
				return width
			}
			return 80
		}
	}
	return l
}

// show tells about a second of the run.
func (l *liveLine) show(p load.Progress) {
	line := liveText(p)
	if l.terminal {
		if runes := []rune(line); len(runes) >= l.columns() {
			line = string(runes[:l.columns()-1])
		}
		_, _ = fmt.Fprintf(l.w, "\r\x1b[K%s", line)
		l.written = true
		return
	}
	if int(p.Elapsed/time.Second)%plainEvery == 0 {
		_, _ = fmt.Fprintln(l.w, line)
	}
}

// end leaves the line.
func (l *liveLine) end() {
	if l.written {
		_, _ = fmt.Fprint(l.w, "\r\x1b[K")
		l.written = false
	}
}

// liveText is the line. What matters most stands in front, for a narrow
// terminal cuts it.
func liveText(p load.Progress) string {
	var line strings.Builder
	add := func(format string, args ...any) { _, _ = fmt.Fprintf(&line, format, args...) }
	add("%s", p.Elapsed.Round(time.Second))
	if p.Duration > 0 {
		add("/%s", formatDuration(p.Duration.Round(time.Second)))
	}
	if p.Draining {
		add("  waiting for the last answers")
	} else {
		add("  asked %s got %s", chart.Format(chart.PerSecond, p.Asked), chart.Format(chart.PerSecond, p.Achieved))
	}
	for _, wrong := range []struct {
		what string
		n    int64
	}{{"failed", p.TotalFailed}, {"dropped", p.TotalDropped}} {
		if wrong.n > 0 {
			add("  %s %s", humanize.Comma(wrong.n), wrong.what)
		}
	}
	add("  p50 %s p99 %s  %s  in flight %d", chart.Format(chart.Seconds, p.P50), chart.Format(chart.Seconds, p.P99), bar(p.Fill), p.InFlight)
	return line.String()
}

// bar draws a part of 1.
func bar(part float64) string {
	const cells = 10
	full := min(max(int(math.Round(part*cells)), 0), cells)
	return strings.Repeat("█", full) + strings.Repeat("░", cells-full) + fmt.Sprintf(" %3.0f %%", 100*part)
}
