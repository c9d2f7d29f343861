package ingest

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A column is one field of the rows of a series. Its values are in one of the
// slices, without those of absent rows.
type column struct {
	name    []byte
	doubles []float64
	ints    []int64
	bools   []bool
	strings [][]byte
	absent  []uint32

	used, passed int // values used up and absent rows passed, while rows are read
}

func (c *column) reset() {
	*c = column{doubles: c.doubles[:0], ints: c.ints[:0], bools: c.bools[:0], strings: c.strings[:0], absent: c.absent[:0]}
}

func (c *column) values() int { return len(c.doubles) + len(c.ints) + len(c.bools) + len(c.strings) }

// series decodes one Series. Rows are readings like any others, but columns
// that do not fit the rows leave none of them certain and refuse all.
func (d *wireDecoder) series(message []byte) error {
	if !d.plain && d.dense.parse(message, d.in.door.config.MaxReadings-d.in.count, d.in.afford) {
		return d.denseRows(message)
	}
	return d.anySeries(message)
}

// anySeries decodes a Series that may be encoded in any way.
func (d *wireDecoder) anySeries(message []byte) error {
	sensor, err := d.seriesHead(message)
	if err != nil {
		return err
	}
	if err := d.seriesColumns(message); err != nil {
		return err
	}
	for row, ms := range d.times {
		if err := d.in.begin(); err != nil {
			return err
		}
		b := d.in.builder
		b.Sensor(sensor)
		b.Time(ms)
		for _, t := range d.tags {
			b.Tag(t.name, t.value)
		}
		for i := range d.columns {
			d.columns[i].give(d, uint32(row))
		}
		d.in.end()
	}
	return nil
}

// give gives the builder the column's value in this row, if there is one.
func (c *column) give(d *wireDecoder, row uint32) {
	if c.passed < len(c.absent) && c.absent[c.passed] == row {
		c.passed++
		return
	}
	b, i := d.in.builder, c.used
	c.used++
	switch {
	case len(c.doubles) > 0:
		b.Float(c.name, c.doubles[i])
	case len(c.ints) > 0:
		b.Int(c.name, c.ints[i])
	case len(c.bools) > 0:
		b.Bool(c.name, c.bools[i])
	default:
		b.Text(c.name, c.strings[i])
	}
}

// seriesHead decodes all but the columns.
func (d *wireDecoder) seriesHead(message []byte) (sensor []byte, err error) {
	d.tags, d.times = d.tags[:0], d.times[:0]
	room := d.in.door.config.MaxReadings - d.in.count
	addTime := func(v uint64) error {
		if len(d.times) == room {
			return d.in.tooMany()
		}
		d.times = append(d.times, int64(v))
		return nil
	}
	m := wireMessage{rest: message}
	for m.next() {
		switch {
		case m.is(1, protowire.BytesType):
			sensor = m.bytes
		case m.is(2, protowire.BytesType):
			tag, err := decodeTag(m.bytes)
			if err != nil {
				return nil, err
			}
			d.tags = append(d.tags, tag)
		case m.num == 3 && (m.kind == protowire.BytesType || m.kind == protowire.VarintType):
			if err := m.eachVarint(addTime); err != nil {
				return nil, err
			}
		}
	}
	return sensor, m.err
}

// seriesColumns decodes the columns.
func (d *wireDecoder) seriesColumns(message []byte) error {
	d.columns = d.columns[:0]
	scratch := int64(0)
	m := wireMessage{rest: message}
	for m.next() {
		if !m.is(4, protowire.BytesType) {
			continue
		}
		if len(d.columns) > telemetry.MaxFields {
			continue // one too many, which every row will be refused for
		}
		d.columns = slices.Grow(d.columns, 1)[:len(d.columns)+1]
		c := &d.columns[len(d.columns)-1]
		c.reset()
		if err := c.decode(m.bytes, len(d.times)); err != nil {
			return err
		}
		cell := int64(8)
		if len(c.strings) > 0 {
			cell = 24
		}
		scratch += cell * int64(len(d.times))
		if err := d.in.afford(scratch); err != nil {
			return err
		}
	}
	return m.err
}

// decode decodes a Column of a series with this many rows.
func (c *column) decode(message []byte, rows int) error {
	m := wireMessage{rest: message}
	for m.next() {
		var err error
		scalar := m.kind == protowire.BytesType || m.kind == protowire.VarintType
		switch {
		case m.is(1, protowire.BytesType):
			c.name = m.bytes
		case m.num == 2 && (m.kind == protowire.BytesType || m.kind == protowire.Fixed64Type):
			err = m.eachDouble(func(v float64) error { return add(&c.doubles, v, rows) })
		case m.num == 3 && scalar:
			err = m.eachVarint(func(v uint64) error { return add(&c.ints, protowire.DecodeZigZag(v), rows) })
		case m.num == 4 && scalar:
			err = m.eachVarint(func(v uint64) error { return add(&c.bools, v != 0, rows) })
		case m.is(5, protowire.BytesType):
			err = add(&c.strings, m.bytes, rows)
		case m.num == 6 && scalar:
			err = m.eachVarint(func(v uint64) error { return add(&c.absent, uint32(v), rows) })
		}
		if errors.Is(err, errTooManyValues) {
			return fmt.Errorf("column %s has more values or absent rows than there are rows, which are %d", telemetry.Quote(c.name), rows)
		} else if err != nil {
			return err
		}
	}
	if m.err != nil {
		return m.err
	}
	return c.check(rows)
}

var errTooManyValues = errors.New("more values than rows")

// add appends a value unless there are as many as rows.
func add[T any](values *[]T, v T, rows int) error {
	if len(*values) == rows {
		return errTooManyValues
	}
	*values = append(*values, v)
	return nil
}

// check reports whether every row can tell its value.
func (c *column) check(rows int) error {
	kinds := 0
	for _, n := range [...]int{len(c.doubles), len(c.ints), len(c.bools), len(c.strings)} {
		if n > 0 {
			kinds++
		}
	}
	if kinds > 1 {
		return fmt.Errorf("column %s has values of %d types; one is allowed", telemetry.Quote(c.name), kinds)
	}
	if c.values()+len(c.absent) != rows {
		return fmt.Errorf("column %s has %d values and %d absent rows, but there are %d rows", telemetry.Quote(c.name), c.values(), len(c.absent), rows)
	}
	for i, row := range c.absent {
		if int64(row) >= int64(rows) || i > 0 && row <= c.absent[i-1] {
			return fmt.Errorf("column %s: the numbers of absent rows must rise from 0 to %d", telemetry.Quote(c.name), rows-1)
		}
	}
	return nil
}
