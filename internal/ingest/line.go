package ingest

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// The line protocol of InfluxDB. Fuzz tests compare this decoder with influxdata's package
// lineprotocol:
//
//	measurement,tag=value,tag=value field=1.5,field=2i,field="text" 1767225600000000000
//
// A backslash escapes a comma, a space or an equals sign in a word, and a quote or a
// backslash in a string; before anything else it stands for itself. A string may contain
// line breaks.

// A precision is the unit of timestamps.
type precision struct {
	name  string
	ratio int64 // milliseconds in a unit; negative: units in a millisecond; 0: see guess
}

// millis converts a timestamp, rounding down.
func (p precision) millis(n int64) (ms int64, ok bool) {
	if p.ratio == 0 {
		p = p.guess(n)
	}
	if p.ratio < 0 {
		ms = n / -p.ratio
		if n%-p.ratio < 0 {
			ms--
		}
		return ms, true
	}
	return n * p.ratio, n <= math.MaxInt64/p.ratio && n >= math.MinInt64/p.ratio
}

// A lineDecoder decodes line protocol.
type lineDecoder struct {
	in        *intake
	lines     lines
	precision precision
	sensorTag string

	s []byte // the entry, without its last line break
	i int    // current position in it

	// The series of the entry, if its text is not a known alias.
	measurement []byte
	tags        []wireTag
	sensor      []byte
	alias       []byte // key of that text; empty: it is too long or has escapes
	unescaped   []byte // words that had escapes

	// See likeLast.
	shape *batch.Shape
	plain bool // shape has only numbers, under names that need no escapes
	words []uint64
}

// decodeLineProtocol decodes a body of line protocol. Comments and empty lines do
// not count. A line with a syntax error is refused like one that breaks any other
// rule.
func (in *intake) decodeLineProtocol(body []byte, p precision) error {
	in.meaning = meaning{form: meansLineProtocol, ratio: p.ratio}
	in.times.Unit = p.name
	// Telegraf and other clients send names with dots, which InfluxDB allows.
	in.builder.MapDots = cmp.Or(in.builder.MapDots, '_')
	d := lineDecoder{in: in, lines: lines{body: body}, precision: p, sensorTag: in.server.config.SensorTag}
	for {
		line, long, ok := d.lines.next()
		if !ok {
			return nil
		}
		if !long && isBlank(line) {
			continue
		}
		if d.in.lines == nil {
			d.in.lines = make([]uint32, 0, min(d.lines.guess(), in.server.config.MaxReadings))
		}
		d.in.lines = append(d.in.lines, uint32(d.lines.number))
		if err := d.entry(line, long); err != nil {
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

// entry decodes the current line, and the following lines if a string extends over them. If
// there is an error, a quote is probably missing, and only the first line is refused.
func (d *lineDecoder) entry(line []byte, long bool) error {
	length, number := d.lines.end-d.lines.start, d.lines.number
	d.s, d.i = line, 0
	var known *batch.Series
	var refused *telemetry.Refusal
	var err error
	if long {
		refused, err = telemetry.Refuse(telemetry.Malformed, "the line is longer than %d bytes", maxReadingBytes), d.in.begin()
	} else if known, refused, err = d.series(); err == nil && refused == nil {
		if refused = d.fields(); refused == nil {
			refused = d.time()
		}
	}
	if err != nil {
		return err
	}
	if refused != nil {
		d.in.builder.Refuse(refused)
		d.lines.cut(length, number)
	}
	if d.in.end() && known == nil && len(d.alias) > 0 {
		d.in.server.known.SetAlias(d.alias, d.in.builder.LastSeries())
	}
	return nil
}

// aliasLine is the first byte of alias keys made from lines.
const aliasLine = 'l'

// series decodes measurement and tags and begins a reading of that series. Most requests have
// several lines of a series, and tags are the longest part of a line, so the text up to the
// first space is looked up before it is decoded.
func (d *lineDecoder) series() (*batch.Series, *telemetry.Refusal, error) {
	d.alias = d.alias[:0]
	if n := bytes.IndexByte(d.s, ' '); n > 0 && n <= maxAlias && bytes.IndexByte(d.s[:n], '\\') < 0 {
		d.alias = append(append(append(append(append(d.alias, aliasLine), d.in.target.Name...), 0), d.in.scope...), d.s[:n]...)
		if known := d.in.server.known.Alias(d.alias); known != nil {
			if known.Stream != d.in.stream.Name {
				d.in.toStream(d.in.server.streams[known.Stream])
			}
			if err := d.in.begin(); err != nil {
				return nil, nil, err
			}
			d.in.builder.SameSeries(known)
			d.i = n
			return known, nil, nil
		}
	}
	d.spaces()
	d.unescaped, d.tags = d.unescaped[:0], d.tags[:0]
	var ok bool
	d.measurement, ok = d.word(inMeasurement)
	if err := d.begin(); err != nil {
		return nil, nil, err
	}
	switch {
	case !ok:
		return nil, d.wrong("the measurement is not UTF-8"), nil
	case len(d.measurement) == 0 || d.measurement[0] == '#':
		return nil, d.wrong("a measurement was expected"), nil
	}
	for d.at() == ',' {
		d.i++
		name, ok := d.word(inName)
		if !ok || len(name) == 0 || d.at() != '=' {
			return nil, d.wrong("the name of a tag and an equals sign were expected"), nil
		}
		d.i++
		value, ok := d.word(inName)
		if !ok || len(value) == 0 {
			return nil, d.wrong("the value of tag %s was expected", telemetry.Quote(name)), nil
		}
		d.in.builder.Tag(name, value)
		d.tags = append(d.tags, wireTag{name, value})
	}
	if d.at() != ' ' {
		if d.i == len(d.s) {
			return nil, d.wrong("the line has no fields"), nil
		}
		return nil, d.wrong("a comma or a space was expected"), nil
	}
	d.addTopic()
	d.addSensor()
	return nil, nil, nil
}

// begin begins a reading of the stream with the name of the measurement, or of the request's
// stream if there is none.
func (d *lineDecoder) begin() error {
	stream, ok := d.in.server.streams[string(d.measurement)]
	if !ok {
		stream = d.in.target
	}
	if stream != d.in.stream {
		d.in.toStream(stream)
	}
	return d.in.begin()
}

// addTopic adds the tags of a message's topic, as if they were in the line.
func (d *lineDecoder) addTopic() {
	d.in.addTopic(false)
	if d.in.message == nil {
		return
	}
	for _, t := range d.in.message.Tags {
		d.tags = append(d.tags, wireTag{[]byte(t.Name), []byte(t.Value)})
	}
}

// addSensor passes the sensor id to the builder: the value of the configured tag, the one of
// a message's topic, or the series key.
func (d *lineDecoder) addSensor() {
	topic := d.in.message != nil && d.in.message.Sensor != ""
	if d.sensorTag == "" && !topic {
		d.in.builder.Sensor(d.seriesKey())
		return
	}
	for _, t := range d.tags {
		if d.sensorTag != "" && string(t.name) == d.sensorTag {
			d.in.builder.Sensor(t.value)
			return
		}
	}
	if topic {
		d.in.builder.Sensor([]byte(d.in.message.Sensor))
		return
	}
	d.in.builder.Refuse(telemetry.Refuse(telemetry.SensorMissing,
		"the line has no tag %s, which holds the sensor id (line_protocol.sensor_tag)", telemetry.Quote([]byte(d.sensorTag))))
}

// seriesKey returns the measurement and the tags sorted by name, with a backslash before each
// comma, space, backslash and, in tags, equals sign, so that different series never have the
// same key.
func (d *lineDecoder) seriesKey() []byte {
	byName := func(x, y wireTag) int { return bytes.Compare(x.name, y.name) }
	if !slices.IsSortedFunc(d.tags, byName) {
		slices.SortStableFunc(d.tags, byName)
	}
	d.sensor = telemetry.AppendSeriesWord(d.sensor[:0], d.measurement, false)
	for _, t := range d.tags {
		d.sensor = telemetry.AppendSeriesWord(append(d.sensor, ','), t.name, true)
		d.sensor = telemetry.AppendSeriesWord(append(d.sensor, '='), t.value, true)
	}
	return d.sensor
}

// fields decodes the fields.
func (d *lineDecoder) fields() *telemetry.Refusal {
	d.spaces()
	if d.likeLast() {
		return nil
	}
	for ; ; d.i++ {
		d.unescaped = d.unescaped[:0]
		name, ok := d.word(inName)
		switch {
		case !ok || len(name) == 0:
			return d.wrong("the name of a field was expected")
		case d.at() != '=':
			return d.wrong("an equals sign was expected after field %s", telemetry.Quote(name))
		}
		d.i++
		var refused *telemetry.Refusal
		if d.at() == '"' {
			refused = d.text(name)
		} else {
			refused = d.value(name)
		}
		if refused != nil {
			return refused
		}
		if d.at() != ',' {
			return nil
		}
	}
}

// likeLast decodes fields with the same names, kinds and order as those of the last reading,
// which is the usual case: names are compared, not decoded. If anything differs, it returns
// false and passes nothing to the builder.
func (d *lineDecoder) likeLast() bool {
	shape := d.in.builder.Expected()
	if shape == nil {
		return false
	}
	if shape != d.shape {
		d.shape, d.plain = shape, isPlain(shape)
	}
	if !d.plain {
		return false
	}
	words, at := d.words[:0], d.i
	for i := range shape.Fields {
		f := &shape.Fields[i]
		if i > 0 {
			if at == len(d.s) || d.s[at] != ',' {
				return false
			}
			at++
		}
		value := at + len(f.Name) + 1
		if value >= len(d.s) || d.s[value-1] != '=' || string(d.s[at:value-1]) != f.Name {
			return false
		}
		word, length := numberWord(f.Kind, d.s[value:])
		if length == 0 {
			return false
		}
		words = append(words, word)
		at = value + length
	}
	if at < len(d.s) && d.s[at] != ' ' {
		return false
	}
	d.words, d.i = words, at
	d.in.builder.Columns(shape, words, 1, 0)
	return true
}

func isPlain(shape *batch.Shape) bool {
	for _, f := range shape.Fields {
		if f.Kind != telemetry.Int && f.Kind != telemetry.Float {
			return false
		}
		for _, c := range []byte(f.Name) {
			if wordBytes[c]&inName == 0 || c == '\\' {
				return false
			}
		}
	}
	return true
}

// numberWord parses a short number of this kind into the representation of a batch. It returns
// the length of its text; 0 if s does not begin with one.
func numberWord(kind telemetry.Kind, s []byte) (word uint64, length int) {
	if kind == telemetry.Float {
		v, length := shortDecimal(s)
		return math.Float64bits(v), length
	}
	if s[0] == '-' {
		length = 1
	}
	word, digits := readDigits(0, s[length:])
	if length += digits; digits == 0 || digits >= maxDigits || length == len(s) || s[length] != 'i' {
		return 0, 0
	}
	if s[0] == '-' {
		word = -word
	}
	return word, length + 1
}

// value decodes a number or a boolean.
func (d *lineDecoder) value(name []byte) *telemetry.Refusal {
	b := d.in.builder
	s := d.s[d.i:]
	// Most fields have small integers or short decimals.
	if n, digits := readDigits(0, s); digits > 0 && digits < maxDigits && digits < len(s) && s[digits] == 'i' && endsValue(s[digits+1:]) {
		b.Int(name, int64(n))
		d.i += digits + 1
		return nil
	} else if v, length := shortDecimal(s); length > 0 {
		b.Float(name, v)
		d.i += length
		return nil
	}
	length := 0
	for length < len(s) && !endsValue(s[length:]) {
		length++
	}
	if s = s[:length]; length == 0 {
		return d.wrong("the value of field %s was expected", telemetry.Quote(name))
	}
	malformed := func(kind string) *telemetry.Refusal {
		return telemetry.Refuse(telemetry.Malformed, "field %s has the value %s, which is not %s", telemetry.Quote(name), telemetry.Quote(s), kind)
	}
	switch last := s[length-1]; {
	case s[0] == '-' || s[0] == '.' || isDigit(s[0]):
		if last == 'i' || last == 'u' {
			n, fits, ok := parseLineInt(s[:length-1])
			switch {
			case !ok || last == 'u' && s[0] == '-':
				return malformed("an integer")
			case fits:
				b.Int(name, n)
			default:
				b.Refuse(telemetry.Refuse(telemetry.ValueRange, "field %s is %s, which does not fit a signed 64-bit integer", telemetry.Quote(name), cutText(s[:length-1])))
			}
			break
		}
		for _, c := range s {
			if !isDigit(c) && c != '.' && c != '-' && c != '+' && c|0x20 != 'e' {
				return malformed("a number")
			}
		}
		v, err := strconv.ParseFloat(string(s), 64)
		switch {
		case err == nil:
			b.Float(name, v)
		case errors.Is(err, strconv.ErrRange):
			b.Refuse(telemetry.Refuse(telemetry.ValueNotFinite, "field %s is %s, beyond the range of a double", telemetry.Quote(name), cutText(s)))
		default:
			return malformed("a number")
		}
	default:
		v, ok := parseLineBool(s)
		if !ok {
			return malformed("a number, a boolean, or a string in double quotes")
		}
		b.Bool(name, v)
	}
	d.i += length
	return nil
}

// endsValue reports whether a value ends before s.
func endsValue(s []byte) bool {
	return len(s) == 0 || s[0] == ',' || s[0] == ' ' || s[0] == '\r' || s[0] == '\n'
}

// text decodes a string; the quote at i begins it.
func (d *lineDecoder) text(name []byte) *telemetry.Refusal {
	d.i++
	from, begin := d.i, len(d.unescaped) // where the rest begins in s, and the string in unescaped
	for {
		n := bytes.IndexAny(d.s[d.i:], `"\`)
		if n < 0 || d.s[d.i+n] == '\\' && d.i+n+1 == len(d.s) {
			// A backslash that ends the line stands for itself, or escapes nothing.
			d.i = len(d.s)
			if !d.lines.extend() {
				return d.wrong("the string of field %s has no closing quote", telemetry.Quote(name))
			}
			d.s = d.lines.line()
			continue
		}
		d.i += n
		if d.s[d.i] == '"' {
			break
		}
		if c := textEscape(d.s[d.i+1]); c != 0 {
			d.unescaped = append(append(d.unescaped, d.s[from:d.i]...), c)
			d.i++
			from = d.i + 1
		}
		d.i++
	}
	text := d.s[from:d.i]
	if len(d.unescaped) > begin {
		d.unescaped = append(d.unescaped, text...)
		text = d.unescaped[begin:]
	}
	d.i++
	if !utf8.Valid(text) {
		return d.wrong("the string of field %s is not UTF-8", telemetry.Quote(name))
	}
	d.in.builder.Text(name, text)
	if !endsValue(d.s[d.i:]) {
		return d.wrong("a comma or a space was expected after the string of field %s", telemetry.Quote(name))
	}
	return nil
}

// textEscape returns what a backslash and this byte stand for in a string; 0 if they
// stand for themselves.
func textEscape(c byte) byte {
	switch c {
	case '"', '\\':
		return c
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return 0
}

// time decodes the timestamp, if there is one. The line must end with it.
func (d *lineDecoder) time() *telemetry.Refusal {
	if d.i == len(d.s) {
		return nil
	}
	d.spaces()
	from := d.i
	for d.i < len(d.s) && (d.s[d.i] == '-' || isDigit(d.s[d.i])) {
		d.i++
	}
	text := d.s[from:d.i]
	d.spaces()
	if rest := d.s[d.i:]; len(rest) > 0 && string(rest) != "\r" {
		return d.wrong("a timestamp or the end of the line was expected")
	}
	if len(text) == 0 {
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

// wrong returns a refusal for a syntax error at the current position.
func (d *lineDecoder) wrong(format string, args ...any) *telemetry.Refusal {
	return telemetry.Refuse(telemetry.Malformed, "the line is not line protocol: "+format+" at column %d", append(args, d.i+1)...)
}

// at returns the current byte; 0 at the end.
func (d *lineDecoder) at() byte {
	if d.i == len(d.s) {
		return 0
	}
	return d.s[d.i]
}

func (d *lineDecoder) spaces() {
	for d.i < len(d.s) && d.s[d.i] == ' ' {
		d.i++
	}
}

// Which words a byte may be part of without a backslash. A measurement may contain equals
// signs, unlike the names and values of tags and the names of fields.
const (
	inMeasurement = 1 << iota
	inName
)

var wordBytes = func() (set [256]uint8) { //nolint:gochecknoglobals // a table that never changes
	for c := range set {
		if c < ' ' || c == 0x7f || c == ',' || c == ' ' {
			continue
		}
		if set[c] = inMeasurement; c != '=' {
			set[c] |= inName
		}
	}
	return set
}()

// word decodes a word, which may be empty. It returns false if it is not UTF-8.
func (d *lineDecoder) word(kind uint8) (word []byte, ok bool) {
	from, begin := d.i, len(d.unescaped) // where the rest begins in s, and the word in unescaped
	high := byte(0)
	for ; d.i < len(d.s); d.i++ {
		c := d.s[d.i]
		if wordBytes[c]&kind == 0 {
			break
		}
		high |= c
		if c == '\\' && d.i+1 < len(d.s) {
			if next := d.s[d.i+1]; next == ',' || next == ' ' || next == '=' && kind == inName {
				d.unescaped = append(append(d.unescaped, d.s[from:d.i]...), next)
				d.i++
				from = d.i + 1
			}
		}
	}
	word = d.s[from:d.i]
	if len(d.unescaped) > begin {
		d.unescaped = append(d.unescaped, word...)
		word = d.unescaped[begin:]
	}
	return word, high < utf8.RuneSelf || utf8.Valid(word)
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
	if _, count := readDigits(0, digits); count == 0 || count < len(digits) {
		return 0, false, false
	}
	n, form := parseInt(s)
	return n, form == numberInt, true
}

// shortDecimal parses a double with so few digits that it is exact without strconv. It returns
// the length of its text; 0 if s does not begin with one.
func shortDecimal(s []byte) (v float64, length int) {
	i := 0
	if len(s) > 0 && s[0] == '-' {
		i = 1
	}
	n, digits := readDigits(0, s[i:])
	i += digits
	point := 0 // digits after it
	if i < len(s) && s[i] == '.' {
		n, point = readDigits(n, s[i+1:])
		i += 1 + point
	}
	if !endsValue(s[i:]) || digits+point == 0 {
		return 0, 0
	}
	v, exact := decimal(n, digits+point, point)
	if !exact {
		return 0, 0
	}
	if s[0] == '-' {
		v = -v // of 0 too: a negative zero
	}
	return v, i
}
