package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"

	"github.com/brim-telemetry/brim/internal/bench"
	"github.com/brim-telemetry/brim/internal/chart"
)

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
	Name, Question, Score string
	Trouble               string
	Rows                  []bench.Row
	Plots                 []plot
	Tables                []table
	Lists                 []list
	Facts                 []fact
}

// A plot is a drawing with what one sees in it.
type plot struct {
	SVG     template.HTML
	Caption string
}

// A table is one of an experiment's own.
type table struct {
	Title string
	Head  []string
	Rows  [][]string
	Words []bool // of a column, whether it has words and not figures
	Notes []string
}

// A list has sentences.
type list struct {
	Title string
	Items []string
	Soft  bool // of less interest
}

// HTML writes results as one page that needs nothing from elsewhere.
func HTML(w io.Writer, results ...*bench.Result) error {
	p := page{CSS: chart.PageCSS(), Title: "Experiments"}
	if len(results) == 1 {
		p.Title = "Experiment " + results[0].Experiment
	}
	var rows []bench.Row
	for _, r := range results {
		s, err := newSection(r)
		if err != nil {
			return fmt.Errorf("draw the report of %s: %w", r.Experiment, err)
		}
		p.Sections = append(p.Sections, s)
		rows = append(rows, r.Rows...)
	}
	p.Score = capital(score(rows)) + "."
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

func newSection(r *bench.Result) (section, error) {
	s := section{
		Name: r.Experiment, Question: r.Question, Score: capital(score(r.Rows)) + ".", Trouble: trouble(r), Rows: r.Rows, Facts: facts(r),
		Lists: []list{
			{"What follows", r.Notes, false},
			{"Held fast", r.Pinned, true},
			{"Smaller than in a full run", r.Reduced, true},
			{"Left out", leftOut(r), true},
		},
	}
	for _, each := range r.Plots {
		svg, err := each.Drawing.SVG()
		if err != nil {
			return s, err
		}
		s.Plots = append(s.Plots, plot{svg, each.Caption})
	}
	for _, each := range r.Tables {
		t := table{Title: each.Title, Head: each.Head, Rows: each.Rows, Notes: each.Notes}
		for i := range each.Head {
			t.Words = append(t.Words, i == 0 || !figures(each.Rows, i))
		}
		s.Tables = append(s.Tables, t)
	}
	return s, nil
}

// tone is the class of a verdict's colour.
func tone(v bench.Verdict) string {
	switch v {
	case bench.Confirmed:
		return "good"
	case bench.SizeDiffers:
		return "fair"
	case bench.Opposite:
		return "bad"
	}
	return "none"
}
