package ingest

import (
	"encoding/binary"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// A denseSeries is a Series in the form that encoders give it where nothing is
// missing: fields in the order of their numbers, lists packed, and a value for
// every row in every column. It is decoded in one pass, and its sensor and tags
// only if they are not known by their bytes. Whatever has another form, or is
// broken, is left to anySeries, which also says what is wrong with it.
type denseSeries struct {
	head    []byte // sensor and tags, encoded
	sensor  []byte
	tags    []wireTag
	times   []uint64
	columns []denseColumn
	words   []uint64 // of the first column's rows, then of the second's, and so on
	texts   [][]byte // that words of kind Text are indices of
}

type denseColumn struct {
	name []byte
	kind telemetry.Kind
}

// parse decodes all but the tags of a series with at most these many rows; false
// if it is not dense.
func (s *denseSeries) parse(message []byte, most int) bool {
	s.times, s.columns, s.words, s.texts = s.times[:0], s.columns[:0], s.words[:0], s.texts[:0]
	s.sensor = nil
	m := wireMessage{rest: message}
	more, end := m.next(), 0
	for ; more && m.num <= 2 && m.kind == protowire.BytesType; more = m.next() {
		if m.num == 1 {
			s.sensor = m.bytes
		}
		end = len(message) - len(m.rest)
	}
	s.head = message[:end]
	if !more || !m.is(3, protowire.BytesType) {
		return false
	}
	var ok bool
	if s.times, ok = appendVarints(s.times, m.bytes, most); !ok || len(s.times) == 0 {
		return false
	}
	for m.next() {
		if !m.is(4, protowire.BytesType) || len(s.columns) == telemetry.MaxFields || !s.column(m.bytes) {
			return false
		}
	}
	return m.err == nil
}

// column decodes a column: its name, then its values, then nothing.
func (s *denseSeries) column(message []byte) bool {
	m := wireMessage{rest: message}
	if !m.next() || !m.is(1, protowire.BytesType) {
		return false
	}
	c := denseColumn{name: m.bytes}
	if !m.next() || m.kind != protowire.BytesType {
		return false
	}
	rows, before, ok := len(s.times), len(s.words), true
	switch m.num {
	case 2:
		c.kind = telemetry.Float
		for packed := m.bytes; len(packed) >= 8 && len(s.words)-before < rows; packed = packed[8:] {
			s.words = append(s.words, binary.LittleEndian.Uint64(packed))
		}
		ok = len(m.bytes) == 8*rows
	case 3, 4:
		c.kind = telemetry.Int
		if m.num == 4 {
			c.kind = telemetry.Bool
		}
		s.words, ok = appendVarints(s.words, m.bytes, rows)
	case 5:
		c.kind = telemetry.Text
		for more := true; more; more = m.next() {
			if !m.is(5, protowire.BytesType) || len(s.words)-before == rows {
				return false
			}
			s.words, s.texts = append(s.words, uint64(len(s.texts))), append(s.texts, m.bytes)
		}
	default:
		return false
	}
	s.columns = append(s.columns, c)
	return ok && m.err == nil && len(m.rest) == 0 && len(s.words)-before == rows
}

// parseTags decodes the tags; false if one is broken.
func (s *denseSeries) parseTags() bool {
	s.tags = s.tags[:0]
	for m := (wireMessage{rest: s.head}); m.next(); {
		if m.num == 2 {
			tag, err := decodeTag(m.bytes)
			if err != nil {
				return false
			}
			s.tags = append(s.tags, tag)
		}
	}
	return true
}

// denseRows gives the builder the rows of the dense series. As the series of the
// first row is that of all, it is decoded once, or not at all if it is known.
func (d *wireDecoder) denseRows(message []byte) error {
	s, b := &d.dense, d.in.builder
	d.beginAlias(aliasSeries)
	d.alias = append(d.alias, s.head...)
	known := d.in.door.known.Alias(d.alias)
	if known == nil && !s.parseTags() {
		return d.anySeries(message)
	}
	for row, ms := range s.times {
		if err := d.in.begin(); err != nil {
			return err
		}
		if known != nil {
			b.SameSeries(known)
		} else {
			b.Sensor(s.sensor)
			for _, t := range s.tags {
				b.Tag(t.name, t.value)
			}
		}
		b.Time(int64(ms))
		s.giveRow(b, row)
		if d.in.end() && known == nil {
			known = b.LastSeries()
			d.in.door.known.SetAlias(d.alias, known)
		}
	}
	return nil
}

// giveRow gives the builder the values of one row.
func (s *denseSeries) giveRow(b *batch.Builder, row int) {
	for i := range s.columns {
		c, word := &s.columns[i], s.words[i*len(s.times)+row]
		switch c.kind {
		case telemetry.Float:
			b.Float(c.name, math.Float64frombits(word))
		case telemetry.Int:
			b.Int(c.name, protowire.DecodeZigZag(word))
		case telemetry.Bool:
			b.Bool(c.name, word != 0)
		default:
			b.Text(c.name, s.texts[word])
		}
	}
}
