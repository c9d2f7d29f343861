package ingest

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// OTLP groups points by metric, and a reading has the points of all metrics with the same
// attributes and time. So the points of a request are gathered first.
//
// Histograms are stored like Prometheus' classic ones, with cumulative bucket counts and the
// tag le, so that histogram_quantile works. Quantiles of summaries have the tag quantile.
// Scope versions, start times, units, descriptions and exemplars are not stored.

// An otlpTally counts the points of a request by outcome.
type otlpTally struct {
	points, rejected, skipped int
	first                     string // why the first point was rejected
	readings                  int    // refused before the others were appended
}

// decodeOTLP decodes an ExportMetricsServiceRequest.
func (in *intake) decodeOTLP(body []byte, inJSON bool) (otlpTally, error) {
	in.most = MostReadings // points are limited instead
	in.meaning = meaning{form: meansOTLP}
	request := pmetricotlp.NewExportRequest()
	decode := request.UnmarshalProto
	size, err := otlpRequest.sizeOf(body, 0)
	if inJSON {
		in.meaning = meaning{form: meansOTLPJSON}
		decode = request.UnmarshalJSON
		size, err = sizeOfJSON(body)
	}
	if err != nil {
		return otlpTally{}, brokenMessage(err)
	}
	size += int64(len(body))
	if err := in.extendLease(size); err != nil {
		return otlpTally{}, err
	}
	if err := decode(body); err != nil {
		text, _, _ := strings.Cut(err.Error(), ", bigger context")
		return otlpTally{}, brokenMessage(fmt.Errorf("the body is not OTLP: %s", strings.ToValidUTF8(text, "?")))
	}
	if inJSON && request.Metrics().ResourceMetrics().Len() == 0 {
		if err := checkMembers(body); err != nil {
			return otlpTally{}, brokenMessage(err)
		}
	}
	m := otlpMapper{gatherer: gatherer{in: in}, decoded: size, dot: string(rune(cmp.Or(in.builder.MapDots, '_'))), bySensor: make(map[string]uint32), members: make(map[otlpMember]uint32)}
	m.ended = func(samples []metricSample, refused *telemetry.Refusal) {
		for _, s := range samples {
			if of := &m.metrics[s.metric]; refused != nil {
				m.reject(of.point, string(of.name), refused)
			}
		}
	}
	if err := m.gather(request.Metrics()); err != nil {
		return otlpTally{}, err
	}
	return m.tally, m.give()
}

// checkMembers refuses an object that is not OTLP. The decoder would skip its unknown members
// and answer that everything is accepted.
func checkMembers(body []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return fmt.Errorf("the body is not JSON: %w", err)
	}
	if len(members) == 0 {
		return nil
	}
	for _, name := range []string{"resourceMetrics", "resource_metrics"} {
		if _, ok := members[name]; ok {
			return nil
		}
	}
	name := telemetry.Quote([]byte(slices.Min(slices.Collect(maps.Keys(members)))))
	return fmt.Errorf("the body has %s and no resourceMetrics, so it is not an OTLP export of metrics; readings in Brim's own format go to POST /v1/readings", name)
}

// An otlpMapper turns the points of a request into readings.
type otlpMapper struct {
	gatherer

	decoded  int64 // bytes of the decoded request, and of the maps
	dot      string
	bySensor map[string]uint32     // numbers of sets
	members  map[otlpMember]uint32 // likewise
	rejected []bool                // by point
	tally    otlpTally

	// The current resource, scope and metric.
	owner        []telemetry.Tag
	ownerRefused *telemetry.Refusal
	known        map[string]uint32 // numbers of sets by the attributes of points, as sent
	metric       string
	names        map[string][]byte // of its fields, by suffix
	delta        bool

	// The current point.
	refusal *telemetry.Refusal
	values  []otlpValue
	key     []byte
}

// An otlpMember is a set of tags with one more tag, that of a bucket or a quantile.
type otlpMember struct {
	of    uint32
	extra telemetry.Tag
}

// An otlpValue is a value of a point.
type otlpValue struct {
	name  []byte
	kind  telemetry.Kind
	word  uint64
	extra telemetry.Tag // of one bucket, or one quantile
}

const (
	scopePrefix    = "otel_scope_" // as in Prometheus
	tagTemporality = "_temporality"
	tagBound       = "le"
	tagQuantile    = "quantile"
)

// gather gathers the points of a request.
func (m *otlpMapper) gather(all pmetric.Metrics) error {
	for _, of := range all.ResourceMetrics().All() {
		m.refusal = nil
		resource := m.withAttributes(nil, "", of.Resource().Attributes())
		refused := m.refusal
		for _, scope := range of.ScopeMetrics().All() {
			m.owner, m.refusal = resource, refused
			if name := scope.Scope().Name(); name != "" {
				m.refuse(telemetry.CheckTagText([]byte(scopePrefix+"name"), []byte(name)))
				m.owner = withTags(m.owner, telemetry.Tag{Name: scopePrefix + "name", Value: name})
			}
			m.owner = m.withAttributes(m.owner, scopePrefix, scope.Scope().Attributes())
			m.ownerRefused, m.known = m.refusal, make(map[string]uint32)
			for _, metric := range scope.Metrics().All() {
				if err := m.gatherMetric(metric); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (m *otlpMapper) gatherMetric(metric pmetric.Metric) error {
	const delta = pmetric.AggregationTemporalityDelta
	m.metric, m.names, m.delta = metric.Name(), make(map[string][]byte), false
	switch metric.Type() {
	case pmetric.MetricTypeGauge:
		return gatherPoints(m, metric.Gauge().DataPoints().All(), m.number)
	case pmetric.MetricTypeSum:
		m.delta = metric.Sum().AggregationTemporality() == delta
		return gatherPoints(m, metric.Sum().DataPoints().All(), m.number)
	case pmetric.MetricTypeHistogram:
		m.delta = metric.Histogram().AggregationTemporality() == delta
		return gatherPoints(m, metric.Histogram().DataPoints().All(), m.histogram)
	case pmetric.MetricTypeExponentialHistogram:
		m.delta = metric.ExponentialHistogram().AggregationTemporality() == delta
		return gatherPoints(m, metric.ExponentialHistogram().DataPoints().All(), m.exponential)
	case pmetric.MetricTypeSummary:
		return gatherPoints(m, metric.Summary().DataPoints().All(), m.summary)
	default: // empty
		return nil
	}
}

// An otlpPoint has the methods that all types of points have.
type otlpPoint interface {
	Attributes() pcommon.Map
	Timestamp() pcommon.Timestamp
	Flags() pmetric.DataPointFlags
}

// gatherPoints gathers points of one type; take adds the values of one point.
func gatherPoints[P otlpPoint](m *otlpMapper, all iter.Seq2[int, P], take func(P)) error {
	for _, p := range all {
		in := m.in
		if m.tally.points++; m.tally.points > in.server.config.MaxReadings {
			return telemetry.Errorf(telemetry.TooLarge, codeTooMany,
				"the request contains more than %d data points (--max-readings-per-request); nothing was accepted, send smaller requests", in.server.config.MaxReadings)
		}
		m.rejected = append(m.rejected, false)
		m.refusal, m.values = m.ownerRefused, m.values[:0]
		if take(p); p.Flags().NoRecordedValue() || len(m.values) == 0 && m.refusal == nil {
			m.tally.skipped++
			continue
		}
		m.addPoint(p)
		if err := in.extendLease(m.decoded + m.memory()); err != nil {
			return err
		}
		if m.refusal != nil { // it counts as a reading
			if err := in.begin(); err != nil {
				return err
			}
			in.builder.Refuse(m.refusal)
			in.end()
			m.reject(m.tally.points-1, m.metric, m.refusal)
		}
	}
	return nil
}

// addPoint adds the values of the current point, unless the point is refused.
func (m *otlpMapper) addPoint(p otlpPoint) {
	set := m.setOf(p.Attributes())
	if m.refuse(m.sets[set].refusal); m.refusal != nil {
		return
	}
	ms := int64(p.Timestamp() / 1e6)
	if p.Timestamp() == 0 {
		ms = m.in.now.UnixMilli()
	}
	for _, v := range m.values {
		m.add(m.addMetric(metric{v.name, v.kind, m.memberOf(set, v.extra), m.tally.points - 1}), ms, v.word)
	}
}

// setOf returns the number of the set of tags of a point with these attributes.
func (m *otlpMapper) setOf(attributes pcommon.Map) uint32 {
	m.key = append(m.key[:0], '-')
	if m.delta {
		m.key[0] = 'd'
	}
	for name, value := range attributes.All() {
		text := value.AsString()
		m.key = append(binary.AppendUvarint(m.key, uint64(len(name))), name...)
		m.key = append(binary.AppendUvarint(append(m.key, byte(value.Type())), uint64(len(text))), text...)
	}
	if set, ok := m.known[string(m.key)]; ok {
		return set
	}
	point := m.refusal
	m.refusal = nil
	tags := m.withAttributes(m.owner, "", attributes)
	if m.delta {
		tags = withTags(tags, telemetry.Tag{Name: tagTemporality, Value: "delta"})
	}
	if len(tags) == 0 {
		m.refuse(telemetry.Refuse(telemetry.SensorMissing, "neither the data point nor its resource has attributes, which the sensor ID is made of"))
	}
	var set uint32
	if m.refusal == nil {
		set = m.intern(tags)
	} else {
		set = m.addSet(tagSet{refusal: m.refusal})
	}
	m.known[string(m.key)], m.refusal = set, point
	m.decoded += int64(64 + len(m.key))
	return set
}

// intern returns the number of the set with these tags.
func (m *otlpMapper) intern(tags []telemetry.Tag) uint32 {
	sensor := string(telemetry.AppendTagsKey(nil, tags))
	set, ok := m.bySensor[sensor]
	if !ok {
		set = m.addSet(tagSet{tags: tags})
		m.bySensor[sensor] = set
		m.decoded += int64(64 + len(sensor))
	}
	return set
}

// memberOf returns the number of a set with one more tag, or of the set itself if the tag has no
// name.
func (m *otlpMapper) memberOf(of uint32, extra telemetry.Tag) uint32 {
	if extra.Name == "" {
		return of
	}
	set, ok := m.members[otlpMember{of, extra}]
	if !ok {
		set = m.intern(withTags(m.sets[of].tags, extra))
		m.members[otlpMember{of, extra}] = set
		m.decoded += 128
	}
	return set
}

func (m *otlpMapper) refuse(r *telemetry.Refusal) {
	if m.refusal == nil {
		m.refusal = r
	}
}

// reject counts a point that is refused.
func (m *otlpMapper) reject(point int, metric string, r *telemetry.Refusal) {
	if m.rejected[point] {
		return
	}
	m.rejected[point] = true
	if m.tally.rejected++; m.tally.first == "" {
		m.tally.first = "metric " + telemetry.Quote([]byte(metric)) + ": " + r.Error()
	}
}

// mapped returns the name of a tag or a field.
func (m *otlpMapper) mapped(name string) string {
	return telemetry.EscapeName(strings.ReplaceAll(name, ".", m.dot))
}

// field returns the name of a field of the current metric.
func (m *otlpMapper) field(suffix string) []byte {
	name, known := m.names[suffix]
	if !known {
		name = []byte(m.mapped(m.metric + suffix))
		m.names[suffix] = name
	}
	if m.metric == "" {
		m.refuse(telemetry.Refuse(telemetry.FieldName, "a metric has an empty name; names have 1 to %d bytes", telemetry.MaxNameBytes))
	}
	m.refuse(telemetry.CheckFieldName(name))
	return name
}

// withAttributes adds attributes to tags. If both have a name, the attribute takes precedence.
func (m *otlpMapper) withAttributes(tags []telemetry.Tag, prefix string, attributes pcommon.Map) []telemetry.Tag {
	own := make([]telemetry.Tag, 0, attributes.Len())
	for key, value := range attributes.All() {
		t := telemetry.Tag{Name: m.mapped(prefix + key), Value: value.AsString()}
		if key == "" {
			t.Name = ""
		}
		if kind := value.Type(); t.Value == "" && (kind == pcommon.ValueTypeMap || kind == pcommon.ValueTypeSlice) { // NaN, for one
			m.refuse(telemetry.Refuse(telemetry.TagValue, "attribute %s cannot be written as JSON", telemetry.Quote([]byte(key))))
		}
		m.refuse(telemetry.CheckTagName([]byte(t.Name)))
		m.refuse(telemetry.CheckTagText([]byte(t.Name), []byte(t.Value)))
		own = append(own, t)
	}
	slices.SortFunc(own, byTagName)
	for i := 1; i < len(own); i++ {
		if name := telemetry.Quote([]byte(own[i].Name)); own[i].Name == own[i-1].Name {
			m.refuse(telemetry.Refuse(telemetry.TagDuplicate, "attribute %s is given twice, or another one becomes %s when its dots are replaced", name, name))
		}
	}
	if tags = withTags(tags, own...); len(tags) > telemetry.MaxTags {
		m.refuse(telemetry.Refuse(telemetry.TagsTooMany, "resource, scope and data point have more than %d attributes", telemetry.MaxTags))
	}
	return tags
}

func byTagName(a, b telemetry.Tag) int { return strings.Compare(a.Name, b.Name) }

// withTags merges two sorted lists of tags, without changing them. If both have a name, the
// second list takes precedence.
func withTags(tags []telemetry.Tag, more ...telemetry.Tag) []telemetry.Tag {
	if len(more) == 0 {
		return tags
	}
	all := make([]telemetry.Tag, 0, len(tags)+len(more))
	for len(tags) > 0 && len(more) > 0 {
		switch order := byTagName(tags[0], more[0]); {
		case order < 0:
			all, tags = append(all, tags[0]), tags[1:]
		case order == 0:
			tags = tags[1:]
		default:
			all, more = append(all, more[0]), more[1:]
		}
	}
	return append(append(all, tags...), more...)
}

// float adds a value of the current point. It skips NaN, which means that there is no value.
func (m *otlpMapper) float(suffix string, v float64, extra telemetry.Tag) {
	if math.IsNaN(v) {
		return
	}
	name := m.field(suffix)
	m.refuse(telemetry.CheckFloat(name, v))
	m.values = append(m.values, otlpValue{name, telemetry.Float, math.Float64bits(v), extra})
}

// count adds a number of measurements.
func (m *otlpMapper) count(suffix string, n uint64, extra telemetry.Tag) {
	if n > math.MaxInt64 {
		m.refuse(telemetry.Refuse(telemetry.ValueRange, "a count is %d; at most %d is allowed", n, math.MaxInt64))
	}
	m.values = append(m.values, otlpValue{m.field(suffix), telemetry.Int, n, extra})
}

var noExtra telemetry.Tag //nolint:gochecknoglobals // never changes

func (m *otlpMapper) number(p pmetric.NumberDataPoint) {
	switch p.ValueType() {
	case pmetric.NumberDataPointValueTypeDouble:
		m.float("", p.DoubleValue(), noExtra)
	case pmetric.NumberDataPointValueTypeInt:
		m.values = append(m.values, otlpValue{m.field(""), telemetry.Int, uint64(p.IntValue()), noExtra})
	case pmetric.NumberDataPointValueTypeEmpty:
	}
}

func (m *otlpMapper) summary(p pmetric.SummaryDataPoint) {
	m.count("_count", p.Count(), noExtra)
	m.float("_sum", p.Sum(), noExtra)
	if p.QuantileValues().Len() > maxBuckets {
		m.refuseBuckets(maxBuckets)
		return
	}
	for _, q := range p.QuantileValues().All() {
		of := q.Quantile() + 0 // no -0
		if !(of >= 0 && of <= 1) {
			m.refuse(telemetry.Refuse(telemetry.Malformed, "the quantile %v is not between 0 and 1", of))
		}
		m.float("", q.Value(), telemetry.Tag{Name: tagQuantile, Value: formatBound(of)})
	}
}

// formatBound formats a bound or a quantile as Prometheus clients do.
func formatBound(v float64) string {
	if math.IsInf(v, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

const (
	// maxBuckets is the largest number of bounds of a histogram, and of quantiles of a
	// summary, because each becomes a separate series.
	maxBuckets = 256
	// maxSentBuckets is how many buckets an exponential histogram may have before they are
	// merged.
	maxSentBuckets = 4096
)

func (m *otlpMapper) refuseBuckets(most int) {
	m.refuse(telemetry.Refuse(telemetry.FieldsTooMany, "the point has more than %d buckets or quantiles", most))
}

// An otlpHistogram has the methods that both types of histograms have.
type otlpHistogram interface {
	Count() uint64
	HasSum() bool
	Sum() float64
	HasMin() bool
	Min() float64
	HasMax() bool
	Max() float64
}

func (m *otlpMapper) measured(p otlpHistogram) {
	m.count("_count", p.Count(), noExtra)
	if p.HasSum() {
		m.float("_sum", p.Sum(), noExtra)
	}
	if p.HasMin() {
		m.float("_min", p.Min(), noExtra)
	}
	if p.HasMax() {
		m.float("_max", p.Max(), noExtra)
	}
}

func (m *otlpMapper) histogram(p pmetric.HistogramDataPoint) {
	m.measured(p)
	counts, bounds := p.BucketCounts(), p.ExplicitBounds()
	switch {
	case counts.Len() == 0 && bounds.Len() == 0:
		return
	case bounds.Len() > maxBuckets:
		m.refuseBuckets(maxBuckets)
		return
	case counts.Len() != bounds.Len()+1:
		m.refuse(telemetry.Refuse(telemetry.Malformed, "the histogram has %d bucket counts and %d bounds; there must be one fewer bounds than counts", counts.Len(), bounds.Len()))
		return
	}
	var buckets otlpBuckets
	for i, n := range counts.All() {
		bound := math.Inf(1)
		if i < bounds.Len() {
			bound = bounds.At(i)
		}
		if last := len(buckets) - 1; math.IsNaN(bound) || last >= 0 && bound <= buckets[last].bound || math.IsInf(bound, 0) && i < bounds.Len() {
			m.refuse(telemetry.Refuse(telemetry.Malformed, "the bounds of the histogram must be finite and in ascending order"))
			return
		}
		buckets.add(n, bound)
	}
	m.buckets(buckets)
}

// otlpBuckets are cumulative bucket counts: how many measurements are at most each bound.
type otlpBuckets []struct {
	bound float64
	count uint64
}

// add adds a bucket. If its bound equals the one before, because of rounding, the buckets are
// merged.
func (b *otlpBuckets) add(n uint64, bound float64) {
	if last := len(*b) - 1; last >= 0 {
		n = plus((*b)[last].count, n)
		if bound <= (*b)[last].bound {
			(*b)[last].count = n
			return
		}
	}
	*b = append(*b, struct {
		bound float64
		count uint64
	}{bound, n})
}

// plus returns a sum, or if it overflows the largest number, which is refused later.
func plus(a, b uint64) uint64 {
	if a+b < a {
		return math.MaxUint64
	}
	return a + b
}

func (m *otlpMapper) buckets(all otlpBuckets) {
	if len(all) > maxBuckets+1 {
		m.refuseBuckets(maxBuckets)
		return
	}
	for _, b := range all {
		m.count("_bucket", b.count, telemetry.Tag{Name: tagBound, Value: formatBound(b.bound)})
	}
}

// Buckets of exponential histograms are merged to two per power of 2, so that there are few,
// and their bounds are the same from point to point. Merging is exact, because the remaining
// bounds existed before.
const (
	mergedScale = 1
	leastScale  = -10
	mostScale   = 20
)

func (m *otlpMapper) exponential(p pmetric.ExponentialHistogramDataPoint) {
	m.measured(p)
	scale, threshold := p.Scale(), p.ZeroThreshold()
	switch {
	case scale < leastScale || scale > mostScale:
		m.refuse(telemetry.Refuse(telemetry.Malformed, "the scale of the histogram is %d; allowed: %d to %d", scale, leastScale, mostScale))
		return
	case !(threshold >= 0) || math.IsInf(threshold, 1):
		m.refuse(telemetry.Refuse(telemetry.Malformed, "the zero threshold of the histogram is %v; it must be finite and not negative", threshold))
		return
	case max(p.Positive().BucketCounts().Len(), p.Negative().BucketCounts().Len()) > maxSentBuckets:
		m.refuseBuckets(maxSentBuckets)
		return
	}
	bound := func(index int64) float64 { // 2^(index / 2^scale)
		if scale >= mergedScale {
			return math.Ldexp([]float64{1, math.Sqrt2}[index&1], int(index>>1))
		}
		return math.Ldexp(1, int(index<<-scale))
	}
	var all otlpBuckets
	low, counts := merged(p.Negative(), scale)
	for i := len(counts) - 1; i >= 0; i-- {
		if i == len(counts)-1 {
			all.add(0, -bound(low+int64(i)+1))
		}
		all.add(counts[i], -bound(low+int64(i)))
	}
	if p.ZeroCount() > 0 {
		all.add(p.ZeroCount(), threshold)
	}
	low, counts = merged(p.Positive(), scale)
	for i, n := range counts {
		if i == 0 {
			all.add(0, bound(low))
		}
		all.add(n, bound(low+int64(i)+1))
	}
	all.add(0, math.Inf(1))
	m.buckets(all)
}

// merged returns the number of the first bucket that is not empty after merging, and the
// counts from there to the last one that is not empty.
func merged(b pmetric.ExponentialHistogramDataPointBuckets, scale int32) (low int64, counts []uint64) {
	shift := max(0, scale-mergedScale)
	for i, n := range b.BucketCounts().All() {
		if n == 0 {
			continue
		}
		index := (int64(b.Offset()) + int64(i)) >> shift
		if len(counts) == 0 {
			low = index
		}
		for int64(len(counts)) <= index-low {
			counts = append(counts, 0)
		}
		counts[index-low] = plus(counts[index-low], n)
	}
	return low, counts
}
