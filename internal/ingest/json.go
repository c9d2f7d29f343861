package ingest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// form is the syntax of a JSON body.
type form uint8

const (
	formJSON  form = iota // an object, an array of objects, or objects one after the other
	formLines             // NDJSON
	formGuess             // one of the two
)

// decodeJSON decodes a body of JSON. An error refuses the whole request; refused readings are
// recorded in the answer. A syntax error refuses the whole body, or in NDJSON its line.
func (in *intake) decodeJSON(body []byte, f form) error {
	d := in.jsonDecoder()
	defer d.release()
	if f == formGuess {
		f = d.guess(body)
	}
	if f == formLines {
		in.meaning = meaning{form: meansLines}
		return d.decodeLines(body)
	}
	in.meaning = meaning{form: meansJSON}
	return d.decodeValues(body)
}

// A jsonDecoder decodes readings in JSON in place. Fuzz tests compare it with encoding/json,
// with two differences: unknown and duplicate members are refused, and integers keep all of
// their 64 bits.
type jsonDecoder struct {
	in *intake

	src     []byte
	i       int    // current position in src
	err     error  // of the syntax
	members uint8  // members of the reading that were seen
	name    []byte // of a member, without its escapes
	text    []byte // a string, without its escapes

	// Most requests have several readings of a series. So the text of the sensor id and the
	// tags is looked up before it is decoded.
	late         bool   // sensor and tags are not decoded yet
	sensor, tags []byte // their text in src; nil: none
	alias        []byte // key of both
}

// The members of a reading.
const (
	memberSensor = 1 << iota
	memberTime
	memberFields
	memberTags
)

// aliasJSON is the first byte of alias keys made from JSON: the quoted sensor id, and the
// object of tags.
const aliasJSON = 'j'

var (
	errMore    = errors.New("unexpected end")
	errTooLong = fmt.Errorf("it is longer than %d bytes", maxReadingBytes)
)

// guess guesses the form of a body from its first line: NDJSON, unless it is an array, or an
// object that continues on the next line.
func (d *jsonDecoder) guess(body []byte) form {
	first, _, more := bytes.Cut(bytes.TrimLeft(body, " \t\r\n"), []byte{'\n'})
	if len(first) > 0 && first[0] == '[' {
		return formJSON
	}
	d.begin(first)
	if d.skip(0); more && errors.Is(d.err, errMore) {
		return formJSON
	}
	return formLines
}

// decodeLines decodes NDJSON. Empty lines do not count.
func (d *jsonDecoder) decodeLines(body []byte) error {
	what := "line"
	if bytes.IndexByte(bytes.TrimSpace(skipManySpaces(body)), '\n') < 0 {
		what = "body"
	}
	for l := (lines{body: body}); ; {
		line, long, ok := l.next()
		if !ok {
			return nil
		}
		if !long && len(bytes.TrimSpace(skipManySpaces(line))) == 0 {
			continue
		}
		if err := d.in.begin(); err != nil {
			return err
		}
		if long {
			d.in.builder.Refuse(telemetry.Refuse(telemetry.Malformed, "the %s is longer than %d bytes", what, maxReadingBytes))
		} else if d.begin(line); d.reading() {
			if d.space(); d.i < len(line) {
				d.fail("unexpected %q after the object", line[d.i])
			}
		}
		if d.err != nil {
			d.in.builder.Refuse(telemetry.Refuse(telemetry.Malformed, "the %s is not JSON: %v at byte %d", what, d.err, d.i))
		}
		d.end()
	}
}

// decodeValues decodes an array of readings, or readings one after the other.
func (d *jsonDecoder) decodeValues(body []byte) error {
	d.begin(body)
	d.space()
	array := d.peek() == '['
	if array {
		d.i++
	}
	for count := 0; ; count++ {
		d.space()
		switch more := d.i < len(body); {
		case array && d.peek() == ']':
			d.i++
			if d.space(); d.i < len(body) {
				return d.malformed(fmt.Errorf("unexpected %q after the array", body[d.i]))
			}
			return nil
		case !array && !more:
			return nil
		case array && more && count > 0:
			if body[d.i] != ',' {
				return d.malformed(fmt.Errorf("a comma or the end of the array was expected, not %q", body[d.i]))
			}
			d.i++
			d.space()
		case !array && body[d.i] != '{':
			return d.malformed(fmt.Errorf("%q where a reading should be; a body is an object, an array of objects, or one object per line", body[d.i]))
		}
		if d.i == len(body) {
			return d.malformed(errMore)
		}
		if err := d.value(body); err != nil {
			return err
		}
	}
}

// value decodes the reading at i.
func (d *jsonDecoder) value(body []byte) error {
	if err := d.in.begin(); err != nil {
		return err
	}
	from, end := d.i, min(len(body), d.i+maxReadingBytes)
	d.src = body[:end]
	whole := d.reading()
	d.src = body
	if whole {
		d.end()
		return nil
	}
	if errors.Is(d.err, errMore) && end < len(body) {
		d.i, d.err = from, errTooLong
	}
	return d.malformed(d.err)
}

// malformed returns the error for a body whose syntax is wrong at i.
func (d *jsonDecoder) malformed(err error) error {
	where := ""
	if d.in.count > 0 {
		where = fmt.Sprintf(" in or after reading %d", d.in.count-1)
	}
	return &telemetry.Error{
		Kind: telemetry.Invalid, Code: codeMalformed,
		Message: fmt.Sprintf("invalid JSON%s: %v at byte %d; nothing was accepted", where, err, d.i),
	}
}

// begin sets the text to decode.
func (d *jsonDecoder) begin(src []byte) { d.src, d.i, d.err = src, 0, nil }

// reading decodes a value, which should be a reading. It returns false after a syntax error.
//
// If sensor and tags are decoded late, a reading with several errors may not be refused for
// the first one. So a refused reading is decoded again in order.
func (d *jsonDecoder) reading() bool {
	d.space()
	if d.i < len(d.src) && d.src[d.i] != '{' {
		return d.refuse(telemetry.Malformed, "a reading must be an object, not %s")
	}
	at := d.i
	d.late, d.members, d.sensor, d.tags = true, 0, nil, nil
	ok := d.object(d.member)
	if ok && !d.in.builder.Refused() && d.series() {
		return true
	}
	d.in.restart()
	d.i, d.err, d.late, d.members = at, nil, false, 0
	d.alias = d.alias[:0]
	if ok = d.object(d.member); ok {
		d.in.addTopic(d.members&memberSensor == 0)
	}
	return ok
}

// series passes the sensor and the tags to the builder. It returns false if the builder
// refuses them.
func (d *jsonDecoder) series() bool {
	b := d.in.builder
	d.alias = append(append(append(append(d.alias[:0], aliasJSON), d.in.stream.Name...), 0), d.in.scope...)
	d.alias = append(append(d.alias, d.sensor...), d.tags...)
	if known := d.in.server.known.Alias(d.alias); known != nil {
		b.SameSeries(known)
		d.alias = d.alias[:0]
		return true
	}
	if len(d.sensor)+len(d.tags) > maxAlias {
		d.alias = d.alias[:0]
	}
	// The syntax of both was checked before.
	end := d.i
	src := d.src
	if d.sensor != nil {
		d.src, d.i = d.sensor, 0
		if text, ok := d.string(&d.text); ok {
			b.Sensor(text)
		}
	}
	if d.tags != nil {
		d.src, d.i = d.tags, 0
		d.object(d.tag)
	}
	d.src, d.i = src, end
	d.in.addTopic(d.sensor == nil)
	return !b.Refused()
}

// end finishes the reading, and remembers its series.
func (d *jsonDecoder) end() {
	if d.in.end() && len(d.alias) > 0 {
		d.in.server.known.SetAlias(d.alias, d.in.builder.LastSeries())
	}
	d.alias = d.alias[:0]
}

// maxDepth is how deep objects and arrays may be nested.
const maxDepth = 10_000

// object decodes the object at i, and calls member at the value of each name.
func (d *jsonDecoder) object(member func(name []byte) bool) bool {
	if d.peek() != '{' {
		return d.fail("an object was expected")
	}
	d.i++
	if d.space(); d.peek() == '}' {
		d.i++
		return true
	}
	for {
		d.space()
		name, ok := d.string(&d.name)
		if !ok || !d.colon() || !member(name) {
			return false
		}
		switch d.space(); d.peek() {
		case '}':
			d.i++
			return true
		case ',':
			d.i++
		default:
			return d.fail("a comma or the end of the object was expected")
		}
	}
}

func (d *jsonDecoder) colon() bool {
	if d.space(); d.peek() != ':' {
		return d.fail("a colon was expected")
	}
	d.i++
	d.space()
	return true
}

// member decodes a member of a reading.
func (d *jsonDecoder) member(name []byte) bool {
	var member uint8
	switch string(name) {
	case "sensorId":
		member = memberSensor
	case "ts":
		member = memberTime
	case "fields":
		member = memberFields
	case "tags":
		member = memberTags
	default:
		d.note(telemetry.UnknownKey, "the key %s is unknown; a reading has sensorId, ts, fields and tags", telemetry.Quote(name))
		return d.skip(1)
	}
	if d.members&member != 0 {
		d.note(telemetry.DuplicateKey, "%s is given twice", name)
		return d.skip(1)
	}
	d.members |= member
	switch c := d.peek(); {
	case member == memberTime:
		return d.time()
	case c == 'n': // as if it were absent
		return d.skip(1)
	case member == memberFields && c == '{':
		return d.object(d.field)
	case member == memberTags && c == '{':
		if !d.late {
			return d.object(d.tag)
		}
		from := d.i
		ok := d.skip(1)
		d.tags = d.src[from:d.i]
		return ok
	case member == memberSensor && c == '"':
		from := d.i
		text, ok := d.string(&d.text)
		if d.sensor = d.src[from:d.i]; ok && !d.late {
			d.in.builder.Sensor(text)
		}
		return ok
	case member == memberSensor:
		return d.refuse(telemetry.SensorInvalid, "sensorId must be a string, not %s")
	}
	return d.refuse(telemetry.Malformed, "%s must be an object, not %s", string(name))
}

func (d *jsonDecoder) time() bool {
	b := d.in.builder
	switch c := d.peek(); {
	case c == '"':
		text, ok := d.string(&d.text)
		if ms, good := parseTime(text); good && ok {
			b.Time(ms)
		} else if ok {
			d.note(telemetry.TimeInvalid, "ts %s is not an RFC 3339 timestamp, like 2026-11-21T10:00:00.123Z", telemetry.Quote(text))
		}
		return ok
	case c == '-' || isDigit(c):
		raw, ok := d.number()
		if !ok {
			return false
		}
		switch ms, form := parseInt(raw); form {
		case numberInt:
			b.Time(ms)
		case numberHuge:
			d.note(telemetry.TimeOutOfRange, "ts %s is out of range; integers are milliseconds since the epoch", telemetry.Quote(raw))
		default:
			d.note(telemetry.TimeInvalid, "ts %s is not an integer; numbers are whole milliseconds since the epoch", telemetry.Quote(raw))
		}
		return true
	}
	return d.refuse(telemetry.TimeInvalid, "ts must be an RFC 3339 string or integer milliseconds since the epoch, not %s")
}

func (d *jsonDecoder) tag(name []byte) bool {
	if d.peek() != '"' {
		return d.refuse(telemetry.TagValue, "tag %s must be a string, not %s", telemetry.Quote(name))
	}
	text, ok := d.string(&d.text)
	if ok {
		d.in.builder.Tag(name, text)
	}
	return ok
}

func (d *jsonDecoder) field(name []byte) bool {
	b := d.in.builder
	switch c := d.peek(); c {
	case '"':
		text, ok := d.string(&d.text)
		if ok {
			b.Text(name, text)
		}
		return ok
	case 't', 'f':
		ok := d.skip(2)
		if ok {
			b.Bool(name, c == 't')
		}
		return ok
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return d.fieldNumber(name)
	}
	return d.refuse(telemetry.ValueType, "field %s must be a number, a boolean or a string, not %s", telemetry.Quote(name))
}

// fieldNumber decodes a number without fraction and exponent as an integer, any other as a
// double. So -0 is the integer 0 and -0.0 is negative zero.
func (d *jsonDecoder) fieldNumber(name []byte) bool {
	b := d.in.builder
	// Most fields have small integers or short decimals.
	s := d.src[d.i:]
	sign := 0
	if s[0] == '-' {
		sign = 1
	}
	n, digits := readDigits(0, s[sign:])
	if end := sign + digits; digits > 0 && digits < maxDigits && end < len(s) && (s[sign] != '0' || digits == 1) {
		switch {
		case s[end] == '.':
			var point int
			if n, point = readDigits(n, s[end+1:]); point == 0 {
				break
			}
			end += 1 + point
			if v, exact := decimal(n, digits+point, point); exact && end < len(s) && s[end]|0x20 != 'e' {
				if sign > 0 {
					v = -v
				}
				b.Float(name, v)
				d.i += end
				return true
			}
		case s[end]|0x20 != 'e':
			v := int64(n)
			if sign > 0 {
				v = -v
			}
			b.Int(name, v)
			d.i += end
			return true
		}
	}
	raw, ok := d.number()
	if !ok {
		return false
	}
	switch n, form := parseInt(raw); form {
	case numberInt:
		b.Int(name, n)
	case numberHuge:
		d.note(telemetry.ValueRange, "field %s is %s, which does not fit a 64-bit integer; write it with a fraction to store a double", telemetry.Quote(name), cutText(raw))
	default:
		if f, err := strconv.ParseFloat(string(raw), 64); err == nil {
			b.Float(name, f)
		} else {
			d.note(telemetry.ValueNotFinite, "field %s is %s, beyond the range of a double", telemetry.Quote(name), cutText(raw))
		}
	}
	return true
}

// number returns the number at i.
func (d *jsonDecoder) number() (raw []byte, ok bool) {
	from := d.i
	if d.peek() == '-' {
		d.i++
	}
	digits := func() bool {
		_, n := readDigits(0, d.src[d.i:])
		d.i += n
		return n > 0 || d.fail("a digit was expected")
	}
	if d.peek() == '0' {
		d.i++
	} else if !digits() {
		return nil, false
	}
	if d.peek() == '.' {
		d.i++
		if !digits() {
			return nil, false
		}
	}
	if d.peek()|0x20 == 'e' {
		d.i++
		if c := d.peek(); c == '+' || c == '-' {
			d.i++
		}
		if !digits() {
			return nil, false
		}
	}
	return d.src[from:d.i], true
}

// string returns the unescaped contents of the string at i, valid until the next call with
// the same scratch memory. Half a surrogate pair becomes a byte that is not UTF-8, so that
// the builder refuses it.
func (d *jsonDecoder) string(scratch *[]byte) (text []byte, ok bool) {
	if d.peek() != '"' {
		return nil, d.fail("a string was expected")
	}
	d.i++
	from := d.i
	escaped := false
	for {
		d.i = specialByte(d.src, d.i)
		switch c := d.peek(); {
		case d.i == len(d.src):
			return nil, d.fail("")
		case c == '"':
			text = d.src[from:d.i]
			d.i++
			if escaped {
				*scratch = append(*scratch, text...)
				text = *scratch
			}
			return text, true
		case c != '\\':
			return nil, d.fail("unescaped control character in a string")
		}
		if !escaped {
			*scratch, escaped = (*scratch)[:0], true
		}
		*scratch = append(*scratch, d.src[from:d.i]...)
		if !d.escape(scratch) {
			return nil, false
		}
		from = d.i
	}
}

// escape appends the character for the escape sequence at i.
func (d *jsonDecoder) escape(dst *[]byte) bool {
	d.i++
	c := d.peek()
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		r, ok := d.unit()
		if !ok {
			return false
		}
		if utf16.IsSurrogate(r) {
			at, low := d.i, rune(0)
			if d.peek() == '\\' && d.i+1 < len(d.src) && d.src[d.i+1] == 'u' {
				d.i++
				if low, ok = d.unit(); !ok {
					return false
				}
			} else if d.peek() == '\\' && d.i+1 == len(d.src) {
				d.i++
				return d.fail("")
			}
			if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
				d.i = at
				*dst = append(*dst, 0xff)
				return true
			}
		}
		*dst = utf8.AppendRune(*dst, r)
		return true
	default:
		return d.fail("an escape sequence was expected after the backslash")
	}
	d.i++
	*dst = append(*dst, c)
	return true
}

// unit decodes the four hexadecimal digits after the u at i.
func (d *jsonDecoder) unit() (rune, bool) {
	d.i++
	var r rune
	for range 4 {
		switch c := d.peek(); {
		case isDigit(c):
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, d.fail("four hexadecimal digits were expected after \\u")
		}
		d.i++
	}
	return r, true
}

// skip skips the value at i.
func (d *jsonDecoder) skip(depth int) bool {
	if depth > maxDepth {
		return d.fail("it is nested more than %d deep", maxDepth)
	}
	switch c := d.peek(); {
	case c == '"':
		_, ok := d.string(&d.text)
		return ok
	case c == '-' || isDigit(c):
		_, ok := d.number()
		return ok
	case c == '{':
		return d.object(func([]byte) bool { return d.skip(depth + 1) })
	case c == '[':
		d.i++
		if d.space(); d.peek() == ']' {
			d.i++
			return true
		}
		for {
			if d.space(); !d.skip(depth + 1) {
				return false
			}
			switch d.space(); d.peek() {
			case ']':
				d.i++
				return true
			case ',':
				d.i++
			default:
				return d.fail("a comma or the end of the array was expected")
			}
		}
	}
	for _, word := range [...]string{"true", "false", "null"} {
		rest := d.src[d.i:]
		if len(rest) >= len(word) && string(rest[:len(word)]) == word {
			d.i += len(word)
			return true
		}
		if len(rest) < len(word) && string(rest) == word[:len(rest)] {
			d.i = len(d.src)
		}
	}
	return d.fail("a value was expected")
}

// space skips white space.
func (d *jsonDecoder) space() {
	for d.i < len(d.src) && isJSONSpace(d.src[d.i]) {
		d.i++
	}
}

func isJSONSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// peek returns the byte at i; 0 at the end.
func (d *jsonDecoder) peek() byte {
	if d.i == len(d.src) {
		return 0
	}
	return d.src[d.i]
}

// fail records a syntax error at i. It returns false.
func (d *jsonDecoder) fail(format string, args ...any) bool {
	if d.i == len(d.src) {
		d.err = errMore
	} else {
		d.err = fmt.Errorf(format, args...)
	}
	return false
}

// refuse refuses the reading because of the value at i, and skips the value. The last verb of
// format is for the kind of the value.
func (d *jsonDecoder) refuse(code telemetry.Code, format string, args ...any) bool {
	kind := "a number"
	switch d.peek() {
	case 'n':
		kind = "null"
	case 't', 'f':
		kind = "a boolean"
	case '"':
		kind = "a string"
	case '{':
		kind = "an object"
	case '[':
		kind = "an array"
	}
	args = append(args, kind)
	ok := d.skip(1)
	if ok {
		d.note(code, format, args...)
	}
	return ok
}

func (d *jsonDecoder) note(code telemetry.Code, format string, args ...any) {
	if !d.in.builder.Refused() {
		d.in.builder.Refuse(telemetry.Refuse(code, format, args...))
	}
}

// specialByte returns the index of the first quote, backslash or control character in src[i:],
// or the length of src. It examines eight bytes at once: only the lowest bit of special is
// reliable.
func specialByte(src []byte, i int) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(src); i += 8 {
		word := binary.LittleEndian.Uint64(src[i:])
		quote, backslash := word^(ones*'"'), word^(ones*'\\')
		if special := ((quote-ones)&^quote | (backslash-ones)&^backslash | (word-ones*' ')&^word) & high; special != 0 {
			return i + bits.TrailingZeros64(special)/8
		}
	}
	for i < len(src) && src[i] != '"' && src[i] != '\\' && src[i] >= ' ' {
		i++
	}
	return i
}

// jsonDecoder returns a decoder. The caller calls its release.
func (in *intake) jsonDecoder() *jsonDecoder {
	d := in.server.json.get()
	d.in = in
	return d
}

// release returns the decoder to the pool, unless it has grown large.
func (d *jsonDecoder) release() {
	if server := d.in.server; cap(d.text)+cap(d.name)+cap(d.alias) <= 64<<10 {
		*d = jsonDecoder{text: d.text[:0], name: d.name[:0], alias: d.alias[:0]}
		server.json.put(d)
	}
}
