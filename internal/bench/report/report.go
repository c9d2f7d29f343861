// Package report shows the results of experiments: as Markdown text, as JSON, and as a page
// with plots.
package report

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/chart"
	"github.com/brim-telemetry/brim/internal/report"
)

// JSON writes a result, or several as an array, with null for NaN and infinity: one figure that
// could not be measured must not fail the rest.
func JSON(w io.Writer, v any) error {
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

// Text writes a result as Markdown. With a width above 0, lines are wrapped for a terminal.
func Text(w io.Writer, width int, r *bench.Result) error {
	return report.Text(w, width, &report.Document{Sections: []report.Section{section(r, false)}})
}

// Table writes the claims of several results as one table.
func Table(w io.Writer, width int, results []*bench.Result) error {
	b := overview(results)
	for _, r := range results {
		if r.Interrupted {
			b.Notes = append(b.Notes, r.Experiment+" was interrupted.")
		} else if r.Error != "" {
			b.Notes = append(b.Notes, r.Experiment+" failed: "+report.OneLine(r.Error))
		}
	}
	return report.Text(w, width, &report.Document{Sections: []report.Section{{Title: "All experiments", Blocks: []report.Block{b}}}})
}

// HTML writes results as one page that loads nothing from elsewhere.
func HTML(w io.Writer, results ...*bench.Result) error {
	d := report.Document{
		Heading: "Experiments",
		Intro: "Figures that articles about MongoDB as a telemetry store repeat, mostly without machine, version or settings (docs/experiments.md lists them), next to those measured on this machine. " +
			"Figures are medians, with the range of the repeats.",
	}
	if len(results) == 1 {
		d.Heading = "Experiment " + results[0].Experiment
	} else {
		d.Overview = overview(results)
	}
	d.Title = "brim bench: " + d.Heading
	for _, r := range results {
		d.Sections = append(d.Sections, section(r, true))
	}
	return report.HTML(w, &d)
}

// overview lists the claims of several results.
func overview(results []*bench.Result) report.Block {
	claims := &report.Table{Head: append([]string{"experiment"}, claimHead...), Tone: tone, Link: true}
	var rows []bench.Row
	for _, r := range results {
		for _, cells := range claimCells(r.Rows) {
			claims.Add(append([]string{r.Experiment}, cells...)...)
		}
		rows = append(rows, r.Rows...)
	}
	return report.Block{Table: claims, Notes: []string{score(rows)}}
}

// section shows one result, optionally with plots.
func section(r *bench.Result, plots bool) report.Section {
	s := report.Section{ID: r.Experiment, Title: r.Experiment, Lead: r.Question}
	add := func(b report.Block) { s.Blocks = append(s.Blocks, b) }
	if why := trouble(r); why != "" {
		add(report.Block{Box: "bad", Text: []string{why}})
	}
	if r.Answer != "" {
		add(report.Block{Box: "good", Text: []string{r.Answer}})
	}
	if len(r.Rows) > 0 {
		add(report.Block{Title: "Published and measured", Compared: compared(r.Rows), Table: &report.Table{Head: claimHead, Rows: claimCells(r.Rows), Tone: tone}, Notes: []string{score(r.Rows)}})
	}
	drawn := report.Block{}
	for _, t := range r.Tables {
		for _, each := range t.Plots {
			if !plots {
				break
			}
			drawn.Plots = append(drawn.Plots, report.Plot{Chart: draw(t, each), Caption: each.Caption})
		}
	}
	add(drawn)
	for _, t := range r.Tables {
		if t.Hidden {
			continue
		}
		b := report.Block{Title: t.Title, Table: gridOf(t)}
		if t.Note != "" {
			b.Notes = []string{t.Note}
		}
		add(b)
	}
	var left []string
	for _, l := range r.LeftOut {
		left = append(left, l.What+": "+l.Why)
	}
	add(report.Block{Title: "Held constant", List: r.Pinned})
	add(report.Block{Title: "Smaller than in a full run", List: r.Reduced})
	add(report.Block{Title: "Left out", List: left})
	add(report.Block{Title: "Environment", Facts: facts(r)})
	return s
}

// compared returns the rows with a numeric published figure.
func compared(rows []bench.Row) (all []report.Comparison) {
	for i := range rows {
		r := &rows[i]
		if !(r.Measured/r.Published > 0) || math.IsInf(r.Measured/r.Published, 0) {
			continue
		}
		all = append(all, report.Comparison{
			What: r.Claim, Published: r.PublishedAs, Measured: r.MeasuredAs, Tone: tone(string(r.Verdict)),
			Times: r.Measured / r.Published, Low: cmp.Or(r.Min, r.Measured) / r.Published, High: cmp.Or(r.Max, r.Measured) / r.Published,
		})
	}
	return all
}

// gridOf returns a table's cells: the median of each, with the range.
func gridOf(t *bench.Table) *report.Table {
	g := &report.Table{Head: []string{t.Variant}}
	for _, m := range t.Measures {
		g.Head = append(g.Head, m.Name)
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
		g.Add(cells...)
	}
	return g
}

// tone returns the colour class of a verdict.
func tone(cell string) string {
	return map[bench.Verdict]string{bench.Confirmed: "good", bench.SizeDiffers: "fair", bench.Opposite: "bad", bench.NotSeen: "none"}[bench.Verdict(cell)]
}

// draw draws a table as its plot specifies: a line or bars per measure, over the variants.
func draw(t *bench.Table, p bench.Plot) chart.Chart {
	x := chart.X{Kind: chart.Number, Label: t.Variant, Log: p.LogX}
	for _, row := range t.Rows {
		v, err := strconv.ParseFloat(row.Name, 64)
		if err != nil {
			x.Kind, x.Label, x.Log = chart.Names, "", false
		}
		x.Names, x.At = append(x.Names, row.Name), append(x.At, v)
	}
	if p.Bars {
		x.Kind = chart.Names
	}
	if x.Kind == chart.Names {
		for i := range x.At {
			x.At[i] = float64(i)
		}
	} else {
		x.Names = nil
	}
	panel := chart.Panel{Log: p.LogY, Bars: p.Bars}
	for i, m := range t.Measures {
		if len(p.Measures) > 0 && !slices.Contains(p.Measures, m.Name) {
			continue
		}
		panel.Unit = m.Unit.Chart()
		line := chart.Series{Name: m.Name, Tone: len(panel.Series), Points: !t.Hidden, Bridge: !t.Hidden}
		for _, row := range t.Rows {
			var s bench.Samples
			if i < len(row.Samples) {
				s = row.Samples[i]
			}
			line.Y = append(line.Y, s.Median())
			if !t.Hidden { // with few points
				line.Low, line.High = append(line.Low, s.Min()), append(line.High, s.Max())
			}
		}
		panel.Series = append(panel.Series, line)
	}
	return chart.Chart{Title: p.Title, X: x, Panels: []chart.Panel{panel}}
}

// listed is an experiment in the JSON list.
type listed struct {
	Name         string       `json:"name"`
	Question     string       `json:"question"`
	FullSeconds  float64      `json:"full_seconds"`
	QuickSeconds float64      `json:"quick_seconds"`
	Restarts     string       `json:"restarts,omitempty"`
	Cells        []bench.Cell `json:"cells"`
}

// ListJSON writes the available experiments as an array.
func ListJSON(w io.Writer, all []*bench.Experiment) error {
	var out []listed
	for _, e := range all {
		out = append(out, listed{e.Name, e.Question, e.Full.Seconds(), e.Quick.Seconds(), e.Restarts, e.Cells})
	}
	return JSON(w, out)
}

// List writes the available experiments, with what each answers and how long it takes.
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

// Describe returns what an experiment answers, how long it takes and its cells, in lines of at
// most width characters.
func Describe(e *bench.Experiment, width int) string {
	var b bytes.Buffer
	describe(&b, e, "", width)
	return b.String()
}

func describe(b *bytes.Buffer, e *bench.Experiment, indent string, width int) {
	put := func(first, rest, s string) { report.Wrap(b, first, rest, s, width) }
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

// About formats a rough duration.
func About(d time.Duration) string {
	switch {
	case d > 3*time.Minute:
		d = d.Round(time.Minute)
	case d > 2*time.Minute:
		d = d.Round(30 * time.Second)
	}
	return "about " + chart.Format(chart.Seconds, d.Seconds())
}

func facts(r *bench.Result) []report.Fact {
	e := &r.Environment
	machine := []string{cmp.Or(e.Processor, "unknown CPU"), plural(e.Cores, "core")}
	if e.MemoryMiB > 0 {
		machine = append(machine, chart.Format(chart.Bytes, float64(e.MemoryMiB)*(1<<20))+" of memory")
	}
	out := []report.Fact{{Name: "machine", Value: strings.Join(append(machine, e.System), ", ")}, {Name: "mongod", Value: mongod(e)}}
	if e.Database == "" {
		disk := map[string]string{"nvme": "NVMe", "ssd": "SSD", "hdd": "HDD"}[e.Disk]
		out = append(out, report.Fact{Name: "disk", Value: cmp.Or(e.FileSystem, "unknown file system") + " on " + cmp.Or(disk, "a disk of unknown kind")})
	} else {
		out = append(out, report.Fact{Name: "database", Value: e.Database + ", which is dropped at the end"})
	}
	kind := "full"
	if r.Quick {
		kind = "quick"
	}
	return append(out,
		report.Fact{Name: "brim", Value: fmt.Sprintf("%s, MongoDB driver %s", cmp.Or(e.Brim, "unknown version"), cmp.Or(e.Driver, "unknown"))},
		report.Fact{Name: "run", Value: fmt.Sprintf("%s, %s, seed %d, %s UTC, took %s", kind, plural(r.Repeats, "repeat"), r.Seed,
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

// trouble returns why a result is incomplete; empty if it is complete.
func trouble(r *bench.Result) string {
	switch {
	case r.Interrupted:
		return "It was interrupted: what follows is what was measured until then."
	case r.Error != "":
		return "It failed: " + report.OneLine(r.Error) + ". The rest of the report was measured before the failure."
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
