package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/encoding/protowire"
)

// A decoded OTLP request can need a hundred times the memory of the encoded one, because a
// message of two bytes becomes a struct. So its size is estimated before it is decoded.

// An otlpMessage is a message type. The field numbers are those of
// opentelemetry/proto/metrics/v1/metrics.proto.
type otlpMessage struct {
	size    int64 // of its struct and a pointer to it
	perByte int64 // of its packed numbers
	fields  map[protowire.Number]*otlpMessage
}

type otlpFields = map[protowire.Number]*otlpMessage

var otlpRequest = func() *otlpMessage { //nolint:gochecknoglobals // never changes
	value := &otlpMessage{size: 64}
	attribute := &otlpMessage{size: 48, fields: otlpFields{2: value}}
	value.fields = otlpFields{5: {size: 32, fields: otlpFields{1: value}}, 6: {size: 32, fields: otlpFields{1: attribute}}}
	exemplar := &otlpMessage{size: 128, fields: otlpFields{7: attribute}}
	buckets := &otlpMessage{size: 48, perByte: 8}
	data := func(point *otlpMessage) *otlpMessage { return &otlpMessage{size: 64, fields: otlpFields{1: point}} }
	numbers := data(&otlpMessage{size: 128, fields: otlpFields{5: exemplar, 7: attribute}})
	metric := &otlpMessage{size: 160, fields: otlpFields{
		5: numbers, 7: numbers,
		9:  data(&otlpMessage{size: 208, fields: otlpFields{8: exemplar, 9: attribute}}),
		10: data(&otlpMessage{size: 256, fields: otlpFields{1: attribute, 8: buckets, 9: buckets, 11: exemplar}}),
		11: data(&otlpMessage{size: 128, fields: otlpFields{6: {size: 32}, 7: attribute}}),
		12: attribute,
	}}
	scope := &otlpMessage{size: 96, fields: otlpFields{3: attribute}}
	resource := &otlpMessage{size: 96, fields: otlpFields{1: attribute, 3: {size: 128}}}
	scopes := &otlpMessage{size: 160, fields: otlpFields{1: scope, 2: metric}}
	return &otlpMessage{fields: otlpFields{1: {size: 160, fields: otlpFields{1: resource, 2: scopes}}}}
}()

// maxNested is how deeply messages may be nested; attributes can be lists of lists.
const maxNested = 64

// sizeOf estimates how many bytes an encoded message needs when decoded, apart from its
// strings.
func (o *otlpMessage) sizeOf(message []byte, depth int) (int64, error) {
	if depth > maxNested {
		return 0, fmt.Errorf("attributes are nested more than %d levels deep", maxNested)
	}
	size := o.size + o.perByte*int64(len(message))
	m := wireMessage{rest: message}
	for m.next() {
		if of := o.fields[m.num]; of != nil && m.kind == protowire.BytesType {
			n, err := of.sizeOf(m.bytes, depth+1)
			if err != nil {
				return 0, err
			}
			size += n
		}
	}
	return size, m.err
}

// sizeOfJSON does the same for JSON, where an object has at least two bytes. It also checks that
// the body is a single value, because the library ignores what follows the first one.
func sizeOfJSON(body []byte) (int64, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(body))
	value, err := d.ReadValue()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errMore
	case err != nil:
	case value.Kind() != '{':
		err = errors.New("it must be an object")
	case len(bytes.TrimSpace(body[d.InputOffset():])) > 0:
		err = errors.New("there is data after the object")
	}
	if err != nil {
		return 0, fmt.Errorf("the body is not OTLP in JSON: %w at byte %d", err, d.InputOffset())
	}
	return 256*int64(bytes.Count(body, []byte("{"))) + 8*int64(bytes.Count(body, []byte(","))), nil
}
