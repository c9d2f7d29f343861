package trend

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/brim-telemetry/brim/internal/doctor"
)

const (
	sparkWidth = 21 // three weeks of days
	wordsWidth = 110
)

// Write writes the report for people: what was seen, a line for each series,
// and what it says.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	r.writeHead(&b)
	b.WriteByte('\n')
	if err := r.writeTable(&b); err != nil {
		return err
	}
	r.writeUnseen(&b)
	b.WriteByte('\n')
	for _, s := range r.Words {
		b.WriteString(wrap(s, wordsWidth) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) writeHead(b *strings.Builder) {
	when := r.calendar()
	fmt.Fprintf(b, "Trend from %s to %s (UTC), from Prometheus at %s\n", when.write(r.From), when.write(r.To), r.Prometheus)
	names := make([]string, len(r.Instances))
	for i, one := range r.Instances {
		names[i] = one.Instance
	}
	selector := r.Selector
	if selector == "" {
		selector = "no selector"
	}
	noun := "instances"
	if len(names) == 1 {
		noun = "instance"
	}
	fmt.Fprintf(b, "%d %s of %s: %s\n", len(names), noun, selector, strings.Join(names, ", "))
	if len(names) > 1 {
		b.WriteString("Of a signal the worst of them is shown, their traffic is added up; --selector 'instance=\"…\"' looks at one.\n")
	}
	b.WriteString("Seen: " + r.Seen.share())
	if r.Seen.From.Sub(r.From) >= day/2 {
		fmt.Fprintf(b, ", from %s on", when.write(r.Seen.From))
	}
	if r.To.Sub(r.Seen.To) >= day/2 {
		fmt.Fprintf(b, ", until %s", when.write(r.Seen.To))
	}
	fmt.Fprintf(b, "; restarts of the daemon: %d\n", r.Seen.Restarts)
	if len(r.Seen.Gaps) > 0 {
		b.WriteString("Without figures: " + r.gaps() + "\n")
	}
}

// share says how much of the span was seen: in days, or of a short one in hours
// and minutes.
func (s *Seen) share() string {
	const short = 3
	if s.OfDays >= short {
		return fmt.Sprintf("%s of %s days", digits(float64(s.Days)), digits(float64(s.OfDays)))
	}
	of := func(n number) string { return days(time.Duration(float64(n) * float64(day))) }
	return of(s.Days) + " of " + of(s.OfDays)
}

// gaps lists the first of them.
func (r *Report) gaps() string {
	const most = 4
	fine := calendar{now: r.To, fine: true}
	var texts []string
	for i, g := range r.Seen.Gaps {
		if i == most {
			texts = append(texts, fmt.Sprintf("and %d more times", len(r.Seen.Gaps)-most))
			break
		}
		texts = append(texts, fine.write(g.From)+" to "+fine.write(g.To))
	}
	return strings.Join(texts, ", ")
}

func (r *Report) writeTable(b *strings.Builder) error {
	rows := []string{"\tthen\tnow\tper week\t\tclass\tdegrading\tbottleneck"}
	for _, s := range r.Series {
		if math.IsNaN(float64(s.Now)) {
			continue
		}
		if s.Signal && s.Name == r.firstSignal() {
			rows = append(rows, strings.Repeat("\t", strings.Count(rows[0], "\t")))
		}
		class := ""
		if s.Class != doctor.Unknown {
			class = s.Class.String()
		}
		rows = append(rows, strings.Join([]string{s.Title, cell(float64(s.Begin), s.Unit), cell(float64(s.Now), s.Unit), s.perWeek(), sparkline(s.spread(), sparkWidth), class,
			r.crossing(s, s.Degrading, true), r.crossing(s, s.Bottleneck, false)}, "\t"))
	}
	var wide strings.Builder
	table := tabwriter.NewWriter(&wide, 0, 0, 2, ' ', 0)
	if _, err := io.WriteString(table, strings.Join(rows, "\n")+"\n"); err != nil {
		return err
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for row := range strings.Lines(wide.String()) { // cells that are empty leave spaces
		b.WriteString(strings.TrimRight(row, " \n") + "\n")
	}
	return nil
}

func (r *Report) firstSignal() string {
	for _, s := range r.Series {
		if s.Signal && !math.IsNaN(float64(s.Now)) {
			return s.Name
		}
	}
	return ""
}

// spread are the points with a NaN for each block between them that is missing.
func (s *Series) spread() []float64 {
	var out []float64
	for i, n := range s.index {
		for len(out) < n {
			out = append(out, math.NaN())
		}
		out = append(out, float64(s.Points[i].Value))
	}
	return out
}

func (s *Series) perWeek() string {
	switch s.Trend {
	case Flat:
		return "no trend seen"
	case Unsure:
		return "too few points"
	}
	text := cell(float64(s.PerWeek), s.Unit)
	if s.PerWeek > 0 {
		text = "+" + text
	}
	if s.Recent {
		text += " lately"
	}
	return text
}

// cell is amount as short as a table wants it: what is counted each second is
// in the title.
func cell(v float64, unit string) string {
	if strings.HasSuffix(unit, "/s") && !math.IsNaN(v) {
		return digits(v) + "/s"
	}
	return amount(v, unit)
}

// crossing writes when a threshold is crossed.
func (r *Report) crossing(s *Series, c *Crossing, degrading bool) string {
	if c == nil {
		return ""
	}
	threshold := s.rule.Threshold.Bottleneck
	if degrading {
		threshold = s.rule.Threshold.Degrading
	}
	text := cell(threshold, s.Unit) + ": "
	switch c.State {
	case Crossed:
		if c.At == nil {
			return text + "all the time"
		}
		return text + "since " + r.calendar().write(*c.At)
	case Ahead:
		return text + "~" + calendar{now: r.To}.write(*c.At)
	case Far:
		return text + string(Far)
	default:
		return text + unknown
	}
}

// writeUnseen names what nothing was seen of.
func (r *Report) writeUnseen(b *strings.Builder) {
	var names []string
	for _, s := range r.Series {
		if math.IsNaN(float64(s.Now)) {
			names = append(names, inSentence(s.Title))
			if s.Why != "" && s.Why != whyNothing {
				names[len(names)-1] += " (" + s.Why + ")"
			}
		}
	}
	if len(names) > 0 {
		fmt.Fprintf(b, "\nNothing was seen of: %s\n", strings.Join(names, ", "))
	}
}
