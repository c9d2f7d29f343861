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
	d := in.door.json.get(in)
	defer in.door.json.put(d)
	err := in.decodeForm(b, f, d)
	var known *telemetry.Error
	if errors.As(err, &known) && known.Code == codeMalformed {
		if worse := b.drain(); worse != nil {
			return worse
		}
	}
	return err
}

// decodeForm decodes a body of this form.
func (in *intake) decodeForm(b *body, f form, d *jsonDecoder) error {
	if f == formJSON {
		in.meaning = meaning{form: meansJSON}
		return d.open(in, b).decode()
	}
	l := in.door.lines.get(b)
	defer in.door.lines.put(l)
	f, err := l.form(f)
	if err != nil {
		return err
	}
	if f == formLines {
		in.meaning = meaning{form: meansLines}
		return in.decodeLines(l, d)
	}
	in.meaning = meaning{form: meansJSON}
	return d.open(in, l.rest()).decode()
}

// form returns the form of a body of which nothing was read yet, which is known
// or is to be told by its looks.
func (l *lines) form(known form) (form, error) {
	if known != formLook {
		return known, nil
	}
	first, whole, err := l.peek()
	if err != nil {
		return known, err
	}
	return guessForm(first, whole), nil
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
func (in *intake) decodeLines(l *lines, d *jsonDecoder) error {
	for {
		line, long, err := l.next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if !long && len(bytes.TrimSpace(skipManySpaces(line))) == 0 {
			continue
		}
		if err := in.begin(); err != nil {
			return err
		}
		if !long && d.simple.line(line) {
			continue
		}
		if long {
			in.builder.Refuse(telemetry.Refuse(telemetry.Malformed, "the line is longer than %d bytes", maxReadingBytes))
		} else if err := d.plain.line(line); err != nil {
			in.builder.Refuse(telemetry.Refuse(telemetry.Malformed, "the line is not JSON: %s", syntax(err, 0)))
		}
		in.end()
	}
}

// syntax tells what is wrong with JSON, and where.
//
// offset counts the bytes that the decoder did not see.
func syntax(err error, offset int64) string {
	var s *jsontext.SyntacticError
	if errors.Is(err, errReadingTooLong) {
		return errReadingTooLong.Error()
	}
	if !errors.As(err, &s) {
		return strings.TrimPrefix(err.Error(), "jsontext: ")
	}
	if errors.Is(s.Err, io.ErrUnexpectedEOF) {
		return fmt.Sprintf("it ends in the middle, at byte %d", offset+s.ByteOffset)
	}
	return fmt.Sprintf("%s at byte %d", strings.TrimPrefix(s.Err.Error(), "jsontext: "), offset+s.ByteOffset)
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
