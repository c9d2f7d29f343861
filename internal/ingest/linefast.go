package ingest

import (
	"bytes"
	"math"
	"unicode/utf8"

	"github.com/brim-telemetry/brim/internal/batch"
)

// The fast path of line protocol takes the lines that nearly all senders write:
//
//	cpu,host=a,region=b usage_user=58i,load=0.25,up=t,state="idle" 1767225600000000000
//
// printable ASCII without a backslash, single spaces, a quote only around a
// string. It decides nothing by itself: whatever else a line holds, right or
// wrong, it leaves to the plain path, from the beginning of the line. So a line
// that is taken here must be one that the plain path takes alike, and refusals
// of syntax come from there alone.

// fast decodes a line, if it is simple all through. If not, it reports false,
// and the reading is not begun.
func (d *lineDecoder) fast(line []byte) (done bool, err error) {
	n := bytes.IndexByte(line, ' ')
	if n <= 0 {
		return false, nil
	}
	known := d.lookUp(line[:n])
	if known == nil && !d.cutSeries(line[:n]) {
		return false, nil
	}
	if err := d.fastBegin(known); err != nil {
		return false, err
	}
	if !d.fastFields(line[n+1:]) {
		d.in.takeBack()
		return false, nil
	}
	if taken := d.in.end(); taken && known == nil {
		d.remember()
	}
	return true, nil
}

// fastBegin begins a reading of a known series, or of the one that was cut.
func (d *lineDecoder) fastBegin(known *batch.Series) error {
	if known != nil {
		return d.beginKnown(known)
	}
	if err := d.begin(d.measurement); err != nil {
		return err
	}
	for _, t := range d.tags {
		d.in.builder.Tag(t.name, t.value)
	}
	d.giveSensor()
	return nil
}

// cutSeries sets measurement and tags to those of a series without escapes.
func (d *lineDecoder) cutSeries(series []byte) bool {
	n := bytes.IndexByte(series, ',')
	if n < 0 {
		n = len(series)
	}
	d.measurement, d.tags, d.simple = series[:n], d.tags[:0], true
	// A measurement is a word but for equals signs, which are rare in one.
	if n == 0 || simpleWord(series[:n]) < n {
		return false
	}
	for rest := series[n:]; len(rest) > 0; {
		rest = rest[1:] // the comma
		equals := simpleWord(rest)
		if equals == 0 || equals == len(rest) || rest[equals] != '=' {
			return false
		}
		value := rest[equals+1:]
		end := simpleWord(value)
		if end == 0 || end < len(value) && value[end] != ',' {
			return false
		}
		d.tags = append(d.tags, lineTag{name: rest[:equals], value: value[:end]})
		rest = value[end:]
	}
	return true
}

// fastFields decodes what stands behind the series and its space.
func (d *lineDecoder) fastFields(s []byte) bool {
	if n := d.likeLast(s); n > 0 {
		return n == len(s) || d.fastTime(s[n+1:])
	}
	for field := 0; ; field++ {
		n := d.fieldName(s, field)
		if n == 0 {
			return false
		}
		key := s[:n]
		s = s[n+1:]
		// Small integers are what most fields hold.
		if v, digits := readDigits(0, s); digits > 0 && digits < maxDigits && digits < len(s) && s[digits] == 'i' {
			d.in.builder.Int(key, int64(v))
			s = s[digits+1:]
		} else if length := d.fastValue(key, s); length > 0 {
			s = s[length:]
		} else {
			return false
		}
		if len(s) == 0 {
			return true
		}
		separator := s[0]
		s = s[1:]
		if separator == ' ' {
			return d.fastTime(s)
		} else if separator != ',' {
			return false
		}
	}
}

// fieldName returns the length of the simple word that s begins with, if an
// equals sign and a value stand behind it; otherwise 0. Since most lines have the
// fields of the one before, and likeLast leaves those with a string or a boolean
// among them, it first looks for the name that stood there.
func (d *lineDecoder) fieldName(s []byte, field int) int {
	from := 0
	if field > 0 {
		from = d.nameEnds[field-1]
	}
	if field < len(d.nameEnds) {
		name := d.names[from:d.nameEnds[field]]
		if len(name) < len(s) && bytes.Equal(s[:len(name)], name) {
			return len(name) - 1
		}
		d.names, d.nameEnds = d.names[:from], d.nameEnds[:field]
	}
	n := simpleWord(s)
	if n == 0 || n+1 >= len(s) || s[n] != '=' {
		return 0
	}
	d.names = append(d.names, s[:n+1]...)
	d.nameEnds = append(d.nameEnds, len(d.names))
	return n
}

// fastValue decodes the value that s begins with, and returns its length; 0 if
// it is not simple.
func (d *lineDecoder) fastValue(key, s []byte) int {
	switch s[0] {
	case '-', '.', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return d.fastNumber(key, s)
	case '"':
		n := bytes.IndexByte(s[1:], '"')
		if n < 0 {
			return 0
		}
		text := s[1 : 1+n]
		if bytes.IndexByte(text, '\\') >= 0 || !utf8.Valid(text) {
			return 0
		}
		d.in.builder.Text(key, text)
		return n + 2
	}
	n := valueLength(s)
	value, ok := parseLineBool(s[:n])
	if !ok {
		return 0
	}
	d.in.builder.Bool(key, value)
	return n
}

// fastNumber is fastValue for numbers.
func (d *lineDecoder) fastNumber(key, s []byte) int {
	i := 0
	if s[0] == '-' {
		i = 1
	}
	n, digits := readDigits(0, s[i:])
	i += digits
	if digits > 0 && digits <= maxDigits && i < len(s) && (s[i] == 'i' || s[i] == 'u') {
		return d.fastInteger(key, s[:i+1], n)
	}
	if v, length := shortDecimal(s); length > 0 {
		d.in.builder.Float(key, v)
		return length
	}
	i = valueLength(s)
	if !d.float(key, s[:i]) {
		return 0
	}
	return i
}

// shortDecimal reads a double of so few digits that it is right without strconv,
// and returns the length of its text; 0 if s begins with none.
func shortDecimal(s []byte) (v float64, length int) {
	i := 0
	if s[0] == '-' {
		i = 1
	}
	n, digits := readDigits(0, s[i:])
	i += digits
	point := 0 // digits behind it
	if i < len(s) && s[i] == '.' {
		n, point = readDigits(n, s[i+1:])
		i += 1 + point
	}
	if i < len(s) && s[i] != ',' && s[i] != ' ' || digits+point == 0 {
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

// fastInteger is fastNumber for all of an integer, whose digits make n.
func (d *lineDecoder) fastInteger(key, s []byte, n uint64) int {
	negative := s[0] == '-'
	// The least integer of all has no positive one, and goes the plain path.
	if n > math.MaxInt64 || negative && s[len(s)-1] == 'u' {
		return 0
	}
	v := int64(n)
	if negative {
		v = -v
	}
	d.in.builder.Int(key, v)
	return len(s)
}

// fastTime decodes a timestamp, with which the line must end.
func (d *lineDecoder) fastTime(s []byte) bool {
	n, digits := readDigits(0, s)
	if digits == 0 || digits > maxDigits || digits < len(s) || n > math.MaxInt64 {
		return false
	}
	ms, inside := d.precision.millis(int64(n))
	if inside {
		d.in.builder.Time(ms)
	}
	return inside
}

// maxDigits is how many digits always fit an unsigned 64-bit integer.
const maxDigits = 19

// readDigits appends the digits that s begins with to those of n. If these are
// more than maxDigits then, the number makes no sense.
func readDigits(n uint64, s []byte) (number uint64, digits int) {
	for i, c := range s {
		if c -= '0'; c > 9 {
			return n, i
		}
		n = n*10 + uint64(c)
	}
	return n, len(s)
}

// valueLength returns the length of the value that s begins with.
func valueLength(s []byte) int {
	for i, c := range s {
		if c == ',' || c == ' ' {
			return i
		}
	}
	return len(s)
}

// simpleWord returns how many simple bytes s begins with.
func simpleWord(s []byte) int {
	for i, c := range s {
		if !isSimple(c) {
			return i
		}
	}
	return len(s)
}

// isSimple reports whether a byte stands for itself wherever it is: printable
// ASCII without what separates, escapes or quotes.
func isSimple(c byte) bool { return simpleInLines[c>>6]>>(c&63)&1 != 0 }

// simpleInLines has a bit for each byte.
var simpleInLines = [4]uint64{
	(1<<64 - 1<<'!') &^ (1<<'"' | 1<<',' | 1<<'='),
	(1<<63 - 1) &^ (1 << ('\\' - 64)),
}
