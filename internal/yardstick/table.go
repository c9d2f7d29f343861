package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// A report is what was measured, and where.
type report struct {
	Setting setting `json:"setting"`
	Rows    []row   `json:"rows"`
	// Notes stand below the rows: what is not of one of them alone.
	Notes  []string `json:"notes,omitempty"`
	Growth *growth  `json:"growth,omitempty"`
}

// A row is one thing that was measured.
type row struct {
	What     string    `json:"what"`
	Bar      string    `json:"bar"`
	Unit     string    `json:"unit,omitempty"` // of what was measured; "x" is a ratio
	Measured float64   `json:"measured"`       // the median of the runs
	Runs     []float64 `json:"runs"`
	Digits   int       `json:"-"` // after the point
	Remarks  []string  `json:"remarks,omitempty"`
}

func newRow(what, bar, unit string, digits int, runs []float64) row {
	return row{What: what, Bar: bar, Unit: unit, Measured: median(runs), Runs: runs, Digits: digits}
}

// median is the middle value, or the mean of the middle two; 0 of none.
func median(of []float64) float64 {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

func (r *row) remark(format string, args ...any) {
	r.Remarks = append(r.Remarks, fmt.Sprintf(format, args...))
}

// missed says whether the median is on the wrong side of the bar, as far as that
// begins with a bound: "<= 1 GiB, …". A thousandth or five is no miss.
func (r *row) missed() string {
	parts := strings.Fields(strings.ReplaceAll(r.Bar, ",", ""))
	if len(parts) < 2 {
		return ""
	}
	bound, err := strconv.ParseFloat(strings.TrimRight(parts[1], "x/s"), 64)
	if err != nil {
		return ""
	}
	if len(parts) > 2 && parts[2] == "GiB" {
		bound *= 1024 // rows of memory are in MiB
	}
	const slack = 0.005
	if parts[0] == ">=" && r.Measured < bound*(1-slack) || parts[0] == "<=" && r.Measured > bound*(1+slack) {
		return " (missed)"
	}
	return ""
}

// number prints a value of this row.
func (r *row) number(v float64) string { return thousands(v, r.Digits) + unit(r.Unit) }

func unit(u string) string {
	if u == "" || u == "x" || u == "%" {
		return u
	}
	return " " + u
}

// thousands prints a number with commas.
func thousands(v float64, digits int) string {
	whole, fraction, _ := strings.Cut(fmt.Sprintf("%.*f", digits, v), ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	var groups []string
	for len(whole) > 3 {
		groups = append(groups, whole[len(whole)-3:])
		whole = whole[:len(whole)-3]
	}
	groups = append(groups, whole)
	slices.Reverse(groups)
	if fraction != "" {
		fraction = "." + fraction
	}
	return sign + strings.Join(groups, ",") + fraction
}

// printText prints the setting and a table in Markdown.
func (r *report) printText(w io.Writer) error {
	var out strings.Builder
	out.WriteString("\n")
	for _, line := range r.settingLines() {
		fmt.Fprintf(&out, "- %s\n", line)
	}
	r.writeRows(&out)
	if r.Growth != nil {
		r.Growth.writeText(&out)
	}
	if _, err := io.WriteString(w, out.String()); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return nil
}

func (r *report) writeRows(out *strings.Builder) {
	if len(r.Rows) == 0 {
		return
	}
	out.WriteString("\n| what | bar | measured (median) | runs | remarks |\n|---|---|---|---|---|\n")
	for i := range r.Rows {
		row := &r.Rows[i]
		runs := make([]string, len(row.Runs))
		for i, v := range row.Runs {
			runs[i] = thousands(v, row.Digits)
		}
		fmt.Fprintf(out, "| %s | %s | **%s**%s | %s | %s |\n",
			row.What, row.Bar, row.number(row.Measured), row.missed(), strings.Join(runs, " "), strings.Join(row.Remarks, "; "))
	}
	for _, note := range r.Notes {
		fmt.Fprintf(out, "\n%s\n", note)
	}
}

func (r *report) printJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	return nil
}
