package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/brim-telemetry/brim/internal/config"
	"github.com/brim-telemetry/brim/internal/daemon"
	"github.com/brim-telemetry/brim/internal/machine"
)

// A progressLine shows a command's progress: updated in place on a terminal, elsewhere as an
// occasional line. Output written to it appears above the line.
type progressLine struct {
	w        io.Writer
	pause    time.Duration // minimum time between two lines without news
	terminal bool
	columns  func() int // of the terminal

	mu      sync.Mutex
	about   string                 // what the text is about
	text    func(time.Time) string // nil: nothing is shown
	shown   time.Time              // when the line was last written
	written bool                   // the cursor is at the end of the line
	stop    func()
}

// livePause is the minimum time between two updates of the line without news.
const livePause = 200 * time.Millisecond

// newProgressLine returns a line; end must be called.
func newProgressLine(w io.Writer, pause time.Duration) *progressLine {
	l := &progressLine{w: w, pause: pause, terminal: config.IsTerminal(w), columns: func() int { return columnsOf(w) }}
	if l.terminal {
		l.pause = livePause
		l.tick()
	}
	return l
}

// interruptible returns a progress line that reports signals, the first with the text stopping, and
// contexts that end at the first and at the second signal. end must be called.
func (p *process) interruptible(ctx context.Context, pause time.Duration, stopping string) (line *progressLine, soft, hard context.Context, end func()) {
	line = newProgressLine(p.stderr, pause)
	soft, hard, release := daemon.OnSignals(ctx, func(os.Signal) { line.say("%s", stopping) }, func(os.Signal) { line.say("stopping at once") })
	return line, soft, hard, func() {
		line.end()
		release()
	}
}

// tick rewrites the line every second, because it may contain the time.
func (l *progressLine) tick() {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for machine.Pause(ctx, time.Second) == nil {
			l.mu.Lock()
			if now := time.Now(); l.text != nil && now.Sub(l.shown) >= time.Second {
				l.write(now)
			}
			l.mu.Unlock()
		}
	})
	l.stop = func() { cancel(); done.Wait() }
}

// show sets the text. Text about the same thing is written only if the last update is old
// enough.
func (l *progressLine) show(about string, text func(now time.Time) string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := about != l.about
	l.about, l.text = about, text
	if now := time.Now(); news || now.Sub(l.shown) >= l.pause {
		l.write(now)
	}
}

// tell shows a fixed text, printed again only when it changes.
func (l *progressLine) tell(text string) { l.show(text, func(time.Time) string { return text }) }

// write writes the line, truncated to the width of the terminal.
func (l *progressLine) write(now time.Time) {
	l.shown = now
	text := l.text(now)
	if !l.terminal {
		_, _ = fmt.Fprintln(l.w, text)
		return
	}
	if runes := []rune(text); len(runes) >= l.columns() {
		text = string(runes[:l.columns()-1])
	}
	_, _ = fmt.Fprintf(l.w, "\r\x1b[K%s", text)
	l.written = true
}

// Write implements io.Writer.
func (l *progressLine) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.erase()
	return l.w.Write(b)
}

// say writes a line above the progress.
func (l *progressLine) say(format string, args ...any) {
	_, _ = fmt.Fprintf(l, format+"\n", args...)
}

// clear leaves the line empty until something is shown again.
func (l *progressLine) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = nil
	l.erase()
}

func (l *progressLine) erase() {
	if l.written {
		_, _ = fmt.Fprint(l.w, "\r\x1b[K")
		l.written = false
	}
}

// end leaves the line empty. It may be called repeatedly.
func (l *progressLine) end() {
	l.clear()
	if l.stop != nil {
		l.stop()
	}
}

// columnsOf returns the width of a terminal; math.MaxInt for anything else.
func columnsOf(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok || !config.IsTerminal(w) {
		return math.MaxInt
	}
	if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
		return width
	}
	return 80
}

// textWidth returns the width to wrap text at; 0: no limit, for files.
func textWidth(w io.Writer) int {
	const readable = 140
	if width := columnsOf(w); width != math.MaxInt {
		return min(width, readable)
	}
	return 0
}
