package files

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// maxLine is longer than any reading: 256 fields and tags of 1 KiB, every byte escaped.
const maxLine = 4 << 20

// ndjsonWriter writes readings as the HTTP API returns them.
type ndjsonWriter struct {
	w   io.Writer
	buf []byte
}

func (n *ndjsonWriter) Write(r *telemetry.Reading) error {
	n.buf = append(r.AppendJSON(n.buf), '\n')
	if len(n.buf) < 64<<10 {
		return nil
	}
	return n.Close()
}

func (n *ndjsonWriter) Close() error {
	_, err := n.w.Write(n.buf)
	n.buf = n.buf[:0]
	return err
}

// decompress inflates what is compressed with gzip or zstd.
func decompress(r io.Reader) (io.ReadCloser, error) {
	in := bufio.NewReaderSize(r, 256<<10)
	switch begin, _ := in.Peek(4); { // what cannot be read is seen below
	case bytes.HasPrefix(begin, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("inflate: %w", err)
		}
		return z, nil
	case bytes.HasPrefix(begin, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, fmt.Errorf("inflate: %w", err)
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(in), nil
}

// A lineReader cuts a file into lines.
type lineReader struct {
	r      *bufio.Reader
	number int64 // of the last line
	long   []byte
	back   [][]byte // lines that were put back
}

// stringLines is how many further lines a string may reach into: it has at most 1 KiB.
// Beyond that a quote is missing.
const stringLines = 64

var errLongLine = fmt.Errorf("the line is longer than %d bytes", maxLine)

// next returns the next line without its line break, until the next call; errLongLine if
// it was skipped, io.EOF behind the last one.
func (l *lineReader) next() ([]byte, error) {
	if len(l.back) > 0 {
		line := l.back[0]
		l.back = l.back[1:]
		l.number++
		return line, nil
	}
	line, err := l.r.ReadSlice('\n')
	if err == nil || errors.Is(err, io.EOF) && len(line) > 0 {
		l.number++
		return trimEnd(line), nil
	}
	if !errors.Is(err, bufio.ErrBufferFull) {
		return nil, err
	}
	l.number++
	l.long = append(l.long[:0], line...)
	tooLong := false
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = l.r.ReadSlice('\n')
		if tooLong = tooLong || len(l.long)+len(line) > maxLine; !tooLong {
			l.long = append(l.long, line...)
		}
	}
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case tooLong:
		return nil, errLongLine
	}
	return trimEnd(l.long), nil
}

// putBack puts the last lines back, which are copies.
func (l *lineReader) putBack(last [][]byte) {
	l.back = append(last, l.back...)
	l.number -= int64(len(last))
}

func trimEnd(line []byte) []byte { return bytes.TrimSuffix(line, []byte("\n")) }

// readNDJSON reads an object a line, in the form that the HTTP API takes and returns.
func readNDJSON(r io.Reader) Rows {
	return func(yield func(Row, error) bool) {
		lines, p := lineReader{r: bufio.NewReaderSize(r, 64<<10)}, NewParser()
		for {
			line, err := lines.next()
			if errors.Is(err, io.EOF) {
				return
			}
			row := Row{Line: lines.number}
			switch {
			case errors.Is(err, errLongLine):
				row.Err = err
			case err != nil:
				yield(Row{}, fmt.Errorf("read line %d: %w", lines.number+1, err))
				return
			case len(bytes.TrimSpace(line)) == 0:
				continue
			default:
				row.Err = p.Parse(line, &row.Reading)
			}
			if !yield(row, nil) {
				return
			}
		}
	}
}

// A Parser parses readings in JSON. Those in the exact form in which Brim writes them
// take a fraction of a microsecond.
type Parser struct {
	strings interner
}

// NewParser returns a parser.
func NewParser() *Parser { return &Parser{strings: make(interner)} }

// Parse parses a reading, which it may change even if it fails. It reuses no slices: the
// reading may be kept.
func (p *Parser) Parse(line []byte, r *telemetry.Reading) error {
	if p.parseOwn(line, r) {
		return nil
	}
	return parseAny(line, r)
}

// parseAny parses a reading in any form that the HTTP API takes.
func parseAny(line []byte, r *telemetry.Reading) error {
	var given struct {
		Sensor string         `json:"sensorId"`
		Time   jsontext.Value `json:"ts"`
		Fields jsontext.Value `json:"fields"`
		Tags   jsontext.Value `json:"tags"`
	}
	if err := json.Unmarshal(line, &given, json.RejectUnknownMembers(true)); err != nil {
		// The decoder's errors begin with the names of its packages.
		return fmt.Errorf("this is not a reading in JSON: %s", strings.NewReplacer("jsontext: ", "", "json: ", "").Replace(err.Error()))
	}
	var err error
	*r = telemetry.Reading{Sensor: given.Sensor}
	if r.Time, err = parseJSONTime(given.Time); err != nil {
		return err
	}
	if len(given.Fields) == 0 {
		return errors.New("fields are missing")
	}
	// Its own decoder keeps the order of fields, and tells integers from doubles.
	whole := append(append(append([]byte(`{"sensorId":"","ts":"1970-01-01T00:00:00Z","fields":`), given.Fields...), `,"tags":`...), orEmpty(given.Tags)...)
	var content telemetry.Reading
	if err := content.UnmarshalJSON(append(whole, '}')); err != nil {
		return err
	}
	r.Fields, r.Tags = content.Fields, content.Tags
	return nil
}

func orEmpty(v jsontext.Value) jsontext.Value {
	if len(v) == 0 {
		return jsontext.Value("{}")
	}
	return v
}

// parseJSONTime reads milliseconds since the epoch, or RFC 3339.
func parseJSONTime(v jsontext.Value) (time.Time, error) {
	if len(v) == 0 {
		return time.Time{}, errors.New("ts is missing")
	}
	if text, ok := strings.CutPrefix(string(v), `"`); ok {
		return parseTime(strings.TrimSuffix(text, `"`))
	}
	return parseTime(string(v))
}

// parseTime reads milliseconds since the epoch, or RFC 3339, where a space may stand
// for the T.
func parseTime(s string) (time.Time, error) {
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil {
		return time.UnixMilli(ms).UTC(), nil
	}
	for _, form := range []string{time.RFC3339Nano, "2006-01-02 15:04:05Z07:00"} {
		if t, err := time.Parse(form, s); err == nil {
			return floorMillis(t), nil
		}
	}
	return time.Time{}, fmt.Errorf("ts %s is not a time; allowed: milliseconds since 1970, and RFC 3339 like 2026-11-21T10:00:00.123Z", telemetry.Quote([]byte(s)))
}

func floorMillis(t time.Time) time.Time { return time.UnixMilli(t.UnixMilli()).UTC() }

// parseOwn parses the form of telemetry.Reading.AppendJSON, where no string has a
// character that is escaped; false if the line has another form.
func (p *Parser) parseOwn(line []byte, r *telemetry.Reading) bool {
	s := scanner{s: line, ok: true}
	s.skip(`{"sensorId":"`)
	sensor := s.text()
	s.skip(`,"ts":"`)
	ms := s.time()
	s.skip(`","fields":{`)
	fields := make([]telemetry.Field, 0, max(1, len(r.Fields)))
	for s.ok {
		s.skip(`"`)
		name := s.text()
		s.skip(":")
		value := s.value(p.strings)
		fields = append(fields, telemetry.Field{Name: p.strings.of(name), Value: value})
		if !s.has(",") {
			break
		}
	}
	s.skip("}")
	var tags []telemetry.Tag
	if s.has(`,"tags":{`) {
		tags = make([]telemetry.Tag, 0, max(1, len(r.Tags)))
		for s.ok {
			s.skip(`"`)
			name := s.text()
			s.skip(`:"`)
			tags = append(tags, telemetry.Tag{Name: p.strings.of(name), Value: p.strings.of(s.text())})
			if !s.has(",") {
				break
			}
		}
		s.skip("}")
	}
	s.skip("}")
	if !s.ok || len(s.s) > 0 {
		return false
	}
	*r = telemetry.Reading{Sensor: p.strings.of(sensor), Time: time.UnixMilli(ms).UTC(), Fields: fields, Tags: tags}
	return true
}

// An interner keeps one copy of strings that come again and again.
type interner map[string]string

const mostStrings = 10_000

func (n interner) of(b []byte) string {
	if s, ok := n[string(b)]; ok {
		return s
	}
	if len(n) >= mostStrings {
		clear(n)
	}
	s := string(b)
	n[s] = s
	return s
}

// A scanner parses a line from its beginning; s is the rest.
type scanner struct {
	s  []byte
	ok bool
}

func (c *scanner) has(text string) bool {
	if len(c.s) < len(text) || string(c.s[:len(text)]) != text {
		return false
	}
	c.s = c.s[len(text):]
	return true
}

func (c *scanner) skip(text string) { c.ok = c.ok && c.has(text) }

// text returns a string up to its closing quote, which is skipped.
func (c *scanner) text() []byte {
	for i, b := range c.s {
		switch {
		case b == '"':
			t := c.s[:i]
			c.s = c.s[i+1:]
			return t
		case b == '\\' || b < ' ' || b >= 0x80:
			c.ok = false
			return nil
		}
	}
	c.ok = false
	return nil
}

// value parses a value in the form of telemetry.Value.AppendJSON.
func (c *scanner) value(strings interner) telemetry.Value {
	switch {
	case !c.ok:
	case c.has(`"`):
		return telemetry.TextValue(strings.of(c.text()))
	case c.has("true"):
		return telemetry.BoolValue(true)
	case c.has("false"):
		return telemetry.BoolValue(false)
	default:
		return c.number()
	}
	return telemetry.Value{}
}

func (c *scanner) number() telemetry.Value {
	n, float := 0, false
	for ; n < len(c.s) && c.s[n] != ',' && c.s[n] != '}'; n++ {
		switch b := c.s[n]; {
		case b >= '0' && b <= '9', b == '-':
		case b == '.', b == 'e', b == '+':
			float = true
		default:
			c.ok = false
		}
	}
	text := c.s[:n]
	c.s = c.s[n:]
	if float {
		v, err := strconv.ParseFloat(string(text), 64)
		c.ok = c.ok && err == nil
		return telemetry.FloatValue(v)
	}
	v, err := strconv.ParseInt(string(text), 10, 64)
	c.ok = c.ok && err == nil
	return telemetry.IntValue(v)
}

// time parses a time in the form of telemetry.TimeFormat.
func (c *scanner) time() int64 {
	const form = "0000-00-00T00:00:00.000Z"
	if !c.ok || len(c.s) < len(form) {
		c.ok = false
		return 0
	}
	t := c.s[:len(form)]
	c.s = c.s[len(form):]
	var digits [len(form)]int
	for i := range form {
		if form[i] != '0' {
			c.ok = c.ok && t[i] == form[i]
			continue
		}
		digits[i] = int(t[i]) - '0'
		c.ok = c.ok && digits[i] >= 0 && digits[i] <= 9
	}
	two := func(i int) int { return 10*digits[i] + digits[i+1] }
	month, day, hour, minute, second := two(5), two(8), two(11), two(14), two(17)
	if month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 59 {
		c.ok = false
	}
	at := time.Date(100*two(0)+two(2), time.Month(month), day, hour, minute, second, 0, time.UTC)
	c.ok = c.ok && at.Day() == day // a month may be shorter
	return at.UnixMilli() + int64(100*digits[20]+two(21))
}
