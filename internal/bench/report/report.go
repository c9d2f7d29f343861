// Package report shows what came of experiments: as text, as JSON, and as a page
// with plots.
package report

import (
	"encoding/json"
	"fmt"
	"html"
	"io"

	"github.com/brim-telemetry/brim/internal/bench"
)

// JSON writes a result.
func JSON(w io.Writer, r *bench.Result) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("write the result as JSON: %w", err)
	}
	return nil
}

// Text writes results for a terminal.
func Text(w io.Writer, results ...*bench.Result) error {
	for _, r := range results {
		fmt.Fprintf(w, "%s: %s\n%+v\n", r.Experiment, r.Question, r.Environment)
		for _, row := range r.Rows {
			fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", row.Claim, row.PublishedAs, row.MeasuredAs, row.Verdict, row.Why)
		}
		for _, t := range r.Tables {
			fmt.Fprintf(w, "\n%s\n%q\n", t.Title, t.Head)
			for _, row := range t.Rows {
				fmt.Fprintf(w, "%q\n", row)
			}
			fmt.Fprintf(w, "%q\n", t.Notes)
		}
		for _, what := range [][]string{r.Notes, r.Pinned, r.Reduced} {
			for _, line := range what {
				fmt.Fprintf(w, "- %s\n", line)
			}
		}
		for _, l := range r.LeftOut {
			fmt.Fprintf(w, "left out: %s: %s\n", l.What, l.Why)
		}
	}
	return nil
}

// HTML writes results as a page.
func HTML(w io.Writer, results ...*bench.Result) error {
	for _, r := range results {
		for _, p := range r.Plots {
			svg, err := p.Drawing.SVG()
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "<figure>%s<figcaption>%s</figcaption></figure>", svg, html.EscapeString(p.Caption))
		}
	}
	return nil
}
