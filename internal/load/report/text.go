package report

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/brim-telemetry/brim/internal/load"
)

// Text writes the report for a terminal, at most 50 lines, beside
// those of a ramp's steps.
func Text(w io.Writer, r *load.Result, x Extras) error {
	var b bytes.Buffer
	v := judge(r)
	if v.Saturated != "" {
		fmt.Fprintf(&b, "%s%s\n\n", saturatedHead, v.Saturated)
	}
	for _, f := range facts(r) {
		fmt.Fprintf(&b, "%-11s %s\n", f.Name, f.Value)
	}
	fmt.Fprintf(&b, "\n%s\n", v.Head)
	for _, note := range v.Notes {
		fmt.Fprintf(&b, "%s\n", note)
	}
	writeErrors(&b, r)
	b.WriteByte('\n')
	writeCounts(&b, r)
	b.WriteByte('\n')
	writeTimes(&b, r, x)
	b.WriteByte('\n')
	writeFill(&b, r)
	writeSteps(&b, r)
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// writeErrors shows a few errors in words, each on one line.
func writeErrors(b *bytes.Buffer, r *load.Result) {
	const most, width = 3, 150
	for i, e := range r.FirstErrors {
		if i == most {
			break
		}
		fmt.Fprintf(b, "  %s\n", cut(printable(e), width))
	}
}

// printable makes one line of s, of which nothing moves the cursor: a part of it
// is what some server answered.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return '?'
	}, strings.Join(strings.Fields(s), " "))
}

// cut shortens s to so many characters.
func cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-1]) + "…"
}

// nameWidth is how wide the first column is, above the tables as in them.
const nameWidth = 10

func writeCounts(b *bytes.Buffer, r *load.Result) {
	g := newGrid(nameWidth)
	g.row("", "sent", "taken", "refused", "failed", "dropped", "in requests")
	g.row("readings", count(r.Sent), count(r.Acked), count(r.Rejected), count(r.Failed), count(r.Dropped), count(r.Requests))
	g.writeTo(b)
}

func writeTimes(b *bytes.Buffer, r *load.Result, x Extras) {
	g := newGrid(nameWidth)
	g.row("", "mean", "p50", "p90", "p99", "p99.9", "max")
	for _, each := range timeRows(r, x) {
		g.noted(each.Of, append([]string{each.Name}, each.Cells...)...)
	}
	g.writeTo(b)
	if note := boundNote(r); note != "" {
		fmt.Fprintf(b, "%s\n", note)
	}
	for _, note := range floorNotes(r, x) {
		fmt.Fprintf(b, "%s\n", note)
	}
}

// A timeRow is a line of the table of quantiles.
type timeRow struct {
	Name  string
	Cells []string // mean, p50, p90, p99, p99.9, max
	Of    string   // what it counts from
}

func timeRows(r *load.Result, x Extras) []timeRow {
	rows := []timeRow{
		{"response", quantiles(r.Response), "from when a request was due"},
		{"service", quantiles(r.Service), "from when it was sent, if it was taken"},
	}
	if x.Floor != nil {
		rows = append(rows, timeRow{"floor", quantiles(x.Floor.Response), "response of " + x.FloorPath})
	}
	return rows
}

func quantiles(q load.Quantiles) []string {
	var cells []string
	for _, v := range []float64{q.Mean, q.P50, q.P90, q.P99, q.P999, q.Max} {
		cells = append(cells, latency(v, observed(q)))
	}
	return cells
}

// floorNotes says what the noise floor is, and where it is none.
func floorNotes(r *load.Result, x Extras) []string {
	if x.Floor == nil {
		return nil
	}
	f := x.Floor
	parts := fmt.Sprintf("%s of the p50, %s of the p99", share(f.Response.P50, r.Response.P50), share(f.Response.P99, r.Response.P99))
	notes := []string{"The floor is what daemon, generator and network take without a database: " + parts + "."}
	if f.Response.P50 > r.Response.P50 || f.Response.P99 > r.Response.P99 {
		notes[0] = "This floor cannot be used: it lies above what was measured over it (" + parts + "), so that the machine was in another state. Measure it anew, right before or after."
	}
	if f.Setup.Storage != "memory" {
		notes = append(notes, fmt.Sprintf("But its stream's storage was %s, not memory, so that a database is in it.", f.Setup.Storage))
	}
	var keys []string
	for _, d := range differences(&r.Setup, &f.Setup) {
		if !slices.Contains(placeKeys[:], d.key) {
			keys = append(keys, d.key)
		}
	}
	if len(keys) > 0 {
		notes = append(notes, "But it is of another load, which differs in: "+strings.Join(keys, ", ")+".")
	}
	return notes
}

// writeFill writes both tables by fill beside each other.
func writeFill(b *bytes.Buffer, r *load.Result) {
	store := len(r.StoreByFill) == len(r.ByFill)
	title := "response time by elapsed part of the window"
	if store {
		title += ", and the daemon's own time to write an update"
	}
	fmt.Fprintf(b, "%s; bars are p99\n", title)
	g := newGrid(nameWidth)
	head := []string{"", "readings", "p50", "p99"}
	if store {
		head = append(head, bar(0, 1), "updates", "p50", "p99")
	}
	g.row(head...)
	for i := range r.ByFill {
		cells, barOf := fillCells(r.ByFill, i)
		cells = append([]string{tenth(r.ByFill[i])}, cells...)
		if store {
			of, storeBar := fillCells(r.StoreByFill, i)
			cells, barOf = append(append(cells, barOf), of...), storeBar
		}
		g.noted(barOf, cells...)
	}
	g.writeTo(b)
	for _, note := range fillNotes(r) {
		fmt.Fprintf(b, "%s\n", note)
	}
}

// fillCells returns the cells of one row, and its bar.
func fillCells(rows []load.FillRow, i int) (cells []string, barOf string) {
	greatest := 0.0
	for _, each := range rows {
		greatest = max(greatest, each.P99)
	}
	each := rows[i]
	seen := each.Count > 0
	return []string{count(each.Count), latency(each.P50, seen), latency(each.P99, seen)}, bar(each.P99, greatest)
}

const barWidth = 14

// bar draws v as a part of what a full bar is, to the eighth of a character.
func bar(v, full float64) string {
	if full <= 0 {
		return strings.Repeat(" ", barWidth)
	}
	eighths := int(v / full * barWidth * 8)
	s := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		s += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return s + strings.Repeat(" ", barWidth-utf8.RuneCountInString(s))
}
