package report

import (
	"bytes"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// A grid is a table of text: the first cell of a row is aligned to the left, the
// others to the right, and a note may stand behind them.
type grid struct {
	cells bytes.Buffer
	tab   *tabwriter.Writer
	first int // least width of the first column
}

const gridPadding = 2

func newGrid(first int) *grid {
	g := &grid{first: first}
	g.tab = tabwriter.NewWriter(&g.cells, 0, 0, gridPadding, ' ', tabwriter.AlignRight)
	return g
}

// row adds a row.
func (g *grid) row(cells ...string) { g.noted("", cells...) }

// noted adds a row with a note.
func (g *grid) noted(note string, cells ...string) {
	head := cells[0] + strings.Repeat(" ", max(0, g.first-utf8.RuneCountInString(cells[0])))
	line := head + "\t" + strings.Join(cells[1:], "\t") + "\t  " + note + "\n"
	_, _ = g.tab.Write([]byte(line)) // to a buffer
}

// writeTo writes the table, without blanks at either end of its lines.
func (g *grid) writeTo(b *bytes.Buffer) {
	_ = g.tab.Flush() // to a buffer
	for line := range strings.Lines(g.cells.String()) {
		line = strings.TrimPrefix(line, strings.Repeat(" ", gridPadding))
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}
