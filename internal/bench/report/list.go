package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/chart"
)

// listed is an experiment in the JSON of a list.
type listed struct {
	Name         string       `json:"name"`
	Question     string       `json:"question"`
	FullSeconds  float64      `json:"full_seconds"`
	QuickSeconds float64      `json:"quick_seconds"`
	Restarts     string       `json:"restarts,omitempty"`
	Cells        []listedCell `json:"cells"`
}

type listedCell struct {
	Name string `json:"name"`
	What string `json:"what"`
	Slow string `json:"not_in_quick,omitempty"`
}

// ListJSON writes what experiments there are, as an array.
func ListJSON(w io.Writer, all []*bench.Experiment) error {
	var out []listed
	for _, e := range all {
		l := listed{e.Name, e.Question, e.Full.Seconds(), e.Quick.Seconds(), e.Restarts, nil}
		for _, c := range e.Cells {
			l.Cells = append(l.Cells, listedCell(c))
		}
		out = append(out, l)
	}
	return writeJSON(w, out)
}

// List writes what experiments there are, what each answers and how long it takes.
func List(w io.Writer, width int, all []*bench.Experiment) error {
	var b bytes.Buffer
	var full, quick time.Duration
	for _, e := range all {
		b.WriteString(e.Name + "\n")
		describe(&b, e, "  ", width)
		b.WriteByte('\n')
		full, quick = full+e.Full, quick+e.Quick
	}
	fmt.Fprintf(&b, "all\n  Takes %s; with --quick %s.\n", About(full), About(quick))
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write the list of experiments: %w", err)
	}
	return nil
}

// Describe says what an experiment answers, how long it takes and what its cells
// are, in lines of at most width characters.
func Describe(e *bench.Experiment, width int) string {
	var b bytes.Buffer
	describe(&b, e, "", width)
	return b.String()
}

func describe(b *bytes.Buffer, e *bench.Experiment, indent string, width int) {
	put := func(first, rest, s string) {
		for i, line := range wrap(oneLine(s), max(width-len(rest), 20)) {
			if i > 0 {
				first = rest
			}
			b.WriteString(first + line + "\n")
		}
	}
	put(indent, indent, e.Question)
	put(indent, indent, fmt.Sprintf("Takes %s; with --quick %s.", About(e.Full), About(e.Quick)))
	if e.Restarts != "" {
		put(indent, indent, "Left out with --mongo-uri: "+strings.TrimSuffix(e.Restarts, ".")+".")
	}
	if len(e.Cells) == 0 {
		return
	}
	longest := 0
	for _, c := range e.Cells {
		longest = max(longest, len(c.Name))
	}
	put(indent, indent, "Cells:")
	for _, c := range e.Cells {
		put(fmt.Sprintf("%s  %-*s  ", indent, longest, c.Name), indent+strings.Repeat(" ", longest+4), c.What)
	}
	if slow := slowCells(e); len(slow) > 0 {
		put(indent, indent, "Not in a quick run: "+strings.Join(slow, "; ")+".")
	}
}

// slowCells names the cells that a quick run leaves out, those with the same
// reason together.
func slowCells(e *bench.Experiment) []string {
	var reasons []string
	names := make(map[string][]string)
	for _, c := range e.Cells {
		if c.Slow == "" {
			continue
		}
		if names[c.Slow] == nil {
			reasons = append(reasons, c.Slow)
		}
		names[c.Slow] = append(names[c.Slow], c.Name)
	}
	for i, reason := range reasons {
		reasons[i] = strings.Join(names[reason], ", ") + " (" + reason + ")"
	}
	return reasons
}

// About tells how long something takes.
func About(d time.Duration) string {
	switch {
	case d > 3*time.Minute:
		d = d.Round(time.Minute)
	case d > 2*time.Minute:
		d = d.Round(30 * time.Second)
	}
	return "about " + chart.Format(chart.Seconds, d.Seconds())
}
