package main

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// csvPrinter writes RFC 4180: a header, and a row an item. What columns there
// are is known only when the last item was seen, and a field that occurs late
// must not be left out. So pages wait in a temporary file, but for the first: most
// answers have no other. Where the columns are named they are written at once.
type csvPrinter struct {
	w      io.Writer
	kind   kind
	sensor string   // of all rows; empty: each row names its own
	named  []string // columns; none: those that occur
	shown  bool     // on a terminal, which what senders chose must not steer

	out   *csv.Writer     // writes rows into one; nil before the header is written
	one   bytes.Buffer    // a row
	rest  *bufio.Writer   // gathers rows for w
	names map[string]bool // that occur
	first []json.RawMessage
	aside *os.File // pages behind the first, an item a line
	lines *bufio.Writer
}

func (c *csvPrinter) page(items []json.RawMessage) error {
	if len(c.named) > 0 && c.kind.name == "readings" {
		if err := c.head(c.named); err != nil {
			return err
		}
		return c.rows(slices.Values(items))
	}
	if c.names == nil {
		c.names = make(map[string]bool)
	}
	for _, item := range items {
		_, fields, err := c.kind.row(item, true)
		if err != nil {
			return err
		}
		for name := range fields {
			c.names[name] = true
		}
	}
	if c.first == nil {
		c.first = items
		return nil
	}
	return c.putAside(items)
}

func (c *csvPrinter) putAside(items []json.RawMessage) error {
	if c.aside == nil {
		var err error
		if c.aside, err = os.CreateTemp("", "brim-query-"); err != nil {
			return fmt.Errorf("keep an answer of several pages, whose columns --fields can name: %w", err)
		}
		c.lines = bufio.NewWriter(c.aside)
	}
	for _, item := range items {
		if _, err := c.lines.Write(append(slices.Clip(item), '\n')); err != nil {
			return err
		}
	}
	return nil
}

// end writes what waits.
func (c *csvPrinter) end() error {
	if err := c.head(chosen(c.names, c.named)); err != nil {
		return err
	}
	if err := c.rows(slices.Values(c.first)); err != nil {
		return err
	}
	if c.aside == nil {
		return nil
	}
	if err := c.lines.Flush(); err != nil {
		return err
	}
	if _, err := c.aside.Seek(0, io.SeekStart); err != nil {
		return err
	}
	decoder := json.NewDecoder(bufio.NewReader(c.aside))
	var broken error
	err := c.rows(func(yield func(json.RawMessage) bool) {
		for more := true; more; {
			var item json.RawMessage
			if err := decoder.Decode(&item); err != nil {
				if !errors.Is(err, io.EOF) {
					broken = err
				}
				return
			}
			more = yield(item)
		}
	})
	return errors.Join(err, broken)
}

// head writes the header, once.
func (c *csvPrinter) head(columns []string) error {
	if c.out != nil {
		return nil
	}
	c.out, c.rest = csv.NewWriter(&c.one), bufio.NewWriter(c.w)
	c.named = columns
	if c.sensor != "" {
		return c.row(slices.Concat([]string{"sensorId"}, c.kind.head, columns))
	}
	return c.row(slices.Concat(c.kind.head, columns))
}

// row ends a row with CR and LF, and leaves those inside its cells as they are,
// which csv.Writer would not.
func (c *csvPrinter) row(cells []string) error {
	if c.shown {
		for i := range cells {
			cells[i] = printable(cells[i])
		}
	}
	c.one.Reset()
	if err := c.out.Write(cells); err != nil {
		return err
	}
	c.out.Flush()
	if err := c.out.Error(); err != nil {
		return err
	}
	_, err := c.rest.Write(append(bytes.TrimSuffix(c.one.Bytes(), []byte("\n")), "\r\n"...))
	return err
}

func (c *csvPrinter) rows(items func(yield func(json.RawMessage) bool)) error {
	for item := range items {
		cells, fields, err := c.kind.row(item, true)
		if err != nil {
			return err
		}
		if c.sensor != "" {
			cells = append([]string{c.sensor}, cells...)
		}
		for _, name := range c.named {
			value, err := cellOf(fields[name])
			if err != nil {
				return err
			}
			cells = append(cells, value)
		}
		if err := c.row(cells); err != nil {
			return err
		}
	}
	return c.rest.Flush()
}

// cellOf is a value as CSV has it: a string without its JSON, and nothing for
// what is not there.
func cellOf(raw json.RawMessage) (string, error) {
	if len(raw) == 0 || raw[0] != '"' {
		return string(raw), nil
	}
	return decodeItem[string](raw)
}

func (c *csvPrinter) close() {
	if c.aside != nil {
		_ = c.aside.Close()
		_ = os.Remove(c.aside.Name())
	}
}
