package main

import (
	"bufio"
	"bytes"
	"cmp"
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
	"time"
	"unicode"

	"github.com/brim-telemetry/brim/internal/config"
)

// A kind describes the items of an answer, and how to decode them.
type kind struct {
	name   string   // of the array in the answer
	item   string   // singular name of an item
	single bool     // the answer is one item itself
	paged  bool     // the daemon returns it page by page
	lines  bool     // it is asked for as NDJSON
	head   []string // columns that every row has
	// decode makes a row. whole says that nothing may be omitted, as in CSV.
	decode func(item json.RawMessage, whole bool) (row, error)
	legend string // of the drawing; empty: none
	last   string // label of the last value of the drawing; empty: there is no drawing
}

// A row is a decoded item.
type row struct {
	item   json.RawMessage // as the daemon returned it
	at     time.Time
	head   []string
	values map[string]json.RawMessage // by column
}

// split splits the column of a summary, like t.mean, into the field and its statistic.
func (k kind) split(column string) (field, statistic string) {
	if i := strings.LastIndexByte(column, '.'); i > 0 && k.item == "step" {
		return column[:i], column[i+1:]
	}
	return column, ""
}

// compare compares columns: by field, and then a summary's statistics in the order n, min, mean, max.
func (k kind) compare(a, b string) int {
	order := []string{"n", "min", "mean", "max"}
	fieldA, statisticA := k.split(a)
	fieldB, statisticB := k.split(b)
	return cmp.Or(cmp.Compare(fieldA, fieldB), cmp.Compare(slices.Index(order, statisticA), slices.Index(order, statisticB)), cmp.Compare(a, b))
}

// chosen returns the columns that occur, sorted; or, if columns were requested, those in the
// requested order. A field's name selects all its columns in a summary.
func (k kind) chosen(names map[string]bool, named []string) []string {
	sorted := slices.SortedFunc(maps.Keys(names), k.compare)
	if len(named) == 0 {
		return sorted
	}
	out := make([]string, 0, len(named))
	for _, name := range named {
		of := slices.DeleteFunc(slices.Clone(sorted), func(s string) bool {
			field, _ := k.split(s)
			return s != name && field != name
		})
		if len(of) == 0 {
			of = []string{name}
		}
		out = append(out, of...)
	}
	return out
}

// readingsKind has a column for each field; only CSV includes tags. Field names have no dot, so
// they differ from those of tags.
func readingsKind() kind {
	return kind{name: "readings", item: "reading", paged: true, head: []string{"ts"}, last: "last", decode: func(item json.RawMessage, whole bool) (row, error) {
		var r struct {
			TS           string
			Fields, Tags map[string]json.RawMessage
		}
		if err := json.Unmarshal(item, &r); err != nil {
			return row{}, err
		}
		out := row{item: item, head: []string{r.TS}, values: r.Fields}
		out.at, _ = time.Parse(time.RFC3339Nano, r.TS) // only needed for a drawing
		if whole && len(r.Tags) > 0 {
			out.values = maps.Clone(r.Fields)
			if out.values == nil {
				out.values = make(map[string]json.RawMessage)
			}
			for name, value := range r.Tags {
				out.values["tags."+name] = value
			}
		}
		return out, nil
	}}
}

func latestKind() kind {
	k := readingsKind()
	k.single, k.paged = true, false
	return k
}

// summaryKind has columns such as t.min for the statistics of field t.
func summaryKind() kind {
	return kind{
		name: "summary", item: "step", lines: true, head: []string{"start", "count"}, last: "last mean",
		legend: "drawn: the mean of each step; min and max: of the readings", decode: func(item json.RawMessage, whole bool) (row, error) {
			var s struct {
				Start  string
				Count  int64
				Fields map[string]map[string]json.RawMessage
			}
			if err := json.Unmarshal(item, &s); err != nil {
				return row{}, err
			}
			out := row{item: item, head: []string{s.Start, strconv.FormatInt(s.Count, 10)}, values: make(map[string]json.RawMessage, 4*len(s.Fields))}
			out.at, _ = time.Parse(time.RFC3339Nano, s.Start) // only needed for a drawing
			for field, statistics := range s.Fields {
				for name, value := range statistics {
					switch {
					case string(value) == "null": // a mean whose sum does not fit a double
						continue
					case whole:
					case name == "n": // mostly it is the step's count
						continue
					case name == "mean":
						value = rounded(value)
					}
					out.values[field+"."+name] = value
				}
			}
			return out, nil
		},
	}
}

// sensorsKind shows also how old the newest reading is, except in CSV.
func sensorsKind(now time.Time) kind {
	return kind{name: "sensors", item: "sensor", paged: true, head: []string{"sensorId", "newest"}, decode: func(item json.RawMessage, whole bool) (row, error) {
		var s struct {
			SensorID   string
			Newest     time.Time
			Tags       map[string]string
			Fields     []string
			TextFields []string
		}
		if err := json.Unmarshal(item, &s); err != nil {
			return row{}, err
		}
		out := row{
			item: item, at: s.Newest, head: []string{s.SensorID, s.Newest.UTC().Format("2006-01-02T15:04:05.000Z")},
			values: make(map[string]json.RawMessage),
		}
		if !whole {
			out.values["age"] = json.RawMessage(formatAge(now.Sub(s.Newest)))
		}
		for name, value := range s.Tags {
			out.values["tags."+name], _ = json.Marshal(value) // a string always can be
		}
		if fields := slices.Concat(s.Fields, s.TextFields); len(fields) > 0 {
			slices.Sort(fields)
			out.values["fields"], _ = json.Marshal(strings.Join(slices.Compact(fields), " ")) // likewise
		}
		return out, nil
	}}
}

// formatAge is a duration in whole units that matter; a reading may be ahead of the
// clock.
func formatAge(d time.Duration) string {
	unit := time.Second
	switch {
	case d < 0:
		return "ahead"
	case d >= 48*time.Hour:
		unit = time.Hour
	case d >= time.Hour:
		unit = time.Minute
	}
	return config.FormatDuration(d.Truncate(unit))
}

// rounded returns a mean with ten significant digits, or more if its integer part has
// more. Further digits are artefacts of the division.
func rounded(raw json.RawMessage) json.RawMessage {
	var v float64
	if json.Unmarshal(raw, &v) != nil || math.Abs(v) >= 1e10 {
		return raw
	}
	return strconv.AppendFloat(nil, v, 'g', 10, 64)
}

// A printer writes rows, page by page, in one of the forms of --output. After
// the last page comes end, unless something went wrong.
type printer interface {
	page(rows []row) error
	end() error
}

// newPrinter returns the printer that was asked for, and what to call at last; seen will have the
// columns of the rows that were printed, those of a page before the page.
func (o *queryOptions) newPrinter(p *process, k kind, seen map[string]bool) (out printer, closeOut func()) {
	terminal := config.IsTerminal(p.stdout)
	closeOut = func() {}
	switch {
	case *o.output == "csv":
		c := &csvPrinter{w: p.stdout, kind: k, sensor: o.sensor, named: o.fields, seen: seen, terminal: terminal}
		out, closeOut = c, c.close
	case *o.output == "ndjson", *o.output == "json" && k.single:
		out = &itemPrinter{w: p.stdout, after: "\n"}
	case *o.output == "json":
		out = &itemPrinter{w: p.stdout, next: `{"` + k.name + `":[`, between: ",\n", last: "]}\n"}
	default:
		t := &tablePrinter{w: p.stdout, kind: k, named: o.fields}
		if terminal && k.last != "" && !k.single {
			t.drawing = newDrawing(k, columnsOf(p.stdout))
		}
		out = t
	}
	return out, closeOut
}

// itemPrinter writes items as they came: one a line, or as one object such as {"readings": […]}.
type itemPrinter struct {
	w              io.Writer
	next           string // to be written before the next item, or the end
	between, after string
	last           string
}

func (i *itemPrinter) page(rows []row) error {
	for _, r := range rows {
		if _, err := fmt.Fprintf(i.w, "%s%s%s", i.next, r.item, i.after); err != nil {
			return err
		}
		i.next = i.between
	}
	return nil
}

func (i *itemPrinter) end() error {
	_, err := io.WriteString(i.w, strings.TrimPrefix(i.next, i.between)+i.last)
	return err
}

// tablePrinter writes a table a page, with a column for each field in it, and
// repeats the head only where the columns change.
type tablePrinter struct {
	w       io.Writer
	kind    kind
	named   []string // columns; none: those that occur
	drawing *drawing // nil: none
	columns []string
}

// absent is shown where a row has no value of the column.
const absent = "-"

func (t *tablePrinter) page(rows []row) error {
	if len(rows) == 0 {
		return nil
	}
	names := make(map[string]bool)
	for _, r := range rows {
		for name := range r.values {
			names[name] = true
		}
	}
	var head []string
	if columns := t.kind.chosen(names, t.named); t.columns == nil || !slices.Equal(columns, t.columns) {
		t.columns = columns
		head = slices.Concat(t.kind.head, columns)
	}
	var table [][]string
	for _, r := range rows {
		cells := slices.Clone(r.head)
		for _, name := range t.columns {
			value := absent
			if raw, ok := r.values[name]; ok {
				value = plainText(raw)
			}
			cells = append(cells, value)
		}
		table = append(table, cells)
		if t.drawing != nil {
			t.drawing.add(r)
		}
	}
	_, err := io.WriteString(t.w, tableText(head, table))
	return err
}

func (t *tablePrinter) end() error {
	if t.drawing == nil {
		return nil
	}
	return t.drawing.write(t.w, t.named)
}

// plainText returns a value that is safe for a terminal: JSON does not escape all characters that
// control a terminal or reverse the text direction.
func plainText(raw json.RawMessage) string {
	var text string
	if shown := string(raw); printable(shown) == shown || json.Unmarshal(raw, &text) != nil {
		return shown
	}
	return strconv.QuoteToGraphic(text)
}

// printable quotes a name that senders chose if it could control a terminal.
func printable(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.QuoteToGraphic(name)
	}
	return name
}

// csvPrinter writes RFC 4180: a header, and one row per item. All columns are known only after the
// last item was read, and a field that occurs late must not be omitted, so items are kept in a
// temporary file. Readings are written at once if the columns are given.
type csvPrinter struct {
	w        io.Writer
	kind     kind
	sensor   string          // of all rows; empty: each row names its own
	named    []string        // columns; none: those that occur
	seen     map[string]bool // columns that occur
	terminal bool            // names that senders chose must not control it

	out   *bufio.Writer // nil before the header is written
	spool *os.File      // one item per line
	lines *bufio.Writer
}

func (c *csvPrinter) page(rows []row) (err error) {
	if len(c.named) > 0 && c.kind.name == "readings" {
		return errors.Join(c.rows(c.named, rows), c.out.Flush())
	}
	if c.spool == nil {
		if c.spool, err = os.CreateTemp("", "brim-query-"); err != nil {
			return fmt.Errorf("keep the answer until its columns are known; --fields can name them: %w", err)
		}
		c.lines = bufio.NewWriter(c.spool)
	}
	return (&itemPrinter{w: c.lines, after: "\n"}).page(rows)
}

// end writes the rows in the temporary file.
func (c *csvPrinter) end() error {
	if c.spool == nil {
		return nil
	}
	if err := c.lines.Flush(); err != nil {
		return err
	}
	if _, err := c.spool.Seek(0, io.SeekStart); err != nil {
		return err
	}
	columns := c.kind.chosen(c.seen, c.named)
	if err := c.rows(columns, nil); err != nil { // the header, even without rows
		return err
	}
	for decoder := json.NewDecoder(bufio.NewReader(c.spool)); decoder.More(); {
		var item json.RawMessage
		if err := decoder.Decode(&item); err != nil {
			return err
		}
		one, err := c.kind.decode(item, true)
		if err != nil {
			return err
		}
		if err := c.rows(columns, []row{one}); err != nil {
			return err
		}
	}
	return c.out.Flush()
}

// rows writes rows, after a header if they are the first.
func (c *csvPrinter) rows(columns []string, rows []row) error {
	var sensor, its []string
	if c.sensor != "" {
		sensor, its = []string{"sensorId"}, []string{c.sensor}
	}
	if c.out == nil {
		c.out = bufio.NewWriter(c.w)
		if err := c.write(slices.Concat(sensor, c.kind.head, columns)); err != nil {
			return err
		}
	}
	for _, r := range rows {
		cells := slices.Concat(its, r.head)
		for _, name := range columns {
			cell := string(r.values[name])
			if strings.HasPrefix(cell, `"`) { // a string goes without its JSON
				if err := json.Unmarshal(r.values[name], &cell); err != nil {
					return err
				}
			}
			cells = append(cells, cell)
		}
		if err := c.write(cells); err != nil {
			return err
		}
	}
	return nil
}

// write ends a row with CR and LF, and leaves line ends inside cells as they are, which
// csv.Writer would not.
func (c *csvPrinter) write(cells []string) error {
	if c.terminal {
		for i := range cells {
			cells[i] = printable(cells[i])
		}
	}
	var line bytes.Buffer
	one := csv.NewWriter(&line)
	if err := one.Write(cells); err != nil {
		return err
	}
	one.Flush()
	_, err := c.out.Write(append(bytes.TrimSuffix(line.Bytes(), []byte("\n")), "\r\n"...))
	return err
}

func (c *csvPrinter) close() {
	if c.spool != nil {
		_ = c.spool.Close()
		_ = os.Remove(c.spool.Name())
	}
}

// A drawing has a line for each numeric field: its values over time, as a sparkline, and the
// bounds of the readings.
type drawing struct {
	kind    kind
	columns int // of the terminal
	begin   time.Time
	end     time.Time
	items   int
	fields  map[string]*fieldSeries
}

// A fieldSeries has the values of one field.
type fieldSeries struct {
	at       []time.Time
	values   []float64 // that are drawn
	min, max float64   // of the readings
}

const maxDrawn = 120 // characters

func newDrawing(k kind, columns int) *drawing {
	return &drawing{kind: k, columns: columns, fields: make(map[string]*fieldSeries)}
}

// add takes a row; rows come in the order of time. Of a summary the means are drawn.
func (d *drawing) add(r row) {
	if d.items++; d.items == 1 {
		d.begin = r.at
	}
	d.end = r.at
	for column, raw := range r.values {
		var v float64
		if raw[0] == '"' || json.Unmarshal(raw, &v) != nil {
			continue // it is no number
		}
		field, statistic := d.kind.split(column)
		c := d.fields[field]
		if c == nil {
			c = &fieldSeries{min: v, max: v}
			d.fields[field] = c
		}
		c.min, c.max = min(c.min, v), max(c.max, v)
		if statistic == "" || statistic == "mean" {
			c.at, c.values = append(c.at, r.at), append(c.values, v)
		}
	}
}

// write draws the fields that are named, or all.
func (d *drawing) write(w io.Writer, named []string) error {
	names := slices.Sorted(maps.Keys(d.fields))
	if len(named) > 0 {
		names = slices.Clone(named)
	}
	names = slices.DeleteFunc(names, func(s string) bool { return d.fields[s] == nil || len(d.fields[s].values) == 0 })
	if d.items < 2 || len(names) == 0 { // a single value is not drawn
		return nil
	}
	longest, room, bounds := 0, 0, make([]string, len(names))
	for i, name := range names {
		c := d.fields[name]
		bounds[i] = fmt.Sprintf("min %s  max %s  %s %s", short(c.min), short(c.max), d.kind.last, short(c.values[len(c.values)-1]))
		longest, room = max(longest, len([]rune(printable(name)))), max(room, len(bounds[i]))
	}
	width := min(d.columns-longest-room-4, maxDrawn, d.items)
	var text strings.Builder
	text.WriteString("\n")
	if d.kind.legend != "" {
		text.WriteString(d.kind.legend + "\n")
	}
	for i, name := range names {
		_, _ = fmt.Fprintf(&text, "%-*s  ", longest, printable(name))
		if width >= 8 || width == d.items { // anything narrower would show nothing
			text.WriteString(d.sparkline(d.fields[name], width) + "  ")
		}
		text.WriteString(bounds[i] + "\n")
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// sparkline returns one character for each of width equal time spans; a space if a span has no
// values.
func (d *drawing) sparkline(c *fieldSeries, width int) string {
	levels, span := []rune("▁▂▃▄▅▆▇█"), max(d.end.Sub(d.begin), 1)
	sums, ns := make([]float64, width), make([]float64, width)
	for i, v := range c.values {
		at := min(int(float64(width)*float64(c.at[i].Sub(d.begin))/float64(span)), width-1)
		sums[max(at, 0)] += v
		ns[max(at, 0)]++
	}
	low, high := slices.Min(c.values), slices.Max(c.values)
	out := make([]rune, width)
	for i := range out {
		if out[i] = ' '; ns[i] > 0 {
			part := (sums[i]/ns[i] - low) / (high - low)
			if math.IsNaN(part) || math.IsInf(part, 0) { // all values are alike
				part = 0.5
			}
			out[i] = levels[min(int(part*float64(len(levels))), len(levels)-1)]
		}
	}
	return string(out)
}

// short formats a number compactly.
func short(v float64) string {
	if exact := strconv.FormatFloat(v, 'f', -1, 64); len(exact) <= 12 {
		return exact
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}
