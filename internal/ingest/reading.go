package ingest

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A readingDecoder decodes readings in JSON into a builder. Errors are those of
// syntax and of reading, and the readings behind cannot be told any more;
// broken rules go to the builder.
type readingDecoder struct {
	json    *jsontext.Decoder
	options jsontext.Options
	builder *batch.Builder
	buf     bytes.Buffer // of one line
	guard   guard
	name    []byte // of the field or tag at hand
	text    []byte // a string without its escapes
	members uint8  // of the reading, that were seen
	used    bool   // json holds on to what it decoded
}

// The members of a reading.
const (
	memberSensor = 1 << iota
	memberTime
	memberFields
	memberTags
)

func newReadingDecoder() *readingDecoder {
	return &readingDecoder{
		json: new(jsontext.Decoder),
		// What concerns one reading only must not end the decoding of all.
		options: jsontext.AllowInvalidUTF8(true),
	}
}

// A guard ends a reading that does not end itself, for a decoder holds a whole
// string in memory.
type guard struct {
	src  io.Reader
	read int64 // bytes given to the decoder
	mark int64 // of these, how many lie before the reading at hand
}

var errReadingTooLong = errors.New("it is longer than 4 MiB")

// Read implements io.Reader.
func (g *guard) Read(p []byte) (int, error) {
	rest := g.mark + maxReadingBytes - g.read
	if rest <= 0 {
		return 0, errReadingTooLong
	}
	n, err := g.src.Read(p[:min(int64(len(p)), rest)])
	g.read += int64(n)
	return n, err
}

// stream makes the decoder read from r.
func (d *readingDecoder) stream(r io.Reader) {
	d.guard, d.used = guard{src: r}, true
	d.json.Reset(&d.guard, jsontext.AllowDuplicateNames(true), d.options)
}

// line decodes a line that holds nothing but one reading.
func (d *readingDecoder) line(line []byte) error {
	d.buf, d.used = *bytes.NewBuffer(line), true
	d.json.Reset(&d.buf, jsontext.AllowDuplicateNames(true), d.options)
	if err := d.reading(); err != nil {
		return err
	}
	if _, err := d.json.ReadToken(); err == nil {
		return errTrailing
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

var errTrailing = errors.New("there is something behind the object")

// reading decodes the next value.
func (d *readingDecoder) reading() error {
	if kind := d.json.PeekKind(); kind != '{' {
		return d.skip(kind, telemetry.Malformed, "a reading must be an object")
	}
	d.members = 0
	return d.object(d.member)
}

// object calls member for each name of the object that comes next.
func (d *readingDecoder) object(member func(name []byte) error) error {
	if _, err := d.json.ReadToken(); err != nil {
		return err
	}
	for d.json.PeekKind() != '}' {
		raw, err := d.json.ReadValue()
		if err != nil {
			return err
		}
		name := d.unquote(raw)
		d.name = append(d.name[:0], name...)
		if err := member(d.name); err != nil {
			return err
		}
	}
	_, err := d.json.ReadToken()
	return err
}

func (d *readingDecoder) member(name []byte) error {
	switch string(name) {
	case "sensorId":
		if d.twice(memberSensor, "sensorId") {
			return d.json.SkipValue()
		}
		return d.sensor()
	case "ts":
		if d.twice(memberTime, "ts") {
			return d.json.SkipValue()
		}
		return d.time()
	case "fields":
		if d.twice(memberFields, "fields") {
			return d.json.SkipValue()
		}
		return d.group("fields", d.field)
	case "tags":
		if d.twice(memberTags, "tags") {
			return d.json.SkipValue()
		}
		return d.group("tags", d.tag)
	}
	d.refuse(telemetry.UnknownKey, "the key %s is unknown; a reading has sensorId, ts, fields and tags", telemetry.Quote(name))
	return d.json.SkipValue()
}

// twice reports whether a member came before.
func (d *readingDecoder) twice(member uint8, name string) bool {
	if d.members&member != 0 {
		d.refuse(telemetry.DuplicateKey, "%s is given twice", name)
		return true
	}
	d.members |= member
	return false
}

func (d *readingDecoder) sensor() error {
	switch kind := d.json.PeekKind(); kind {
	case '"':
		raw, err := d.json.ReadValue()
		if err == nil {
			d.builder.Sensor(d.unquote(raw))
		}
		return err
	case 'n': // as if it were absent
		return d.json.SkipValue()
	default:
		return d.skip(kind, telemetry.SensorInvalid, "sensorId must be a string")
	}
}

func (d *readingDecoder) time() error {
	kind := d.json.PeekKind()
	if kind != '"' && kind != '0' {
		return d.skip(kind, telemetry.TimeInvalid, "ts must be an RFC 3339 string or integer milliseconds since the epoch")
	}
	raw, err := d.json.ReadValue()
	if err != nil {
		return err
	}
	if kind == '0' {
		ms, form := parseInt(raw)
		switch form {
		case numberInt:
			d.builder.Time(ms)
		case numberHuge:
			d.refuse(telemetry.TimeOutOfRange, "ts %s is out of range; integers are milliseconds since the epoch", telemetry.Quote(raw))
		default:
			d.refuse(telemetry.TimeInvalid, "ts %s is not an integer; numbers are whole milliseconds since the epoch", telemetry.Quote(raw))
		}
		return nil
	}
	text := d.unquote(raw)
	if ms, ok := parseTime(text); ok {
		d.builder.Time(ms)
	} else {
		d.refuse(telemetry.TimeInvalid, "ts %s is not an RFC 3339 timestamp, like 2026-11-21T10:00:00.123Z", telemetry.Quote(text))
	}
	return nil
}

// group decodes fields or tags.
func (d *readingDecoder) group(what string, member func(name []byte) error) error {
	switch kind := d.json.PeekKind(); kind {
	case '{':
		return d.object(member)
	case 'n': // as if they were absent
		return d.json.SkipValue()
	default:
		return d.skip(kind, telemetry.Malformed, "%s must be an object", what)
	}
}

func (d *readingDecoder) tag(name []byte) error {
	if kind := d.json.PeekKind(); kind != '"' {
		return d.skip(kind, telemetry.TagValue, "tag %s must be a string", telemetry.Quote(name))
	}
	raw, err := d.json.ReadValue()
	if err == nil {
		d.builder.Tag(name, d.unquote(raw))
	}
	return err
}

func (d *readingDecoder) field(name []byte) error {
	kind := d.json.PeekKind()
	switch kind {
	case '0', '"', 't', 'f':
	default:
		return d.skip(kind, telemetry.ValueType, "field %s must be a number, a boolean or a string", telemetry.Quote(name))
	}
	raw, err := d.json.ReadValue()
	if err != nil {
		return err
	}
	switch kind {
	case '0':
		d.number(name, raw)
	case '"':
		d.builder.Text(name, d.unquote(raw))
	default:
		d.builder.Bool(name, kind == 't')
	}
	return nil
}

// number takes a number without fraction and exponent as an integer, any other
// as a double. So -0 is the integer 0 and -0.0 a negative zero.
func (d *readingDecoder) number(name, raw []byte) {
	n, form := parseInt(raw)
	switch form {
	case numberInt:
		d.builder.Int(name, n)
		return
	case numberHuge:
		d.refuse(telemetry.ValueRange, "field %s is %s, which does not fit a 64-bit integer; write it with a fraction to store a double", telemetry.Quote(name), cutText(raw))
		return
	}
	if f, err := strconv.ParseFloat(string(raw), 64); err == nil {
		d.builder.Float(name, f)
	} else {
		d.refuse(telemetry.ValueNotFinite, "field %s is %s, beyond the range of a double", telemetry.Quote(name), cutText(raw))
	}
}

// cutText shortens a number for a message.
func cutText(raw []byte) string {
	const most = 40
	if len(raw) > most {
		return string(raw[:most]) + "…"
	}
	return string(raw)
}

// numberForm is how a JSON number can be read.
type numberForm uint8

const (
	numberInt   numberForm = iota
	numberFloat            // has a fraction or an exponent
	numberHuge             // an integer that does not fit 64 bits
)

// parseInt reads a valid JSON number.
func parseInt(raw []byte) (int64, numberForm) {
	digits, negative := raw, false
	if digits[0] == '-' {
		digits, negative = digits[1:], true
	}
	var n uint64
	huge := false
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, numberFloat
		}
		// 19 digits fit an uint64, and any more are too many.
		huge = huge || n > (math.MaxUint64-9)/10
		n = n*10 + uint64(c-'0')
	}
	switch {
	case huge || (!negative && n > math.MaxInt64) || n > -math.MinInt64:
		return 0, numberHuge
	case negative:
		return -int64(n), numberInt
	}
	return int64(n), numberInt
}

// unquote returns the contents of a JSON string, valid until the next call. If
// they cannot be told in UTF-8, what it returns is not UTF-8 either, for the
// builder to refuse.
func (d *readingDecoder) unquote(raw []byte) []byte {
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	var err error
	if d.text, err = jsontext.AppendUnquote(d.text[:0], raw); err == nil {
		return d.text
	}
	d.text = append(d.text[:0], inner...)
	if utf8.Valid(d.text) { // a half of a surrogate pair
		d.text = append(d.text, 0xff)
	}
	return d.text
}

// skip passes over a value that is not of the kind that is needed.
func (d *readingDecoder) skip(kind jsontext.Kind, code telemetry.Code, format string, args ...any) error {
	err := d.json.SkipValue()
	if err == nil {
		d.refuse(code, format+", not %s", append(args, kindName(kind))...)
	}
	return err
}

func (d *readingDecoder) refuse(code telemetry.Code, format string, args ...any) {
	if !d.builder.Refused() {
		d.builder.Refuse(telemetry.Refuse(code, format, args...))
	}
}
