// Package report shows the results of experiments: as text, which is Markdown,
// as JSON, and as a page with plots.
package report

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/dustin/go-humanize"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/chart"
)

// JSON writes a result as an object.
func JSON(w io.Writer, r *bench.Result) error { return writeJSON(w, r) }

// JSONAll writes results as an array of such objects.
func JSONAll(w io.Writer, results []*bench.Result) error { return writeJSON(w, results) }

// writeJSON writes null for what is not a number in JSON: a figure that could not
// be measured must not cost the others.
func writeJSON(w io.Writer, v any) error {
	known := json.MarshalToFunc(func(e *jsontext.Encoder, v float64) error {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return e.WriteToken(jsontext.Null)
		}
		return errors.ErrUnsupported
	})
	err := json.MarshalWrite(w, v,
		json.WithMarshalers(known), json.Deterministic(true), jsontext.WithIndent("  "), jsontext.AllowInvalidUTF8(true),
		jsonv1.OmitEmptyWithLegacySemantics(true), jsonv1.FormatDurationAsNano(true))
	if err == nil {
		_, err = io.WriteString(w, "\n")
	}
	if err != nil {
		return fmt.Errorf("write the result as JSON: %w", err)
	}
	return nil
}

// Text writes a result as Markdown. With a width above 0, lines are wrapped for a
// terminal.
func Text(w io.Writer, width int, r *bench.Result) error {
	t := &text{width: width}
	t.paragraph(fmt.Sprintf("## %s: %s", r.Experiment, r.Question))
	t.b.WriteByte('\n')
	for _, f := range facts(r) {
		t.lines("- ", f.Name+": "+f.Value)
	}
	if why := trouble(r); why != "" {
		t.paragraph(why)
	}
	if len(r.Rows) > 0 {
		t.table("Published and measured", grid{claimHead, claimCells(r.Rows)})
		t.paragraph(score(r.Rows))
	}
	for _, table := range shown(r) {
		t.table(table.Title, gridOf(table))
		if table.Note != "" {
			t.paragraph(table.Note)
		}
	}
	for _, l := range lists(r) {
		if len(l.Items) > 0 {
			t.paragraph("### " + l.Title)
			t.b.WriteByte('\n')
			for _, each := range l.Items {
				t.lines("- ", each)
			}
		}
	}
	return t.writeTo(w)
}

// Table writes the claims of several results as one table.
func Table(w io.Writer, width int, results []*bench.Result) error {
	t := &text{width: width}
	t.paragraph("## All experiments")
	claims := grid{head: append([]string{"experiment"}, claimHead...)}
	var rows []bench.Row
	for _, r := range results {
		for _, cells := range claimCells(r.Rows) {
			claims.rows = append(claims.rows, append([]string{r.Experiment}, cells...))
		}
		rows = append(rows, r.Rows...)
	}
	if len(rows) > 0 {
		t.b.WriteByte('\n')
		claims.writeTo(&t.b, width)
	}
	t.paragraph(score(rows))
	for _, r := range results {
		if r.Interrupted {
			t.paragraph(r.Experiment + " was interrupted.")
		} else if r.Error != "" {
			t.paragraph(r.Experiment + " failed: " + oneLine(r.Error))
		}
	}
	return t.writeTo(w)
}

// text is Markdown that is being written.
type text struct {
	b     bytes.Buffer
	width int
}

func (t *text) writeTo(w io.Writer) error {
	if _, err := w.Write(bytes.TrimLeft(t.b.Bytes(), "\n")); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

func (t *text) table(title string, g grid) {
	t.paragraph("### " + title)
	t.b.WriteByte('\n')
	g.writeTo(&t.b, t.width)
}

// paragraph writes a paragraph after an empty line.
func (t *text) paragraph(s string) {
	t.b.WriteByte('\n')
	t.lines("", s)
}

// lines writes s; lines after the first are indented by the length of the prefix.
func (t *text) lines(prefix, s string) {
	Wrap(&t.b, prefix, strings.Repeat(" ", len(prefix)), s, t.width)
}

// shown are the tables that are not too long for people.
func shown(r *bench.Result) []*bench.Table {
	return slices.DeleteFunc(slices.Clone(r.Tables), func(t *bench.Table) bool { return t.Hidden })
}

// gridOf returns a table's cells: the median of each, with the range.
func gridOf(t *bench.Table) grid {
	g := grid{head: []string{t.Variant}}
	for _, m := range t.Measures {
		g.head = append(g.head, m.Name)
	}
	for _, row := range t.Rows {
		cells := []string{row.Name}
		for i, m := range t.Measures {
			cell := "–"
			if i < len(row.Samples) {
				cell = m.Unit.Spread(row.Samples[i])
			}
			cells = append(cells, cell)
		}
		g.rows = append(g.rows, cells)
	}
	return g
}

//go:embed page.html
var pageSource string

// A page is what the template shows.
type page struct {
	CSS      template.CSS
	Title    string
	Score    string // of several experiments together
	Sections []section
}

// A section is one experiment.
type section struct {
	*bench.Result

	Score, Trouble string
	Plots          []plot
	Shown          []table
	Lists          []list
	Facts          []fact
}

// A plot is a drawing with its caption.
type plot struct {
	SVG     template.HTML
	Caption string
}

type table struct {
	Title string
	Head  []string
	Rows  [][]string
	Words []bool // which columns have words, not figures
	Note  string
}

// HTML writes results as one page that loads nothing from elsewhere.
func HTML(w io.Writer, results ...*bench.Result) error {
	p := page{CSS: chart.PageCSS(), Title: "Experiments"}
	if len(results) == 1 {
		p.Title = "Experiment " + results[0].Experiment
	}
	var rows []bench.Row
	for _, r := range results {
		s := section{Result: r, Score: score(r.Rows), Trouble: trouble(r), Lists: lists(r), Facts: facts(r)}
		for _, t := range r.Tables {
			for _, each := range t.Plots {
				svg, err := draw(t, each)
				if err != nil {
					return fmt.Errorf("draw the report of %s: %w", r.Experiment, err)
				}
				s.Plots = append(s.Plots, plot{svg, each.Caption})
			}
		}
		for _, t := range shown(r) {
			g := gridOf(t)
			one := table{Title: t.Title, Head: g.head, Rows: g.rows, Note: t.Note}
			for i := range g.head {
				one.Words = append(one.Words, i == 0 || !figures(g.rows, i))
			}
			s.Shown = append(s.Shown, one)
		}
		p.Sections = append(p.Sections, s)
		rows = append(rows, r.Rows...)
	}
	p.Score = score(rows)
	t, err := template.New("page").Funcs(template.FuncMap{"tone": tone}).Parse(pageSource)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, p); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// tone is the class of a verdict's colour.
func tone(v bench.Verdict) string {
	return map[bench.Verdict]string{bench.Confirmed: "good", bench.SizeDiffers: "fair", bench.Opposite: "bad", bench.NotSeen: "none"}[v]
}

// Size of a plot in CSS pixels.
const plotWidth, plotHeight = 760, 320

// draw draws a table as a plot says: a line or bars for each measure, over the
// variants.
func draw(t *bench.Table, p bench.Plot) (template.HTML, error) {
	var labels []string
	var x []float64
	numbers := true
	for _, row := range t.Rows {
		v, err := strconv.ParseFloat(row.Name, 64)
		numbers = numbers && err == nil
		labels, x = append(labels, row.Name), append(x, v)
	}
	y := chart.Axis{Log: p.LogY}
	var lines []chart.Series
	for i, m := range t.Measures {
		if len(p.Measures) > 0 && !slices.Contains(p.Measures, m.Name) {
			continue
		}
		y.Unit = axisUnit(m.Unit)
		line := chart.Series{Name: m.Name, Tone: chart.Tone(len(lines) % 6)}
		for j, row := range t.Rows {
			var s bench.Samples
			if i < len(row.Samples) {
				s = row.Samples[i]
			}
			line.Y, line.Low, line.High = append(line.Y, s.Median()), append(line.Low, s.Min()), append(line.High, s.Max())
			if numbers {
				line.X = append(line.X, x[j])
			}
		}
		lines = append(lines, line)
	}
	if p.Bars {
		return chart.Bars{Title: p.Title, Labels: labels, Y: y, Series: lines, Width: plotWidth, Height: plotHeight}.SVG()
	}
	out := chart.Lines{Title: p.Title, XLabel: t.Variant, Y: y, Series: lines, Width: plotWidth, Height: plotHeight}
	if !numbers {
		out.Labels = labels
	}
	if t.Hidden { // many points
		for i := range out.Series {
			out.Series[i].Bare, out.Series[i].Low, out.Series[i].High = true, nil, nil
		}
	}
	return out.SVG()
}

func axisUnit(u bench.Unit) chart.Unit {
	switch u {
	case bench.Seconds:
		return chart.Seconds
	case bench.PerSecond:
		return chart.PerSecond
	case bench.Bytes:
		return chart.DecimalBytes
	case bench.Share:
		return chart.Ratio
	}
	return chart.Count
}

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

// ListJSON writes which experiments there are, as an array.
func ListJSON(w io.Writer, all []*bench.Experiment) error {
	var out []listed
	for _, e := range all {
		l := listed{e.Name, e.Question, e.Full.Seconds(), e.Quick.Seconds(), e.Restarts, nil}
		for _, c := range e.Cells {
			l.Cells = append(l.Cells, listedCell{c.Name, c.What, c.Slow})
		}
		out = append(out, l)
	}
	return writeJSON(w, out)
}

// List writes which experiments there are, what each answers and how long it
// takes.
func List(w io.Writer, width int, all []*bench.Experiment) error {
	var b bytes.Buffer
	var full, quick time.Duration
	for _, e := range all {
		b.WriteString(e.Name + "\n")
		describe(&b, e, "  ", width)
		b.WriteByte('\n')
		if !e.Extra {
			full, quick = full+e.Full, quick+e.Quick
		}
	}
	fmt.Fprintf(&b, "all\n  Takes %s; with --quick %s.\n", About(full), About(quick))
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write the list of experiments: %w", err)
	}
	return nil
}

// Describe says what an experiment answers, how long it takes and which cells it
// has, in lines of at most width characters.
func Describe(e *bench.Experiment, width int) string {
	var b bytes.Buffer
	describe(&b, e, "", width)
	return b.String()
}

func describe(b *bytes.Buffer, e *bench.Experiment, indent string, width int) {
	put := func(first, rest, s string) { Wrap(b, first, rest, s, width) }
	put(indent, indent, e.Question)
	put(indent, indent, fmt.Sprintf("Takes %s; with --quick %s.", About(e.Full), About(e.Quick)))
	if e.Restarts != "" {
		put(indent, indent, "Left out with --mongo-uri: "+e.Restarts+".")
	}
	if e.Extra {
		put(indent, indent, "Not part of `brim bench all`.")
	}
	longest := 0
	for _, c := range e.Cells {
		longest = max(longest, len(c.Name))
	}
	if longest > 0 {
		put(indent, indent, "Cells:")
	}
	for _, c := range e.Cells {
		what := c.What
		switch {
		case c.OnRequest:
			what += " (only if asked for: " + c.Slow + ")"
		case c.Slow != "":
			what += " (not in a quick run: " + c.Slow + ")"
		}
		put(fmt.Sprintf("%s  %-*s  ", indent, longest, c.Name), indent+strings.Repeat(" ", longest+4), what)
	}
}

// About writes roughly how long something takes.
func About(d time.Duration) string {
	switch {
	case d > 3*time.Minute:
		d = d.Round(time.Minute)
	case d > 2*time.Minute:
		d = d.Round(30 * time.Second)
	}
	return "about " + chart.Format(chart.Seconds, d.Seconds())
}

// A list has sentences.
type list struct {
	Title string
	Items []string
}

func lists(r *bench.Result) []list {
	left := list{Title: "Left out"}
	for _, l := range r.LeftOut {
		left.Items = append(left.Items, l.What+": "+l.Why)
	}
	return []list{{"Held constant", r.Pinned}, {"Smaller than in a full run", r.Reduced}, left}
}

// A fact is a line about where and how something was measured.
type fact struct{ Name, Value string }

func facts(r *bench.Result) []fact {
	e := &r.Environment
	machine := []string{cmp.Or(e.Processor, "unknown processor"), plural(e.Cores, "core")}
	if e.MemoryMiB > 0 {
		machine = append(machine, chart.Format(chart.Bytes, float64(e.MemoryMiB)*(1<<20))+" of memory")
	}
	out := []fact{{"machine", strings.Join(append(machine, e.System), ", ")}, {"mongod", mongod(e)}}
	if e.Database == "" {
		disk := map[string]string{"nvme": "NVMe", "ssd": "SSD", "hdd": "HDD"}[e.Disk]
		out = append(out, fact{"disk", cmp.Or(e.FileSystem, "unknown file system") + " on " + cmp.Or(disk, "a disk of unknown kind")})
	} else {
		out = append(out, fact{"database", e.Database + ", which is dropped in the end"})
	}
	kind := "full"
	if r.Quick {
		kind = "quick"
	}
	return append(out,
		fact{"brim", fmt.Sprintf("%s, MongoDB driver %s", cmp.Or(e.Brim, "unknown version"), cmp.Or(e.Driver, "unknown"))},
		fact{"run", fmt.Sprintf("%s, %s, seed %d, %s UTC, took %s", kind, plural(r.Repeats, "repeat"), r.Seed,
			e.Time.UTC().Format("2006-01-02 15:04"), chart.Format(chart.Seconds, r.TookSeconds))})
}

func mongod(e *bench.Environment) string {
	switch {
	case e.Mongod == "" && e.Database != "":
		return "unknown"
	case e.Mongod == "":
		return "none was started"
	}
	parts := []string{e.Mongod}
	if len(e.Topologies) > 0 {
		parts = append(parts, strings.ReplaceAll(strings.Join(e.Topologies, " and "), "_", " "))
	}
	if len(e.Compressor) > 0 {
		parts = append(parts, "compressor "+strings.Join(e.Compressor, " and "))
	} else {
		parts = append(parts, "compressors as held constant below, or its own")
	}
	var sizes []string
	for _, each := range e.CacheMiB {
		sizes = append(sizes, chart.Format(chart.Bytes, float64(each)*(1<<20)))
	}
	if len(sizes) > 0 {
		parts = append(parts, "cache "+strings.Join(sizes, " and "))
	}
	return strings.Join(parts, ", ")
}

// trouble says why a result is not complete; empty if it is.
func trouble(r *bench.Result) string {
	switch {
	case r.Interrupted:
		return "It was interrupted: what follows is what was measured until then."
	case r.Error != "":
		return "It failed: " + oneLine(r.Error) + ". What follows is what was measured until then."
	}
	return ""
}

// score counts the verdicts: "6 claims: 5 confirmed; 1 opposite."
func score(rows []bench.Row) string {
	var parts []string
	for _, v := range []bench.Verdict{bench.Confirmed, bench.SizeDiffers, bench.NotSeen, bench.Opposite} {
		n := 0
		for i := range rows {
			if rows[i].Verdict == v {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, v))
		}
	}
	if len(parts) == 0 {
		return "No claim was checked."
	}
	return plural(len(rows), "claim") + ": " + strings.Join(parts, "; ") + "."
}

var claimHead = []string{"claim", "published", "measured", "verdict", "why"}

func claimCells(rows []bench.Row) (cells [][]string) {
	for i := range rows {
		r := &rows[i]
		cells = append(cells, []string{r.Claim, r.PublishedAs, r.MeasuredAs, string(r.Verdict), r.Why})
	}
	return cells
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return humanize.Comma(int64(n)) + " " + what
}

// oneLine makes one line of s, without control characters: a part of it may be
// what a server answered.
func oneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return '?'
	}, strings.Join(strings.Fields(s), " "))
}
