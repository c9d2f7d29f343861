package ingest

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"mime"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/value"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// Remote write is how Prometheus sends samples to other systems. There are two versions:
//
//	1.0  prometheus.WriteRequest          labels as strings
//	2.0  io.prometheus.write.v2.Request   labels as references to a string table
//
// All samples with the same time and labels, apart from the metric name, are one reading: the
// labels are its tags, and each metric is a field. For the sensor ID, see
// telemetry.AppendTagsKey.
//
// Messages are not decoded into the structs of prompb, because a series of two bytes would
// take a hundred bytes of memory.

const (
	streamHeader = "Brim-Stream" // as in queries
	remoteV1     = "prometheus.WriteRequest"
	remoteV2     = "io.prometheus.write.v2.Request"

	mediaProtobuf = "application/x-protobuf"
)

// serveRemoteWrite accepts samples from Prometheus.
func (srv *Server) serveRemoteWrite(x *exchange) error {
	query, err := parseQuery(x.r, "ack")
	if err != nil {
		return err
	}
	version, err := remoteVersion(x.r.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	in, err := x.intake(x.r.Header.Get(streamHeader), query)
	if err != nil {
		return err
	}
	in.mayBeEmpty = true
	return x.take(in, func(body []byte) error { return in.decodeRemoteWrite(body, version) })
}

// remoteVersion returns the version of remote write that a Content-Type names.
func remoteVersion(contentType string) (int, error) {
	media, params, err := mime.ParseMediaType(contentType)
	if err == nil && media == mediaProtobuf {
		switch params["proto"] {
		case "", remoteV1:
			return 1, nil
		case remoteV2:
			return 2, nil
		}
	}
	return 0, telemetry.Errorf(telemetry.Unsupported, codeTypeUnknown, "Content-Type %s cannot be read; allowed: %s with proto=%s or proto=%s",
		telemetry.Quote([]byte(contentType)), mediaProtobuf, remoteV1, remoteV2)
}

// A remote is the part of an intake that is specific to remote write.
type remote struct {
	version int
	samples []uint32       // of each reading; 0 for refused ones
	all     int            // samples in the request
	skipped map[string]int // by reason
}

func (r *remote) skip(why string, n int) {
	if r.skipped == nil {
		r.skipped = make(map[string]int)
	}
	r.skipped[why] += n
}

// written returns how many samples were accepted or skipped.
func (r *remote) written() int {
	n := 0
	for why, skipped := range r.skipped {
		if why != skipExemplar {
			n += skipped
		}
	}
	for _, one := range r.samples {
		n += int(one)
	}
	return n
}

// answerRemote writes the answer to remote write.
func (x *exchange) answerRemote(r result, in *intake) {
	status, a := x.protocol.status(r), &in.answer
	written := in.remote.written()
	if !a.repeated {
		for why, n := range in.remote.skipped {
			x.server.metrics.skipped.WithLabelValues(why).Add(float64(n))
		}
	}
	if in.remote.version == 2 {
		h := x.w.Header()
		h.Set("X-Prometheus-Remote-Write-Samples-Written", strconv.Itoa(written))
		h.Set("X-Prometheus-Remote-Write-Histograms-Written", "0")
		h.Set("X-Prometheus-Remote-Write-Exemplars-Written", "0")
	}
	if a.Rejected == 0 {
		x.w.WriteHeader(status)
		return
	}
	p := problem{Code: codePartialWrite}
	if written == 0 {
		p.Code = codeNothingTaken
	}
	p.Message = fmt.Sprintf("%d of %d samples were accepted; refused: %s: %s", written, in.remote.all, a.Errors[0].Code, a.Errors[0].Message)
	if a.Rejected > 1 {
		p.Message += fmt.Sprintf("; %d more", a.Rejected-1)
	}
	writeJSON(x.w, status, p)
}

// A remoteDecoder decodes a remote write request into an intake.
type remoteDecoder struct {
	in      *intake
	symbols [][]byte // of version 2.0

	sets    map[string]uint32 // indexes of sets by key
	labels  []labelSet
	tags    []wireTag // of all sets
	metrics []metric
	samples []remoteSample
	order   []remoteSample // samples by set

	// Of the current series.
	pairs      []wireTag // labels other than the metric name
	key        []byte    // of its set: the encoded pairs
	name       []byte
	names      int // how many labels have the metric name
	histograms int
	exemplars  int
	invalid    string // what is wrong with the encoding; empty: nothing

	alias []byte
	plain []telemetry.Tag
	paid  int64 // scratch memory at the last check, in bytes
}

// A labelSet is a set of labels without the metric name.
type labelSet struct {
	series   *batch.Series // nil: unknown
	from, to uint32        // of tags
	samples  uint32
	refusal  *telemetry.Refusal
}

// A metric is a metric with a set of labels.
type metric struct {
	name []byte // escaped
	set  uint32
}

// A remoteSample is a value of a metric.
type remoteSample struct {
	at     int64
	value  float64
	metric uint32
}

// decodeRemoteWrite decodes a request. Series that break a rule are refused; a malformed
// message is refused as a whole.
func (in *intake) decodeRemoteWrite(body []byte, version int) error {
	in.meaning = meaning{form: meansRemoteWrite, ratio: int64(version)}
	in.remote.version = version
	d := in.server.remotes.get()
	d.in = in
	defer d.release()
	return brokenMessage(d.message(body))
}

// message decodes a request.
func (d *remoteDecoder) message(body []byte) error {
	number := protowire.Number(1) // of series
	if d.in.remote.version == 2 {
		number = 5
		if err := d.readSymbols(body); err != nil {
			return err
		}
	}
	m := wireMessage{rest: body}
	for m.next() {
		if !m.is(number, protowire.BytesType) {
			continue
		}
		if err := d.series(m.bytes); err != nil {
			return err
		}
	}
	if m.err != nil {
		return m.err
	}
	return d.give()
}

// limit returns an error if this is too many samples.
func (d *remoteDecoder) limit(samples int) error {
	if samples <= samplesPerReading*d.in.most {
		return nil
	}
	return telemetry.Errorf(telemetry.TooLarge, codeTooMany,
		"the request contains more than %d samples (%d times --max-readings-per-request); nothing was accepted, send smaller requests", samplesPerReading*d.in.most, samplesPerReading)
}

// readSymbols decodes the string table of version 2.0.
func (d *remoteDecoder) readSymbols(body []byte) error {
	m := wireMessage{rest: body}
	for m.next() {
		if m.is(4, protowire.BytesType) {
			d.symbols = append(d.symbols, m.bytes)
			if err := d.checkMemory(); err != nil {
				return err
			}
		}
	}
	if m.err == nil && len(d.symbols) > 0 && len(d.symbols[0]) > 0 {
		return fmt.Errorf("the first symbol is %s; it must be empty", telemetry.Quote(d.symbols[0]))
	}
	return m.err
}

// checkMemory extends the lease from time to time for the memory of the decoder, and yields
// the CPU.
func (d *remoteDecoder) checkMemory() error {
	const sample, symbol, tag, set, metric = 2 * 24, 24, 48, 128, 32
	need := int64(len(d.samples)*sample + len(d.symbols)*symbol + len(d.tags)*tag + len(d.labels)*set + len(d.metrics)*metric)
	if need < d.paid+turnBytes {
		return nil
	}
	runtime.Gosched()
	d.paid = need
	return d.in.extendLease(need)
}

// samplesPerReading bounds the samples of a request: a small body can inflate to millions of
// samples, and each takes ten times its encoded length.
const samplesPerReading = 100

// series decodes one series: its labels first, then its samples.
func (d *remoteDecoder) series(message []byte) error {
	d.pairs, d.key, d.name, d.names = d.pairs[:0], d.key[:0], nil, 0
	d.histograms, d.exemplars, d.invalid = 0, 0, ""
	scan := d.scanV1
	if d.in.remote.version == 2 {
		scan = d.scanV2
	}
	samples, err := scan(message)
	if err != nil {
		return err
	}
	d.in.remote.all += samples
	if err := d.limit(d.in.remote.all); err != nil {
		return err
	}
	if refusal := d.check(samples); refusal != nil {
		return d.refuse(refusal)
	}
	if samples > 0 {
		if err := d.addSamples(message); err != nil {
			return err
		}
	}
	if d.histograms > 0 {
		err = d.refuse(telemetry.Refuse(telemetry.NotSupported, "series %s has native histograms, which are not stored; set send_native_histograms: false", d.quoted()))
	}
	switch {
	case err != nil || d.exemplars == 0:
	case d.in.remote.version == 2:
		err = d.refuse(telemetry.Refuse(telemetry.NotSupported, "series %s has exemplars, which are not stored; set send_exemplars: false", d.quoted()))
	default: // version 1.0 has no way to tell the sender what was not accepted
		d.in.remote.skip(skipExemplar, d.exemplars)
	}
	return err
}

// refuse records a refusal, which counts as a reading.
func (d *remoteDecoder) refuse(r *telemetry.Refusal) error {
	if err := d.in.begin(); err != nil {
		return err
	}
	d.in.builder.Refuse(r)
	d.ended(d.in.builder.End(), 0)
	return nil
}

// ended records the end of a reading of n samples.
func (d *remoteDecoder) ended(refused *telemetry.Refusal, n int) (taken bool) {
	if taken = d.in.ended(refused); !taken {
		n = 0
	}
	d.in.remote.samples = append(d.in.remote.samples, uint32(n))
	return taken
}

// scanV1 decodes the labels of a series and counts the rest.
func (d *remoteDecoder) scanV1(message []byte) (samples int, err error) {
	m := wireMessage{rest: message}
	for m.next() {
		switch {
		case m.is(1, protowire.BytesType):
			label, err := decodeTag(m.bytes)
			if err != nil {
				return 0, err
			}
			if string(label.name) == model.MetricNameLabel {
				d.name = label.value
				d.names++
				continue
			}
			d.key = append(binary.AppendUvarint(d.key, uint64(len(m.bytes))), m.bytes...)
			d.pair(label)
		case m.is(2, protowire.BytesType):
			samples++
		case m.is(3, protowire.BytesType):
			d.exemplars++
		case m.is(4, protowire.BytesType):
			d.histograms++
		}
	}
	return samples, m.err
}

// scanV2 is scanV1 for version 2.0.
func (d *remoteDecoder) scanV2(message []byte) (samples int, err error) {
	refs := 0
	var name []byte // of the label; its value is the next reference
	var nameRef uint64
	m := wireMessage{rest: message}
	for m.next() {
		switch {
		case m.num == 1 && (m.kind == protowire.BytesType || m.kind == protowire.VarintType):
			packed := m.bytes
			if m.kind == protowire.VarintType {
				packed = protowire.AppendVarint(nil, m.word)
			}
			for len(packed) > 0 {
				ref, n := protowire.ConsumeVarint(packed)
				if n < 0 {
					return 0, errWire
				}
				packed = packed[n:]
				if ref >= uint64(len(d.symbols)) {
					d.invalid = fmt.Sprintf("a label refers to symbol %d; there are %d", ref, len(d.symbols))
					continue
				}
				if refs++; refs%2 == 1 {
					name, nameRef = d.symbols[ref], ref
					continue
				}
				if string(name) == model.MetricNameLabel {
					d.name = d.symbols[ref]
					d.names++
					continue
				}
				d.key = binary.AppendUvarint(binary.AppendUvarint(d.key, nameRef), ref)
				d.pair(wireTag{name, d.symbols[ref]})
			}
		case m.is(2, protowire.BytesType):
			samples++
		case m.is(3, protowire.BytesType):
			d.histograms++
		case m.is(4, protowire.BytesType):
			d.exemplars++
		}
	}
	if refs%2 == 1 && d.invalid == "" {
		d.invalid = "the last label has no value"
	}
	return samples, m.err
}

// pair records a label, unless there are too many already; check then refuses the series.
func (d *remoteDecoder) pair(label wireTag) {
	if len(d.pairs) <= telemetry.MaxTags && len(label.value) > 0 { // an empty label counts as absent
		d.pairs = append(d.pairs, label)
	}
}

// check returns why the current series is refused, or nil.
func (d *remoteDecoder) check(samples int) *telemetry.Refusal {
	switch {
	case samples+d.histograms+d.exemplars == 0:
		return nil // metadata
	case d.invalid != "":
		return telemetry.Refuse(telemetry.Malformed, "a series is malformed: %s", d.invalid)
	case len(d.name) == 0:
		return telemetry.Refuse(telemetry.FieldsMissing, "a series has no metric name (label __name__); its other labels: %s", d.quotedPairs())
	case d.names > 1:
		return telemetry.Refuse(telemetry.TagDuplicate, "series %s has the label __name__ twice", d.quoted())
	case bytes.IndexByte(d.name, '%') < 0 && telemetry.CheckFieldName(d.name) == nil: // the usual case
		return nil
	case len(d.name) <= telemetry.MaxNameBytes:
		d.name = []byte(telemetry.EscapeName(string(d.name)))
	}
	return telemetry.CheckFieldName(d.name)
}

// quoted returns the name of the current series for a message.
func (d *remoteDecoder) quoted() string { return telemetry.Quote(d.name) }

// quotedPairs returns some of the other labels for a message.
func (d *remoteDecoder) quotedPairs() string {
	const most = 5
	var words []string
	for _, p := range d.pairs[:min(len(d.pairs), most)] {
		words = append(words, telemetry.Quote(p.name)+"="+telemetry.Quote(p.value))
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

// addSamples decodes the samples of the current series.
func (d *remoteDecoder) addSamples(message []byte) error {
	set, err := d.setOf()
	if err != nil {
		return err
	}
	of := &d.labels[set]
	if of.refusal != nil {
		return d.refuse(of.refusal)
	}
	d.metrics = append(d.metrics, metric{name: d.name, set: set})
	number := uint32(len(d.metrics) - 1)
	m := wireMessage{rest: message}
	for m.next() {
		if !m.is(2, protowire.BytesType) {
			continue
		}
		s := remoteSample{metric: number}
		fields := wireMessage{rest: m.bytes}
		for fields.next() {
			switch {
			case fields.is(1, protowire.Fixed64Type):
				s.value = math.Float64frombits(fields.word)
			case fields.is(2, protowire.VarintType):
				s.at = int64(fields.word)
			}
		}
		if fields.err != nil {
			return fields.err
		}
		if math.Float64bits(s.value)&infinite == infinite {
			d.in.remote.skip(skipOf(s.value), 1)
			continue
		}
		d.samples = append(d.samples, s)
		if of.samples++; of.samples%1024 == 0 {
			if err := d.checkMemory(); err != nil {
				return err
			}
		}
	}
	return d.checkMemory()
}

// infinite has the bits that are set in all infinite and NaN values.
const infinite = 0x7ff << 52

// Why a part of a request is not stored, without an error, see brim_ingest_samples_skipped_total.
const (
	skipStale    = "stale"    // the series ended
	skipNaN      = "nan"      // not a number
	skipInfinite = "infinite" // readings cannot have infinite values
	skipExemplar = "exemplar"
	skipNoValue  = "no_value" // of a point of OTLP
)

// skipOf returns why a value is skipped.
func skipOf(v float64) string {
	switch {
	case math.Float64bits(v) == value.StaleNaN:
		return skipStale
	case math.IsNaN(v):
		return skipNaN
	}
	return skipInfinite
}

// aliasRemote is the first byte of alias keys made from labels: the name and value of each,
// preceded by their lengths.
const aliasRemote = 'w'

// setOf returns the index of the current series' set of labels.
func (d *remoteDecoder) setOf() (uint32, error) {
	if n, ok := d.sets[string(d.key)]; ok {
		return n, nil
	}
	n := uint32(len(d.labels))
	if int(n) >= d.in.server.config.MaxReadings {
		return 0, d.in.tooMany() // each set has at least one reading, unless all its values are skipped
	}
	set := labelSet{from: uint32(len(d.tags))}
	if d.beginAlias(d.pairs); len(d.alias) <= maxAlias {
		set.series = d.in.server.known.Alias(d.alias)
	}
	if set.series == nil {
		set.refusal = d.checkLabels()
		d.tags = append(d.tags, d.pairs...)
	}
	set.to = uint32(len(d.tags))
	if d.sets == nil {
		d.sets = make(map[string]uint32)
	}
	d.sets[string(d.key)] = n
	d.labels = append(d.labels, set)
	return n, nil
}

// beginAlias sets the alias key for a set of labels.
func (d *remoteDecoder) beginAlias(labels []wireTag) {
	d.alias = append(append(append(d.alias[:0], aliasRemote), d.in.stream.Name...), 0)
	for _, l := range labels {
		if len(d.alias) > maxAlias {
			return // it is not used
		}
		d.alias = append(binary.AppendUvarint(d.alias, uint64(len(l.name))), l.name...)
		d.alias = append(binary.AppendUvarint(d.alias, uint64(len(l.value))), l.value...)
	}
}

// checkLabels returns why series with the current labels are refused, or nil.
func (d *remoteDecoder) checkLabels() *telemetry.Refusal {
	if len(d.pairs) > telemetry.MaxTags {
		return telemetry.Refuse(telemetry.TagsTooMany, "series %s has more than %d labels", d.quoted(), telemetry.MaxTags)
	}
	seen := make(map[string]struct{}, len(d.pairs))
	for _, p := range d.pairs {
		if _, twice := seen[string(p.name)]; twice {
			return telemetry.Refuse(telemetry.TagDuplicate, "series %s has the label %s twice", d.quoted(), telemetry.Quote(p.name))
		}
		seen[string(p.name)] = struct{}{}
		name := p.name
		if len(name) <= telemetry.MaxNameBytes {
			name = []byte(telemetry.EscapeName(string(name)))
		}
		if r := cmp.Or(telemetry.CheckTagName(name), telemetry.CheckTagText(p.name, p.value)); r != nil {
			r.Message = "series " + d.quoted() + ": " + r.Message
			return r
		}
	}
	return nil
}

// give passes the readings to the builder, set by set.
func (d *remoteDecoder) give() error {
	// A stable counting sort by set.
	end := uint32(0)
	for i := range d.labels {
		end += d.labels[i].samples
		d.labels[i].samples = end - d.labels[i].samples // now the index of its first sample
	}
	d.order = slices.Grow(d.order[:0], len(d.samples))[:len(d.samples)]
	for _, s := range d.samples {
		set := &d.labels[d.metrics[s.metric].set]
		d.order[set.samples] = s
		set.samples++ // at the end, the index where the next set begins
	}
	from := uint32(0)
	for i := range d.labels {
		set := &d.labels[i]
		all := d.order[from:set.samples]
		from = set.samples
		if !slices.IsSortedFunc(all, bySampleTime) {
			slices.SortStableFunc(all, bySampleTime)
		}
		for len(all) > 0 {
			n := 1
			for n < len(all) && all[n].at == all[0].at && n < telemetry.MaxFields {
				n++
			}
			if err := d.reading(set, all[:n]); err != nil {
				return err
			}
			all = all[n:]
		}
	}
	return nil
}

func bySampleTime(a, b remoteSample) int { return cmp.Compare(a.at, b.at) }

// reading passes one reading to the builder.
func (d *remoteDecoder) reading(set *labelSet, samples []remoteSample) error {
	if err := d.in.begin(); err != nil {
		return err
	}
	b := d.in.builder
	known := set.series != nil
	if known {
		b.SameSeries(set.series)
	} else {
		d.sensor(d.tags[set.from:set.to])
	}
	b.Time(samples[0].at)
	for i := range samples {
		b.Float(d.metrics[samples[i].metric].name, samples[i].value)
	}
	refused := b.End()
	if refused != nil && refused.Code == telemetry.FieldDuplicate { // a metric has two values with the same time
		d.in.count--
		for i := range samples {
			if err := d.reading(set, samples[i:i+1]); err != nil {
				return err
			}
		}
		return nil
	}
	if d.ended(refused, len(samples)) && !known {
		set.series = b.LastSeries()
		if d.beginAlias(d.tags[set.from:set.to]); len(d.alias) <= maxAlias {
			d.in.server.known.SetAlias(d.alias, set.series)
		}
	}
	return nil
}

// sensor passes the sensor and the tags of a set of labels to the builder.
func (d *remoteDecoder) sensor(labels []wireTag) {
	d.plain = d.plain[:0]
	for _, l := range labels {
		d.plain = append(d.plain, telemetry.Tag{Name: telemetry.EscapeName(string(l.name)), Value: string(l.value)})
	}
	slices.SortFunc(d.plain, func(a, b telemetry.Tag) int { return strings.Compare(a.Name, b.Name) })
	b := d.in.builder
	b.Sensor(telemetry.AppendTagsKey(nil, d.plain))
	for _, t := range d.plain {
		b.Tag([]byte(t.Name), []byte(t.Value))
	}
}

// release returns the decoder to the pool, unless it has grown large.
func (d *remoteDecoder) release() {
	server := d.in.server
	const most = 1 << 14
	if max(cap(d.samples), cap(d.symbols), cap(d.metrics), cap(d.labels), cap(d.tags)) > most || cap(d.key) > maxAlias {
		return
	}
	// It must not refer to the body.
	clear(d.sets)
	clear(d.symbols)
	clear(d.labels)
	clear(d.tags)
	clear(d.metrics)
	clear(d.pairs[:cap(d.pairs)])
	clear(d.plain[:cap(d.plain)])
	d.in, d.name, d.paid = nil, nil, 0
	d.symbols, d.labels, d.tags, d.metrics, d.samples = d.symbols[:0], d.labels[:0], d.tags[:0], d.metrics[:0], d.samples[:0]
	server.remotes.put(d)
}
