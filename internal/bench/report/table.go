package report

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"
)

// A grid is a table of text in the form of Markdown. Where it is wider than it may
// be, cells go on in the lines below, which no longer is Markdown and can be read
// in a terminal.
type grid struct {
	head []string
	rows [][]string
}

// writeTo writes the table, at most width characters wide; 0: as wide as it is.
func (g grid) writeTo(b *bytes.Buffer, width int) {
	columns := len(g.head)
	for _, row := range g.rows {
		columns = max(columns, len(row))
	}
	right := make([]bool, columns)
	for i := range right {
		right[i] = i > 0 && figures(g.rows, i)
	}
	widths, wrapped := g.widths(columns, width)
	g.line(b, g.head, widths, right)
	for i, w := range widths {
		rule := strings.Repeat("-", w)
		if right[i] {
			rule = rule[1:] + ":"
		}
		b.WriteString("| " + rule + " ")
	}
	b.WriteString("|\n")
	for i, row := range g.rows {
		if wrapped && i > 0 {
			g.line(b, nil, widths, right) // or it could not be seen where a row begins
		}
		g.line(b, row, widths, right)
	}
}

// least is how narrow a column may become before the table becomes too wide.
const least = 3

// widths are those of the columns: as the cells are, or, where that is too much,
// with what there is given to all alike, but no more than they need.
func (g grid) widths(columns, width int) (widths []int, wrapped bool) {
	natural, word := make([]int, columns), make([]int, columns)
	for _, row := range append([][]string{g.head}, g.rows...) {
		for i, cell := range row {
			cell = escape(cell)
			natural[i] = max(natural[i], utf8.RuneCountInString(cell), least)
			word[i] = max(word[i], longestWord(cell), least)
		}
	}
	room := width - 3*columns - 1 // "| " before each, " " behind it, and the last "|"
	if width <= 0 || sum(natural) <= room {
		return natural, false
	}
	widths = word
	for spare := room - sum(widths); spare > 0; spare-- {
		at := g.tallest(widths, natural)
		if at < 0 {
			break
		}
		widths[at]++
	}
	return widths, true
}

// tallest is the column that makes most rows as tall as they are, and would be
// less so if it were wider; -1: none.
func (g grid) tallest(widths, natural []int) int {
	blame := make([]int, len(widths))
	for _, row := range g.rows {
		lines, most := make([]int, len(widths)), 0
		for i, cell := range row {
			lines[i] = len(wrap(escape(cell), widths[i]))
			most = max(most, lines[i])
		}
		for i, n := range lines {
			if n == most && n > 1 {
				blame[i] += n
			}
		}
	}
	at := -1
	for i, w := range widths {
		if w < natural[i] && (at < 0 || blame[i] > blame[at]) {
			at = i
		}
	}
	return at
}

// line writes one row, in as many lines as its cells need.
func (grid) line(b *bytes.Buffer, cells []string, widths []int, right []bool) {
	parts, lines := make([][]string, len(widths)), 1
	for i, w := range widths {
		if i < len(cells) {
			parts[i] = wrap(escape(cells[i]), w)
			lines = max(lines, len(parts[i]))
		}
	}
	for n := range lines {
		for i, w := range widths {
			text := ""
			if n < len(parts[i]) {
				text = parts[i][n]
			}
			pad := strings.Repeat(" ", max(0, w-utf8.RuneCountInString(text)))
			if right[i] {
				text = pad + text
			} else {
				text += pad
			}
			b.WriteString("| " + text + " ")
		}
		b.WriteString("|\n")
	}
}

// escape keeps a cell from ending at what stands in it.
func escape(cell string) string { return strings.ReplaceAll(oneLine(cell), "|", `\|`) }

func longestWord(s string) int {
	longest := 0
	for _, word := range words(s) {
		longest = max(longest, utf8.RuneCountInString(word))
	}
	return longest
}

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

func sum(all []int) (total int) {
	for _, v := range all {
		total += v
	}
	return total
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
