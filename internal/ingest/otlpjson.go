package ingest

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// OTLP in JSON is translated to protobuf, so that one decoder is enough. It is JSON as
// protobuf defines it, but for ids in exemplars, which are not read here, and for enums, which
// are numbers. Unknown names are skipped, as the protocol demands.

// decodeOTLPJSON decodes an ExportMetricsServiceRequest in JSON.
func (in *intake) decodeOTLPJSON(body []byte) (otlpTally, error) {
	t := otlpTranslator{in: in, decoder: jsontext.NewDecoder(bytes.NewBuffer(body))}
	err := t.message((&metricspb.MetricsData{}).ProtoReflect().Descriptor(), 0) // has the fields of the request
	if err == nil {
		if _, err = t.decoder.ReadToken(); err == nil {
			err = errors.New("something follows the object")
		} else if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errMore
	case telemetry.KindOf(err) != telemetry.Internal:
		return otlpTally{}, err
	}
	if err != nil {
		return otlpTally{}, telemetry.Errorf(telemetry.Invalid, codeMalformed, "the body is not OTLP in JSON: %s at byte %d, %s; nothing was accepted",
			err, t.decoder.InputOffset(), telemetry.Quote([]byte(t.decoder.StackPointer())))
	}
	tally, err := in.decodeOTLP(t.out)
	in.meaning = meaning{form: meansOTLPJSON}
	return tally, err
}

// An otlpTranslator translates JSON to protobuf.
type otlpTranslator struct {
	in      *intake
	decoder *jsontext.Decoder
	out     []byte
	text    []byte // of a value, without its quotes
}

// message translates an object.
func (t *otlpTranslator) message(of protoreflect.MessageDescriptor, depth int) error {
	if depth > 2*maxNested+16 { // of attributes, for nothing else can be nested
		return errDeep
	}
	if err := t.expect('{'); err != nil {
		return err
	}
	for t.decoder.PeekKind() != '}' {
		name, err := t.decoder.ReadToken()
		if err != nil {
			return err
		}
		field := of.Fields().ByJSONName(name.String())
		if field == nil || t.decoder.PeekKind() == 'n' || field.Name() == "exemplars" {
			err = t.decoder.SkipValue()
		} else if !field.IsList() {
			err = t.field(field, depth)
		} else if err = t.expect('['); err == nil {
			for err == nil && t.decoder.PeekKind() != ']' {
				err = t.field(field, depth)
			}
			if err == nil {
				_, err = t.decoder.ReadToken()
			}
		}
		if err != nil {
			return err
		}
	}
	_, err := t.decoder.ReadToken()
	return err
}

func (t *otlpTranslator) expect(kind jsontext.Kind) error {
	token, err := t.decoder.ReadToken()
	if err == nil && token.Kind() != kind {
		err = fmt.Errorf("there is %s where %s is expected", token.Kind(), kind)
	}
	return err
}

// field translates a value, or an element of an array.
func (t *otlpTranslator) field(field protoreflect.FieldDescriptor, depth int) error {
	if err := t.in.afford(int64(cap(t.out))); err != nil {
		return err
	}
	number := field.Number()
	if field.Kind() == protoreflect.MessageKind {
		t.out = append(protowire.AppendTag(t.out, number, protowire.BytesType), 0)
		begin := len(t.out)
		err := t.message(field.Message(), depth+1)
		t.end(begin)
		return err
	}
	raw, err := t.decoder.ReadValue()
	if err != nil {
		return err
	}
	kind := raw.Kind()
	if t.text = append(t.text[:0], raw...); kind == '"' {
		t.text, _ = jsontext.AppendUnquote(t.text[:0], raw) // it was read without an error
	}
	var word uint64
	var signed int64
	var double float64
	wire := protowire.VarintType
	switch field.Kind() {
	case protoreflect.StringKind, protoreflect.BytesKind:
		if kind != '"' {
			return fmt.Errorf("there is %s where a string is expected", kind)
		}
		if field.Kind() == protoreflect.BytesKind {
			t.text, err = base64.StdEncoding.AppendDecode(nil, t.text)
		}
		t.out = protowire.AppendBytes(protowire.AppendTag(t.out, number, protowire.BytesType), t.text)
		return err
	case protoreflect.BoolKind:
		word, err = protowire.EncodeBool(kind == 't'), nil
		if kind != 't' && kind != 'f' {
			err = strconv.ErrSyntax
		}
	case protoreflect.DoubleKind:
		double, err = strconv.ParseFloat(string(t.text), 64)
		wire, word = protowire.Fixed64Type, math.Float64bits(double)
	case protoreflect.Fixed64Kind:
		wire = protowire.Fixed64Type
		word, err = strconv.ParseUint(string(t.text), 10, 64)
	case protoreflect.Uint64Kind:
		word, err = strconv.ParseUint(string(t.text), 10, 64)
	case protoreflect.Sint32Kind:
		signed, err = strconv.ParseInt(string(t.text), 10, 32)
		word = protowire.EncodeZigZag(signed)
	default: // int64, sfixed64; uint32 and int32, where more is allowed than they hold; enums
		if field.Kind() == protoreflect.Sfixed64Kind {
			wire = protowire.Fixed64Type
		}
		signed, err = strconv.ParseInt(string(t.text), 10, 64)
		word = uint64(signed)
	}
	if err != nil {
		return fmt.Errorf("%s cannot be a value of %s", telemetry.Quote(t.text), field.JSONName())
	}
	if t.out = protowire.AppendTag(t.out, number, wire); wire == protowire.Fixed64Type {
		t.out = protowire.AppendFixed64(t.out, word)
	} else {
		t.out = protowire.AppendVarint(t.out, word)
	}
	return nil
}

// end ends a message whose bytes begin there, behind one byte for its length.
func (t *otlpTranslator) end(begin int) {
	length := uint64(len(t.out) - begin)
	if more := protowire.SizeVarint(length) - 1; more > 0 {
		t.out = append(t.out, make([]byte, more)...)
		copy(t.out[begin+more:], t.out[begin:len(t.out)-more])
	}
	protowire.AppendVarint(t.out[:begin-1], length)
}
