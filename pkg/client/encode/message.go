package encode

import (
	"fmt"
	"slices"

	"github.com/brim-telemetry/brim/pkg/telemetry"
	"github.com/brim-telemetry/brim/pkg/telemetrypb"
)

// Form is how readings are laid out in a WriteRequest. HTTP has one form.
type Form string

// The forms of a WriteRequest.
const (
	Plain   Form = "plain"   // each reading for itself
	Compact Form = "compact" // readings of one sensor that stand together in columns
)

// ParseForm returns the form that s names.
func ParseForm(s string) (Form, error) {
	switch f := Form(s); f {
	case Plain, Compact:
		return f, nil
	}
	return "", fmt.Errorf("form %q is unknown; allowed are plain and compact", s)
}

// A Message is a WriteRequest that is filled again and again. Everything in it
// is kept: what one request needed, the next finds.
type Message struct {
	request  telemetrypb.WriteRequest
	compact  bool
	readings []*readingSlot // of all requests so far
	series   []*seriesSlot
	plain    []int // places of the readings in the plain form, among all of the request
	columns  []int // likewise of those in columns
}

// NewMessage returns a message to a stream, empty for the default one, that wants
// this ack, empty for the daemon's default.
func NewMessage(form Form, stream string, ack telemetry.Ack) *Message {
	m := &Message{compact: form == Compact}
	m.request.Stream = stream
	switch ack {
	case telemetry.Journaled:
		m.request.Ack = telemetrypb.Ack_ACK_JOURNALED
	case telemetry.Stored:
		m.request.Ack = telemetrypb.Ack_ACK_STORED
	}
	return m
}

// Of returns a request of these readings, valid until the next.
func (m *Message) Of(readings []telemetry.Reading) *telemetrypb.WriteRequest {
	m.request.Readings, m.request.Series = m.request.Readings[:0], m.request.Series[:0]
	m.plain, m.columns = m.plain[:0], m.columns[:0]
	var open *seriesSlot
	for i := range readings {
		r := &readings[i]
		if open != nil && open.add(r) {
			m.columns = append(m.columns, i)
			continue
		}
		open = nil
		// One reading alone is smaller in the plain form.
		if m.compact && i+1 < len(readings) && readings[i+1].Sensor == r.Sensor {
			next := reuse(&m.series, len(m.request.GetSeries()))
			if next.begin(r) {
				open = next
				m.request.Series = append(m.request.Series, &next.message)
				m.columns = append(m.columns, i)
				continue
			}
		}
		slot := reuse(&m.readings, len(m.request.GetReadings()))
		slot.set(r)
		m.request.Readings = append(m.request.Readings, &slot.message)
		m.plain = append(m.plain, i)
	}
	return &m.request
}

// Place returns which of the readings given to Of has this number in the answer
// of a daemon, which counts the plain ones first; -1 if none has.
func (m *Message) Place(number int) int {
	if number >= 0 && number < len(m.plain) {
		return m.plain[number]
	}
	if number -= len(m.plain); number >= 0 && number < len(m.columns) {
		return m.columns[number]
	}
	return -1
}

// reuse returns element i of what was ever needed; i is at most one too large.
func reuse[T any](all *[]*T, i int) *T {
	if i == len(*all) {
		*all = append(*all, new(T))
	}
	return (*all)[i]
}

// A readingSlot is a Reading with room for all that hangs on it.
type readingSlot struct {
	message telemetrypb.Reading
	ms      int64
	fields  []*fieldSlot
	tags    []*telemetrypb.Tag
}

// A fieldSlot is a Field with each of the values that it may point to.
type fieldSlot struct {
	message telemetrypb.Field
	double  telemetrypb.Field_DoubleValue
	integer telemetrypb.Field_IntValue
	boolean telemetrypb.Field_BoolValue
	text    telemetrypb.Field_StringValue
}

func (s *readingSlot) set(r *telemetry.Reading) {
	m := &s.message
	m.SensorId, m.TsMs = r.Sensor, nil
	if !r.Time.IsZero() { // or the daemon's own clock is asked for
		s.ms = r.Time.UnixMilli()
		m.TsMs = &s.ms
	}
	m.Fields = m.Fields[:0]
	for i := range r.Fields {
		slot := reuse(&s.fields, i)
		slot.set(&r.Fields[i])
		m.Fields = append(m.Fields, &slot.message)
	}
	m.Tags = setTags(m.Tags[:0], &s.tags, r.Tags)
}

func (s *fieldSlot) set(f *telemetry.Field) {
	s.message.Name = f.Name
	switch v := f.Value; v.Kind() {
	case telemetry.Int:
		s.integer.IntValue = v.Int()
		s.message.Value = &s.integer
	case telemetry.Bool:
		s.boolean.BoolValue = v.Bool()
		s.message.Value = &s.boolean
	case telemetry.Text:
		s.text.StringValue = v.Text()
		s.message.Value = &s.text
	default:
		s.double.DoubleValue = v.Float()
		s.message.Value = &s.double
	}
}

// setTags appends tags to dst, out of slots that are kept in all.
func setTags(dst []*telemetrypb.Tag, all *[]*telemetrypb.Tag, tags []telemetry.Tag) []*telemetrypb.Tag {
	for i := range tags {
		t := reuse(all, i)
		t.Name, t.Value = tags[i].Name, tags[i].Value
		dst = append(dst, t)
	}
	return dst
}

// A seriesSlot is a Series with room for all that hangs on it.
type seriesSlot struct {
	message telemetrypb.Series
	tags    []telemetry.Tag // of the readings inside
	columns []*columnSlot
	slots   []*telemetrypb.Tag
}

// A columnSlot is a Column, and what is known of it while rows are added.
type columnSlot struct {
	message telemetrypb.Column
	kind    telemetry.Kind
	rows    int // that have a value or are absent
}

// begin makes the series hold this reading alone, and reports whether it can.
func (s *seriesSlot) begin(r *telemetry.Reading) bool {
	m := &s.message
	m.SensorId, m.TsMs, m.Columns = r.Sensor, m.TsMs[:0], m.Columns[:0]
	s.tags = append(s.tags[:0], r.Tags...)
	m.Tags = setTags(m.Tags[:0], &s.slots, r.Tags)
	return s.add(r)
}

// add adds a reading as a row, and reports whether it could: its sensor and tags
// must be those of the series, and its fields of the columns' kinds.
func (s *seriesSlot) add(r *telemetry.Reading) bool {
	m := &s.message
	if r.Sensor != m.SensorId || r.Time.IsZero() || !slices.Equal(r.Tags, s.tags) || !s.fits(r.Fields) {
		return false
	}
	row := len(m.TsMs)
	for i := range r.Fields {
		f := &r.Fields[i]
		number := s.find(i, f.Name)
		if number == len(m.Columns) {
			c := reuse(&s.columns, number)
			c.begin(f)
			m.Columns = append(m.Columns, &c.message)
		}
		c := s.columns[number]
		c.leaveOut(row)
		c.add(f.Value)
	}
	m.TsMs = append(m.TsMs, r.Time.UnixMilli())
	for number := range m.Columns {
		s.columns[number].leaveOut(row + 1)
	}
	return true
}

// find returns the number of the column of that name, or of the one after the
// last. Fields mostly come in one order, so that guess, the field's own number,
// is looked at first.
func (s *seriesSlot) find(guess int, name string) int {
	columns := s.message.GetColumns()
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

// fits reports whether the fields can be a row: each of its column's kind, and
// none twice, which the daemon shall refuse for one reading and not for all.
func (s *seriesSlot) fits(fields []telemetry.Field) bool {
	for i := range fields {
		f := &fields[i]
		if number := s.find(i, f.Name); number < len(s.message.GetColumns()) && s.columns[number].kind != f.Value.Kind() {
			return false
		}
		for j := range i {
			if fields[j].Name == f.Name {
				return false
			}
		}
	}
	return true
}

// begin makes the column one of the field's name and kind, without rows.
func (c *columnSlot) begin(f *telemetry.Field) {
	m := &c.message
	m.Name, m.Doubles, m.Ints, m.Bools = f.Name, m.Doubles[:0], m.Ints[:0], m.Bools[:0]
	m.Strings, m.Absent = m.Strings[:0], m.Absent[:0]
	c.kind, c.rows = f.Value.Kind(), 0
}

// leaveOut makes the column have this many rows.
func (c *columnSlot) leaveOut(rows int) {
	for ; c.rows < rows; c.rows++ {
		c.message.Absent = append(c.message.Absent, uint32(c.rows))
	}
}

func (c *columnSlot) add(v telemetry.Value) {
	m := &c.message
	c.rows++
	switch v.Kind() {
	case telemetry.Int:
		m.Ints = append(m.Ints, v.Int())
	case telemetry.Bool:
		m.Bools = append(m.Bools, v.Bool())
	case telemetry.Text:
		m.Strings = append(m.Strings, v.Text())
	default:
		m.Doubles = append(m.Doubles, v.Float())
	}
}
