package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
)

// A benchLive tells how an experiment goes: on a terminal in one line, whose time
// goes on each second; elsewhere in a line for each step.
type benchLive struct {
	timed bool // whether it takes the time that it tells

	mu   sync.Mutex
	line statusLine
	last bench.Progress
	at   time.Time // of the last
	stop chan struct{}
	done sync.WaitGroup
}

// newBenchLive begins; end must be called.
func newBenchLive(w io.Writer, timed bool) *benchLive {
	l := &benchLive{timed: timed, line: newStatusLine(w), stop: make(chan struct{})}
	if l.line.terminal {
		l.done.Go(l.tick)
	}
	return l
}

// tick shows the time going on.
func (l *benchLive) tick() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			l.mu.Lock()
			if l.last.Step > 0 {
				l.line.set(l.text(l.last.Elapsed + now.Sub(l.at)))
			}
			l.mu.Unlock()
		case <-l.stop:
			return
		}
	}
}

// show tells about a step that begins.
func (l *benchLive) show(p bench.Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.at = p, time.Now()
	if l.line.terminal {
		l.line.set(l.text(p.Elapsed))
		return
	}
	_, _ = fmt.Fprintln(l.line.w, l.text(p.Elapsed))
}

// Write tells what an installation does, and warnings of daemons, above the line.
func (l *benchLive) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line.end()
	return l.line.w.Write(b)
}

// clear leaves the line until the next step.
func (l *benchLive) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last.Step = 0
	l.line.end()
}

// end leaves the line for good.
func (l *benchLive) end() {
	close(l.stop)
	l.done.Wait()
	l.line.end()
}

// text is the line: "granularity 7 · 360 resident · 0:21 of about 0:50".
func (l *benchLive) text(elapsed time.Duration) string {
	p := &l.last
	var line strings.Builder
	_, _ = fmt.Fprintf(&line, "%s %d", p.Experiment, p.Step)
	_, _ = fmt.Fprintf(&line, " · %s · %s", p.What, clockTime(elapsed))
	if l.timed {
		_, _ = fmt.Fprintf(&line, " of about %s", clockTime(p.Expected))
	}
	return line.String()
}

// clockTime tells a time as a stopwatch does: 0:05, 12:34, 1:00:00.
func clockTime(d time.Duration) string {
	seconds := int(d / time.Second)
	if seconds >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
	}
	return fmt.Sprintf("%d:%02d", seconds/60, seconds%60)
}
