package report

import (
	"bytes"
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
			prefix, rest, text := "", "", oneLine(cell)
			if j > 0 {
				prefix, rest, text = "  ", "    ", g.head[j]+": "+text
			}
			for _, line := range wrap(text, max(width-len(rest), 20)) {
				b.WriteString(prefix + line + "\n")
				prefix = rest
			}
		}
	}
}

// escape keeps a cell from ending at what stands in it.
func escape(cell string) string { return strings.ReplaceAll(oneLine(cell), "|", `\|`) }

// words are what a line may be divided between: a figure stays with its unit.
func words(s string) []string {
	var out []string
	for word := range strings.FieldsSeq(s) {
		last := len(out) - 1
		if last >= 0 && endsInDigit(out[last]) && isUnit(strings.TrimRight(word, ",;:.)")) {
			out[last] += " " + word
			continue
		}
		out = append(out, word)
	}
	return out
}

func endsInDigit(s string) bool { return s[len(s)-1] >= '0' && s[len(s)-1] <= '9' }

func isUnit(s string) bool {
	switch s {
	case "s", "ms", "µs", "us", "min", "h", "d", "%", "B", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB":
		return true
	}
	return false
}

// wrap divides s at blanks into lines of at most so many characters, unless a
// word is longer; 0: one line.
func wrap(s string, width int) []string {
	if width <= 0 {
		return []string{s}
	}
	var lines []string
	line, has := "", 0
	for _, word := range words(s) {
		n := utf8.RuneCountInString(word)
		switch {
		case line == "":
			line, has = word, n
		case has+1+n <= width:
			line, has = line+" "+word, has+1+n
		default:
			lines = append(lines, line)
			line, has = word, n
		}
	}
	return append(lines, line)
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
