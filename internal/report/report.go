// Package report writes measurement results: as Markdown for terminals and files, and as a
// self-contained page. The content of a document comes from internal/bench/report and
// internal/load/report:
//
//	Document ─▶ Section, one for each result ─▶ Block: text, table, plots, list ─▶ Text, HTML
package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/brim-telemetry/brim/internal/chart"
)

// A Document presents one or more results.
type Document struct {
	Title    string // of the window
	Heading  string // of the page
	Intro    string // of the page
	Overview Block  // if there are several sections
	Sections []Section
}

// A Section is one result.
type Section struct {
	ID     string // anchor for links within the page
	Title  string
	Lead   string
	Blocks []Block
}

// A Block is a part of a section. Empty parts are omitted, and so is a block with only a title.
type Block struct {
	Title string
	Box   string   // "good" or "bad": the page shows Text in a box
	Text  []string // paragraphs
	Table *Table
	// Compared figures and plots are on the page only.
	Compared []Comparison
	Plots    []Plot
	Notes    []string
	List     []string
	Facts    []Fact
	Code     string // in the text only
}

func (b *Block) empty() bool {
	return len(b.Text)+len(b.Compared)+len(b.Plots)+len(b.Notes)+len(b.List)+len(b.Facts)+len(b.Code) == 0 && (b.Table == nil || len(b.Table.Rows) == 0)
}

// A Table has figures or words in its cells.
type Table struct {
	Head []string
	Rows [][]string
	// Tone returns the class of a cell that the page shows in colour; nil: no cell has one.
	Tone func(cell string) string
	Link bool // the first cell of each row is a section's ID
	Wide bool // stays a table even if wider than the terminal
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// A Plot is a chart with a description.
type Plot struct {
	chart.Chart

	Caption string
}

// A Comparison is a measured figure and the published one.
type Comparison struct {
	What, Published, Measured string
	Times, Low, High          float64 // the measured figure and its range, as multiples of the published one
	Tone                      string
}

// At returns the position of a multiple, in percent, on an axis from a tenth to ten times.
func (Comparison) At(times float64) string {
	return strconv.FormatFloat(50+50*min(max(math.Log10(times), -1), 1), 'f', 1, 64) + "%"
}

// A Fact is a name with its value.
type Fact struct{ Name, Value string }

// Text writes a document as Markdown. With a width above 0, lines are wrapped for a
// terminal.
func Text(w io.Writer, width int, d *Document) error {
	t := &text{width: width}
	t.block(&d.Overview)
	for _, s := range d.Sections {
		switch {
		case s.Title != "" && s.Lead != "":
			t.paragraph("## " + s.Title + ": " + s.Lead)
		case s.Title != "":
			t.paragraph("## " + s.Title)
		}
		for i := range s.Blocks {
			t.block(&s.Blocks[i])
		}
	}
	if _, err := w.Write(bytes.TrimLeft(t.b.Bytes(), "\n")); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// text is Markdown being written.
type text struct {
	b     bytes.Buffer
	width int
}

func (t *text) block(b *Block) {
	shown := *b
	if shown.Plots, shown.Compared = nil, nil; shown.empty() {
		return
	}
	if b.Title != "" {
		t.paragraph("### " + b.Title)
	}
	for _, s := range b.Text {
		t.paragraph(s)
	}
	if b.Table != nil && len(b.Table.Rows) > 0 {
		t.b.WriteByte('\n')
		b.Table.write(&t.b, t.width)
	}
	for _, s := range b.Notes {
		t.paragraph(s)
	}
	items := slices.Clone(b.List)
	for _, f := range b.Facts {
		items = append(items, f.Name+": "+f.Value)
	}
	if len(items) > 0 {
		t.b.WriteByte('\n')
	}
	if b.Code != "" {
		t.b.WriteString("\n```\n" + b.Code + "```\n")
	}
	for _, s := range items {
		Wrap(&t.b, "- ", "  ", s, t.width)
	}
}

// paragraph writes a paragraph after an empty line.
func (t *text) paragraph(s string) {
	t.b.WriteByte('\n')
	Wrap(&t.b, "", "", s, t.width)
}

// write writes a table, at most width characters wide; 0: unlimited. A wider table becomes one
// paragraph per row.
func (t *Table) write(b *bytes.Buffer, width int) {
	widths, words := make([]int, len(t.Head)), t.Words()
	total := 1
	for i := range t.Head {
		widths[i] = 3
		for _, row := range slices.Concat([][]string{t.Head}, t.Rows) {
			widths[i] = max(widths[i], utf8.RuneCountInString(escape(row[i])))
		}
		total += widths[i] + 3
	}
	if width > 0 && total > width && !t.Wide {
		t.paragraphs(b, width)
		return
	}
	line := func(cells []string) {
		for i, w := range widths {
			cell := escape(cells[i])
			pad := strings.Repeat(" ", w-utf8.RuneCountInString(cell))
			if words[i] {
				cell += pad
			} else {
				cell = pad + cell
			}
			b.WriteString("| " + cell + " ")
		}
		b.WriteString("|\n")
	}
	line(t.Head)
	for i, w := range widths {
		rule := strings.Repeat("-", w)
		if !words[i] {
			rule = rule[1:] + ":"
		}
		b.WriteString("| " + rule + " ")
	}
	b.WriteString("|\n")
	for _, row := range t.Rows {
		line(row)
	}
}

// paragraphs writes each row as its first cell followed by one line per further cell.
func (t *Table) paragraphs(b *bytes.Buffer, width int) {
	for i, row := range t.Rows {
		if i > 0 {
			b.WriteByte('\n')
		}
		Wrap(b, "", "", row[0], width)
		for j, cell := range row[1:] {
			Wrap(b, "  ", "    ", t.Head[j+1]+": "+cell, width)
		}
	}
}

// Stacked reports whether the page turns rows into lists on a narrow screen, because the table
// is too wide.
func (t *Table) Stacked() bool {
	const most = 48 // characters
	total := 0
	for i := range t.Head {
		widest := 0
		for _, row := range t.Rows {
			widest = max(widest, utf8.RuneCountInString(row[i]))
		}
		total += widest
	}
	return total > most
}

// Words reports which columns have words; the others have figures, aligned right.
func (t *Table) Words() []bool {
	words := make([]bool, len(t.Head))
	for i := range words {
		words[i] = i == 0 || !figures(t.Rows, i)
	}
	return words
}

// figures reports whether a column has only figures.
func figures(rows [][]string, column int) bool {
	seen := false
	return !slices.ContainsFunc(rows, func(row []string) bool {
		if row[column] == "" {
			return false
		}
		const mostDigits = 40 // a sentence may begin with a digit
		cell := []rune(row[column])
		digit := cell[0] >= '0' && cell[0] <= '9'
		seen = seen || digit
		return len(cell) > mostDigits || slices.Contains(cell, '→') || !digit && !strings.ContainsRune("-−–+<>≥≤±", cell[0])
	}) && seen
}

// escape keeps the content of a cell from ending the cell.
func escape(cell string) string { return strings.ReplaceAll(OneLine(cell), "|", `\|`) }

// OneLine returns s as one line without control characters, because part of it may be
// a server's answer.
func OneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return '?'
	}, strings.Join(strings.Fields(s), " "))
}

// Wrap writes s in lines of at most width characters, unless a word is longer; 0: on one line.
// The first line has its own prefix.
func Wrap(b io.StringWriter, first, rest, s string, width int) {
	line, has := first, 0 // words in the line
	for word := range strings.FieldsSeq(OneLine(s)) {
		if has > 0 && width > 0 && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			_, _ = b.WriteString(line + "\n") // into memory
			line, has = rest, 0
		}
		if has++; has > 1 {
			line += " "
		}
		line += word
	}
	_, _ = b.WriteString(line + "\n")
}

//go:embed page.html
var pageSource string

// HTML writes a document as one page.
func HTML(w io.Writer, d *Document) error {
	t, err := template.New("page").Funcs(template.FuncMap{"css": chart.PageCSS, "scripts": chart.Scripts, "full": func(b Block) bool { return !b.empty() }}).Parse(pageSource)
	var b bytes.Buffer
	if err == nil {
		err = t.Execute(&b, d)
	}
	if err == nil {
		_, err = w.Write(b.Bytes())
	}
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
