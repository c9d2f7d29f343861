package files

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/influxdata/line-protocol/v2/lineprotocol"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Line protocol, also as `influx_inspect export` and `influxd inspect export-lp` write
// it. Those write a line for each field of a point, all of one field, then all of the
// next. So lines of one series that follow each other are held back until another series
// begins, and those with the same time and different fields become one reading, as they
// are one point in InfluxDB:
//
//	cpu,host=a idle=90 1000      ┐
//	cpu,host=a idle=80 2000      ├─▶ idle=90,user=5 1000; idle=80,user=7 2000
//	cpu,host=a user=5 1000       │
//	cpu,host=a user=7 2000       ┘

// heldValues is the maximum number of values of a series that are held back: a week of four fields
// every 5 s, some 60 MB. Beyond that, lines are no longer merged.
const heldValues = 500_000

// precisions are the units of timestamps.
var precisions = map[string]lineprotocol.Precision{
	"ns": lineprotocol.Nanosecond, "us": lineprotocol.Microsecond, "ms": lineprotocol.Millisecond, "s": lineprotocol.Second,
}

type influxReader struct {
	lines     lineReader
	precision lineprotocol.Precision
	sensorTag string
	words     interner
	schema    bool // between # DDL and # DML

	series []byte // of the held readings, as text
	sensor string
	tags   []telemetry.Tag
	held   []Row
	at     map[int64]int // index in held of the last reading with a time
	values int
}

func readInflux(r io.Reader, o Options) Rows {
	return func(yield func(Row, error) bool) {
		precision, ok := precisions[cmp.Or(o.Precision, "ns")]
		if !ok {
			yield(Row{}, fmt.Errorf("precision %q is unknown; allowed: ns, us, ms and s", o.Precision))
			return
		}
		in := influxReader{
			lines: lineReader{r: bufio.NewReaderSize(r, 64<<10)}, precision: precision, sensorTag: o.SensorTag,
			words: make(interner), at: make(map[int64]int),
		}
		for {
			entry, line, err := in.next()
			switch {
			case errors.Is(err, io.EOF):
				in.flush(yield)
				return
			case errors.Is(err, errLongLine):
				if !in.flush(yield) || !yield(Row{Line: line, Err: err}, nil) {
					return
				}
				continue
			case err != nil:
				yield(Row{}, fmt.Errorf("read line %d: %w", in.lines.number+1, err))
				return
			}
			if !in.take(entry, line, yield) {
				return
			}
		}
	}
}

// next returns the next point, which may span several lines if a string does.
func (in *influxReader) next() (entry []byte, line int64, err error) {
	for {
		row, err := in.lines.next()
		line = in.lines.number
		if err != nil {
			return nil, line, err
		}
		text := bytes.Trim(row, " \t\r")
		switch {
		case len(text) == 0:
		case text[0] == '#':
			if section := string(bytes.TrimSpace(text[1:])); section == "DDL" || section == "DML" {
				in.schema = section == "DDL"
			}
		case in.schema: // CREATE DATABASE …
		case openString(text):
			entry, err := in.join(bytes.TrimLeft(row, " \t\r")) // the rest is part of the string
			return entry, line, err
		default:
			return text, line, nil
		}
	}
}

// join appends the following lines of a multi-line string, if the string ends.
func (in *influxReader) join(first []byte) (entry []byte, err error) {
	entry = slices.Clone(first)
	length := len(entry)
	var more [][]byte
	for (len(more) < stringLines || len(entry)-length <= stringBytes) && openString(entry) {
		row, err := in.lines.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, errLongLine) {
			return nil, err
		}
		more = append(more, slices.Clone(row)) // nil: it is too long
		if err != nil {
			break
		}
		entry = append(append(entry, '\n'), row...)
	}
	if openString(entry) {
		in.lines.putBack(more)
		entry = entry[:length]
	}
	return bytes.TrimRight(entry, " \t\r"), nil
}

// openString reports whether a point ends inside a string, or has one without a closing quote. A
// string begins with a quote at the beginning of a value, and ends with one at the end.
func openString(entry []byte) bool {
	if bytes.IndexByte(entry, '"') < 0 {
		return false
	}
	i, open := seriesEnd(entry), false
	for ; i < len(entry); i++ {
		switch c := entry[i]; {
		case c == '\\' && (open || escapes(entry[i+1:])):
			i++
		case c == '"' && open:
			if i+1 < len(entry) && !strings.ContainsRune(", \r", rune(entry[i+1])) {
				return true
			}
			open = false
		case c == '"':
			open = entry[i-1] == '='
		}
	}
	return open
}

// escapes reports whether a backslash escapes what follows. Outside of strings, it stands for
// itself before most characters, also before another backslash.
func escapes(rest []byte) bool {
	return len(rest) > 0 && (rest[0] == ' ' || rest[0] == ',' || rest[0] == '=')
}

// seriesEnd returns the length of measurement and tags.
func seriesEnd(entry []byte) int {
	for i := 0; i < len(entry); i++ {
		switch c := entry[i]; {
		case c == '\\' && escapes(entry[i+1:]):
			i++
		case c == ' ':
			return i
		}
	}
	return len(entry)
}

// take decodes a point and holds it; false if the consumer stopped.
func (in *influxReader) take(entry []byte, line int64, yield func(Row, error) bool) bool {
	series := entry[:seriesEnd(entry)]
	if !bytes.Equal(series, in.series) || in.values >= heldValues {
		if !in.flush(yield) {
			return false
		}
		in.series = in.series[:0] // until it is decoded
	}
	row := Row{Line: line}
	d := lineprotocol.NewDecoderWithBytes(entry)
	if row.Err = in.decode(d, &row.Reading, len(in.series) > 0); row.Err != nil {
		return yield(row, nil)
	}
	in.series = append(in.series[:0], series...)
	in.hold(row)
	return true
}

// hold holds a reading, or adds its fields to a held one with the same time.
func (in *influxReader) hold(row Row) {
	r := &row.Reading
	in.values += len(r.Fields)
	if i, ok := in.at[r.Time.UnixNano()]; ok {
		held := &in.held[i].Reading
		if len(held.Fields)+len(r.Fields) <= telemetry.MaxFields && !shareField(held.Fields, r.Fields) {
			held.Fields = append(held.Fields, r.Fields...)
			return
		}
	}
	in.at[r.Time.UnixNano()] = len(in.held)
	in.held = append(in.held, row)
}

func shareField(a, b []telemetry.Field) bool {
	for i := range b {
		if slices.ContainsFunc(a, func(f telemetry.Field) bool { return f.Name == b[i].Name }) {
			return true
		}
	}
	return false
}

// flush yields the held readings.
func (in *influxReader) flush(yield func(Row, error) bool) bool {
	for i := range in.held {
		in.held[i].Reading.Time = floorMillis(in.held[i].Reading.Time)
		if !yield(in.held[i], nil) {
			return false
		}
	}
	clear(in.held)
	clear(in.at)
	in.held, in.values = in.held[:0], 0
	return true
}

// decode decodes a point; known says that it has the same series as the last one.
func (in *influxReader) decode(d *lineprotocol.Decoder, r *telemetry.Reading, known bool) error {
	if !d.Next() {
		return errors.New("a point was expected")
	}
	measurement, err := d.Measurement()
	if err != nil {
		return pointError(err)
	}
	if !known {
		if err := in.decodeSeries(d, measurement); err != nil {
			return err
		}
	}
	r.Sensor, r.Tags = in.sensor, in.tags
	for {
		name, value, err := d.NextField()
		if err != nil {
			return pointError(err)
		}
		if name == nil {
			break
		}
		v, err := in.value(value)
		if err != nil {
			return fmt.Errorf("field %s: %w", telemetry.Quote(name), err)
		}
		r.Fields = append(r.Fields, telemetry.Field{Name: withoutDots(in.words.of(name)), Value: v})
	}
	if r.Time, err = d.Time(in.precision, r.Time); err != nil {
		return pointError(err)
	}
	if r.Time.IsZero() {
		return errors.New("the timestamp is missing")
	}
	return nil
}

// decodeSeries decodes the tags, and derives the sensor id.
func (in *influxReader) decodeSeries(d *lineprotocol.Decoder, measurement []byte) error {
	key := telemetry.AppendSeriesWord(nil, measurement, false)
	var tags []telemetry.Tag
	for {
		name, value, err := d.NextTag()
		if err != nil {
			return pointError(err)
		}
		if name == nil {
			break
		}
		tags = append(tags, telemetry.Tag{Name: in.words.of(name), Value: in.words.of(value)})
	}
	sorted := slices.Clone(tags)
	slices.SortStableFunc(sorted, func(a, b telemetry.Tag) int { return cmp.Compare(a.Name, b.Name) })
	for _, t := range sorted {
		key = telemetry.AppendSeriesWord(append(key, ','), []byte(t.Name), true)
		key = telemetry.AppendSeriesWord(append(key, '='), []byte(t.Value), true)
	}
	in.sensor, in.tags = string(key), slices.Clone(tags)
	for i := range in.tags {
		in.tags[i].Name = withoutDots(in.tags[i].Name)
	}
	if in.sensorTag == "" {
		return nil
	}
	i := slices.IndexFunc(tags, func(t telemetry.Tag) bool { return t.Name == in.sensorTag })
	if i < 0 {
		return fmt.Errorf("the line has no tag %s, which holds the sensor id (--sensor-tag)", telemetry.Quote([]byte(in.sensorTag)))
	}
	in.sensor = tags[i].Value
	return nil
}

// withoutDots replaces the dots in the name of a field or tag, as the daemon does for line protocol.
func withoutDots(name string) string { return strings.ReplaceAll(name, ".", "_") }

func (in *influxReader) value(v lineprotocol.Value) (telemetry.Value, error) {
	switch v.Kind() {
	case lineprotocol.Int:
		return telemetry.IntValue(v.IntV()), nil
	case lineprotocol.Uint:
		if v.UintV() > math.MaxInt64 {
			return telemetry.Value{}, fmt.Errorf("%d does not fit a signed 64-bit integer", v.UintV())
		}
		return telemetry.IntValue(int64(v.UintV())), nil
	case lineprotocol.Bool:
		return telemetry.BoolValue(v.BoolV()), nil
	case lineprotocol.String:
		return telemetry.TextValue(in.words.of(v.BytesV())), nil
	case lineprotocol.Float:
		return telemetry.FloatValue(v.FloatV()), nil
	}
	return telemetry.Value{}, errors.New("its value is of no known kind")
}

// pointError removes the line number from a decoder's error, which is always 1.
func pointError(err error) error {
	if at, ok := errors.AsType[*lineprotocol.DecodeError](err); ok {
		return fmt.Errorf("column %d: %w", at.Column, at.Err)
	}
	return err
}
