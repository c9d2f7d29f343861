package ingest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// maxRequestID is how long the id of a request may be, since it is sent back.
const maxRequestID = 1 << 10

// A wireHead has the fields of a WriteRequest other than its readings.
type wireHead struct {
	id     string
	stream string
	ack    telemetrypb.Ack
}

// decodeHead decodes the head of an encoded WriteRequest, whose fields may be anywhere in the
// message, and checks the syntax around its readings.
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

// decodeProtobuf decodes the readings of an encoded WriteRequest. An error in the message,
// other than in a single reading, refuses all of it.
func (in *intake) decodeProtobuf(message []byte) error {
	in.meaning = meaning{form: meansProtobuf}
	d := in.server.wires.get()
	d.in, d.shape = in, nil
	defer d.release()
	return d.message(message)
}

// brokenMessage turns a decoding error into one that refuses the request.
func brokenMessage(err error) error {
	if _, known := errors.AsType[*telemetry.Error](err); known || err == nil {
		return err
	}
	return telemetry.Errorf(telemetry.Invalid, codeMalformed, "%s; nothing was accepted", err)
}

// A wireDecoder decodes readings and series into an intake.
type wireDecoder struct {
	in      *intake
	tags    []wireTag
	times   []uint64
	columns []column
	words   []uint64     // of the first column's values, then of the second's, and so on
	texts   [][]byte     // indexed by the words of string values
	alias   []byte       // key of the current series
	shape   *batch.Shape // of the last row; nil: its series had strings or absent values, or other columns follow
	width   int          // columns of that series
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
	tail := 0 // bytes from the first tag to the end; -1 if they are not all tags
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
		d.in.server.known.SetAlias(d.alias, b.LastSeries())
	}
	return nil
}

// The first bytes of alias keys made from messages.
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
	return d.in.server.known.Alias(d.alias)
}

// beginAlias begins a key of this kind.
func (d *wireDecoder) beginAlias(kind byte) {
	d.alias = append(append(append(d.alias[:0], kind), d.in.stream.Name...), 0)
}

// field decodes one Field. If it has several values, the last one counts.
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
			"field %s has no value; allowed: double_value, int_value, bool_value and string_value", telemetry.Quote(name)))
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

// A column is one field of the rows of a series. Its values, except for absent rows, are in
// the words of the decoder.
type column struct {
	message []byte

	// encoded is the start of the column at this position of an earlier series: its name and
	// the tag of its values. Empty: the column began with something else.
	encoded []byte

	name   []byte
	kind   telemetry.Kind
	kinds  int // how many kinds of values it has; one is allowed
	begin  int // index of its first word
	count  int // number of its words
	absent []uint64

	used, passed int // values and absent rows before the current row
}

// series decodes one Series. Rows are readings like any others, but columns whose length does
// not fit the rows refuse the whole request.
func (d *wireDecoder) series(message []byte) error {
	head, err := d.seriesParts(message)
	if err != nil {
		return err
	}
	alike, err := d.seriesColumns()
	if err != nil {
		return err
	}
	var series *batch.Series
	if head != nil {
		d.beginAlias(aliasSeries)
		d.alias = append(d.alias, head...)
		series = d.in.server.known.Alias(d.alias)
	}
	var sensor []byte
	if series == nil {
		if sensor, err = d.seriesTags(message); err != nil {
			return err
		}
	}
	var refused *telemetry.Refusal // of all rows
	if len(d.columns) > telemetry.MaxFields {
		refused = telemetry.Refuse(telemetry.FieldsTooMany, "the series has more than %d columns; readings with other fields need another series", telemetry.MaxFields)
	}
	for row, ms := range d.times {
		if err := d.in.begin(); err != nil {
			return err
		}
		b := d.in.builder
		if refused != nil {
			b.Refuse(refused)
		}
		if series != nil {
			b.SameSeries(series)
		} else {
			b.Sensor(sensor)
			for _, t := range d.tags {
				b.Tag(t.name, t.value)
			}
		}
		b.Time(int64(ms))
		if d.shape != nil {
			b.Columns(d.shape, d.words, len(d.times), row)
		} else {
			for i := range d.columns {
				d.give(&d.columns[i], uint32(row))
			}
		}
		if !d.in.end() {
			continue
		}
		if series == nil && head != nil {
			series = b.LastSeries()
			d.in.server.known.SetAlias(d.alias, series)
		}
		if alike && b.MapDots == 0 {
			d.shape, d.width = b.LastShape(), len(d.columns)
		}
	}
	return nil
}

// give passes the column's value in this row to the builder, if there is one.
func (d *wireDecoder) give(c *column, row uint32) {
	if c.passed < len(c.absent) && c.absent[c.passed] == uint64(row) {
		c.passed++
		return
	}
	word := d.words[c.begin+c.used]
	c.used++
	switch b := d.in.builder; c.kind {
	case telemetry.Float:
		b.Float(c.name, math.Float64frombits(word))
	case telemetry.Int:
		b.Int(c.name, int64(word))
	case telemetry.Bool:
		b.Bool(c.name, word != 0)
	default:
		b.Text(c.name, d.texts[word])
	}
}

// seriesParts decodes the times and finds the columns. head is the part of the message with the
// sensor and tags, or nil if they are not together at the start or are long.
func (d *wireDecoder) seriesParts(message []byte) (head []byte, err error) {
	d.times, d.columns = d.times[:0], d.columns[:0]
	most := d.in.server.config.MaxReadings - d.in.count
	split, length := false, 0
	m := wireMessage{rest: message}
	for m.next() {
		switch {
		case m.is(4, protowire.BytesType):
			split = true
			if len(d.columns) <= telemetry.MaxFields { // one too many, so every row is refused
				d.columns = slices.Grow(d.columns, 1)[:len(d.columns)+1]
				d.columns[len(d.columns)-1].message = m.bytes
			}
		case m.num == 3 && (m.kind == protowire.BytesType || m.kind == protowire.VarintType):
			split = true
			if d.times, err = m.appendVarints(d.times, most); errors.Is(err, errTooManyValues) {
				return nil, d.in.tooMany()
			} else if err != nil {
				return nil, err
			}
		case m.num != 1 && m.num != 2:
			split = true
		case split:
			length = maxAlias + 1
		default:
			length = len(message) - len(m.rest)
		}
	}
	if m.err == nil && 0 < length && length <= maxAlias {
		head = message[:length]
	}
	return head, m.err
}

// seriesTags decodes the tags and returns the sensor id.
func (d *wireDecoder) seriesTags(message []byte) (sensor []byte, err error) {
	d.tags = d.tags[:0]
	for m := (wireMessage{rest: message}); m.next(); {
		switch {
		case m.is(1, protowire.BytesType):
			sensor = m.bytes
		case m.is(2, protowire.BytesType):
			tag, err := decodeTag(m.bytes)
			if err != nil {
				return nil, err
			}
			d.tags = append(d.tags, tag)
		}
	}
	return sensor, nil
}

// seriesColumns decodes the columns. alike reports whether every row has a value in every
// column, and none of them is a string. The shape of the last row is kept only if the columns
// begin like those of its series.
func (d *wireDecoder) seriesColumns() (alike bool, err error) {
	d.words, d.texts = d.words[:0], d.texts[:0]
	alike = len(d.times) > 0
	same := true
	for i := range d.columns {
		c := &d.columns[i]
		c.name, c.kind, c.kinds, c.begin, c.count = nil, 0, 0, len(d.words), 0
		c.absent, c.used, c.passed = c.absent[:0], 0, 0
		again, err := d.column(c)
		if err != nil {
			return false, err
		}
		same = same && again
		alike = alike && len(c.absent) == 0 && c.kind != telemetry.Text
		if err := d.in.extendLease(8*int64(len(d.words)) + 24*int64(len(d.texts))); err != nil {
			return false, err
		}
	}
	if !same || !alike || len(d.columns) != d.width {
		d.shape = nil
	}
	return alike, nil
}

// column decodes a Column of a series, and reports whether it begins like the one
// at the same position in the previous series. Nearly all consist of a name and one
// packed list.
func (d *wireDecoder) column(c *column) (again bool, err error) {
	message := c.message
	if n := len(c.encoded); n > 0 && bytes.HasPrefix(message, c.encoded) {
		m := wireMessage{rest: message[n-1:]}
		if m.next() && len(m.rest) == 0 {
			c.name = message[n-1-int(c.encoded[1]) : n-1]
			if err := d.values(c, &m); err != nil {
				return false, err
			}
			return true, c.check(len(d.times))
		}
	}
	c.encoded = c.encoded[:0]
	fields, name := 0, 0 // bytes of the name, if it is the first field
	m := wireMessage{rest: message}
	for m.next() {
		if fields++; fields == 1 && m.is(1, protowire.BytesType) {
			name = len(message) - len(m.rest)
		}
		if m.is(1, protowire.BytesType) {
			c.name = m.bytes
		} else if err := d.values(c, &m); err != nil {
			return false, err
		}
	}
	if m.err != nil {
		return false, m.err
	}
	if fields == 2 && name > 0 && name == 2+len(c.name) && message[name] < 0x80 && message[name]>>3 != 1 {
		c.encoded = append(c.encoded, message[:name+1]...)
	}
	return false, c.check(len(d.times))
}

// values decodes values, or numbers of absent rows, of a column.
func (d *wireDecoder) values(c *column, m *wireMessage) (err error) {
	rows := len(d.times)
	most := c.begin + rows
	before := len(d.words)
	kind := telemetry.Kind(0)
	integers := m.kind == protowire.BytesType || m.kind == protowire.VarintType
	switch {
	case m.num == 2 && (m.kind == protowire.BytesType || m.kind == protowire.Fixed64Type):
		kind = telemetry.Float
		d.words, err = m.appendDoubles(d.words, most)
	case m.num == 3 && integers:
		kind = telemetry.Int
		d.words, err = m.appendVarints(d.words, most)
		for i := before; i < len(d.words); i++ {
			d.words[i] = uint64(protowire.DecodeZigZag(d.words[i]))
		}
	case m.num == 4 && integers:
		kind = telemetry.Bool
		d.words, err = m.appendVarints(d.words, most)
		for i := before; i < len(d.words); i++ {
			d.words[i] = min(d.words[i], 1)
		}
	case m.is(5, protowire.BytesType):
		kind = telemetry.Text
		if len(d.words) == most {
			err = errTooManyValues
			break
		}
		d.words, d.texts = append(d.words, uint64(len(d.texts))), append(d.texts, m.bytes)
	case m.num == 6 && integers:
		c.absent, err = m.appendVarints(c.absent, rows)
	}
	if errors.Is(err, errTooManyValues) {
		return fmt.Errorf("column %s has more values or absent rows than the %d rows", telemetry.Quote(c.name), rows)
	} else if err != nil {
		return err
	}
	if len(d.words) > before && c.kind != kind {
		c.kind = kind
		c.kinds++
	}
	c.count = len(d.words) - c.begin
	return nil
}

// check returns an error unless the values can be assigned to rows.
func (c *column) check(rows int) error {
	if c.kinds > 1 {
		return fmt.Errorf("column %s has values of different types; one type is allowed", telemetry.Quote(c.name))
	}
	if c.count+len(c.absent) != rows {
		return fmt.Errorf("column %s has %d values and %d absent rows, but there are %d rows", telemetry.Quote(c.name), c.count, len(c.absent), rows)
	}
	for i, row := range c.absent {
		if row >= uint64(rows) || i > 0 && row <= c.absent[i-1] {
			return fmt.Errorf("column %s: the numbers of absent rows must rise from 0 to %d", telemetry.Quote(c.name), rows-1)
		}
	}
	return nil
}

var (
	errWire          = errors.New("the message is not protobuf")
	errTooManyValues = errors.New("more values than rows")
)

// A wireMessage iterates over the fields of an encoded protobuf message, so that readings are
// decoded without a Go value for each part. Like every protobuf decoder, its users skip
// fields that are unknown or have an unexpected wire type.
type wireMessage struct {
	rest  []byte
	num   protowire.Number
	kind  protowire.Type
	bytes []byte // value of a length-delimited field
	word  uint64 // value of any other field
	err   error
}

// next moves to the next field. It returns false at the end and after an error.
//
// Nearly all fields have a number below 16, and a length or an integer below 128, which take
// one byte each.
func (m *wireMessage) next() bool {
	rest := m.rest
	if len(rest) < 2 || rest[0]-8 >= 0x80-8 || rest[1] >= 0x80 {
		return m.nextLong()
	}
	end := 2
	switch m.kind = protowire.Type(rest[0] & 7); m.kind {
	case protowire.VarintType:
		m.word = uint64(rest[1])
	case protowire.BytesType:
		if end += int(rest[1]); end > len(rest) {
			return m.fail()
		}
		m.bytes = rest[2:end]
	default:
		return m.nextLong()
	}
	m.num, m.rest = protowire.Number(rest[0]>>3), rest[end:]
	return true
}

// nextLong is next for all fields.
func (m *wireMessage) nextLong() bool {
	if len(m.rest) == 0 {
		return false
	}
	var n int
	if m.num, m.kind, n = protowire.ConsumeTag(m.rest); n < 0 {
		return m.fail()
	}
	m.rest = m.rest[n:]
	switch m.kind {
	case protowire.VarintType:
		m.word, n = protowire.ConsumeVarint(m.rest)
	case protowire.Fixed64Type:
		m.word, n = protowire.ConsumeFixed64(m.rest)
	case protowire.BytesType:
		m.bytes, n = protowire.ConsumeBytes(m.rest)
	default:
		n = protowire.ConsumeFieldValue(m.num, m.kind, m.rest)
	}
	if n < 0 {
		return m.fail()
	}
	m.rest = m.rest[n:]
	return true
}

func (m *wireMessage) fail() bool {
	m.rest, m.err = nil, errWire
	return false
}

// is reports whether the field has this number and type.
func (m *wireMessage) is(num protowire.Number, kind protowire.Type) bool {
	return m.num == num && m.kind == kind
}

// appendVarints appends the elements of a repeated integer, packed or not, to dst. It returns
// an error if dst would get more than most elements.
func (m *wireMessage) appendVarints(dst []uint64, most int) ([]uint64, error) {
	if m.kind == protowire.VarintType {
		if len(dst) >= most {
			return dst, errTooManyValues
		}
		return append(dst, m.word), nil
	}
	for packed := m.bytes; len(packed) > 0; {
		v, n := uint64(packed[0]), 1
		if v >= 0x80 {
			if v, n = protowire.ConsumeVarint(packed); n < 0 {
				return dst, errWire
			}
		}
		if len(dst) >= most {
			return dst, errTooManyValues
		}
		dst, packed = append(dst, v), packed[n:]
	}
	return dst, nil
}

// appendDoubles does the same for the bits of doubles.
func (m *wireMessage) appendDoubles(dst []uint64, most int) ([]uint64, error) {
	packed := m.bytes
	if m.kind == protowire.Fixed64Type {
		packed = binary.LittleEndian.AppendUint64(nil, m.word)
	}
	for ; len(packed) >= 8; packed = packed[8:] {
		if len(dst) >= most {
			return dst, errTooManyValues
		}
		dst = append(dst, binary.LittleEndian.Uint64(packed))
	}
	if len(packed) > 0 {
		return dst, errWire
	}
	return dst, nil
}

// release returns the decoder to the pool, unless it has grown large.
func (d *wireDecoder) release() {
	server := d.in.server
	const most = 1 << 14
	d.columns = d.columns[:cap(d.columns)]
	size := cap(d.times) + cap(d.tags) + cap(d.words) + cap(d.texts)
	for i := range d.columns {
		size += cap(d.columns[i].absent) + cap(d.columns[i].encoded)
		d.columns[i].name, d.columns[i].message = nil, nil
	}
	if size > most {
		return
	}
	d.in = nil
	clear(d.tags[:cap(d.tags)])
	clear(d.texts[:cap(d.texts)])
	server.wires.put(d)
}
