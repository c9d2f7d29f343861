package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/brim-telemetry/brim/internal/config"
)

// A printer writes items, page by page, in one of the forms of --output. After
// the last page comes end, unless something went wrong, and in any case close.
type printer interface {
	page(items []json.RawMessage) error
	end() error
	close()
}

func (o *queryOptions) newPrinter(p *process, k kind) printer {
	switch {
	case *o.output == "csv":
		return &csvPrinter{w: p.stdout, kind: k, sensor: o.sensor, named: o.fields, shown: config.IsTerminal(p.stdout)}
	case *o.output == "ndjson", *o.output == "json" && k.single:
		return linePrinter{p.stdout}
	case *o.output == "json":
		return &jsonPrinter{w: p.stdout, name: k.name}
	}
	t := &tablePrinter{w: p.stdout, kind: k, named: o.fields}
	if config.IsTerminal(p.stdout) && k.drawn != nil && !k.single {
		t.drawing = newDrawing(k, columnsOf(p.stdout), speaksUnicode(p.env))
	}
	return t
}

// linePrinter writes an item a line, as the daemon gave it.
type linePrinter struct{ w io.Writer }

func (l linePrinter) page(items []json.RawMessage) error {
	for _, r := range items {
		if _, err := l.w.Write(append(slices.Clip(r), '\n')); err != nil {
			return err
		}
	}
	return nil
}

func (linePrinter) end() error { return nil }
func (linePrinter) close()     {}

// jsonPrinter writes one object such as {"readings": […]}.
type jsonPrinter struct {
	w     io.Writer
	name  string
	begun bool
}

func (j *jsonPrinter) page(items []json.RawMessage) error {
	for _, r := range items {
		before := ",\n"
		if !j.begun {
			before, j.begun = j.head(), true
		}
		if _, err := fmt.Fprintf(j.w, "%s%s", before, r); err != nil {
			return err
		}
	}
	return nil
}

func (j *jsonPrinter) head() string { return `{"` + j.name + `":[` }

func (j *jsonPrinter) end() error {
	if !j.begun {
		if _, err := io.WriteString(j.w, j.head()); err != nil {
			return err
		}
	}
	_, err := io.WriteString(j.w, "]}\n")
	return err
}

func (*jsonPrinter) close() {}

// tablePrinter writes a table a page, with a column for each field in it, and
// repeats the head only where the columns change.
type tablePrinter struct {
	w       io.Writer
	kind    kind
	named   []string // columns; none: those that occur
	drawing *drawing // nil: none
	columns []string
}

// absent stands where a row has no value of the column.
const absent = "-"

func (t *tablePrinter) page(items []json.RawMessage) error {
	if len(items) == 0 {
		return nil
	}
	names := make(map[string]bool)
	for _, item := range items {
		_, fields, err := t.kind.row(item, false)
		if err != nil {
			return err
		}
		for name := range fields {
			names[name] = true
		}
	}
	columns := chosen(names, t.named)
	table := tabwriter.NewWriter(t.w, 0, 0, 2, ' ', 0)
	if t.columns == nil || !slices.Equal(columns, t.columns) {
		t.columns = columns
		head := slices.Clone(t.kind.head)
		for _, name := range columns {
			head = append(head, printable(name))
		}
		if _, err := fmt.Fprintln(table, strings.Join(head, "\t")); err != nil {
			return err
		}
	}
	for _, item := range items {
		if err := t.row(table, item); err != nil {
			return err
		}
	}
	return table.Flush()
}

func (t *tablePrinter) row(table io.Writer, item json.RawMessage) error {
	cells, fields, err := t.kind.row(item, false)
	if err != nil {
		return err
	}
	for _, name := range t.columns {
		value := absent
		if raw, ok := fields[name]; ok {
			value = plainText(raw)
		}
		cells = append(cells, value)
	}
	if t.drawing != nil {
		at, points, err := t.kind.drawn(item)
		if err != nil {
			return err
		}
		t.drawing.add(at, points)
	}
	_, err = fmt.Fprintln(table, strings.Join(cells, "\t"))
	return err
}

// chosen are the columns that occur, in the order of inColumns; where some
// were asked for, those, in the order in which they were. Asked for by its
// field, a summary's columns of that field are meant.
func chosen(names map[string]bool, named []string) []string {
	sorted := slices.SortedFunc(maps.Keys(names), inColumns)
	if len(named) == 0 {
		return sorted
	}
	out := make([]string, 0, len(named))
	for _, name := range named {
		of := slices.DeleteFunc(slices.Clone(sorted), func(s string) bool { return s != name && !strings.HasPrefix(s, name+".") })
		if len(of) == 0 {
			of = []string{name}
		}
		out = append(out, of...)
	}
	return out
}

// plainText is a value as a terminal may have it: JSON leaves signs as they are
// that would steer it, or turn what follows around.
func plainText(raw json.RawMessage) string {
	var text string
	if shown := string(raw); printable(shown) == shown || json.Unmarshal(raw, &text) != nil {
		return shown
	}
	return strconv.QuoteToGraphic(text)
}

// printable keeps a name that senders chose from doing things to a terminal.
func printable(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.QuoteToGraphic(name)
	}
	return name
}

func (t *tablePrinter) end() error {
	if t.drawing == nil {
		return nil
	}
	return t.drawing.write(t.w, t.named)
}

func (*tablePrinter) close() {}
