package simulate

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A column of a trace.
type column int

const (
	clients column = iota
	daemonA
	daemonB
	disk
	server
	columns
)

var columnNames = [columns]string{"clients", "A", "B", "disk", "mongod"}

// A story is the trace of a run as a sequence diagram, with a line for each step:
//
//	        clients   A         B         disk      mongod
//	0.000s  ├────────▶│         │         │         │        POST 1: bucket s-1 ×3
//	0.000s  │         ├───────────────────▶         │        write 0000.journal
//	0.000s  │◀────────┤         │         │         │        POST 1: 200
type story struct {
	began time.Time
	lines []line
}

type line struct {
	at       time.Duration
	from, to column
	text     string
}

// tell adds a line: an arrow between two columns, or a mark on one.
func (s *story) tell(from, to column, format string, args ...any) {
	s.lines = append(s.lines, line{time.Since(s.began), from, to, fmt.Sprintf(format, args...)})
}

// hash identifies a trace.
func (s *story) hash() uint64 {
	h := fnv.New64a()
	for _, l := range s.lines {
		_, _ = fmt.Fprintln(h, l.at, l.from, l.to, l.text) // never fails
	}
	return h.Sum64()
}

const width = 10 // of a column

// String draws the diagram.
func (s *story) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%10s  ", "")
	for _, name := range columnNames {
		fmt.Fprintf(&b, "%-*s", width, name)
	}
	b.WriteByte('\n')
	for _, l := range s.lines {
		fmt.Fprintf(&b, "%9.3fs  %s  %s\n", l.at.Seconds(), l.draw(), l.text)
	}
	return b.String()
}

// draw draws the columns with the arrow or the mark of a line.
func (l *line) draw() string {
	row := []rune(strings.Repeat(" ", width*int(columns)))
	for c := range columns {
		row[width*int(c)] = '│'
	}
	left, right := width*int(min(l.from, l.to)), width*int(max(l.from, l.to))
	if left == right {
		row[left] = '●'
		return string(row)
	}
	for i := left + 1; i < right; i++ {
		row[i] = '─'
	}
	if l.from < l.to {
		row[left], row[right-1] = '├', '▶'
	} else {
		row[left+1], row[right] = '◀', '┤'
	}
	return string(row)
}

// describe shows a command's filters and documents.
func describe(c *Command) string {
	var b strings.Builder
	add := func(name string, d bson.Raw) {
		if len(d) > 0 {
			fmt.Fprintf(&b, "%s %s ", name, shorten(d.String(), 400))
		}
	}
	body := c.body
	for _, name := range []string{"q", "query", "filter", "update", "pipeline"} {
		if v, err := body.LookupErr(name); err == nil {
			b.WriteString(name + " " + shorten(v.String(), 400) + " ")
		}
	}
	for _, name := range []string{"updates", "documents", "deletes"} {
		for _, d := range c.sequences[name] {
			add("", d)
		}
	}
	return b.String()
}

func shorten(s string, most int) string {
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
