package simulate

import (
	"fmt"
	"hash/fnv"
	"regexp"
	"strconv"
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
	both     bool // the arrow has two heads: a command and its answer
	hidden   bool // it counts for the hash only
	text     string
}

// tell adds a line: an arrow between two columns, or a mark on one.
func (s *story) tell(from, to column, format string, args ...any) {
	s.lines = append(s.lines, line{at: time.Since(s.began), from: from, to: to, text: fmt.Sprintf(format, args...)})
}

// exchange adds a command that is answered at once.
func (s *story) exchange(from column, hidden bool, text string) {
	s.lines = append(s.lines, line{at: time.Since(s.began), from: from, to: server, both: true, hidden: hidden, text: text})
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
		if l.hidden {
			continue
		}
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
	switch {
	case l.both:
		row[left+1], row[right-1] = '◀', '▶'
	case l.from < l.to:
		row[left], row[right-1] = '├', '▶'
	default:
		row[left+1], row[right] = '◀', '┤'
	}
	return string(row)
}

// describe shows a command's filters and documents.
func describe(c *Command) string {
	var b strings.Builder
	body := c.body
	for _, name := range []string{"q", "query", "filter", "update", "pipeline"} {
		if v, err := body.LookupErr(name); err == nil && v.Type != bson.TypeString { // otherwise it is the collection
			b.WriteString(name + " " + shorten(plain(v.String()), 300) + " ")
		}
	}
	for _, name := range []string{"updates", "documents", "deletes"} {
		for _, d := range c.sequences[name] {
			b.WriteString(shorten(plain(d.String()), 300) + " ")
		}
	}
	return b.String()
}

var (
	extended     = regexp.MustCompile(`\{"\$number[a-zA-Z]+":"([^"]*)"\}|\{"\$(m..)Key":1\}`)
	extendedDate = regexp.MustCompile(`\{"\$date":(-?\d+)\}`)
)

// plain shows extended JSON without its types.
func plain(json string) string {
	json = extended.ReplaceAllString(strings.ReplaceAll(json, " ", ""), "$1$2")
	return extendedDate.ReplaceAllStringFunc(json, func(s string) string {
		ms, err := strconv.ParseInt(extendedDate.FindStringSubmatch(s)[1], 10, 64)
		if err != nil {
			return s
		}
		return time.UnixMilli(ms).UTC().Format("15:04:05.000")
	})
}

func shorten(s string, most int) string {
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
