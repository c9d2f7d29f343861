package ingest

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

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
	in   *intake
	dot  string // stands for dots in names
	seed maphash.Seed

	text     []byte // keys
	at       map[uint64]otlpKey
	names    []otlpName
	series   []otlpSeries
	ofKnown  map[*batch.Series]uint32
	readings []otlpReading
	earlier  map[otlpInstant]uint32 // readings of series with several
	values   []otlpValue
	refused  []bool // by point
	made     int64  // bytes of new series

	points   int
	rejected int    // points
	skipped  int    // points without a value
	first    string // why the first point was rejected

	// The resource, scope and metric at hand.
	resource, scope []byte // as they were sent
	owner           otlpText
	owners          uint32
	metric          []byte
	fields          [otlpNames]uint32
	delta           byte

	// The point at hand.
	key     []byte // owner, delta, and the attributes as they were sent
	time    uint64
	flags   uint64
	refusal *telemetry.Refusal
	pending []otlpPending

	alias  []byte
	counts []uint64
	bounds []uint64
}

// An otlpText is a part of the decoder's text.
type otlpText struct{ from, to uint32 }

// An otlpKey is what the decoder knows by a text: the number of a name or a series.
type otlpKey struct {
	text   otlpText
	number uint32
}

// The first byte of a key.
const (
	otlpKeyName   = 'n'
	otlpKeyPoint  = 'p' // owner, delta, attributes
	otlpKeyTags   = 't' // the series key
	otlpKeyMember = 'm' // number of a series, extra tag and its value
)

// The fields of a metric.
const (
	otlpValueName = iota
	otlpCount
	otlpSum
	otlpMin
	otlpMax
	otlpBucket
	otlpNames
)

var otlpSuffixes = [otlpNames]string{"", "_count", "_sum", "_min", "_max", "_bucket"}

type otlpName struct {
	text    otlpText
	refusal *telemetry.Refusal
}

type otlpSeries struct {
	owner otlpText // resource and scope, as they were sent
	key   otlpText // of the first point, without its owner
	base  uint32   // of a member: the series without the extra tag
	extra byte     // the extra tag of a member: extraLe or extraQuantile
	value uint64   // of that tag, a float

	known   *batch.Series   // nil: not yet
	tags    []telemetry.Tag // where it is not known, and no member
	refusal *telemetry.Refusal
	reading uint32 // the last one that was found, or noReading
	several bool   // all its readings are in earlier
}

const (
	extraLe byte = iota + 1
	extraQuantile
)

var extraTags = [...]string{extraLe: "le", extraQuantile: "quantile"}

type otlpInstant struct {
	series uint32
	ms     int64
}

type otlpReading struct {
	ms          int64
	series      uint32
	first, last uint32 // values
	count       uint32
}

const (
	noReading = math.MaxUint32
	// otlpPerReading is how many values of one point are in one reading at most: count, sum,
	// minimum and maximum.
	otlpPerReading = 4
)

type otlpValue struct {
	word  uint64
	next  uint32
	name  uint32
	point uint32
	kind  telemetry.Kind
}

// An otlpPending is a value of the point at hand.
type otlpPending struct {
	word    uint64
	value   uint64 // of the extra tag
	extra   byte   // 0: none
	kind    telemetry.Kind
	name    uint32
	reading uint32
}

// size is roughly how many bytes the decoder takes.
func (d *otlpDecoder) size() int64 {
	return int64(cap(d.text)+len(d.at)*48+cap(d.names)*16+cap(d.series)*112+len(d.ofKnown)*32+
		cap(d.readings)*24+len(d.earlier)*40+cap(d.values)*24+cap(d.refused)) + d.made
}

// find returns what is known by a key; if nothing is, slot is where to add it.
func (d *otlpDecoder) find(key []byte) (number uint32, slot uint64, ok bool) {
	for slot = maphash.Bytes(d.seed, key); ; slot++ {
		k, used := d.at[slot]
		if !used {
			return 0, slot, false
		}
		if bytes.Equal(d.text[k.text.from:k.text.to], key) {
			return k.number, slot, true
		}
	}
}

func (d *otlpDecoder) add(slot uint64, key []byte, number uint32) otlpText {
	t := d.keep(key)
	d.at[slot] = otlpKey{t, number}
	return t
}

func (d *otlpDecoder) keep(text []byte) otlpText {
	d.text = append(d.text, text...)
	return otlpText{uint32(len(d.text) - len(text)), uint32(len(d.text))}
}

func (d *otlpDecoder) textOf(t otlpText) []byte { return d.text[t.from:t.to] }

// nameField notes a field of the metric at hand.
func (d *otlpDecoder) nameField(field int) {
	d.alias = append(append(append(d.alias[:0], otlpKeyName), d.metric...), otlpSuffixes[field]...)
	n, slot, ok := d.find(d.alias)
	if !ok {
		n = uint32(len(d.names))
		d.add(slot, d.alias, n)
		name := []byte(d.mapped(string(d.alias[1:])))
		refusal := telemetry.CheckFieldName(name)
		if len(d.metric) == 0 {
			refusal = telemetry.Refuse(telemetry.FieldName, "a metric has an empty name; names have 1 to %d bytes", telemetry.MaxNameBytes)
		}
		d.names = append(d.names, otlpName{d.keep(name), refusal})
	}
	d.fields[field] = n
}

// mapped returns the name of a tag or a field.
func (d *otlpDecoder) mapped(name string) string {
	return telemetry.EscapeName(strings.ReplaceAll(name, ".", d.dot))
}

// beginPoint begins a point of the metric at hand.
func (d *otlpDecoder) beginPoint() {
	d.key = append(binary.LittleEndian.AppendUint32(append(d.key[:0], otlpKeyPoint), d.owners), d.delta)
	d.time, d.flags, d.refusal, d.pending = 0, 0, nil, d.pending[:0]
}

// attribute adds an encoded attribute to the point at hand.
func (d *otlpDecoder) attribute(encoded []byte) {
	d.key = append(binary.AppendUvarint(d.key, uint64(len(encoded))), encoded...)
}

// pointAttributes is where the attributes are in the key of a point.
const pointAttributes = 1 + 4 + 1

func (d *otlpDecoder) refuse(r *telemetry.Refusal) {
	if d.refusal == nil {
		d.refusal = r
	}
}

// float adds a value of the point at hand, unless it is NaN: such values are not there.
func (d *otlpDecoder) float(field int, v float64) { d.member(field, v, 0, 0) }

// member is float for a member of the series.
func (d *otlpDecoder) member(field int, v float64, extra byte, of float64) {
	if math.IsNaN(v) {
		return
	}
	if math.IsInf(v, 0) {
		d.refuse(telemetry.CheckFloat(d.textOf(d.names[d.fields[field]].text), v))
	}
	for i := range d.pending {
		if p := &d.pending[i]; extra == extraQuantile && p.extra == extra && p.value == math.Float64bits(of) {
			d.refuse(telemetry.Refuse(telemetry.FieldDuplicate, "the quantile %v is given twice", of))
		}
	}
	d.put(otlpPending{word: math.Float64bits(v), kind: telemetry.Float, name: d.fields[field], extra: extra, value: math.Float64bits(of)})
}

// put adds a value of the point at hand. If its field was sent before, the last one counts.
func (d *otlpDecoder) put(p otlpPending) {
	if p.extra == 0 {
		for i := range d.pending {
			if d.pending[i].extra == 0 && d.pending[i].name == p.name {
				d.pending[i] = p
				return
			}
		}
	}
	d.pending = append(d.pending, p)
}

// count adds a number of measurements.
func (d *otlpDecoder) count(field int, n uint64) { d.bucket(field, n, 0, 0) }

// bucket is count for a member of the series.
func (d *otlpDecoder) bucket(field int, n uint64, extra byte, of float64) {
	if n > math.MaxInt64 {
		d.refuse(telemetry.Refuse(telemetry.ValueRange, "a count is %d; at most %d is allowed", n, math.MaxInt64))
	}
	d.put(otlpPending{word: n, kind: telemetry.Int, name: d.fields[field], extra: extra, value: math.Float64bits(of)})
}

// noValue is the flag of a point that only says that there is no value any more.
const noValue = 1

// endPoint gathers the point at hand, refuses it, or skips it for want of a value.
func (d *otlpDecoder) endPoint() error {
	in := d.in
	if d.points++; d.points > in.server.config.MaxReadings {
		return telemetry.Errorf(telemetry.TooLarge, codeTooMany,
			"the request contains more than %d data points (--max-readings-per-request); nothing was accepted, send smaller requests", in.server.config.MaxReadings)
	}
	d.refused = append(d.refused, false)
	if d.flags&noValue != 0 || len(d.pending) == 0 && d.refusal == nil {
		d.skipped++
		return nil
	}
	if err := in.afford(d.size()); err != nil {
		return err
	}
	if err := d.gather(); err != nil {
		return err
	}
	if d.refusal != nil { // it counts as a reading
		if err := in.begin(); err != nil {
			return err
		}
		in.builder.Refuse(d.refusal)
		in.end()
		d.reject(uint32(d.points-1), d.metric, d.refusal)
	}
	return nil
}

func (d *otlpDecoder) reject(point uint32, metric []byte, r *telemetry.Refusal) {
	if d.refused[point] {
		return
	}
	d.refused[point] = true
	if d.rejected++; d.first == "" {
		d.first = "metric " + telemetry.Quote(metric) + ": " + r.Error()
	}
}

// gather adds the values of the point at hand to their readings: all, or none.
func (d *otlpDecoder) gather() error {
	for i := range d.pending {
		d.refuse(d.names[d.pending[i].name].refusal)
	}
	if d.refusal != nil {
		return nil
	}
	base, err := d.findSeries()
	if err != nil {
		return err
	}
	if d.refuse(d.series[base].refusal); d.refusal != nil {
		return nil
	}
	ms := int64(d.time / 1e6)
	if d.time == 0 {
		ms = d.in.now.UnixMilli()
	}
	for i := range d.pending {
		p := &d.pending[i]
		series := base
		if p.extra != 0 {
			series = d.findMember(base, p.extra, p.value)
		}
		p.reading = d.findReading(series, ms)
		r := &d.readings[p.reading]
		for n, at := r.count, r.first; n > 0; n, at = n-1, d.values[at].next {
			if d.values[at].name == p.name {
				d.refuse(telemetry.Refuse(telemetry.FieldDuplicate, "the request contains another point of this metric with the same attributes and time, in milliseconds"))
				return nil
			}
		}
	}
	for i := range d.pending {
		p := &d.pending[i]
		at := uint32(len(d.values))
		d.values = append(d.values, otlpValue{word: p.word, kind: p.kind, name: p.name, point: uint32(d.points - 1)})
		if r := &d.readings[p.reading]; r.count == 0 {
			r.first, r.last, r.count = at, at, 1
		} else {
			d.values[r.last].next = at
			r.last = at
			r.count++
		}
	}
	return nil
}

// findSeries returns the series of the point at hand.
func (d *otlpDecoder) findSeries() (uint32, error) {
	n, slot, ok := d.find(d.key)
	if ok {
		return n, nil
	}
	s := otlpSeries{owner: d.owner, reading: noReading}
	s.known = d.in.server.known.Alias(d.aliasOf(d.textOf(s.owner), d.key, nil))
	if s.known != nil {
		n, ok = d.ofKnown[s.known]
	} else {
		if s.tags, s.refusal, ok = d.tagsOf(); !ok {
			return 0, errWire
		}
		tags := telemetry.AppendTagsKey([]byte{otlpKeyTags}, s.tags)
		if s.refusal != nil {
			tags = append(tags, d.key...) // a series of its own
		}
		if n, slot, ok = d.find(tags); !ok {
			d.add(slot, tags, uint32(len(d.series)))
		}
		_, slot, _ = d.find(d.key) // its slot may be taken now
	}
	if ok {
		d.add(slot, d.key, n)
		return n, nil
	}
	n = uint32(len(d.series))
	s.key = d.add(slot, d.key, n)
	d.series = append(d.series, s)
	if s.known != nil {
		d.ofKnown[s.known] = n
	}
	return n, nil
}

// aliasOf returns the key by which the server knows a series: all that it was made of.
func (d *otlpDecoder) aliasOf(owner, point, member []byte) []byte {
	d.alias = append(append(append(d.alias[:0], aliasOTLP), d.in.stream.Name...), 0)
	d.alias = append(binary.AppendUvarint(d.alias, uint64(len(owner))), owner...)
	d.alias = append(append(append(d.alias, d.dot...), byte(len(member))), member...)
	d.alias = append(d.alias, point[pointAttributes-1:]...)
	return d.alias
}

// aliasOTLP begins the keys of aliases that are resource, scope and attributes of a point.
const aliasOTLP = 'o'

// findMember returns a series with one tag more.
func (d *otlpDecoder) findMember(base uint32, extra byte, value uint64) uint32 {
	key := binary.LittleEndian.AppendUint32([]byte{otlpKeyMember}, base)
	key = binary.LittleEndian.AppendUint64(append(key, extra), value)
	n, slot, ok := d.find(key)
	if ok {
		return n
	}
	n = uint32(len(d.series))
	t := d.add(slot, key, n)
	of := &d.series[base]
	s := otlpSeries{owner: of.owner, key: t, base: base, extra: extra, value: value, reading: noReading}
	s.known = d.in.server.known.Alias(d.aliasOf(d.textOf(of.owner), d.textOf(of.key), key[5:]))
	d.series = append(d.series, s)
	return n
}

// findReading returns the reading of a series at a time, which may have no values yet.
func (d *otlpDecoder) findReading(series uint32, ms int64) uint32 {
	s := &d.series[series]
	found := s.reading
	if found != noReading && d.readings[found].ms != ms {
		if !s.several {
			s.several = true
			d.earlier[otlpInstant{series, d.readings[found].ms}] = found
		}
		var ok bool
		if found, ok = d.earlier[otlpInstant{series, ms}]; !ok {
			found = noReading
		}
	}
	if found == noReading || d.readings[found].count > telemetry.MaxFields-otlpPerReading {
		found = uint32(len(d.readings))
		d.readings = append(d.readings, otlpReading{ms: ms, series: series})
		if s.several {
			d.earlier[otlpInstant{series, ms}] = found
		}
	}
	s.reading = found
	return found
}

// give gives the gathered readings to the intake.
func (d *otlpDecoder) give() error {
	in := d.in
	for i := range d.readings {
		r := &d.readings[i]
		if r.count == 0 {
			continue
		}
		if err := in.begin(); err != nil {
			return err
		}
		b, s := in.builder, &d.series[r.series]
		unknown := s.known == nil
		if unknown {
			if err := d.giveSeries(s); err != nil {
				return err
			}
		} else {
			b.SameSeries(s.known)
		}
		b.Time(r.ms)
		for n, at := r.count, r.first; n > 0; n, at = n-1, d.values[at].next {
			v := &d.values[at]
			if name := d.textOf(d.names[v.name].text); v.kind == telemetry.Int {
				b.Int(name, int64(v.word))
			} else {
				b.Float(name, math.Float64frombits(v.word))
			}
		}
		if refusal := b.End(); refusal != nil {
			in.refused(in.count-1, refusal)
			for n, at := r.count, r.first; n > 0; n, at = n-1, d.values[at].next {
				v := &d.values[at]
				d.reject(v.point, d.textOf(d.names[v.name].text), refusal)
			}
			continue
		}
		if unknown {
			s.known = b.LastSeries()
			d.setAlias(s)
		}
	}
	return nil
}

// giveSeries gives sensor and tags of a series that is not known.
func (d *otlpDecoder) giveSeries(s *otlpSeries) error {
	tags := s.tags
	if s.extra != 0 {
		base := &d.series[s.base]
		if tags = base.tags; base.known != nil {
			tags = base.known.Tags
		}
		extra := telemetry.Tag{Name: extraTags[s.extra], Value: formatBound(math.Float64frombits(s.value))}
		at, _ := slices.BinarySearchFunc(tags, extra.Name, func(t telemetry.Tag, name string) int { return strings.Compare(t.Name, name) })
		tags = slices.Insert(slices.Clone(tags), at, extra)
	}
	b := d.in.builder
	if len(tags) == 0 {
		b.Refuse(telemetry.Refuse(telemetry.SensorMissing, "neither the data point nor its resource has attributes, and the sensor is made of them"))
	}
	sensor := telemetry.AppendTagsKey(nil, tags)
	b.Sensor(sensor)
	d.made += int64(2 * len(sensor))
	for _, t := range tags {
		b.Tag([]byte(t.Name), []byte(t.Value))
	}
	return d.in.afford(d.size())
}

func (d *otlpDecoder) setAlias(s *otlpSeries) {
	point, member := s.key, []byte(nil)
	if s.extra != 0 {
		point, member = d.series[s.base].key, d.textOf(s.key)[5:]
	}
	if alias := d.aliasOf(d.textOf(s.owner), d.textOf(point), member); len(alias) <= maxAlias {
		d.in.server.known.SetAlias(alias, s.known)
	}
}

// formatBound writes a bound or a quantile as Prometheus' clients do.
func formatBound(v float64) string {
	if math.IsInf(v, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// otlpPool keeps decoders between requests.
type otlpPool struct{ pool sync.Pool }

func (p *otlpPool) get(in *intake) *otlpDecoder {
	d, ok := p.pool.Get().(*otlpDecoder)
	if !ok {
		d = &otlpDecoder{
			seed: maphash.MakeSeed(), at: make(map[uint64]otlpKey),
			ofKnown: make(map[*batch.Series]uint32), earlier: make(map[otlpInstant]uint32),
		}
	}
	d.in, d.dot = in, "_"
	if in.builder.MapDots != 0 {
		d.dot = string(in.builder.MapDots)
	}
	return d
}

// put gives back a decoder, unless it has grown large.
func (p *otlpPool) put(d *otlpDecoder) {
	const most = 1 << 20
	if d.size() > most {
		return
	}
	clear(d.at)
	clear(d.ofKnown)
	clear(d.earlier)
	clear(d.names)
	clear(d.series)
	*d = otlpDecoder{
		seed: d.seed, at: d.at, ofKnown: d.ofKnown, earlier: d.earlier,
		text: d.text[:0], names: d.names[:0], series: d.series[:0], readings: d.readings[:0], values: d.values[:0], refused: d.refused[:0],
		key: d.key[:0], pending: d.pending[:0], alias: d.alias[:0], counts: d.counts[:0], bounds: d.bounds[:0],
	}
	p.pool.Put(d)
}
