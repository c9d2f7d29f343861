package ingest

import (
	"errors"
	"io"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A decodePath is one of the two ways to decode a body, which must not differ in
// what they take and what they answer.
type decodePath struct {
	name     string
	json     func(*intake, *body, form) error
	protobuf func(*intake, []byte) error
}

// bothPaths returns that of the door, and that without its short cuts.
func bothPaths() []decodePath {
	return []decodePath{
		{"path=fast", (*intake).decodeJSON, (*intake).decodeProtobuf},
		{"path=plain", decodePlainJSON, decodePlainProtobuf},
	}
}

func decodePlainProtobuf(in *intake, message []byte) error {
	d := wireDecoder{in: in, plain: true}
	return d.message(message)
}

// decodePlainJSON decodes all by tokens.
func decodePlainJSON(in *intake, b *body, f form) error {
	d := &jsonDecoder{plain: newReadingDecoder()}
	d.simple.off, d.plain.builder = true, in.builder
	l := in.door.lines.get(b)
	defer in.door.lines.put(l)
	f, err := l.form(f)
	if err != nil {
		return err
	}
	if f == formLines {
		return in.decodeLines(l, d)
	}
	return decodePlainValues(in, l.rest(), d.plain)
}

// decodePlainValues decodes an array of readings, or readings one after the
// other, with one decoder.
func decodePlainValues(in *intake, r io.Reader, d *readingDecoder) error {
	d.stream(r)
	v := &values{in: in, plain: d}
	v.array = d.json.PeekKind() == '['
	if v.array {
		if _, err := d.json.ReadToken(); err != nil {
			return v.broken(err, 0)
		}
	}
	for kind := d.json.PeekKind(); v.array && kind != ']' || kind == '{'; kind = d.json.PeekKind() {
		if err := in.begin(); err != nil {
			return err
		}
		d.guard.mark = d.json.InputOffset()
		if err := d.reading(); err != nil {
			return v.broken(err, 0)
		}
		in.end()
	}
	return v.end(0)
}

// An outcome is all that a sender sees of a request, and what was taken of it.
type outcome struct {
	err      *telemetry.Error
	answer   answer
	count    int
	readings []telemetry.Reading
	indices  []uint32
}

func outcomeOf(in *intake, err error) outcome {
	var o outcome
	if errors.As(err, &o.err) {
		o.err.Err = nil // what only the log says
		return o
	}
	o.answer, o.count = in.answer, in.count
	b := in.builder.Batch()
	for i := range b.Len() {
		o.readings = append(o.readings, b.Reading(uint32(i)))
		o.indices = append(o.indices, b.Row(uint32(i)).Index)
	}
	return o
}
