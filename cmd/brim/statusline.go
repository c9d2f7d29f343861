package main

import (
	"fmt"
	"io"
	"math"
	"os"

	"golang.org/x/term"

	"github.com/brim-telemetry/brim/internal/config"
)

// A statusLine is a line of a terminal that changes in place.
type statusLine struct {
	w        io.Writer
	terminal bool
	columns  func() int // of the terminal
	written  bool       // the cursor stands behind the line
}

func newStatusLine(w io.Writer) statusLine {
	return statusLine{w: w, terminal: config.IsTerminal(w), columns: func() int { return columnsOf(w) }}
}

// set shows another text in the line, as much of it as there is room for.
func (l *statusLine) set(text string) {
	if runes := []rune(text); len(runes) >= l.columns() {
		text = string(runes[:l.columns()-1])
	}
	_, _ = fmt.Fprintf(l.w, "\r\x1b[K%s", text)
	l.written = true
}

// end leaves the line empty.
func (l *statusLine) end() {
	if l.written {
		_, _ = fmt.Fprint(l.w, "\r\x1b[K")
		l.written = false
	}
}

// columnsOf is how wide a terminal is, and anything else without end.
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
