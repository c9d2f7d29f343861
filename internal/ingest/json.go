package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// form is what a body is taken to be.
type form uint8

const (
	formJSON  form = iota // an object, an array of objects, or objects one after the other
	formLines             // NDJSON
	formLook              // one of the two, by its looks
)

// decodeJSON decodes a body of JSON. An error refuses the whole request; a
// refused reading is only noted.
//
// In JSON, wrong syntax anywhere refuses all. In NDJSON it refuses its line.
func (in *intake) decodeJSON(b *body, f form) error {
	l := in.door.lines.get(b)
	defer in.door.lines.put(l)
	if f == formLook {
		first, whole, err := l.peek()
		if err != nil {
			return err
		}
		f = guessForm(first, whole)
	}
	var err error
	if f == formLines {
		in.meaning = meaning{form: meansLines}
		err = in.decodeLines(l)
	} else {
		in.meaning = meaning{form: meansJSON}
		err = in.decodeValues(l.rest())
	}
	var known *telemetry.Error
	if errors.As(err, &known) && known.Code == codeMalformed {
		if worse := b.drain(); worse != nil {
			return worse
		}
	}
	return err
}

// guessForm tells from its first line what a body is: lines of objects, unless
// it is an array or the first line is the beginning of an object that goes on
// in the next.
func guessForm(first []byte, whole bool) form {
	if len(first) > 0 && first[0] == '[' {
		return formJSON
	}
	if !whole {
		return formLines
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(first), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err := d.SkipValue(); errors.Is(err, io.ErrUnexpectedEOF) {
		return formJSON
	}
	return formLines
}

// decodeLines decodes NDJSON. Empty lines do not count.
func (in *intake) decodeLines(l *lines) error {
	d := newReadingDecoder(in.builder)
	for {
		line, long, err := l.next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if !long && len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if err := in.begin(); err != nil {
			return err
		}
		if long {
			in.builder.Refuse(telemetry.Refuse(telemetry.Malformed, "the line is longer than %d bytes", maxReadingBytes))
		} else if err := d.line(line); err != nil {
			in.builder.Refuse(telemetry.Refuse(telemetry.Malformed, "the line is not JSON: %s", syntax(err)))
		}
		in.end()
	}
}

// decodeValues decodes what has the syntax of JSON.
func (in *intake) decodeValues(r io.Reader) error {
	d := newReadingDecoder(in.builder)
	d.stream(r)
	if d.json.PeekKind() == '[' {
		if _, err := d.json.ReadToken(); err != nil {
			return in.broken(err)
		}
		for d.json.PeekKind() != ']' {
			if err := in.decodeValue(d); err != nil {
				return err
			}
		}
		if _, err := d.json.ReadToken(); err != nil {
			return in.broken(err)
		}
		if d.json.PeekKind() != 0 {
			return telemetry.Errorf(telemetry.Invalid, codeMalformed,
				"there is something behind the array, at byte %d; nothing was taken", d.json.InputOffset())
		}
	}
	for d.json.PeekKind() == '{' {
		if err := in.decodeValue(d); err != nil {
			return err
		}
	}
	token, err := d.json.ReadToken()
	if errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return in.broken(err)
	}
	return telemetry.Errorf(telemetry.Invalid, codeMalformed,
		"the body holds %s where a reading should be, at byte %d; a body is an object, an array of objects, or one object a line", kindName(token.Kind()), d.json.InputOffset())
}

// decodeValue decodes one element of an array or of a row of objects.
func (in *intake) decodeValue(d *readingDecoder) error {
	if err := in.begin(); err != nil {
		return err
	}
	d.guard.mark = d.json.InputOffset()
	if err := d.reading(); err != nil {
		return in.broken(err)
	}
	in.end()
	return nil
}

// broken returns the error for a body whose syntax is wrong.
func (in *intake) broken(err error) error {
	var known *telemetry.Error
	if errors.As(err, &known) {
		return known
	}
	where := ""
	if in.count > 0 {
		where = fmt.Sprintf(" in or behind reading %d", in.count-1)
	}
	return &telemetry.Error{
		Kind: telemetry.Invalid, Code: codeMalformed, Err: err,
		Message: fmt.Sprintf("the JSON is broken%s: %s; nothing was taken", where, syntax(err)),
	}
}

// syntax tells what is wrong with JSON, and where.
func syntax(err error) string {
	var s *jsontext.SyntacticError
	if errors.Is(err, errReadingTooLong) {
		return errReadingTooLong.Error()
	}
	if !errors.As(err, &s) {
		return strings.TrimPrefix(err.Error(), "jsontext: ")
	}
	if errors.Is(s.Err, io.ErrUnexpectedEOF) {
		return fmt.Sprintf("it ends in the middle, at byte %d", s.ByteOffset)
	}
	return fmt.Sprintf("%s at byte %d", strings.TrimPrefix(s.Err.Error(), "jsontext: "), s.ByteOffset)
}

func kindName(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '{':
		return "an object"
	case '[':
		return "an array"
	}
	return "something"
}
