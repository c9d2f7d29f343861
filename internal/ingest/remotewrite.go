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
	gatherer

	symbols [][]byte          // of version 2.0
	known   map[string]uint32 // numbers of sets by key

	// Of the current series.
	pairs      []wireTag // labels other than the metric name
	key        []byte    // of its set: the encoded pairs
	name       []byte
	names      int // how many labels have the metric name
	histograms int
	exemplars  int
	invalid    string // what is wrong with the encoding; empty: nothing

	alias []byte
	paid  int64 // memory at the last check, in bytes
}

// decodeRemoteWrite decodes a request. Series that break a rule are refused; a malformed
// message is refused as a whole.
func (in *intake) decodeRemoteWrite(body []byte, version int) error {
	in.meaning = meaning{form: meansRemoteWrite, ratio: int64(version)}
	in.remote.version = version
	d := in.server.remotes.get()
	d.in = in
	d.ended = func(samples []metricSample, refused *telemetry.Refusal) {
		n := len(samples)
		if refused != nil {
			n = 0
		}
		in.remote.samples = append(in.remote.samples, uint32(n))
	}
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
	if len(body) > largeRequest {
		if err := d.checkCount(body, number); err != nil {
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

// largeRequest is the length above which the samples of a request are counted first.
const largeRequest = 1 << 20

// checkCount returns an error if a request contains too many samples, before they take memory.
func (d *remoteDecoder) checkCount(body []byte, number protowire.Number) error {
	n := 0
	m := wireMessage{rest: body}
	for turn := len(body); m.next(); {
		if !m.is(number, protowire.BytesType) {
			continue
		}
		for series := (wireMessage{rest: m.bytes}); series.next(); {
			if series.is(2, protowire.BytesType) {
				n++
			}
		}
		if err := d.limit(n); err != nil {
			return err
		}
		if turn-len(m.rest) > turnBytes {
			turn = len(m.rest)
			runtime.Gosched()
		}
	}
	return m.err
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
	need := d.memory() + 24*int64(len(d.symbols))
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
	d.in.end()
	d.ended(nil, r)
	return nil
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
	if refusal := d.sets[set].refusal; refusal != nil {
		return d.refuse(refusal)
	}
	number := d.addMetric(metric{name: d.name, kind: telemetry.Float, set: set})
	m := wireMessage{rest: message}
	for m.next() {
		if !m.is(2, protowire.BytesType) {
			continue
		}
		var at int64
		var word uint64
		fields := wireMessage{rest: m.bytes}
		for fields.next() {
			switch {
			case fields.is(1, protowire.Fixed64Type):
				word = fields.word
			case fields.is(2, protowire.VarintType):
				at = int64(fields.word)
			}
		}
		if fields.err != nil {
			return fields.err
		}
		if word&infinite == infinite {
			d.in.remote.skip(skipOf(word), 1)
			continue
		}
		if d.add(number, at, word); len(d.samples)%1024 == 0 {
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
func skipOf(word uint64) string {
	switch {
	case word == value.StaleNaN:
		return skipStale
	case math.IsNaN(math.Float64frombits(word)):
		return skipNaN
	}
	return skipInfinite
}

// aliasRemote is the first byte of alias keys made from labels: the name and value of each,
// preceded by their lengths.
const aliasRemote = 'w'

// setOf returns the number of the current series' set of labels.
func (d *remoteDecoder) setOf() (uint32, error) {
	if n, ok := d.known[string(d.key)]; ok {
		return n, nil
	}
	if len(d.sets) >= d.in.server.config.MaxReadings {
		return 0, d.in.tooMany() // each set has at least one reading, unless all its values are skipped
	}
	d.alias = append(append(append(d.alias[:0], aliasRemote), d.in.stream.Name...), 0)
	for _, l := range d.pairs {
		d.alias = append(binary.AppendUvarint(d.alias, uint64(len(l.name))), l.name...)
		d.alias = append(binary.AppendUvarint(d.alias, uint64(len(l.value))), l.value...)
		if len(d.alias) > maxAlias {
			d.alias = d.alias[:0]
			break
		}
	}
	var set tagSet
	if len(d.alias) > 0 {
		set.series = d.in.server.known.Alias(d.alias)
	}
	if set.series == nil {
		if set.tags, set.refusal = d.tags(); set.refusal == nil {
			set.alias = slices.Clone(d.alias)
		}
	}
	if d.known == nil {
		d.known = make(map[string]uint32)
	}
	n := d.addSet(set)
	d.known[string(d.key)] = n
	return n, nil
}

// tags returns the current labels as tags, or why series with them are refused.
func (d *remoteDecoder) tags() ([]telemetry.Tag, *telemetry.Refusal) {
	if len(d.pairs) > telemetry.MaxTags {
		return nil, telemetry.Refuse(telemetry.TagsTooMany, "series %s has more than %d labels", d.quoted(), telemetry.MaxTags)
	}
	tags := make([]telemetry.Tag, 0, len(d.pairs))
	for _, p := range d.pairs {
		name := string(p.name)
		if len(name) <= telemetry.MaxNameBytes {
			name = telemetry.EscapeName(name)
		}
		if r := cmp.Or(telemetry.CheckTagName([]byte(name)), telemetry.CheckTagText(p.name, p.value)); r != nil {
			r.Message = "series " + d.quoted() + ": " + r.Message
			return nil, r
		}
		tags = append(tags, telemetry.Tag{Name: name, Value: string(p.value)})
	}
	slices.SortFunc(tags, byTagName)
	for i := 1; i < len(tags); i++ {
		if tags[i].Name == tags[i-1].Name {
			return nil, telemetry.Refuse(telemetry.TagDuplicate, "series %s has the label %s twice", d.quoted(), telemetry.Quote([]byte(telemetry.UnescapeName(tags[i].Name))))
		}
	}
	return tags, nil
}

// release returns the decoder to the pool, unless it has grown large.
func (d *remoteDecoder) release() {
	server := d.in.server
	const most = 1 << 14
	if max(cap(d.samples), cap(d.symbols), cap(d.metrics), cap(d.sets)) > most || cap(d.key) > maxAlias {
		return
	}
	// It must not refer to the body.
	clear(d.known)
	clear(d.symbols)
	clear(d.sets)
	clear(d.metrics)
	clear(d.pairs[:cap(d.pairs)])
	d.in, d.ended, d.name, d.paid, d.text = nil, nil, nil, 0, 0
	d.symbols, d.sets, d.metrics, d.samples = d.symbols[:0], d.sets[:0], d.metrics[:0], d.samples[:0]
	server.remotes.put(d)
}
