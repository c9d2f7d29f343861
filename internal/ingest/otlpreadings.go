package ingest

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// OTLP sends metric by metric, with the points of all attribute sets. A reading has the
// points of all metrics of one attribute set at one time, so they are gathered first:
//
//	point ─ attributes ─▶ series ─ time ─▶ reading ─▶ its values, in a chain
//
// Bucket counts of histograms are Prometheus' classic ones: cumulative, of a series with the
// tag le. So PromQL answers histogram_quantile. Quantiles of summaries have the tag quantile.

// An otlpDecoder gathers the points of a request, and gives their readings to an intake.
type otlpDecoder struct {
	in  *intake
	dot string // stands for dots in names
	otlpTally

	fieldOf  map[string]uint32
	fields   []otlpField
	seriesOf map[string]uint32 // by point's key, and by the series key of tags
	members  map[otlpMember]uint32
	series   []otlpSeries
	latest   map[otlpInstant]uint32 // readings
	readings []otlpReading
	values   []otlpValue
	rejects  []bool // points
	made     int64  // bytes of keys and tags

	// The resource, scope and metric at hand.
	resource, scope []byte // as they were sent
	owner           uint32 // number of both
	metric          []byte
	own             [len(otlpSuffixes)]uint32 // fields of the metric
	delta           bool

	// The point at hand.
	key     []byte // of its attributes
	time    uint64
	flags   uint64
	refusal *telemetry.Refusal
	pending []otlpPending
	counts  []uint64
	bounds  []uint64
	scratch []byte
}

// An otlpTally says what became of the points of a request.
type otlpTally struct {
	points, rejected, skipped int
	first                     string // why the first point was rejected
}

// The fields that a metric may have, and what their names end with.
const (
	otlpPlain = iota
	otlpCount
	otlpSum
	otlpMin
	otlpMax
	otlpBucket
)

var otlpSuffixes = [...]string{"", "_count", "_sum", "_min", "_max", "_bucket"}

type otlpField struct {
	name    []byte
	refusal *telemetry.Refusal
}

type otlpSeries struct {
	tags    []telemetry.Tag
	refusal *telemetry.Refusal
	known   *batch.Series // of the first reading; nil: none yet
}

// An otlpMember is a series with one tag more.
type otlpMember struct {
	series uint32
	extra  string // le or quantile
	value  uint64 // a float
}

type otlpInstant struct {
	series uint32
	ms     int64
}

type otlpReading struct {
	otlpInstant

	first, last, count uint32 // values
}

type otlpValue struct {
	word  uint64
	next  uint32
	field uint32
	point uint32
	kind  telemetry.Kind
}

// An otlpPending is a value of the point at hand.
type otlpPending struct {
	word  uint64
	field uint32
	kind  telemetry.Kind
	of    otlpMember // without its series; extra is empty where the value is of the point's own
}

func newOTLPDecoder(in *intake) *otlpDecoder {
	d := &otlpDecoder{
		in: in, dot: "_", fieldOf: make(map[string]uint32), seriesOf: make(map[string]uint32),
		members: make(map[otlpMember]uint32), latest: make(map[otlpInstant]uint32),
	}
	if in.builder.MapDots != 0 {
		d.dot = string(in.builder.MapDots)
	}
	return d
}

// size is roughly how many bytes the decoder takes.
func (d *otlpDecoder) size() int64 {
	return int64(64*(len(d.fieldOf)+len(d.seriesOf)+len(d.members)+len(d.latest)+cap(d.fields)+cap(d.series))+
		32*(cap(d.readings)+cap(d.values))+cap(d.rejects)) + d.made
}

// name makes a field of the metric at hand known.
func (d *otlpDecoder) name(field int) {
	d.scratch = append(append(d.scratch[:0], d.metric...), otlpSuffixes[field]...)
	n, ok := d.fieldOf[string(d.scratch)]
	if !ok {
		n = uint32(len(d.fields))
		name := []byte(d.mapped(string(d.scratch)))
		refusal := telemetry.CheckFieldName(name)
		if len(d.metric) == 0 {
			refusal = telemetry.CheckFieldName(nil)
		}
		d.fieldOf[string(d.scratch)] = n
		d.fields = append(d.fields, otlpField{name, refusal})
		d.made += int64(2 * len(name))
	}
	d.own[field] = n
}

// mapped returns the name of a tag or a field.
func (d *otlpDecoder) mapped(name string) string {
	return telemetry.EscapeName(strings.ReplaceAll(name, ".", d.dot))
}

// beginPoint begins a point of the metric at hand.
func (d *otlpDecoder) beginPoint() {
	temporality := byte('c')
	if d.delta {
		temporality = 'd'
	}
	d.key = append(binary.LittleEndian.AppendUint32(d.key[:0], d.owner), temporality)
	d.time, d.flags, d.refusal, d.pending = 0, 0, nil, d.pending[:0]
}

// keyHead is how long the key of a point is before its attributes.
const keyHead = 5

// attribute adds an encoded attribute to the point at hand.
func (d *otlpDecoder) attribute(encoded []byte) {
	d.key = append(binary.AppendUvarint(d.key, uint64(len(encoded))), encoded...)
}

func (d *otlpDecoder) refuse(code telemetry.Code, format string, args ...any) {
	d.refuseFor(telemetry.Refuse(code, format, args...))
}

func (d *otlpDecoder) refuseFor(r *telemetry.Refusal) {
	if d.refusal == nil {
		d.refusal = r
	}
}

// number adds a value of the point at hand.
func (d *otlpDecoder) number(field int, kind telemetry.Kind, word uint64) {
	d.put(field, kind, word, otlpMember{})
}

// put adds a value of a series with one tag more, unless it is NaN: that is no value. If a
// field of the message was sent before, the last one counts.
func (d *otlpDecoder) put(field int, kind telemetry.Kind, word uint64, of otlpMember) {
	p := otlpPending{word, d.own[field], kind, of}
	if v := math.Float64frombits(word); kind == telemetry.Float && math.IsNaN(v) {
		return
	} else if kind == telemetry.Float {
		d.refuseFor(telemetry.CheckFloat(d.fields[p.field].name, v))
	}
	for i := range d.pending {
		if of.extra == "" && d.pending[i].of.extra == "" && d.pending[i].field == p.field {
			d.pending[i] = p
			return
		}
	}
	d.pending = append(d.pending, p)
}

// bucket adds the count of all measurements up to a bound.
func (d *otlpDecoder) bucket(n uint64, bound float64) {
	d.number64(otlpBucket, n, otlpMember{extra: "le", value: math.Float64bits(bound)})
}

// number64 adds a count.
func (d *otlpDecoder) number64(field int, n uint64, of otlpMember) {
	if n > math.MaxInt64 {
		d.refuse(telemetry.ValueRange, "a count is more than %d, the most that is allowed", int64(math.MaxInt64))
	}
	d.put(field, telemetry.Int, n, of)
}

// noValue is the flag of a point that says that there is no value any more.
const noValue = 1

// endPoint gathers the point at hand, refuses it, or skips it for want of a value.
func (d *otlpDecoder) endPoint() error {
	in := d.in
	if d.points++; d.points > in.server.config.MaxReadings {
		return telemetry.Errorf(telemetry.TooLarge, codeTooMany,
			"the request contains more than %d data points (--max-readings-per-request); nothing was accepted, send smaller requests", in.server.config.MaxReadings)
	}
	d.rejects = append(d.rejects, false)
	if d.flags&noValue != 0 || len(d.pending) == 0 && d.refusal == nil {
		d.skipped++
		return nil
	}
	if err := in.afford(d.size()); err != nil {
		return err
	}
	if err := d.gather(); err != nil || d.refusal == nil {
		return err
	}
	if err := in.begin(); err != nil { // it counts as a reading
		return err
	}
	in.builder.Refuse(d.refusal)
	in.end()
	d.reject(uint32(d.points-1), d.metric, d.refusal)
	return nil
}

func (d *otlpDecoder) reject(point uint32, metric []byte, r *telemetry.Refusal) {
	if d.rejects[point] {
		return
	}
	d.rejects[point] = true
	if d.rejected++; d.first == "" {
		d.first = fmt.Sprintf("metric %s: %s", telemetry.Quote(metric), r.Error())
	}
}

// gather adds the values of the point at hand to their readings, unless it is refused.
func (d *otlpDecoder) gather() error {
	for i := range d.pending {
		d.refuseFor(d.fields[d.pending[i].field].refusal)
	}
	if d.refusal != nil {
		return nil
	}
	base, err := d.findSeries()
	if err != nil {
		return err
	}
	if d.refusal = d.series[base].refusal; d.refusal != nil {
		return nil
	}
	ms := int64(d.time / 1e6)
	if d.time == 0 {
		ms = d.in.now.UnixMilli()
	}
	for i := range d.pending {
		p := &d.pending[i]
		at := uint32(len(d.values))
		d.values = append(d.values, otlpValue{word: p.word, kind: p.kind, field: p.field, point: uint32(d.points - 1)})
		r := &d.readings[d.findReading(otlpInstant{d.findMember(base, p.of), ms}, p.field)]
		if r.count++; r.count == 1 {
			r.first = at
		} else {
			d.values[r.last].next = at
		}
		r.last = at
	}
	return nil
}

// findSeries returns the series of the point at hand.
func (d *otlpDecoder) findSeries() (uint32, error) {
	if n, ok := d.seriesOf[string(d.key)]; ok {
		return n, nil
	}
	tags, refusal, ok := d.tagsOf()
	if !ok {
		return 0, errWire
	}
	sensor := telemetry.AppendTagsKey(nil, tags)
	n, ok := d.seriesOf["="+string(sensor)] // attributes may come in any order
	if !ok || refusal != nil {
		n = d.addSeries(tags, refusal)
	}
	if refusal == nil {
		d.seriesOf["="+string(sensor)] = n
	}
	d.seriesOf[string(d.key)] = n
	d.made += int64(len(sensor) + len(d.key))
	return n, nil
}

func (d *otlpDecoder) addSeries(tags []telemetry.Tag, refusal *telemetry.Refusal) uint32 {
	d.made += int64(32 * len(tags))
	d.series = append(d.series, otlpSeries{tags: tags, refusal: refusal})
	return uint32(len(d.series) - 1)
}

// findMember returns a series with one tag more.
func (d *otlpDecoder) findMember(base uint32, m otlpMember) uint32 {
	if m.extra == "" {
		return base
	}
	m.series = base
	n, ok := d.members[m]
	if !ok {
		tags := d.series[base].tags
		extra := telemetry.Tag{Name: m.extra, Value: "+Inf"}
		if v := math.Float64frombits(m.value); !math.IsInf(v, 1) {
			extra.Value = strconv.FormatFloat(v, 'g', -1, 64) // as Prometheus' clients do
		}
		at, _ := slices.BinarySearchFunc(tags, extra.Name, func(t telemetry.Tag, name string) int { return strings.Compare(t.Name, name) })
		n = d.addSeries(slices.Insert(slices.Clone(tags), at, extra), nil)
		d.members[m] = n
	}
	return n
}

// findReading returns a reading of the instant that has no such field yet, and room for it.
// What has the same time in milliseconds may be several.
func (d *otlpDecoder) findReading(i otlpInstant, field uint32) uint32 {
	n, ok := d.latest[i]
	if ok {
		r := &d.readings[n]
		ok = r.count < telemetry.MaxFields
		for at, left := r.first, r.count; ok && left > 0; at, left = d.values[at].next, left-1 {
			ok = d.values[at].field != field
		}
	}
	if !ok {
		n = uint32(len(d.readings))
		d.readings = append(d.readings, otlpReading{otlpInstant: i})
		d.latest[i] = n
	}
	return n
}

// give gives the gathered readings to the intake.
func (d *otlpDecoder) give() error {
	in := d.in
	for i := range d.readings {
		r := &d.readings[i]
		s := &d.series[r.series]
		if err := in.begin(); err != nil {
			return err
		}
		b := in.builder
		first := s.known == nil
		if first {
			d.giveSeries(s.tags)
			if err := in.afford(d.size()); err != nil {
				return err
			}
		} else {
			b.SameSeries(s.known)
		}
		b.Time(r.ms)
		for at, left := r.first, r.count; left > 0; at, left = d.values[at].next, left-1 {
			v := &d.values[at]
			if name := d.fields[v.field].name; v.kind == telemetry.Int {
				b.Int(name, int64(v.word))
			} else {
				b.Float(name, math.Float64frombits(v.word))
			}
		}
		if refusal := b.End(); refusal != nil {
			in.refused(in.count-1, refusal)
			for at, left := r.first, r.count; left > 0; at, left = d.values[at].next, left-1 {
				d.reject(d.values[at].point, d.fields[d.values[at].field].name, refusal)
			}
		} else if first {
			s.known = b.LastSeries()
		}
	}
	return nil
}

// giveSeries gives the sensor, which is the series key of its tags, and the tags.
func (d *otlpDecoder) giveSeries(tags []telemetry.Tag) {
	b := d.in.builder
	if len(tags) == 0 {
		b.Refuse(telemetry.Refuse(telemetry.SensorMissing, "neither the data point nor its resource has attributes, which the sensor is made of"))
	}
	d.scratch = telemetry.AppendTagsKey(d.scratch[:0], tags)
	b.Sensor(d.scratch)
	d.made += int64(2 * len(d.scratch))
	for _, t := range tags {
		d.scratch = append(append(d.scratch[:0], t.Name...), t.Value...)
		b.Tag(d.scratch[:len(t.Name)], d.scratch[len(t.Name):])
	}
}
