package report

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// A grid is a table in Markdown. If that is wider than a terminal, each row becomes
// a paragraph of its cells.
type grid struct {
	head []string
	rows [][]string
}

// writeTo writes the table, at most width characters wide; 0: as wide as it is.
func (g grid) writeTo(b *bytes.Buffer, width int) {
	widths, right := make([]int, len(g.head)), make([]bool, len(g.head))
	total := 1
	for i := range g.head {
		right[i] = i > 0 && figures(g.rows, i)
		widths[i] = max(utf8.RuneCountInString(escape(g.head[i])), 3)
		for _, row := range g.rows {
			if i < len(row) {
				widths[i] = max(widths[i], utf8.RuneCountInString(escape(row[i])))
			}
		}
		total += widths[i] + 3
	}
	if width > 0 && total > width {
		g.paragraphs(b, width)
		return
	}
	line := func(cells []string) {
		for i, w := range widths {
			text := ""
			if i < len(cells) {
				text = escape(cells[i])
			}
			pad := strings.Repeat(" ", w-utf8.RuneCountInString(text))
			if right[i] {
				text = pad + text
			} else {
				text += pad
			}
			b.WriteString("| " + text + " ")
		}
		b.WriteString("|\n")
	}
	line(g.head)
	for i, w := range widths {
		rule := strings.Repeat("-", w)
		if right[i] {
			rule = rule[1:] + ":"
		}
		b.WriteString("| " + rule + " ")
	}
	b.WriteString("|\n")
	for _, row := range g.rows {
		line(row)
	}
}

// paragraphs writes each row as its first cell, and a line for each further one.
func (g grid) paragraphs(b *bytes.Buffer, width int) {
	for i, row := range g.rows {
		if i > 0 {
			b.WriteByte('\n')
		}
		for j, cell := range row {
			if j == 0 {
				Wrap(b, "", "", cell, width)
			} else {
				Wrap(b, "  ", "    ", g.head[j]+": "+cell, width)
			}
		}
	}
}

// escape keeps a cell from ending at what stands in it.
func escape(cell string) string { return strings.ReplaceAll(oneLine(cell), "|", `\|`) }

// Wrap writes s in lines of at most width characters, unless a word is longer; 0:
// in one line. The first line has another prefix than the rest.
func Wrap(b io.StringWriter, first, rest, s string, width int) {
	line, has := first, 0 // words in the line
	for word := range strings.FieldsSeq(oneLine(s)) {
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

// figures reports whether a column has nothing but figures, which are aligned to
// the right.
func figures(rows [][]string, column int) bool {
	seen := false
	return !slices.ContainsFunc(rows, func(row []string) bool {
		if column >= len(row) || row[column] == "" {
			return false
		}
		const mostDigits = 40 // a sentence may begin with a digit
		cell := []rune(row[column])
		digit := cell[0] >= '0' && cell[0] <= '9'
		seen = seen || digit
		return len(cell) > mostDigits || slices.Contains(cell, '→') || !digit && !strings.ContainsRune("-−–+<>≥≤±", cell[0])
	}) && seen
}
