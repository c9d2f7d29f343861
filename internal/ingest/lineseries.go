package ingest

import (
	"bytes"
	"slices"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// aliasLine begins the keys of aliases that are parts of lines.
const aliasLine = 'l'

// A lineTag is a tag of the line at hand.
type lineTag struct{ name, value []byte }

// seriesPart returns the measurement and the tags of a line, if they are simple
// enough to be cut off without decoding: without escapes, and with a last
// character that could be a measurement by itself.
func seriesPart(line []byte) []byte {
	n := max(bytes.IndexByte(line, ' '), 0)
	part := line[:n]
	if n == 0 || bytes.IndexByte(part, '\\') >= 0 {
		return nil
	}
	if c := part[n-1]; !isSimple(c) || c == '#' {
		return nil
	}
	return part
}

// lookUp returns the series that the part of a line stands for, if it is known.
func (d *lineDecoder) lookUp(part []byte) *batch.Series {
	d.alias = d.alias[:0]
	if len(part) == 0 || len(part) > maxAlias {
		return nil
	}
	d.alias = append(append(append(append(d.alias, aliasLine), d.in.home.Name...), 0), part...)
	return d.in.door.known.Alias(d.alias)
}

// remember makes the part that was looked up last stand for the series of the
// last reading, unless that is not worth it.
func (d *lineDecoder) remember() {
	if len(d.alias) == 0 {
		return
	}
	d.in.door.known.SetAlias(d.alias, d.in.builder.LastSeries())
}

// keep copies a word, which the library returns for a moment only.
func (d *lineDecoder) keep(word []byte) []byte {
	at := len(d.words)
	d.words = append(d.words, word...)
	return d.words[at:]
}

// giveSensor gives the builder the sensor id of measurement and tags.
func (d *lineDecoder) giveSensor() {
	if d.sensorTag == "" {
		d.in.builder.Sensor(d.seriesKey())
		return
	}
	for _, t := range d.tags {
		if string(t.name) == d.sensorTag {
			d.in.builder.Sensor(t.value)
			return
		}
	}
	d.in.builder.Refuse(telemetry.Refuse(telemetry.SensorMissing,
		"the line has no tag %s, which holds the sensor id (line_protocol.sensor_tag)", telemetry.Quote([]byte(d.sensorTag))))
}

// seriesKey returns the sensor id that a line has by itself: its measurement,
// and its tags sorted by the bytes of their keys, written as in line protocol
// with a backslash before each comma, space, backslash, and, in tags, equals
// sign: so that different series never have the same id.
func (d *lineDecoder) seriesKey() []byte {
	byName := func(x, y lineTag) int { return bytes.Compare(x.name, y.name) }
	if !slices.IsSortedFunc(d.tags, byName) {
		slices.SortStableFunc(d.tags, byName)
	}
	d.sensor = d.sensor[:0]
	d.appendWord(d.measurement, false)
	for _, t := range d.tags {
		d.sensor = append(d.sensor, ',')
		d.appendWord(t.name, true)
		d.sensor = append(d.sensor, '=')
		d.appendWord(t.value, true)
	}
	return d.sensor
}

// appendWord appends a word to the sensor id.
func (d *lineDecoder) appendWord(word []byte, tag bool) {
	if d.simple {
		d.sensor = append(d.sensor, word...)
	} else {
		d.sensor = telemetry.AppendSeriesWord(d.sensor, word, tag)
	}
}
