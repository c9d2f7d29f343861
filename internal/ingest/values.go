package ingest

import (
	"errors"
	"fmt"
	"io"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// lookAhead is how much of a body is there before a reading is decoded; what is
// longer is not simple.
const lookAhead = 16 << 10

// values decodes a body that has the syntax of JSON: an array of readings, or
// readings one after the other. Simple ones are decoded where they lie; for
// everything else the decoder of tokens is put into the state in which it would
// be there if it had decoded all, and takes the next value.
type values struct {
	in     *intake
	simple *simpleDecoder
	plain  *readingDecoder

	src     io.Reader
	buf     []byte
	at      int   // in buf, of what comes next
	fed     int   // in buf, of what the plain decoder gets next
	gone    int64 // bytes in front of buf
	err     error // of src
	pretext string

	array bool // it is one, and its bracket is behind
	count int  // values that are behind
	begun bool // the reading that comes next
}

// decode decodes all. Syntax that is wrong anywhere refuses the whole.
func (v *values) decode() error {
	for {
		if done, err := v.simpleValues(); done || err != nil {
			return err
		}
		if done, err := v.plainValue(); done || err != nil {
			return err
		}
	}
}

// simpleValues decodes up to the first value that is not simple, and reports
// whether there was none.
func (v *values) simpleValues() (done bool, err error) {
	for ; ; v.count++ {
		v.lookAhead()
		i := skipSpace(v.buf, v.at)
		if !v.array && v.count == 0 && i < len(v.buf) && v.buf[i] == '[' {
			v.array, v.at = true, i+1
			i = skipSpace(v.buf, v.at)
		}
		if v.array && v.count > 0 && i < len(v.buf) {
			switch v.buf[i] {
			case ',':
				i = skipSpace(v.buf, i+1)
			case ']':
				return v.atEnd(i + 1), nil
			default:
				return false, nil
			}
		}
		if i == len(v.buf) || v.buf[i] != '{' {
			return !v.array && v.count > 0 && v.atEnd(i), nil
		}
		if err := v.in.begin(); err != nil {
			return false, err
		}
		end := v.simple.reading(v.buf[i:])
		if v.begun = end == 0; v.begun {
			return false, nil
		}
		v.at = i + end
	}
}

// atEnd reports whether there is nothing but white space from buf[i] on.
func (v *values) atEnd(i int) bool {
	return skipSpace(v.buf, i) == len(v.buf) && errors.Is(v.err, io.EOF)
}

// plainValue decodes one value, or what is there instead, and reports whether
// it was the end.
func (v *values) plainValue() (done bool, err error) {
	d := v.plain
	offset, err := v.resume()
	if err != nil {
		return false, v.broken(err, offset)
	}
	switch kind := d.json.PeekKind(); {
	case v.array && kind == ']', !v.array && kind != '{':
		return true, v.end(offset)
	}
	if !v.begun {
		if err := v.in.begin(); err != nil {
			return false, err
		}
	}
	v.begun = false
	d.guard.mark = d.json.InputOffset()
	if err := d.reading(); err != nil {
		return false, v.broken(err, offset)
	}
	v.in.end()
	v.count++
	v.at = int(offset + d.json.InputOffset() - v.gone)
	return false, nil
}

// resume puts the plain decoder in front of the next value, by a text that
// stands for all that is behind. It returns by how much its offsets are wrong.
func (v *values) resume() (offset int64, err error) {
	v.pretext = ""
	if v.array {
		v.pretext = "["
	}
	if v.count > 0 {
		v.pretext += "{}"
	}
	offset = v.gone + int64(v.at) - int64(len(v.pretext))
	v.fed = v.at
	d := v.plain
	d.stream(v)
	if v.array || v.count == 0 && d.json.PeekKind() == '[' {
		if _, err := d.json.ReadToken(); err != nil {
			return offset, err
		}
		v.array = true
	}
	if v.count > 0 {
		return offset, d.json.SkipValue()
	}
	return offset, nil
}

// end decodes what is behind the last value.
func (v *values) end(offset int64) error {
	json := v.plain.json
	if v.array {
		if _, err := json.ReadToken(); err != nil {
			return v.broken(err, offset)
		}
		if json.PeekKind() != 0 {
			return telemetry.Errorf(telemetry.Invalid, codeMalformed,
				"there is something behind the array, at byte %d; nothing was taken", offset+json.InputOffset())
		}
	}
	token, err := json.ReadToken()
	if errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return v.broken(err, offset)
	}
	return telemetry.Errorf(telemetry.Invalid, codeMalformed,
		"the body holds %s where a reading should be, at byte %d; a body is an object, an array of objects, or one object a line", kindName(token.Kind()), offset+json.InputOffset())
}

// broken returns the error for a body whose syntax is wrong.
func (v *values) broken(err error, offset int64) error {
	var known *telemetry.Error
	if errors.As(err, &known) {
		return known
	}
	where := ""
	if v.in.count > 0 {
		where = fmt.Sprintf(" in or behind reading %d", v.in.count-1)
	}
	return &telemetry.Error{
		Kind: telemetry.Invalid, Code: codeMalformed, Err: err,
		Message: fmt.Sprintf("the JSON is broken%s: %s; nothing was taken", where, syntax(err, offset)),
	}
}

// lookAhead reads until there is enough, or no more.
func (v *values) lookAhead() {
	for len(v.buf)-v.at < lookAhead && v.err == nil {
		v.fill()
	}
}

// fill reads more behind what is there, keeping all from at on.
func (v *values) fill() {
	if len(v.buf) == cap(v.buf) {
		if v.at > 0 {
			v.buf = v.buf[:copy(v.buf, v.buf[v.at:])]
			v.gone, v.fed, v.at = v.gone+int64(v.at), v.fed-v.at, 0
		} else {
			v.buf = append(v.buf, make([]byte, max(bufferBytes, cap(v.buf)))...)[:len(v.buf)]
		}
	}
	var n int
	n, v.err = v.src.Read(v.buf[len(v.buf):cap(v.buf)])
	v.buf = v.buf[:len(v.buf)+n]
}

// Read implements io.Reader for the plain decoder.
func (v *values) Read(p []byte) (int, error) {
	if v.pretext != "" {
		n := copy(p, v.pretext)
		v.pretext = v.pretext[n:]
		return n, nil
	}
	for v.fed == len(v.buf) {
		if v.err != nil {
			return 0, v.err
		}
		v.fill()
	}
	n := copy(p, v.buf[v.fed:])
	v.fed += n
	return n, nil
}
