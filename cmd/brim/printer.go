package main

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
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

// A drawing is a line for each numeric field: how its values went over time, in
// one row of characters, and the bounds of the readings.
//
// However many values come, it keeps a fixed number of cells of equal time, each
// with the mean of its values. When time runs past the last cell, two become one.
type drawing struct {
	kind    kind
	columns int // of the terminal
	levels  []rune
	begin   time.Time
	width   time.Duration // of a cell; 0 before the first value
	cells   int           // of them that are in use
	items   int
	fields  map[string]*curve
}

// A curve is what is kept of one field.
type curve struct {
	sum       [drawingCells]float64
	n         [drawingCells]float64
	low, high float64 // of what is drawn
	min, max  float64 // of the readings
	last      float64
}

const (
	// drawingCells is at least twice what is drawn at most, so that no column is
	// much wider than its neighbour.
	drawingCells = 512
	// maxCurves bounds what is kept, 8 KiB each: more lines say nothing to anybody.
	maxCurves = 64
	maxDrawn  = 120
)

func newDrawing(k kind, columns int, unicode bool) *drawing {
	levels := []rune("▁▂▃▄▅▆▇█")
	if !unicode {
		levels = []rune("_.-=+*#@")
	}
	return &drawing{kind: k, columns: columns, levels: levels, fields: make(map[string]*curve)}
}

// speaksUnicode reports whether the terminal's locale is one of UTF-8.
func speaksUnicode(env []string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToUpper(config.LookupEnv(env, name)); v != "" {
			return strings.Contains(v, "UTF-8") || strings.Contains(v, "UTF8")
		}
	}
	return false
}

// add takes an item; items come in the order of time.
func (d *drawing) add(at time.Time, points map[string]point) {
	if d.width == 0 {
		d.begin, d.width = at, time.Millisecond
	}
	d.items++
	for at.Sub(d.begin) >= drawingCells*d.width {
		d.halve()
	}
	cell := max(0, int(at.Sub(d.begin)/d.width))
	d.cells = max(d.cells, cell+1)
	for name, p := range points {
		c := d.fields[name]
		if c == nil {
			if len(d.fields) == maxCurves {
				continue
			}
			c = &curve{low: p.drawn, high: p.drawn, min: p.min, max: p.max}
			d.fields[name] = c
		}
		c.sum[cell] += p.drawn
		c.n[cell]++
		c.low, c.high, c.last = min(c.low, p.drawn), max(c.high, p.drawn), p.drawn
		c.min, c.max = min(c.min, p.min), max(c.max, p.max)
	}
}

// halve makes one cell of two.
func (d *drawing) halve() {
	d.width *= 2
	d.cells = (d.cells + 1) / 2
	for _, c := range d.fields {
		for i := range drawingCells {
			var sum, n float64
			if 2*i < drawingCells {
				sum, n = c.sum[2*i]+c.sum[2*i+1], c.n[2*i]+c.n[2*i+1]
			}
			c.sum[i], c.n[i] = sum, n
		}
	}
}

// write draws the fields that are named, or all.
func (d *drawing) write(w io.Writer, named []string) error {
	names := slices.Sorted(maps.Keys(d.fields))
	if len(named) > 0 {
		names = slices.DeleteFunc(slices.Clone(named), func(s string) bool { return d.fields[s] == nil })
	}
	if d.items < 2 || len(names) == 0 { // one value is no course
		return nil
	}
	longest, room, bounds := 0, 0, make([]string, len(names))
	for i, name := range names {
		c := d.fields[name]
		bounds[i] = fmt.Sprintf("min %s  max %s  %s %s", short(c.min), short(c.max), d.kind.last, short(c.last))
		longest, room = max(longest, len([]rune(printable(name)))), max(room, len(bounds[i]))
	}
	width := min(d.columns-longest-room-4, maxDrawn, d.cells, d.items)
	legend := "\n"
	if d.kind.legend != "" {
		legend += d.kind.legend + "\n"
	}
	if _, err := io.WriteString(w, legend); err != nil {
		return err
	}
	for i, name := range names {
		line := fmt.Sprintf("%-*s  ", longest, printable(name))
		if width >= 8 || width == min(d.cells, d.items) { // narrower it would say nothing
			line += d.course(d.fields[name], width) + "  "
		}
		if _, err := fmt.Fprintln(w, line+bounds[i]); err != nil {
			return err
		}
	}
	return nil
}

// course is the row of characters; a space where nothing came.
func (d *drawing) course(c *curve, width int) string {
	sums, ns := make([]float64, width), make([]float64, width)
	for i := range d.cells {
		at := i * width / d.cells
		sums[at] += c.sum[i]
		ns[at] += c.n[i]
	}
	row := make([]rune, width)
	for i := range row {
		if row[i] = ' '; ns[i] > 0 {
			row[i] = d.level((sums[i]/ns[i] - c.low) / (c.high - c.low))
		}
	}
	return string(row)
}

// level is the character for a share of the way from the lowest to the highest
// value; where all are alike it is none, and they are drawn in the middle.
func (d *drawing) level(share float64) rune {
	if math.IsNaN(share) || math.IsInf(share, 0) {
		share = 0.5
	}
	return d.levels[min(int(share*float64(len(d.levels))), len(d.levels)-1)]
}

// short formats a number so that it fits beside others.
func short(v float64) string {
	rounded := strconv.FormatFloat(v, 'g', 6, 64)
	if exact := strconv.FormatFloat(v, 'f', -1, 64); len(exact) <= 12 {
		return exact
	}
	return rounded
}
