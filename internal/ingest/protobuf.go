package ingest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// maxRequestID is how long the id of a request may be, since it is sent back.
const maxRequestID = 1 << 10

// A wireHead is what a WriteRequest says beside its readings.
type wireHead struct {
	id     string
	stream string
	ack    telemetrypb.Ack
}

// decodeHead reads the head of an encoded WriteRequest, which may stand
// anywhere in it, and checks the syntax around its readings.
func decodeHead(message []byte) (wireHead, error) {
	var h wireHead
	m := wireMessage{rest: message}
	for m.next() {
		switch {
		case m.is(1, protowire.BytesType):
			h.id = string(m.bytes)
		case m.is(2, protowire.BytesType):
			h.stream = string(m.bytes)
		case m.is(3, protowire.VarintType):
			h.ack = telemetrypb.Ack(int32(m.word))
		}
	}
	if len(h.id) > maxRequestID || !utf8.ValidString(h.id) {
		h.id = ""
		return h, telemetry.Errorf(telemetry.Invalid, codeMalformed, "request_id must be UTF-8 of at most %d bytes", maxRequestID)
	}
	return h, brokenMessage(m.err)
}

// decodeProtobuf decodes the readings of an encoded WriteRequest. Anything that
// is wrong with the message and not with one reading refuses all.
func (in *intake) decodeProtobuf(message []byte) error {
	in.meaning = meaning{form: meansProtobuf}
	d := in.door.wires.get(in)
	defer in.door.wires.put(d)
	return d.message(message)
}

// brokenMessage makes an error of decoding one that refuses the request.
func brokenMessage(err error) error {
	var known *telemetry.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return telemetry.Errorf(telemetry.Invalid, codeMalformed, "%s; nothing was taken", err)
}

// A wireDecoder decodes readings and series into an intake.
type wireDecoder struct {
	in      *intake
	tags    []wireTag
	times   []int64
	columns []column
	dense   denseSeries
	alias   []byte // key of the series at hand
	plain   bool   // decodes everything, what is known and what is dense, too
}

type wireTag struct{ name, value []byte }

// message decodes the readings of a WriteRequest.
func (d *wireDecoder) message(message []byte) error {
	m := wireMessage{rest: message}
	for m.next() {
		if m.is(4, protowire.BytesType) {
			if err := d.reading(m.bytes); err != nil {
				return brokenMessage(err)
			}
		}
	}
	if m.err != nil {
		return brokenMessage(m.err)
	}
	number := 0
	for m = (wireMessage{rest: message}); m.next(); {
		if !m.is(5, protowire.BytesType) {
			continue
		}
		if err := d.series(m.bytes); err != nil {
			return brokenMessage(fmt.Errorf("series %d: %w", number, err))
		}
		number++
	}
	return nil
}

// reading decodes one Reading.
func (d *wireDecoder) reading(message []byte) error {
	if err := d.in.begin(); err != nil {
		return err
	}
	b := d.in.builder
	m := wireMessage{rest: message}
	var sensor []byte
	tail := 0 // bytes of what begins with the first tag; -1 if more than tags is in there
	if d.plain {
		tail = -1
	}
	for left := len(message); m.next(); left = len(m.rest) {
		if tail > 0 && m.num != 4 {
			tail = -1
		}
		switch {
		case m.is(1, protowire.BytesType):
			sensor = m.bytes
		case m.is(2, protowire.VarintType):
			b.Time(int64(m.word))
		case m.is(3, protowire.BytesType):
			if err := d.field(m.bytes); err != nil {
				return err
			}
		case m.is(4, protowire.BytesType):
			if tail == 0 {
				known := d.knownReading(sensor, message[len(message)-left:])
				if known != nil {
					b.SameSeries(known)
					d.in.end()
					return nil
				}
				if tail = left; tail > maxAlias {
					tail = -1
				}
			}
			tag, err := decodeTag(m.bytes)
			if err != nil {
				return err
			}
			b.Tag(tag.name, tag.value)
		}
	}
	if m.err != nil {
		return m.err
	}
	b.Sensor(sensor)
	if d.in.end() && tail > 0 {
		d.in.door.known.SetAlias(d.alias, b.LastSeries())
	}
	return nil
}

// These begin the keys of aliases that are parts of messages.
const (
	aliasReading = 'q' // the length of the sensor id, the id, and the encoded tags
	aliasSeries  = 'p' // the encoded sensor id and tags
)

// knownReading returns the series of a reading that ends with these encoded
// tags, if it is known.
func (d *wireDecoder) knownReading(sensor, tags []byte) *batch.Series {
	if len(tags) > maxAlias {
		return nil
	}
	d.beginAlias(aliasReading)
	d.alias = append(binary.AppendUvarint(d.alias, uint64(len(sensor))), sensor...)
	d.alias = append(d.alias, tags...)
	return d.in.door.known.Alias(d.alias)
}

// beginAlias begins a key of this kind.
func (d *wireDecoder) beginAlias(kind byte) {
	d.alias = append(append(append(d.alias[:0], kind), d.in.stream.Name...), 0)
}

// field decodes one Field; the last of its values counts.
func (d *wireDecoder) field(message []byte) error {
	var (
		name, text []byte
		kind       telemetry.Kind
		word       uint64
	)
	m := wireMessage{rest: message}
	for m.next() {
		switch {
		case m.is(1, protowire.BytesType):
			name = m.bytes
		case m.is(2, protowire.Fixed64Type):
			kind, word = telemetry.Float, m.word
		case m.is(3, protowire.VarintType):
			kind, word = telemetry.Int, m.word
		case m.is(4, protowire.VarintType):
			kind, word = telemetry.Bool, m.word
		case m.is(5, protowire.BytesType):
			kind, text = telemetry.Text, m.bytes
		}
	}
	b := d.in.builder
	switch kind {
	case telemetry.Float:
		b.Float(name, math.Float64frombits(word))
	case telemetry.Int:
		b.Int(name, protowire.DecodeZigZag(word))
	case telemetry.Bool:
		b.Bool(name, word != 0)
	case telemetry.Text:
		b.Text(name, text)
	default:
		b.Refuse(telemetry.Refuse(telemetry.ValueType,
			"field %s has no value; allowed are double_value, int_value, bool_value and string_value", telemetry.Quote(name)))
	}
	return m.err
}

func decodeTag(message []byte) (wireTag, error) {
	var t wireTag
	m := wireMessage{rest: message}
	for m.next() {
		switch {
		case m.is(1, protowire.BytesType):
			t.name = m.bytes
		case m.is(2, protowire.BytesType):
			t.value = m.bytes
		}
	}
	return t, m.err
}
