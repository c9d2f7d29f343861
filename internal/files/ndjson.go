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

// decompress decompresses gzip and zstd; other data is passed through.
func decompress(r io.Reader) (io.ReadCloser, error) {
	in := bufio.NewReaderSize(r, 256<<10)
	switch begin, _ := in.Peek(4); { // read errors are reported later
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

// A lineReader splits a file into lines.
type lineReader struct {
	r      *bufio.Reader
	number int64 // of the last line
	long   []byte
	back   [][]byte // lines that were put back; nil: one that is too long
}

// A string that has more lines and more bytes than these must lack its closing quote.
const (
	stringLines = 64
	stringBytes = telemetry.MaxTextBytes
)

var errLongLine = fmt.Errorf("the line is longer than %d bytes", maxLine)

// next returns the next line without its line break, valid until the next call; errLongLine if it
// was skipped, io.EOF after the last one.
func (l *lineReader) next() ([]byte, error) {
	if len(l.back) > 0 {
		line := l.back[0]
		l.back = l.back[1:]
		l.number++
		if line == nil {
			return nil, errLongLine
		}
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

// putBack puts the last lines back; they must be copies. nil is a line that is too long.
func (l *lineReader) putBack(last [][]byte) {
	l.back = append(last, l.back...)
	l.number -= int64(len(last))
}

func trimEnd(line []byte) []byte { return bytes.TrimSuffix(line, []byte("\n")) }

// readNDJSON reads one object per line, in the form of the HTTP API.
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

// A Parser parses readings in JSON, in any form that the HTTP API accepts.
type Parser struct {
	in      bytes.Buffer
	tokens  *jsontext.Decoder
	strings interner
}

// NewParser returns a parser.
func NewParser() *Parser {
	p := &Parser{strings: make(interner)}
	p.tokens = jsontext.NewDecoder(&p.in)
	return p
}

// Parse parses a reading. It may modify r even if it fails. It does not reuse slices, so the
// reading may be retained.
func (p *Parser) Parse(line []byte, r *telemetry.Reading) error {
	p.in = *bytes.NewBuffer(line)
	p.tokens.Reset(&p.in)
	fields := max(1, len(r.Fields)) // preallocate as many as in the last reading
	*r = telemetry.Reading{}
	err := p.members(func(name string) (err error) {
		switch name {
		case "sensorId":
			r.Sensor, err = p.text()
		case "ts":
			r.Time, err = p.time()
		case "fields":
			r.Fields = make([]telemetry.Field, 0, fields)
			return p.members(func(name string) error {
				v, err := p.value()
				if err != nil {
					return fmt.Errorf("field %s: %w", telemetry.Quote([]byte(name)), err)
				}
				r.Fields = append(r.Fields, telemetry.Field{Name: name, Value: v})
				return nil
			})
		case "tags":
			return p.members(func(name string) error {
				v, err := p.text()
				r.Tags = append(r.Tags, telemetry.Tag{Name: name, Value: v})
				return err
			})
		default:
			return fmt.Errorf("unknown name %s", telemetry.Quote([]byte(name)))
		}
		return err
	})
	if err == nil {
		if _, err = p.tokens.ReadToken(); err == nil {
			err = errors.New("something follows it")
		} else if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("this is not a reading in JSON: %s", strings.TrimPrefix(err.Error(), "jsontext: "))
	case r.Time.IsZero():
		return errors.New("ts is missing")
	case r.Fields == nil:
		return errors.New("fields are missing")
	}
	return nil
}

// members calls do for each member of an object; do reads the value.
func (p *Parser) members(do func(name string) error) error {
	if t, err := p.tokens.ReadToken(); err != nil {
		return err
	} else if t.Kind() != '{' {
		return errors.New("an object was expected")
	}
	for p.tokens.PeekKind() != '}' {
		name, err := p.text()
		if err == nil {
			err = do(name)
		}
		if err != nil {
			return err
		}
	}
	_, err := p.tokens.ReadToken()
	return err
}

func (p *Parser) text() (string, error) {
	kind, text, err := p.scalar()
	if err == nil && kind != '"' {
		err = errors.New("a string was expected")
	}
	return text, err
}

// scalar reads a string, or the text of another value.
func (p *Parser) scalar() (kind jsontext.Kind, text string, err error) {
	v, err := p.tokens.ReadValue()
	switch {
	case err != nil:
		return 0, "", err
	case v.Kind() != '"':
		return v.Kind(), string(v), nil
	case bytes.IndexByte(v, '\\') < 0:
		return '"', p.strings.of(v[1 : len(v)-1]), nil
	}
	unquoted, err := jsontext.AppendUnquote(nil, v)
	return '"', p.strings.of(unquoted), err
}

func (p *Parser) time() (time.Time, error) {
	_, text, err := p.scalar()
	if err != nil {
		return time.Time{}, err
	}
	return parseTime(text)
}

// value reads the value of a field. A number without a point or an exponent is an integer.
func (p *Parser) value() (telemetry.Value, error) {
	kind, text, err := p.scalar()
	switch {
	case err != nil:
		return telemetry.Value{}, err
	case kind == '"':
		return telemetry.TextValue(text), nil
	case kind == 't', kind == 'f':
		return telemetry.BoolValue(kind == 't'), nil
	case kind != '0':
		return telemetry.Value{}, errors.New("its value is not a number, a boolean or a string")
	case strings.ContainsAny(text, ".eE"):
		f, err := strconv.ParseFloat(text, 64)
		return telemetry.FloatValue(f), err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return telemetry.IntValue(n), err
}

// parseTime reads milliseconds since the epoch, or RFC 3339 with T or a space.
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

// An interner deduplicates repeated strings.
type interner map[string]string

const maxInterned = 10_000

func (n interner) of(b []byte) string {
	if s, ok := n[string(b)]; ok {
		return s
	}
	if len(n) >= maxInterned {
		clear(n)
	}
	s := string(b)
	n[s] = s
	return s
}
