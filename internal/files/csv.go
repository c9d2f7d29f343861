package files

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// In these CSV files, quotes distinguish strings from numbers, which RFC 4180 leaves open: every
// string is quoted, and nothing else. A cell without quotes is an integer, a double, true, false
// or, if it is empty, no value. encoding/csv does not report which cells were quoted.

type csvWriter struct {
	w      io.Writer
	layout *layout
	cells  []telemetry.Value // of a row; kind 0: none
	buf    []byte
}

func newCSVWriter(w io.Writer, columns []Column) *csvWriter {
	kept := columns[:0:0]
	for _, c := range columns {
		// In CSV, a number's text shows whether it is an integer.
		if c.Kind == telemetry.Int && strings.HasSuffix(c.Name, ".int") {
			continue
		}
		kept = append(kept, c)
	}
	c := &csvWriter{w: w, layout: newLayout(kept), cells: make([]telemetry.Value, len(kept))}
	c.buf = append(c.buf, columnTime+","+columnSensor...)
	for _, one := range kept {
		c.buf = appendHeader(append(c.buf, ','), one.Name)
	}
	c.buf = append(c.buf, '\n')
	return c
}

func appendHeader(dst []byte, name string) []byte {
	if strings.ContainsAny(name, "\",\r\n") || strings.TrimSpace(name) != name {
		return appendQuoted(dst, name)
	}
	return append(dst, name...)
}

func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		if s[i] == '"' {
			dst = append(dst, '"')
		}
		dst = append(dst, s[i])
	}
	return append(dst, '"')
}

func (c *csvWriter) Write(r *telemetry.Reading) error {
	clear(c.cells)
	for i := range r.Fields {
		f := &r.Fields[i]
		if p := c.layout.fields[f.Name]; p != nil {
			c.cells[p.of[f.Value.Kind()]] = f.Value
		}
	}
	for i := range r.Tags {
		c.cells[c.layout.tags[r.Tags[i].Name]] = telemetry.TextValue(r.Tags[i].Value)
	}
	c.buf = telemetry.AppendTime(c.buf, r.Time)
	c.buf = appendQuoted(append(c.buf, ','), r.Sensor)
	for _, v := range c.cells {
		c.buf = append(c.buf, ',')
		switch v.Kind() {
		case 0:
		case telemetry.Text:
			c.buf = appendQuoted(c.buf, v.Text())
		default:
			c.buf = v.AppendJSON(c.buf)
		}
	}
	c.buf = append(c.buf, '\n')
	if len(c.buf) < 64<<10 {
		return nil
	}
	return c.Close()
}

func (c *csvWriter) Close() error {
	_, err := c.w.Write(c.buf)
	c.buf = c.buf[:0]
	return err
}

// A csvReader splits a file into records.
type csvReader struct {
	lines lineReader
	cells []csvCell
	text  []byte // of the cells, without quotes
}

type csvCell struct {
	from, to int // in text
	quoted   bool
}

func (c *csvReader) cell(i int) []byte { return c.text[c.cells[i].from:c.cells[i].to] }

var errQuote = errors.New("a quote is missing, or stands in the middle of a cell")

// next reads the next record. The error io.EOF means the end of the file; errQuote and errLongLine
// concern only this record.
func (c *csvReader) next() (line int64, err error) {
	row, err := c.lines.next()
	line = c.lines.number
	if err != nil {
		return line, err
	}
	c.cells, c.text = c.cells[:0], c.text[:0]
	for {
		row, err = c.take(row)
		if errors.Is(err, errQuote) {
			err = fmt.Errorf("column %d: %w", len(c.cells)+1, err)
		}
		if err != nil || row == nil {
			return line, err
		}
	}
}

// take reads the next cell of the row and returns the rest; nil after the last one.
func (c *csvReader) take(row []byte) (rest []byte, err error) {
	from := len(c.text)
	if len(row) > 0 && row[0] == '"' {
		row, err = c.takeQuoted(row[1:])
		if err != nil {
			return nil, err
		}
		c.cells = append(c.cells, csvCell{from, len(c.text), true})
		if len(row) > 0 && row[0] == ',' {
			return row[1:], nil
		}
		return nil, nil
	}
	end := bytes.IndexByte(row, ',')
	last := end < 0
	if last {
		row = bytes.TrimSuffix(row, []byte("\r"))
		end = len(row)
	}
	if bytes.IndexByte(row[:end], '"') >= 0 {
		return nil, errQuote
	}
	c.text = append(c.text, row[:end]...)
	c.cells = append(c.cells, csvCell{from: from, to: len(c.text)})
	if last {
		return nil, nil
	}
	return row[end+1:], nil
}

// takeQuoted reads the rest of a quoted cell, including the closing quote. The cell may continue
// on the next lines, which are put back if there is no closing quote.
func (c *csvReader) takeQuoted(row []byte) (rest []byte, err error) {
	var more [][]byte
	from := len(c.text)
	for {
		i := bytes.IndexByte(row, '"')
		switch {
		case i >= 0 && i+1 < len(row) && row[i+1] == '"':
			c.text = append(c.text, row[:i+1]...)
			row = row[i+2:]
			continue
		case i >= 0:
			c.text = append(c.text, row[:i]...)
			if row = row[i+1:]; len(row) == 0 || row[0] == ',' || string(row) == "\r" {
				return row, nil
			}
			c.lines.putBack(more)
			return nil, errQuote
		}
		c.text = append(append(c.text, row...), '\n')
		next, err := c.lines.next()
		last := errors.Is(err, io.EOF)
		if err != nil && !last && !errors.Is(err, errLongLine) {
			return nil, err
		}
		row = slices.Clone(next) // nil: it is too long
		if !last {
			more = append(more, row)
		}
		if err != nil || len(more) > stringLines && len(c.text)-from > stringBytes {
			c.lines.putBack(more)
			return nil, errQuote
		}
	}
}

// readCSV reads a file with a header.
func readCSV(r io.Reader, o Options) Rows {
	return func(yield func(Row, error) bool) {
		c := &csvReader{lines: lineReader{r: bufio.NewReaderSize(r, 64<<10)}}
		if _, err := c.next(); err != nil {
			yield(Row{}, fmt.Errorf("read the header: %w", emptyFile(err)))
			return
		}
		head := make([]string, len(c.cells))
		for i := range head {
			head[i] = string(c.cell(i))
		}
		head[0] = strings.TrimPrefix(head[0], "\ufeff") // spreadsheets write a BOM
		sources, err := sourcesOf(head, o.Tags)
		if err != nil {
			yield(Row{}, err)
			return
		}
		words := make(interner)
		for {
			line, err := c.next()
			row := Row{Line: line}
			switch {
			case errors.Is(err, io.EOF):
				return
			case errors.Is(err, errQuote), errors.Is(err, errLongLine):
				row.Err = err
			case err != nil:
				yield(Row{}, fmt.Errorf("read line %d: %w", line, err))
				return
			case len(c.cells) == 1 && c.cells[0].to == 0 && len(sources) > 1:
				continue // an empty line
			default:
				row.Err = c.reading(sources, words, &row.Reading)
			}
			if !yield(row, nil) {
				return
			}
		}
	}
}

func emptyFile(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the file is empty")
	}
	return err
}

// reading converts the record to a reading.
func (c *csvReader) reading(sources []source, words interner, r *telemetry.Reading) (err error) {
	if len(c.cells) != len(sources) {
		return fmt.Errorf("the line has %d cells, and the header %d", len(c.cells), len(sources))
	}
	r.Fields = make([]telemetry.Field, 0, len(sources)-2)
	for i := range sources {
		s, cell, quoted := &sources[i], c.cell(i), c.cells[i].quoted
		if len(cell) == 0 && !quoted {
			continue
		}
		switch s.kind {
		case fromSensor:
			r.Sensor = words.of(cell)
		case fromTime:
			if r.Time, err = parseTime(string(cell)); err != nil {
				return err
			}
		case fromTag:
			r.Tags = append(r.Tags, telemetry.Tag{Name: s.name, Value: words.of(cell)})
		case fromField:
			if v, ok := cellValue(cell, quoted, words); ok {
				s.set(r, v)
			}
		}
	}
	if r.Time.IsZero() {
		return errors.New("ts is missing")
	}
	return nil
}

// cellValue returns the value of a cell; false for NaN, which pandas writes for missing values.
func cellValue(cell []byte, quoted bool, words interner) (v telemetry.Value, ok bool) {
	text := string(cell)
	switch {
	case quoted:
		return telemetry.TextValue(words.of(cell)), true
	case strings.EqualFold(text, "true"), strings.EqualFold(text, "false"):
		return telemetry.BoolValue(strings.EqualFold(text, "true")), true
	case strings.EqualFold(text, "nan"):
		return v, false
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return telemetry.IntValue(n), true
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && text[0] != '+' && !strings.ContainsAny(text, "xX_") {
		return telemetry.FloatValue(f), true
	}
	return telemetry.TextValue(words.of(cell)), true
}
