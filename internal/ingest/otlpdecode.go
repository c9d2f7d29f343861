package ingest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// The numbers of fields are those of opentelemetry/proto/metrics/v1/metrics.proto. Its
// generated code is not used, for its messages take many times the memory of their encoded
// form, which is what was reserved. Scopes' versions, start times, units, descriptions and
// exemplars are not kept.

// decodeOTLP decodes an encoded ExportMetricsServiceRequest.
func (in *intake) decodeOTLP(message []byte) (otlpTally, error) {
	in.most = greatestReadings // points are limited instead
	in.meaning = meaning{form: meansOTLP}
	d := newOTLPDecoder(in)
	err := each(message, 1, d.resourceMetrics)
	if err == nil {
		err = d.give()
	}
	return d.otlpTally, brokenMessage(err)
}

// each decodes the messages in the field with this number.
func each(message []byte, number protowire.Number, decode func([]byte) error) error {
	m := wireMessage{rest: message}
	for m.next() {
		if m.is(number, protowire.BytesType) {
			if err := decode(m.bytes); err != nil {
				return err
			}
		}
	}
	return m.err
}

// resourceMetrics decodes a ResourceMetrics. The resource may stand behind its metrics, and
// be in several parts.
func (d *otlpDecoder) resourceMetrics(message []byte) error {
	d.resource = d.resource[:0]
	err := each(message, 1, func(part []byte) error { d.resource = append(d.resource, part...); return nil })
	if err == nil {
		err = each(message, 2, d.scopeMetrics)
	}
	return err
}

func (d *otlpDecoder) scopeMetrics(message []byte) error {
	d.scope = d.scope[:0]
	d.owner++
	err := each(message, 1, func(part []byte) error { d.scope = append(d.scope, part...); return nil })
	if err == nil {
		err = each(message, 2, d.metricPoints)
	}
	return err
}

// The kinds of a metric, by the number of their field.
const (
	otlpGauge       = 5
	otlpSums        = 7
	otlpHistogram   = 9
	otlpExponential = 10
	otlpSummary     = 11
)

const otlpDelta = 1 // an AggregationTemporality

// metricPoints decodes a Metric.
func (d *otlpDecoder) metricPoints(message []byte) error {
	d.metric = nil
	kind := protowire.Number(0)
	m := wireMessage{rest: message}
	for m.next() {
		switch m.num {
		case 1:
			d.metric = m.bytes
		case otlpGauge, otlpSums, otlpHistogram, otlpExponential, otlpSummary:
			kind = m.num // the last one counts
		}
	}
	if m.err != nil {
		return m.err
	}
	decode, names := d.numberPoint, []int{otlpPlain}
	switch kind {
	case otlpGauge, otlpSums:
	case otlpSummary:
		decode, names = d.summary, []int{otlpPlain, otlpCount, otlpSum}
	case otlpHistogram:
		decode, names = d.histogram, []int{otlpCount, otlpSum, otlpMin, otlpMax, otlpBucket}
	case otlpExponential:
		decode, names = d.exponential, []int{otlpCount, otlpSum, otlpMin, otlpMax, otlpBucket}
	default:
		return nil
	}
	for _, name := range names {
		d.name(name)
	}
	if err := d.in.afford(d.size()); err != nil {
		return err
	}
	return each(message, kind, func(data []byte) error {
		d.delta = false
		for m := (wireMessage{rest: data}); m.next(); {
			if m.is(2, protowire.VarintType) && kind != otlpGauge && kind != otlpSummary {
				d.delta = m.word == otlpDelta
			}
		}
		return each(data, 1, func(point []byte) error {
			d.beginPoint()
			if err := decode(point); err != nil {
				return err
			}
			return d.endPoint()
		})
	})
}

// common takes a field that points of several kinds have.
func (d *otlpDecoder) common(m *wireMessage, attributes, flags protowire.Number) {
	switch {
	case m.is(attributes, protowire.BytesType):
		d.attribute(m.bytes)
	case m.is(3, protowire.Fixed64Type):
		d.time = m.word
	case m.is(flags, protowire.VarintType):
		d.flags = m.word
	}
}

// numberPoint decodes a NumberDataPoint.
func (d *otlpDecoder) numberPoint(message []byte) error {
	m := wireMessage{rest: message}
	for m.next() {
		switch {
		case m.is(4, protowire.Fixed64Type):
			d.pending = d.pending[:0]
			d.number(otlpPlain, telemetry.Float, m.word)
		case m.is(6, protowire.Fixed64Type):
			d.number(otlpPlain, telemetry.Int, m.word)
		default:
			d.common(&m, 7, 8)
		}
	}
	return m.err
}

const (
	// maxBuckets bounds the bounds of a histogram, and the quantiles of a summary. Each is a
	// series of its own.
	maxBuckets = 256
	// maxSentBuckets is how many buckets an exponential histogram may have before they are
	// merged.
	maxSentBuckets = 4096
)

func (d *otlpDecoder) refuseBuckets(most int) {
	d.refuse(telemetry.FieldsTooMany, "the point has more than %d buckets or quantiles", most)
}

// measured takes a field of a histogram that is not about its buckets.
func (d *otlpDecoder) measured(m *wireMessage, least, greatest protowire.Number) bool {
	switch {
	case m.is(4, protowire.Fixed64Type):
		d.number64(otlpCount, m.word, otlpMember{})
	case m.is(5, protowire.Fixed64Type):
		d.number(otlpSum, telemetry.Float, m.word)
	case m.is(least, protowire.Fixed64Type):
		d.number(otlpMin, telemetry.Float, m.word)
	case m.is(greatest, protowire.Fixed64Type):
		d.number(otlpMax, telemetry.Float, m.word)
	default:
		return false
	}
	return true
}

// histogram decodes a HistogramDataPoint.
func (d *otlpDecoder) histogram(message []byte) (err error) {
	d.counts, d.bounds = d.counts[:0], d.bounds[:0]
	m := wireMessage{rest: message}
	for m.next() {
		repeated := m.kind == protowire.BytesType || m.kind == protowire.Fixed64Type
		switch {
		case m.num == 6 && repeated:
			d.counts, err = m.appendDoubles(d.counts, maxBuckets+1)
		case m.num == 7 && repeated:
			d.bounds, err = m.appendDoubles(d.bounds, maxBuckets)
		case !d.measured(&m, 11, 12):
			d.common(&m, 9, 10)
		}
		if errors.Is(err, errTooManyValues) {
			d.refuseBuckets(maxBuckets)
		} else if err != nil {
			return err
		}
	}
	if m.err != nil || d.refusal != nil || len(d.counts)+len(d.bounds) == 0 {
		return m.err
	}
	if len(d.counts) != len(d.bounds)+1 {
		d.refuse(telemetry.Malformed, "the histogram has %d bucket counts and %d bounds; there must be one bound less than counts", len(d.counts), len(d.bounds))
		return nil
	}
	total, last := uint64(0), math.Inf(-1)
	for i, n := range d.counts {
		bound := math.Inf(1)
		if i < len(d.bounds) {
			bound = math.Float64frombits(d.bounds[i])
		}
		if !(bound > last) || math.IsInf(bound, 1) && i < len(d.bounds) {
			d.refuse(telemetry.Malformed, "the bounds of the histogram must be finite and rise")
			return nil
		}
		last = bound
		d.addBucket(&total, n, bound)
	}
	return nil
}

// addBucket adds a bucket to the count of all up to its bound.
func (d *otlpDecoder) addBucket(total *uint64, n uint64, bound float64) {
	if n > math.MaxInt64-*total {
		n = math.MaxUint64 - *total // which is refused
	}
	*total += n
	d.bucket(*total, bound)
}

// summary decodes a SummaryDataPoint.
func (d *otlpDecoder) summary(message []byte) error {
	quantiles := 0
	m := wireMessage{rest: message}
	for m.next() {
		if !m.is(6, protowire.BytesType) {
			if !d.measured(&m, -1, -1) {
				d.common(&m, 7, 8)
			}
			continue
		}
		if quantiles++; quantiles > maxBuckets {
			d.refuseBuckets(maxBuckets)
			continue
		}
		var quantile, value uint64
		q := wireMessage{rest: m.bytes}
		for q.next() {
			switch {
			case q.is(1, protowire.Fixed64Type):
				quantile = q.word
			case q.is(2, protowire.Fixed64Type):
				value = q.word
			}
		}
		if q.err != nil {
			return q.err
		}
		if v := math.Float64frombits(quantile); !(v >= 0 && v <= 1) {
			d.refuse(telemetry.Malformed, "the quantile %v is not between 0 and 1", v)
		}
		d.put(otlpPlain, telemetry.Float, value, otlpMember{extra: "quantile", value: quantile})
	}
	return m.err
}

// An exponentialRange is one half of an exponential histogram.
type exponentialRange struct {
	offset int32
	counts []uint64
}

func (d *otlpDecoder) exponentialRange(r *exponentialRange, message []byte) (err error) {
	m := wireMessage{rest: message}
	for m.next() {
		switch {
		case m.is(1, protowire.VarintType):
			r.offset = int32(protowire.DecodeZigZag(m.word & math.MaxUint32))
		case m.num == 2 && (m.kind == protowire.BytesType || m.kind == protowire.VarintType):
			if r.counts, err = m.appendVarints(r.counts, maxSentBuckets); errors.Is(err, errTooManyValues) {
				d.refuseBuckets(maxSentBuckets)
			} else if err != nil {
				return err
			}
		}
	}
	return m.err
}

// Buckets of exponential histograms are merged until two of them double a value, so that
// their bounds are the same from point to point, and few. Merging is exact: the bounds that
// remain were there before.
const (
	mergedScale = 1
	leastScale  = -10
	mostScale   = 20
)

// exponential decodes an ExponentialHistogramDataPoint.
func (d *otlpDecoder) exponential(message []byte) (err error) {
	var scale int32
	var zeros uint64
	var threshold float64
	positive, negative := exponentialRange{counts: d.counts[:0]}, exponentialRange{counts: d.bounds[:0]}
	m := wireMessage{rest: message}
	for m.next() {
		switch {
		case m.is(6, protowire.VarintType):
			scale = int32(protowire.DecodeZigZag(m.word & math.MaxUint32))
		case m.is(7, protowire.Fixed64Type):
			zeros = m.word
		case m.is(8, protowire.BytesType):
			err = d.exponentialRange(&positive, m.bytes)
		case m.is(9, protowire.BytesType):
			err = d.exponentialRange(&negative, m.bytes)
		case m.is(14, protowire.Fixed64Type):
			threshold = math.Float64frombits(m.word)
		case !d.measured(&m, 12, 13):
			d.common(&m, 1, 10)
		}
		if err != nil {
			return err
		}
	}
	d.counts, d.bounds = positive.counts, negative.counts
	if scale < leastScale || scale > mostScale {
		d.refuse(telemetry.Malformed, "the scale of the histogram is %d; allowed: %d to %d", scale, leastScale, mostScale)
	}
	if !(threshold >= 0) || math.IsInf(threshold, 1) {
		d.refuse(telemetry.Malformed, "the zero threshold of the histogram is %v; it must be finite and not negative", threshold)
	}
	if m.err != nil || d.refusal != nil {
		return m.err
	}
	bound := func(index int64) float64 { // 2^(index / 2^scale)
		if scale >= mergedScale {
			return math.Ldexp([]float64{1, math.Sqrt2}[index&1], int(index>>1))
		}
		return math.Ldexp(1, int(index<<-scale))
	}
	begin, total := len(d.pending), uint64(0)
	add := func(n uint64, le float64) {
		// Rounded bounds, and a zero threshold among them, make buckets of no width.
		if last := len(d.pending) - 1; last >= begin && !(le > math.Float64frombits(d.pending[last].of.value)) {
			le = math.Float64frombits(d.pending[last].of.value)
			d.pending = d.pending[:last]
		}
		d.addBucket(&total, n, le)
	}
	low, high := negative.merge(scale)
	for i := high; i >= low; i-- {
		if i == high {
			add(0, -bound(i+1))
		}
		add(negative.counts[i-low], -bound(i))
	}
	if zeros > 0 {
		add(zeros, threshold)
	}
	low, high = positive.merge(scale)
	for i := low; i <= high; i++ {
		if i == low {
			add(0, bound(i))
		}
		add(positive.counts[i-low], bound(i+1))
	}
	add(0, math.Inf(1))
	if len(d.pending)-begin > maxBuckets+1 {
		d.refuseBuckets(maxBuckets)
	}
	return nil
}

// merge merges buckets in place, and leaves out those at both ends that are empty. It
// returns the numbers of the first and of the last one; the first is greater if there are
// none.
func (r *exponentialRange) merge(scale int32) (low, high int64) {
	from, to := 0, len(r.counts)
	for from < to && r.counts[from] == 0 {
		from++
	}
	for to > from && r.counts[to-1] == 0 {
		to--
	}
	if from == to {
		return 0, -1
	}
	shift := max(0, scale-mergedScale)
	low = (int64(r.offset) + int64(from)) >> shift
	high = low
	at := 0
	for i, n := range r.counts[from:to] {
		index := (int64(r.offset) + int64(from+i)) >> shift
		switch {
		case i == 0:
			r.counts[0] = n
		case index > high:
			high = index
			at++
			r.counts[at] = n
		case r.counts[at]+n < n:
			r.counts[at] = math.MaxUint64 // too many, which is refused
		default:
			r.counts[at] += n
		}
	}
	return low, high
}

// Tags.

const (
	tagTemporality = "_temporality"
	scopePrefix    = "otel_scope_" // Prometheus' names for what tells scopes apart
	scopeName      = scopePrefix + "name"
	// maxNested is how deep an attribute may be nested.
	maxNested = 32
)

// tagsOf returns the tags of the point at hand, sorted; false if they are not protobuf. Of two
// attributes with one name that of the point counts, then that of the scope.
func (d *otlpDecoder) tagsOf() (tags []telemetry.Tag, refusal *telemetry.Refusal, ok bool) {
	t := otlpTags{decoder: d, at: make(map[string]int)}
	ok = t.attributes(d.resource, 1, "")
	t.end()
	m := wireMessage{rest: d.scope}
	for m.next() {
		if m.is(1, protowire.BytesType) && len(m.bytes) > 0 {
			t.add(scopeName, string(m.bytes))
		}
	}
	ok = ok && m.err == nil && t.attributes(d.scope, 3, scopePrefix)
	t.end()
	for rest := d.key[keyHead:]; len(rest) > 0 && ok; {
		attribute, n := protowire.ConsumeBytes(rest)
		ok = t.attribute(attribute, "")
		rest = rest[n:]
	}
	t.end()
	if d.delta {
		t.add(tagTemporality, "delta")
	}
	slices.SortFunc(t.tags, func(x, y telemetry.Tag) int { return strings.Compare(x.Name, y.Name) })
	return t.tags, t.refusal, ok
}

// otlpTags are tags that are gathered from several lists.
type otlpTags struct {
	decoder *otlpDecoder
	tags    []telemetry.Tag
	at      map[string]int // of tags, by name
	done    int            // tags of the lists before
	refusal *telemetry.Refusal
}

// end ends a list: names may occur again.
func (t *otlpTags) end() { t.done = len(t.tags) }

func (t *otlpTags) add(name, value string) {
	at, twice := t.at[name]
	switch {
	case !twice && len(t.tags) == telemetry.MaxTags:
		t.refuse(telemetry.Refuse(telemetry.TagsTooMany, "resource, scope and data point have more than %d attributes", telemetry.MaxTags))
	case !twice:
		t.at[name] = len(t.tags)
		t.tags = append(t.tags, telemetry.Tag{Name: name, Value: value})
	case at < t.done:
		t.tags[at].Value = value
	default:
		t.refuse(telemetry.Refuse(telemetry.TagDuplicate, "attribute %s is given twice, or another one is %s as well when its dots are replaced", telemetry.Quote([]byte(name)), telemetry.Quote([]byte(name))))
	}
}

func (t *otlpTags) refuse(r *telemetry.Refusal) {
	if t.refusal == nil {
		t.refusal = r
	}
}

// attributes adds the KeyValues of a message that have this number.
func (t *otlpTags) attributes(message []byte, number protowire.Number, prefix string) bool {
	m := wireMessage{rest: message}
	for m.next() {
		if m.is(number, protowire.BytesType) && !t.attribute(m.bytes, prefix) {
			return false
		}
	}
	return m.err == nil
}

// attribute adds a KeyValue.
func (t *otlpTags) attribute(message []byte, prefix string) bool {
	key, value, err := keyValue(message)
	if err != nil {
		return false
	}
	var text []byte
	if text, err = appendAttribute(nil, value, 0); errors.Is(err, errDeep) {
		t.refuse(telemetry.Refuse(telemetry.TagValue, "attribute %s has more than %d bytes as JSON, or is nested more than %d deep", telemetry.Quote(key), telemetry.MaxTextBytes, maxNested))
	} else if err != nil {
		return false
	}
	name := t.decoder.mapped(prefix + string(key))
	if len(key) == 0 {
		name = ""
	}
	t.refuse(telemetry.CheckTagName([]byte(name)))
	t.refuse(telemetry.CheckTagText([]byte(name), text))
	if t.refusal == nil {
		t.add(name, string(text))
	}
	return true
}

func keyValue(message []byte) (key, value []byte, err error) {
	m := wireMessage{rest: message}
	for m.next() {
		switch {
		case m.is(1, protowire.BytesType):
			key = m.bytes
		case m.is(2, protowire.BytesType):
			value = m.bytes
		}
	}
	return key, value, m.err
}

var errDeep = errors.New("nested too deep")

// appendAttribute appends an AnyValue as text: a string as it is, anything else as JSON.
// Within JSON, at a depth above 0, strings have quotes.
func appendAttribute(dst, message []byte, depth int) ([]byte, error) {
	if depth > maxNested || len(dst) > telemetry.MaxTextBytes {
		return nil, errDeep
	}
	quoted := func(text []byte) []byte {
		if depth == 0 {
			return append(dst, text...)
		}
		dst, _ = jsontext.AppendQuote(dst, text) // an error is about UTF-8, which is replaced
		return dst
	}
	m := wireMessage{rest: message}
	var last wireMessage // the last value counts
	for m.next() {
		last = m
	}
	if m.err != nil {
		return nil, m.err
	}
	switch {
	case last.is(1, protowire.BytesType):
		if !utf8.Valid(last.bytes) {
			return append(dst, 0xff), nil // which is refused
		}
		return quoted(last.bytes), nil
	case last.is(2, protowire.VarintType):
		return strconv.AppendBool(dst, last.word != 0), nil
	case last.is(3, protowire.VarintType):
		return strconv.AppendInt(dst, int64(last.word), 10), nil
	case last.is(4, protowire.Fixed64Type):
		v := math.Float64frombits(last.word)
		text, err := json.Marshal(v)
		if err == nil {
			return append(dst, text...), nil
		}
		return quoted([]byte(strings.Replace(strings.TrimPrefix(strconv.FormatFloat(v, 'g', -1, 64), "+"), "Inf", "Infinity", 1))), nil
	case last.is(5, protowire.BytesType):
		return appendAttributes(append(dst, '['), last.bytes, depth, false)
	case last.is(6, protowire.BytesType):
		return appendAttributes(append(dst, '{'), last.bytes, depth, true)
	case last.is(7, protowire.BytesType):
		return quoted(base64.StdEncoding.AppendEncode(nil, last.bytes)), nil
	case depth > 0:
		return append(dst, "null"...), nil
	}
	return dst, nil
}

// appendAttributes appends the elements of an array, or of an object, and its end.
func appendAttributes(dst, message []byte, depth int, object bool) (_ []byte, err error) {
	end := byte(']')
	more := false
	m := wireMessage{rest: message}
	for m.next() {
		if !m.is(1, protowire.BytesType) {
			continue
		}
		if more {
			dst = append(dst, ',')
		}
		more = true
		value := m.bytes
		if object {
			var key []byte
			if key, value, err = keyValue(m.bytes); err != nil {
				return nil, err
			}
			dst, _ = jsontext.AppendQuote(dst, key)
			dst = append(dst, ':')
		}
		if dst, err = appendAttribute(dst, value, depth+1); err != nil {
			return nil, err
		}
	}
	if object {
		end = '}'
	}
	return append(dst, end), m.err
}
