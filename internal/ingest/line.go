package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/influxdata/line-protocol/v2/lineprotocol"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A lineDecoder decodes line protocol.
type lineDecoder struct {
	in        *intake
	precision precision
	sensorTag string
	plain     bool // everything takes the plain path

	// The series of the line at hand, if it had to be decoded.
	measurement []byte
	tags        []lineTag
	simple      bool   // no word of it needs an escape
	words       []byte // where the plain path keeps the words
	sensor      []byte // that was made of them

	// Most requests hold several lines of a series, and tags are the longest
	// part of a line. So what stands in front of the first space is looked up,
	// behind the stream that the request was sent to, before it is decoded.
	alias []byte // empty where nothing was looked up
	shift int    // bytes of the line that were not decoded

	// What the fast path saw of earlier lines.
	names    []byte // of the last one's fields, each with its equals sign
	nameEnds []int
	like     likeness
}

// newLineDecoder returns a decoder that gives its readings to in.
func newLineDecoder(in *intake, p precision) *lineDecoder {
	return &lineDecoder{in: in, precision: p, sensorTag: in.door.config.SensorTag}
}

// decodeLineProtocol decodes a body of line protocol. Comments and empty lines
// do not count; a line whose syntax is wrong is refused like one that breaks
// another rule.
func (in *intake) decodeLineProtocol(b *body, p precision) error {
	in.meaning = meaning{form: meansLineProtocol, ratio: p.ratio}
	in.times.Unit = p.name
	l := in.door.lines.get(b)
	defer in.door.lines.put(l)
	return newLineDecoder(in, p).all(l)
}

// all decodes all lines.
func (d *lineDecoder) all(l *lines) error {
	for {
		line, long, err := l.next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if !long && isBlank(line) {
			continue
		}
		if d.in.lines == nil {
			d.in.lines = make([]uint32, 0, l.guess())
		}
		d.in.lines = append(d.in.lines, uint32(l.number))
		if long {
			if err := d.refuse(telemetry.Refuse(telemetry.Malformed, "the line is longer than %d bytes", maxReadingBytes)); err != nil {
				return err
			}
			continue
		}
		if err := d.entry(l, line); err != nil {
			return err
		}
	}
}

// isBlank reports whether the line is empty or a comment.
func isBlank(line []byte) bool {
	if len(line) > 0 && line[0] > '#' {
		return false
	}
	line = bytes.TrimLeft(skipManySpaces(line), " \r")
	return len(line) == 0 || line[0] == '#'
}

// entry decodes the current line, and those behind it into which it reaches by
// a string with ends of lines inside. If that makes no sense, it was a missing
// quote, and only the first line is refused.
func (d *lineDecoder) entry(l *lines, line []byte) error {
	if !d.plain {
		if done, err := d.fast(line); done || err != nil {
			return err
		}
	}
	length, number := l.end-l.start, l.number
	for open := opensString(line, false); open; {
		from := l.end - l.start
		if more, err := l.extend(); err != nil {
			return err
		} else if !more {
			l.cut(length, number)
			break
		}
		open = opensString(l.buf[l.start+from:l.end], true)
	}
	line = l.line()
	key := seriesPart(line)
	known := d.lookUp(key)
	r, err := d.decode(line, len(key), known)
	if err != nil {
		return err
	}
	if r != nil {
		d.in.builder.Refuse(r)
		l.cut(length, number)
	}
	if taken := d.in.end(); taken && known == nil {
		d.remember()
	}
	return nil
}

// refuse refuses a line unseen.
func (d *lineDecoder) refuse(r *telemetry.Refusal) error {
	if err := d.in.begin(); err != nil {
		return err
	}
	d.in.builder.Refuse(r)
	d.in.end()
	return nil
}

// decode decodes one entry up to the end of its reading, which it leaves open.
// It returns what is wrong with its syntax. If the series is known, the first
// length bytes hold it.
func (d *lineDecoder) decode(line []byte, length int, known *batch.Series) (*telemetry.Refusal, error) {
	if known != nil {
		if err := d.beginKnown(known); err != nil {
			return nil, err
		}
		// The last character of the series stands for the whole.
		d.shift = length - 1
		p := lineprotocol.NewDecoderWithBytes(line[d.shift:])
		p.Next()
		return d.decodeFields(p), nil
	}
	d.shift = 0
	p := lineprotocol.NewDecoderWithBytes(line)
	p.Next()
	measurement, wrong := p.Measurement()
	if err := d.begin(measurement); err != nil {
		return nil, err
	}
	if wrong != nil {
		return d.wrong(wrong), nil
	}
	d.words, d.simple = append(d.words[:0], measurement...), false
	d.measurement = d.words
	if err := d.decodeTags(p); err != nil {
		return d.wrong(err), nil
	}
	return d.decodeFields(p), nil
}

// beginKnown begins a reading of a known series.
func (d *lineDecoder) beginKnown(series *batch.Series) error {
	if series.Stream != d.in.stream.Name {
		d.in.toStream(d.in.door.streams[series.Stream])
	}
	err := d.in.begin()
	if err == nil {
		d.in.builder.SameSeries(series)
	}
	return err
}

// begin begins a reading of the stream that the measurement is the name of.
func (d *lineDecoder) begin(measurement []byte) error {
	stream, ok := d.in.door.streams[string(measurement)]
	if !ok {
		stream = d.in.home
	}
	d.in.toStream(stream)
	return d.in.begin()
}

func (d *lineDecoder) decodeTags(p *lineprotocol.Decoder) error {
	d.tags = d.tags[:0]
	for {
		key, value, err := p.NextTag()
		if err != nil {
			return err
		} else if key == nil {
			break
		}
		d.in.builder.Tag(key, value)
		d.tags = append(d.tags, lineTag{name: d.keep(key), value: d.keep(value)})
	}
	d.giveSensor()
	return nil
}

// decodeFields decodes the rest of the line.
func (d *lineDecoder) decodeFields(p *lineprotocol.Decoder) *telemetry.Refusal {
	for {
		key, kind, value, err := p.NextFieldBytes()
		if err != nil {
			return d.wrong(err)
		} else if key == nil {
			return d.decodeTime(p)
		}
		if !d.field(key, kind, value) {
			return telemetry.Refuse(telemetry.Malformed, "field %s has the value %s, which is no %s",
				telemetry.Quote(key), telemetry.Quote(value), kind)
		}
	}
}

// field gives the builder one field; it returns false if its syntax is wrong.
func (d *lineDecoder) field(key []byte, kind lineprotocol.ValueKind, value []byte) bool {
	b := d.in.builder
	switch kind {
	case lineprotocol.Float:
		return d.float(key, value)
	case lineprotocol.Int, lineprotocol.Uint:
		n, fits, ok := parseLineInt(value)
		switch {
		case !ok || kind == lineprotocol.Uint && value[0] == '-':
			return false
		case fits:
			b.Int(key, n)
		case !b.Refused():
			b.Refuse(telemetry.Refuse(telemetry.ValueRange, "field %s is %s, which does not fit a signed 64-bit integer", telemetry.Quote(key), cutText(value)))
		}
	case lineprotocol.String:
		b.Text(key, value)
	case lineprotocol.Bool:
		v, ok := parseLineBool(value)
		if !ok {
			return false
		}
		b.Bool(key, v)
	default:
		return false
	}
	return true
}

func (d *lineDecoder) float(key, value []byte) bool {
	for _, c := range value {
		if (c < '0' || c > '9') && c != '.' && c != '-' && c != '+' && c != 'e' && c != 'E' {
			return false
		}
	}
	v, err := strconv.ParseFloat(string(value), 64)
	switch {
	case err == nil:
		d.in.builder.Float(key, v)
	case errors.Is(err, strconv.ErrRange):
		d.in.builder.Refuse(telemetry.Refuse(telemetry.ValueNotFinite, "field %s is %s, beyond the range of a double", telemetry.Quote(key), cutText(value)))
	default:
		return false
	}
	return true
}

func (d *lineDecoder) decodeTime(p *lineprotocol.Decoder) *telemetry.Refusal {
	text, err := p.TimeBytes()
	if err != nil {
		return d.wrong(err)
	} else if text == nil {
		return nil
	}
	n, fits, ok := parseLineInt(text)
	if !ok {
		return telemetry.Refuse(telemetry.TimeInvalid, "the timestamp %s is not an integer", telemetry.Quote(text))
	}
	ms, inside := d.precision.millis(n)
	if !fits || !inside {
		return telemetry.Refuse(telemetry.TimeOutOfRange, "the timestamp %s is out of range with precision=%s", cutText(text), d.precision.name)
	}
	d.in.builder.Time(ms)
	return nil
}

func parseLineBool(s []byte) (v, ok bool) {
	switch string(s) {
	case "t", "T", "true", "True", "TRUE":
		return true, true
	case "f", "F", "false", "False", "FALSE":
		return false, true
	}
	return false, false
}

// parseLineInt reads an integer; fits is false if it takes more than 64 bits.
func parseLineInt(s []byte) (n int64, fits, ok bool) {
	digits := bytes.TrimPrefix(s, []byte{'-'})
	if len(digits) == 0 {
		return 0, false, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false, false
		}
	}
	n, form := parseInt(s)
	return n, form == numberInt, true
}

// wrong says what is wrong with the syntax of a line.
func (d *lineDecoder) wrong(err error) *telemetry.Refusal {
	const most = 200
	where := ""
	var syntax *lineprotocol.DecodeError
	if errors.As(err, &syntax) {
		column := syntax.Column
		if syntax.Line == 1 { // else it is behind the end of a line in a string
			column += d.shift
		}
		where, err = fmt.Sprintf(" at column %d", column), syntax.Err
	}
	what := err.Error()
	if len(what) > most {
		cut := most
		for !utf8.RuneStart(what[cut]) {
			cut--
		}
		what = what[:cut] + "…"
	}
	return telemetry.Refuse(telemetry.Malformed, "the line is not line protocol: %s%s", what, where)
}

// A precision is the unit of timestamps.
type precision struct {
	name  string
	ratio int64 // milliseconds in a unit; negative: units in a millisecond
}

// millis converts a timestamp, towards the past.
func (p precision) millis(n int64) (ms int64, ok bool) {
	if p.ratio < 0 {
		ms = n / -p.ratio
		if n%-p.ratio < 0 {
			ms--
		}
		return ms, true
	}
	return n * p.ratio, n <= math.MaxInt64/p.ratio && n >= math.MinInt64/p.ratio
}
