package wire

import (
	"fmt"
	"slices"

	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// Form is the layout of readings in a WriteRequest. HTTP has one form.
type Form string

// The forms of a WriteRequest.
const (
	Plain   Form = "plain"   // each reading by itself
	Compact Form = "compact" // adjacent readings of one sensor as columns
)

// ParseForm returns the form of that name.
func ParseForm(s string) (Form, error) {
	switch f := Form(s); f {
	case Plain, Compact:
		return f, nil
	}
	return "", fmt.Errorf("form %q is unknown; allowed: plain and compact", s)
}

// A Message is a WriteRequest that is reused from request to request. It keeps its
// allocations.
type Message struct {
	request telemetrypb.WriteRequest
	compact bool
	plain   []int           // indexes of plain readings among those of the request
	columns []int           // likewise for readings in columns
	tags    []telemetry.Tag // of the series that is being filled

	inSeries map[string]bool // sensors that have a series in this request
	timeless map[string]bool // sensors with a reading without a time, which cannot be in a series

	readings pool[telemetrypb.Reading]
	series   pool[telemetrypb.Series]
	column   pool[telemetrypb.Column]
	field    pool[telemetrypb.Field]
	tag      pool[telemetrypb.Tag]
	time     pool[int64]
	double   pool[telemetrypb.Field_DoubleValue]
	integer  pool[telemetrypb.Field_IntValue]
	boolean  pool[telemetrypb.Field_BoolValue]
	text     pool[telemetrypb.Field_StringValue]
}

// A pool has the values for a request, allocated so far.
type pool[T any] struct {
	all  []*T
	used int
}

func (p *pool[T]) next() *T {
	if p.used == len(p.all) {
		p.all = append(p.all, new(T))
	}
	p.used++
	return p.all[p.used-1]
}

// NewMessage returns a message for a stream (empty: the default stream) that requests
// an ack (empty: the daemon's default).
func NewMessage(form Form, stream string, ack telemetry.Ack) *Message {
	m := &Message{compact: form == Compact, inSeries: make(map[string]bool), timeless: make(map[string]bool)}
	m.Address(stream, ack)
	return m
}

// Address changes the stream and the ack of the following requests.
func (m *Message) Address(stream string, ack telemetry.Ack) {
	m.request.Stream, m.request.Ack = stream, telemetrypb.Ack_ACK_UNSPECIFIED
	switch ack {
	case telemetry.Journaled:
		m.request.Ack = telemetrypb.Ack_ACK_JOURNALED
	case telemetry.Stored:
		m.request.Ack = telemetrypb.Ack_ACK_STORED
	}
}

// Of returns a request with these readings; it is valid until the next call.
func (m *Message) Of(readings []telemetry.Reading) *telemetrypb.WriteRequest {
	m.request.Readings, m.request.Series = m.request.Readings[:0], m.request.Series[:0]
	m.plain, m.columns = m.plain[:0], m.columns[:0]
	clear(m.inSeries)
	clear(m.timeless)
	for i := range readings {
		if m.compact && readings[i].Time.IsZero() {
			m.timeless[readings[i].Sensor] = true
		}
	}
	for _, used := range []*int{
		&m.readings.used, &m.series.used, &m.column.used, &m.field.used, &m.tag.used, &m.time.used,
		&m.double.used, &m.integer.used, &m.boolean.used, &m.text.used,
	} {
		*used = 0
	}
	var open *telemetrypb.Series
	for i := range readings {
		r := &readings[i]
		if open == nil || !m.addRow(open, r) {
			open = nil
			// A single reading is smaller in the plain form. But a daemon processes plain
			// ones first, so it must not follow a series of its sensor.
			if m.compact && !m.timeless[r.Sensor] && (i+1 < len(readings) && readings[i+1].Sensor == r.Sensor || m.inSeries[r.Sensor]) {
				open = m.begin(r)
			}
		}
		if open != nil {
			m.columns = append(m.columns, i)
			continue
		}
		m.request.Readings = append(m.request.Readings, m.reading(r))
		m.plain = append(m.plain, i)
	}
	return &m.request
}

// Place returns the index among the readings given to Of, for an index in the
// daemon's answer, where plain readings come first; -1: none.
func (m *Message) Place(index int) int {
	if index >= 0 && index < len(m.plain) {
		return m.plain[index]
	}
	if index -= len(m.plain); index >= 0 && index < len(m.columns) {
		return m.columns[index]
	}
	return -1
}

func (m *Message) reading(r *telemetry.Reading) *telemetrypb.Reading {
	out := m.readings.next()
	out.SensorId, out.TsMs, out.Fields = r.Sensor, nil, out.Fields[:0]
	if !r.Time.IsZero() { // otherwise it gets the daemon's time
		out.TsMs = m.time.next()
		*out.TsMs = r.Time.UnixMilli()
	}
	for i := range r.Fields {
		f := m.field.next()
		f.Name = r.Fields[i].Name
		switch v := r.Fields[i].Value; v.Kind() {
		case telemetry.Int:
			value := m.integer.next()
			value.IntValue, f.Value = v.Int(), value
		case telemetry.Bool:
			value := m.boolean.next()
			value.BoolValue, f.Value = v.Bool(), value
		case telemetry.Text:
			value := m.text.next()
			value.StringValue, f.Value = v.Text(), value
		default:
			value := m.double.next()
			value.DoubleValue, f.Value = v.Float(), value
		}
		out.Fields = append(out.Fields, f)
	}
	out.Tags = m.appendTags(out.Tags[:0], r.Tags)
	return out
}

func (m *Message) appendTags(dst []*telemetrypb.Tag, tags []telemetry.Tag) []*telemetrypb.Tag {
	for i := range tags {
		t := m.tag.next()
		t.Name, t.Value = tags[i].Name, tags[i].Value
		dst = append(dst, t)
	}
	return dst
}

// begin adds a series that begins with a reading; nil if the reading cannot be in one.
func (m *Message) begin(r *telemetry.Reading) *telemetrypb.Series {
	s := m.series.next()
	s.SensorId, s.TsMs, s.Columns = r.Sensor, s.TsMs[:0], s.Columns[:0]
	m.tags, s.Tags = r.Tags, m.appendTags(s.Tags[:0], r.Tags)
	if !m.addRow(s, r) {
		return nil
	}
	m.request.Series = append(m.request.Series, s)
	m.inSeries[s.GetSensorId()] = true
	return s
}

// addRow adds a reading to the series that is being filled, and reports whether it fits:
// its sensor and tags must be those of the series, it needs a time, its fields must have
// the kinds of the columns, and there may be at most telemetry.MaxFields columns. A
// duplicate field does not fit, so that the daemon refuses this reading, not the series.
func (m *Message) addRow(s *telemetrypb.Series, r *telemetry.Reading) bool {
	if r.Sensor != s.GetSensorId() || r.Time.IsZero() || !slices.Equal(r.Tags, m.tags) {
		return false
	}
	columns := len(s.GetColumns())
	for i := range r.Fields {
		f := &r.Fields[i]
		at := find(s.GetColumns(), i, f.Name)
		switch {
		case at == len(s.GetColumns()):
			columns++
		case kindOf(s.GetColumns()[at]) != f.Value.Kind():
			return false
		}
		if columns > telemetry.MaxFields {
			return false
		}
		for j := range i {
			if r.Fields[j].Name == f.Name {
				return false
			}
		}
	}
	row := len(s.GetTsMs())
	for i := range r.Fields {
		f := &r.Fields[i]
		at := find(s.GetColumns(), i, f.Name)
		if at == len(s.GetColumns()) {
			c := m.column.next()
			c.Name, c.Doubles, c.Ints, c.Bools = f.Name, c.Doubles[:0], c.Ints[:0], c.Bools[:0]
			c.Strings, c.Absent = c.Strings[:0], c.Absent[:0]
			s.Columns = append(s.Columns, c)
		}
		c := s.GetColumns()[at]
		fillUp(c, row)
		switch v := f.Value; v.Kind() {
		case telemetry.Int:
			c.Ints = append(c.Ints, v.Int())
		case telemetry.Bool:
			c.Bools = append(c.Bools, v.Bool())
		case telemetry.Text:
			c.Strings = append(c.Strings, v.Text())
		default:
			c.Doubles = append(c.Doubles, v.Float())
		}
	}
	s.TsMs = append(s.TsMs, r.Time.UnixMilli())
	for _, c := range s.GetColumns() {
		fillUp(c, row+1)
	}
	return true
}

// find returns the index of the column with this name, or the number of columns.
// Readings usually have their fields in the same order, so it tries the field's own
// index first.
func find(columns []*telemetrypb.Column, guess int, name string) int {
	if guess < len(columns) && columns[guess].GetName() == name {
		return guess
	}
	for i, c := range columns {
		if c.GetName() == name {
			return i
		}
	}
	return len(columns)
}

// kindOf returns the kind of a column, which has at least one value.
func kindOf(c *telemetrypb.Column) telemetry.Kind {
	switch {
	case len(c.GetInts()) > 0:
		return telemetry.Int
	case len(c.GetBools()) > 0:
		return telemetry.Bool
	case len(c.GetStrings()) > 0:
		return telemetry.Text
	}
	return telemetry.Float
}

// fillUp pads a column with absent rows to this length.
func fillUp(c *telemetrypb.Column, rows int) {
	for n := len(c.GetDoubles()) + len(c.GetInts()) + len(c.GetBools()) + len(c.GetStrings()) + len(c.GetAbsent()); n < rows; n++ {
		c.Absent = append(c.Absent, uint32(n))
	}
}
