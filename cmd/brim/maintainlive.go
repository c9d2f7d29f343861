package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/maintain"
)

// A moveLine tells how far a move is: on a terminal in one line that changes,
// elsewhere in a line every few seconds and at each phase. What is logged
// meanwhile stands above it.
type moveLine struct {
	mu sync.Mutex
	statusLine
	now func() time.Time

	began time.Time // of the phase
	from  int64     // bytes that were done then
	last  maintain.Progress
	shown time.Time
}

// How often the line changes.
const (
	liveEvery  = 200 * time.Millisecond
	plainPause = 5 * time.Second
	month      = 30 * config.Day
)

func newMoveLine(w io.Writer) *moveLine {
	return &moveLine{statusLine: newStatusLine(w), now: time.Now}
}

// show tells how far the move is, unless that was told a moment ago.
func (l *moveLine) show(p maintain.Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	other := p.Phase != l.last.Phase
	if other || p.Done < l.last.Done {
		l.began, l.from = now, p.Done
	}
	often := plainPause
	if l.terminal {
		often = liveEvery
	}
	l.last = p
	if !other && now.Sub(l.shown) < often {
		return
	}
	l.shown = now
	if l.terminal {
		l.set(l.text(now))
		return
	}
	_, _ = fmt.Fprintln(l.w, l.text(now))
}

// text is the line. What matters most stands in front, for a narrow terminal
// cuts it.
func (l *moveLine) text(now time.Time) string {
	p := l.last
	parts := []string{p.Phase}
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if p.Total > 0 && p.Done > 0 {
		add("%d%%", min(100*p.Done/p.Total, 100))
		if seconds := now.Sub(l.began).Seconds(); seconds >= 1 && p.Done > l.from {
			perSecond := float64(p.Done-l.from) / seconds
			add("%.1f MB/s", perSecond/1e6)
			// Longer than a month is what the first bytes after a pause say.
			if left := float64(p.Total-p.Done) / perSecond; left >= 1 && left < month.Seconds() {
				add("%s left", config.FormatDuration(time.Duration(left)*time.Second))
			}
		}
	}
	if p.Documents > 0 {
		add("%s documents", humanize.Comma(p.Documents))
	}
	if p.Behind >= time.Second {
		add("%s behind", config.FormatDuration(p.Behind.Round(time.Second)))
	}
	text := strings.Join(parts, "  ")
	if p.Note != "" {
		text += " (" + p.Note + ")"
	}
	return text
}

// Write puts what is logged above the line.
func (l *moveLine) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.statusLine.end()
	return l.w.Write(line)
}

// end leaves the line empty.
func (l *moveLine) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.statusLine.end()
}

// roundSize writes bytes for people.
func roundSize(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
