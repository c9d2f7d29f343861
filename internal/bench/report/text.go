package report

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/brim-telemetry/brim/internal/bench"
)

// Text writes a result as Markdown. With a width above 0 lines are wrapped at so
// many characters, for a terminal.
func Text(w io.Writer, width int, r *bench.Result) error {
	t := &texts{width: width}
	t.result(r)
	return t.writeTo(w)
}

// Table writes the claims of several results as one table.
func Table(w io.Writer, width int, results []*bench.Result) error {
	t := &texts{width: width}
	t.all(results)
	return t.writeTo(w)
}

// texts are what is written.
type texts struct {
	b     bytes.Buffer
	width int
}

func (t *texts) writeTo(w io.Writer) error {
	if _, err := w.Write(bytes.TrimLeft(t.b.Bytes(), "\n")); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

func (t *texts) result(r *bench.Result) {
	t.paragraph(fmt.Sprintf("## %s: %s", r.Experiment, r.Question))
	t.b.WriteByte('\n')
	for _, f := range facts(r) {
		t.item(f.Name + ": " + f.Value)
	}
	if why := trouble(r); why != "" {
		t.paragraph(why)
	}
	if len(r.Rows) > 0 {
		t.paragraph("### Published and measured")
		t.b.WriteByte('\n')
		claims := grid{head: claimHead()}
		for i := range r.Rows {
			claims.rows = append(claims.rows, claimCells(&r.Rows[i]))
		}
		claims.writeTo(&t.b, t.width)
		t.paragraph(capital(score(r.Rows)) + ".")
	}
	for _, table := range r.Tables {
		t.paragraph("### " + table.Title)
		t.b.WriteByte('\n')
		grid{head: table.Head, rows: table.Rows}.writeTo(&t.b, t.width)
		for _, note := range table.Notes {
			t.paragraph(note)
		}
	}
	t.list("What follows", r.Notes)
	t.list("Held fast", r.Pinned)
	t.list("Smaller than in a full run", r.Reduced)
	t.list("Left out", leftOut(r))
}

// all writes the claims of all experiments.
func (t *texts) all(results []*bench.Result) {
	t.paragraph("## All experiments")
	claims := grid{head: slices.Concat([]string{"experiment"}, claimHead())}
	var rows []bench.Row
	for _, r := range results {
		for i := range r.Rows {
			claims.rows = append(claims.rows, slices.Concat([]string{r.Experiment}, claimCells(&r.Rows[i])))
		}
		rows = append(rows, r.Rows...)
	}
	if len(rows) > 0 {
		t.b.WriteByte('\n')
		claims.writeTo(&t.b, t.width)
	}
	t.paragraph(capital(score(rows)) + ".")
	for _, r := range results {
		if r.Interrupted {
			t.paragraph(r.Experiment + " was interrupted.")
		} else if r.Error != "" {
			t.paragraph(r.Experiment + " failed: " + oneLine(r.Error))
		}
	}
}

// list writes sentences under a title, if there are any.
func (t *texts) list(title string, items []string) {
	if len(items) == 0 {
		return
	}
	t.paragraph("### " + title)
	t.b.WriteByte('\n')
	for _, each := range items {
		t.item(each)
	}
}

func (t *texts) item(s string) { t.lines("- ", s) }

// paragraph writes a paragraph after an empty line.
func (t *texts) paragraph(s string) {
	t.b.WriteByte('\n')
	t.lines("", s)
}

// lines writes s; lines after the first stand under its begin.
func (t *texts) lines(prefix, s string) {
	width := 0
	if t.width > 0 {
		width = max(t.width-len(prefix), 20)
	}
	s = oneLine(s)
	for _, line := range wrap(s, width) {
		t.b.WriteString(prefix + line + "\n")
		prefix = strings.Repeat(" ", len(prefix))
	}
}

// capital begins a sentence.
func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
