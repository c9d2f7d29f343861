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
)

// A printer writes readings, page by page, in one of the forms of --output.
type printer interface {
	page(readings []json.RawMessage) error
	end() error
}

func newPrinter(output string, w io.Writer) printer {
	switch output {
	case "json":
		return &jsonPrinter{w: w}
	case "ndjson":
		return linePrinter{w: w}
	default:
		return &tablePrinter{w: w}
	}
}

// linePrinter writes a reading a line, as the daemon gave it.
type linePrinter struct{ w io.Writer }

func (l linePrinter) page(readings []json.RawMessage) error {
	for _, r := range readings {
		if _, err := l.w.Write(append(slices.Clip(r), '\n')); err != nil {
			return err
		}
	}
	return nil
}

func (linePrinter) end() error { return nil }

// jsonPrinter writes one object {"readings": […]}.
type jsonPrinter struct {
	w     io.Writer
	begun bool
}

func (j *jsonPrinter) page(readings []json.RawMessage) error {
	for _, r := range readings {
		before := ",\n"
		if !j.begun {
			before, j.begun = `{"readings":[`, true
		}
		if _, err := fmt.Fprintf(j.w, "%s%s", before, r); err != nil {
			return err
		}
	}
	return nil
}

func (j *jsonPrinter) end() error {
	if !j.begun {
		if _, err := io.WriteString(j.w, `{"readings":[`); err != nil {
			return err
		}
	}
	_, err := io.WriteString(j.w, "]}\n")
	return err
}

// tablePrinter writes a table a page, with a column for each field in it, and
// repeats the head only where the columns change.
type tablePrinter struct {
	w       io.Writer
	columns []string
}

// absent stands where a reading does not have the column's field.
const absent = "-"

func (t *tablePrinter) page(readings []json.RawMessage) error {
	type row struct {
		Time   string                     `json:"ts"`
		Fields map[string]json.RawMessage `json:"fields"`
	}
	rows := make([]row, len(readings))
	names := make(map[string]bool)
	for i, r := range readings {
		if err := json.Unmarshal(r, &rows[i]); err != nil {
			return fmt.Errorf("read the daemon's answer: %w", err)
		}
		for name := range rows[i].Fields {
			names[name] = true
		}
	}
	if len(rows) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(t.w, 0, 0, 2, ' ', 0)
	columns := slices.Sorted(maps.Keys(names))
	if !slices.Equal(columns, t.columns) {
		t.columns = columns
		head := []string{"ts"}
		for _, name := range columns {
			head = append(head, printable(name))
		}
		if _, err := fmt.Fprintln(table, strings.Join(head, "\t")); err != nil {
			return err
		}
	}
	for _, r := range rows {
		cells := make([]string, 0, 1+len(columns))
		cells = append(cells, r.Time)
		for _, name := range columns {
			value := absent
			if raw, ok := r.Fields[name]; ok {
				value = string(raw)
			}
			cells = append(cells, value)
		}
		if _, err := fmt.Fprintln(table, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return table.Flush()
}

// printable keeps a name that senders chose from doing things to a terminal.
func printable(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.QuoteToGraphic(name)
	}
	return name
}

func (*tablePrinter) end() error { return nil }
