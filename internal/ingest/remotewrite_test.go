package ingest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

const (
	typeRemoteV1 = "application/x-protobuf"
	typeRemoteV2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
)

// A remoteSeries is a series of a test, in either version.
type remoteSeries struct {
	labels     []string // names and values
	samples    []prompb.Sample
	histograms int
	exemplars  int
}

// at is the time of most samples.
var at = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC).UnixMilli()

// one returns a series with a sample.
func one(v float64, labels ...string) remoteSeries {
	return remoteSeries{labels: labels, samples: []prompb.Sample{{Value: v, Timestamp: at}}}
}

func encodeV1(all []remoteSeries) []byte {
	var req prompb.WriteRequest
	for _, s := range all {
		ts := prompb.TimeSeries{Samples: s.samples, Histograms: make([]prompb.Histogram, s.histograms), Exemplars: make([]prompb.Exemplar, s.exemplars)}
		for pair := range slices.Chunk(s.labels, 2) {
			ts.Labels = append(ts.Labels, prompb.Label{Name: pair[0], Value: pair[1]})
		}
		req.Timeseries = append(req.Timeseries, ts)
	}
	req.Metadata = []prompb.MetricMetadata{{MetricFamilyName: "up", Help: "1 if the target is up."}}
	body, _ := req.Marshal()
	return snappy.Encode(nil, body)
}

func encodeV2(all []remoteSeries) []byte {
	var req writev2.Request
	symbols := writev2.NewSymbolTable()
	for _, s := range all {
		ts := writev2.TimeSeries{Histograms: make([]writev2.Histogram, s.histograms), Exemplars: make([]writev2.Exemplar, s.exemplars), Metadata: writev2.Metadata{HelpRef: symbols.Symbolize("help")}}
		for _, word := range s.labels {
			ts.LabelsRefs = append(ts.LabelsRefs, symbols.Symbolize(word))
		}
		for _, one := range s.samples {
			ts.Samples = append(ts.Samples, writev2.Sample{Value: one.Value, Timestamp: one.Timestamp})
		}
		req.Timeseries = append(req.Timeseries, ts)
	}
	req.Symbols = symbols.Symbols()
	body, _ := req.Marshal()
	return snappy.Encode(nil, body)
}

// remoteVersions are the two versions, by the type of their bodies.
var remoteVersions = map[string]func([]remoteSeries) []byte{typeRemoteV1: encodeV1, typeRemoteV2: encodeV2}

func postRemote(t testing.TB, srv *Server, contentType string, body []byte, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	return post(t, srv, "/api/v1/write", contentType, string(body), append([]string{"Content-Encoding", "snappy"}, headers...)...)
}

// written returns the counts that an answer to version 2.0 has.
func written(w *httptest.ResponseRecorder) string {
	var words []string
	for _, what := range []string{"Samples", "Histograms", "Exemplars"} {
		words = append(words, w.Header().Get("X-Prometheus-Remote-Write-"+what+"-Written"))
	}
	return strings.Join(words, " ")
}

// texts returns readings as sensor, fields and tags.
func texts(all []telemetry.Reading) (out []string) {
	for _, r := range all {
		text := fmt.Sprintf("%s @%d", r.Sensor, r.Time.UnixMilli()-at)
		for _, f := range r.Fields {
			text += fmt.Sprintf(" %s=%v", f.Name, f.Value)
		}
		for _, tag := range r.Tags {
			text += fmt.Sprintf(" [%s=%s]", tag.Name, tag.Value)
		}
		out = append(out, text)
	}
	return out
}

// TestRemoteWriteMakesReadings has what a request becomes.
func TestRemoteWriteMakesReadings(t *testing.T) {
	t.Parallel()
	for contentType, encode := range remoteVersions {
		srv, j := newTestServer(t)
		body := encode([]remoteSeries{
			one(1, "__name__", "up", "instance", "a:9100", "job", "node"),
			one(2, "__name__", "node_load1", "instance", "a:9100", "job", "node"),
			{labels: []string{"__name__", "up", "instance", "b:9100", "job", "node"}, samples: []prompb.Sample{{Value: 1, Timestamp: at + 15}, {Value: 0, Timestamp: at}}},
			one(3, "job", "node", "__name__", "node_load5", "instance", "a:9100"),
			one(4, "__name__", "alone"),
			one(5, "__name__", "http.requests", "sensor", "s-1", "a.b", "x", "empty", ""),
			one(6, "__name__", "lines", "text", "two\nlines"),
			one(7, "__name__", "ts"),
		})
		for range 2 { // the second time the series are known
			w := postRemote(t, srv, contentType, body)
			require.Equal(t, http.StatusNoContent, w.Code, w.Body)
			if contentType == typeRemoteV2 {
				assert.Equal(t, "9 0 0", written(w))
			}
			lines := telemetry.AppendTagsKey(nil, []telemetry.Tag{{Name: "text", Value: "two\nlines"}})
			assert.Equal(t, []string{
				"instance=a:9100,job=node @0 up=1 node_load1=2 [instance=a:9100] [job=node]",
				"instance=b:9100,job=node @0 up=0 [instance=b:9100] [job=node]",
				"instance=b:9100,job=node @15 up=1 [instance=b:9100] [job=node]",
				"instance=a:9100,job=node @0 node_load5=3 [instance=a:9100] [job=node]",
				"{} @0 alone=4 %74s=7",
				"%73ensor=s-1,a%2Eb=x @0 http%2Erequests=5 [%73ensor=s-1] [a%2Eb=x]",
				string(lines) + " @0 lines=6 [text=two\nlines]",
			}, texts(j.readings()))
			assert.Regexp(t, `^\{[0-9a-f]{32}\}$`, string(lines))
			j.batches = nil
		}
	}
}

// TestRemoteWriteSplitsReadings has sets of labels with more metrics than a reading may have
// fields, and metrics with two values of one time.
func TestRemoteWriteSplitsReadings(t *testing.T) {
	t.Parallel()
	for contentType, encode := range remoteVersions {
		srv, j := newTestServer(t)
		var all []remoteSeries
		for i := range 2*telemetry.MaxFields + 1 {
			all = append(all, one(float64(i), "__name__", fmt.Sprintf("metric_%d", i), "job", "x"))
		}
		all = append(all, one(1, "__name__", "metric", "job", "y"), one(2, "__name__", "metric", "job", "y"), one(3, "__name__", "other", "job", "y"))
		w := postRemote(t, srv, contentType, encode(all))
		require.Equal(t, http.StatusNoContent, w.Code, w.Body)
		seen := make(map[string]int)
		sizes := []int{}
		for _, r := range j.readings() {
			sizes = append(sizes, len(r.Fields))
			for _, f := range r.Fields {
				seen[f.Name]++
			}
		}
		assert.Equal(t, []int{telemetry.MaxFields, telemetry.MaxFields, 1, 2, 1}, sizes)
		assert.Equal(t, 2, seen["metric"])
		assert.Len(t, seen, 2*telemetry.MaxFields+3)
		if contentType == typeRemoteV2 {
			assert.Equal(t, "516 0 0", written(w))
		}
	}
}

// TestRemoteWriteSkipsWhatIsNoNumber has samples that are not stored and no errors.
func TestRemoteWriteSkipsWhatIsNoNumber(t *testing.T) {
	t.Parallel()
	for contentType, encode := range remoteVersions {
		registry := prometheus.NewRegistry()
		srv, j := newTestServer(t, func(c *Config) { c.Registerer = registry })
		w := postRemote(t, srv, contentType, encode([]remoteSeries{
			one(math.Float64frombits(value.StaleNaN), "__name__", "up", "job", "a"),
			one(math.Inf(-1), "__name__", "least", "job", "a"), one(math.Inf(1), "__name__", "most", "job", "a"),
			one(math.NaN(), "__name__", "mean", "job", "a"), one(1, "__name__", "count", "job", "a"),
		}))
		assert.Equal(t, http.StatusNoContent, w.Code, w.Body)
		assert.Equal(t, []string{"job=a @0 count=1 [job=a]"}, texts(j.readings()))
		if contentType == typeRemoteV2 {
			assert.Equal(t, "5 0 0", written(w))
		}
		w = postRemote(t, srv, contentType, encode(nil))
		assert.Equal(t, http.StatusNoContent, w.Code, "metadata alone: %s", w.Body)
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP brim_ingest_samples_skipped_total Samples and exemplars of remote write, and OTLP data points, skipped without an error, by reason.
# TYPE brim_ingest_samples_skipped_total counter
brim_ingest_samples_skipped_total{reason="exemplar"} 0
brim_ingest_samples_skipped_total{reason="infinite"} 2
brim_ingest_samples_skipped_total{reason="nan"} 1
brim_ingest_samples_skipped_total{reason="no_value"} 0
brim_ingest_samples_skipped_total{reason="stale"} 1
`), "brim_ingest_samples_skipped_total"))
	}
}

// TestRemoteWriteRefusesSeries has series that break a rule beside one that does not.
func TestRemoteWriteRefusesSeries(t *testing.T) {
	t.Parallel()
	many := []string{"__name__", "many"}
	for i := range telemetry.MaxTags + 1 {
		many = append(many, fmt.Sprintf("label_%03d", i), "x")
	}
	old := one(1, "__name__", "old", "job", "a")
	old.samples[0].Timestamp = 1000
	for name, c := range map[string]struct {
		series remoteSeries
		code   telemetry.Code
		says   string
	}{
		"no name":          {one(1, "job", "a"), telemetry.FieldsMissing, `a series has no metric name (label __name__); its other labels: \"job\"=\"a\"`},
		"nothing":          {one(1), telemetry.FieldsMissing, "other labels: none"},
		"empty name":       {one(1, "__name__", ""), telemetry.FieldsMissing, "no metric name"},
		"two names":        {one(1, "__name__", "x", "__name__", "y"), telemetry.TagDuplicate, "__name__ twice"},
		"label twice":      {one(1, "__name__", "x", "job", "a", "job", "b"), telemetry.TagDuplicate, `series \"x\" has the label \"job\" twice`},
		"nameless label":   {one(1, "__name__", "x", "", "b"), telemetry.TagName, "empty name"},
		"long label":       {one(1, "__name__", "x", strings.Repeat("a", 129), "b"), telemetry.TagName, "129 bytes"},
		"long value":       {one(1, "__name__", "x", "a", strings.Repeat("b", 1025)), telemetry.TagValue, "1025 bytes"},
		"value not UTF-8":  {one(1, "__name__", "x", "a", "\xff"), telemetry.TagValue, "UTF-8"},
		"long name":        {one(1, "__name__", strings.Repeat("a", 129)), telemetry.FieldName, "129 bytes"},
		"name not UTF-8":   {one(1, "__name__", "caf\xe9"), telemetry.FieldName, "UTF-8"},
		"labels":           {one(1, many...), telemetry.TagsTooMany, "more than 256 labels"},
		"time":             {old, telemetry.TimeOutOfRange, "--min-time"},
		"native histogram": {remoteSeries{labels: []string{"__name__", "x"}, histograms: 2}, telemetry.NotSupported, "send_native_histograms: false"},
	} {
		for contentType, encode := range remoteVersions {
			registry := prometheus.NewRegistry()
			srv, j := newTestServer(t, func(c *Config) { c.Registerer = registry })
			w := postRemote(t, srv, contentType, encode([]remoteSeries{c.series, one(1, "__name__", "good", "job", "a")}))
			assert.Equal(t, http.StatusBadRequest, w.Code, name)
			assert.Contains(t, w.Body.String(), c.says, name)
			assert.Contains(t, w.Body.String(), `"code":"partial_write","message":"1 of `, name)
			assert.Equal(t, []string{"job=a @0 good=1 [job=a]"}, texts(j.readings()), name)
			if contentType == typeRemoteV2 {
				assert.Equal(t, "1 0 0", written(w), name)
			}
			assert.InDelta(t, 1, testutil.ToFloat64(srv.metrics.rejected.WithLabelValues(string(c.code))), 0, name)
			w = postRemote(t, srv, contentType, encode([]remoteSeries{c.series}))
			assert.Equal(t, http.StatusBadRequest, w.Code, name)
			assert.Contains(t, w.Body.String(), `"code":"nothing_taken"`, name)
		}
	}
}

// TestExemplarsAreNotStored: version 2.0 tells the sender, to version 1.0 they are no part of
// the answer.
func TestExemplarsAreNotStored(t *testing.T) {
	t.Parallel()
	series := one(1, "__name__", "up")
	series.exemplars = 3
	srv, j := newTestServer(t)
	w := postRemote(t, srv, typeRemoteV1, encodeV1([]remoteSeries{series}))
	assert.Equal(t, http.StatusNoContent, w.Code)
	assert.InDelta(t, 3, testutil.ToFloat64(srv.metrics.skipped.WithLabelValues(skipExemplar)), 0)
	w = postRemote(t, srv, typeRemoteV2, encodeV2([]remoteSeries{series}))
	assert.Equal(t, http.StatusBadRequest, w.Code)
	assert.Contains(t, w.Body.String(), "send_exemplars: false")
	assert.Equal(t, "1 0 0", written(w))
	assert.Len(t, j.readings(), 2)
}

// TestRemoteWriteNegotiates has what a request may be, and what it is refused for. A status
// of 4xx makes senders drop it.
func TestRemoteWriteNegotiates(t *testing.T) {
	t.Parallel()
	good := []remoteSeries{one(1, "__name__", "up")}
	v1, v2 := encodeV1(good), encodeV2(good)
	bomb := append([]byte{0x80, 0x80, 0x80, 0x10}, "x"...) // 32 MiB, it says
	badSymbol, _ := (&writev2.Request{Symbols: []string{"", "up"}, Timeseries: []writev2.TimeSeries{{LabelsRefs: []uint32{1, 9}, Samples: []writev2.Sample{{Timestamp: at}}}}}).Marshal()
	oddLabels, _ := (&writev2.Request{Symbols: []string{"", "up"}, Timeseries: []writev2.TimeSeries{{LabelsRefs: []uint32{1}, Samples: []writev2.Sample{{Timestamp: at}}}}}).Marshal()
	notEmpty, _ := (&writev2.Request{Symbols: []string{"up"}}).Marshal()
	for _, c := range []struct {
		contentType, encoding string
		body                  []byte
		status                int
		says                  string
	}{
		{typeRemoteV1, "snappy", v1, 204, ""},
		{"application/x-protobuf; proto=prometheus.WriteRequest", "", v1, 204, ""},
		{"application/x-protobuf; proto=\"io.prometheus.write.v2.Request\"", "Snappy", v2, 204, ""},
		{"application/x-protobuf;proto=other", "snappy", v1, 415, "type_unknown"},
		{"application/json", "snappy", v1, 415, "type_unknown"},
		{"", "snappy", v1, 415, "type_unknown"},
		{typeRemoteV1, "gzip", v1, 415, "encoding_unknown"},
		{typeRemoteV1, "snappy", v1[:len(v1)-3], 400, "not valid snappy"},
		{typeRemoteV1, "snappy", nil, 400, "not valid snappy"},
		{typeRemoteV1, "snappy", bomb, 400, "not valid snappy"},
		{typeRemoteV1, "snappy", snappy.Encode(nil, []byte("\x0a\x7f")), 400, "malformed"},
		{typeRemoteV1, "snappy", snappy.Encode(nil, make([]byte, 100<<10)), 413, "inflated_too_large"},
		{typeRemoteV2, "snappy", snappy.Encode(nil, badSymbol), 400, "a label refers to symbol 9; there are 2"},
		{typeRemoteV2, "snappy", snappy.Encode(nil, oddLabels), 400, "the last label has no value"},
		{typeRemoteV2, "snappy", snappy.Encode(nil, notEmpty), 400, "must be empty"},
	} {
		srv, _ := newTestServer(t, func(c *Config) { c.MaxInflatedBytes, c.MaxBodyBytes = 64<<10, 64<<10 })
		w := post(t, srv, "/api/v1/write", c.contentType, string(c.body), "Content-Encoding", c.encoding)
		assert.Equal(t, c.status, w.Code, "%+v: %s", c, w.Body)
		assert.Contains(t, w.Body.String(), c.says)
	}
	srv, j := newTestServer(t, func(c *Config) { c.MaxReadings = 1 })
	w := postRemote(t, srv, typeRemoteV1, encodeV1(append(good, one(1, "__name__", "up", "job", "x"))))
	assert.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
	w = post(t, srv, "/api/v1/write", typeRemoteV1, string(snappy.Encode(nil, []byte("\x0a\xca\x01"+strings.Repeat("\x12\x00", 101)))), "Content-Encoding", "snappy")
	assert.Contains(t, w.Body.String(), "the request contains more than 100 samples (100 times --max-readings-per-request)")
	assert.Empty(t, j.readings())
	w = postRemote(t, srv, typeRemoteV1, v1, "Brim-Stream", "mem")
	assert.Equal(t, http.StatusNoContent, w.Code, w.Body)
	assert.Equal(t, "mem", j.batches[0].SeriesAt(0).Stream)
	w = postRemote(t, srv, typeRemoteV1, v1, "Brim-Stream", "nope")
	assert.Equal(t, http.StatusNotFound, w.Code)
	j.err = telemetry.Errorf(telemetry.Unavailable, "journal_full", "full")
	w = postRemote(t, srv, typeRemoteV2, v2)
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.NotEmpty(t, w.Header().Get("Retry-After"))
	assert.Equal(t, http.StatusServiceUnavailable, protoRemote.status(tooSlow), "what came slowly may be repeated")
}

// TestLargeRequestsAreCountedFirst has requests whose last series has too many samples: those of the
// first one are not decoded either.
func TestLargeRequestsAreCountedFirst(t *testing.T) {
	t.Parallel()
	const field = protowire.BytesType
	srv, _ := newTestServer(t)
	many := bytes.Repeat([]byte("\x12\x00"), largeRequest/2) // samples
	for version, series := range map[int]protowire.Number{1: 1, 2: 5} {
		in := new(intake)
		in.open(srv, srv.order[0], telemetry.Journaled)
		in.build()
		defer in.close()
		in.most, in.remote.version = 1, version
		d := &remoteDecoder{gatherer: gatherer{in: in}}
		body := protowire.AppendBytes(protowire.AppendTag(nil, series, field), []byte("\x12\x00"))
		body = protowire.AppendBytes(protowire.AppendTag(body, series, field), many)
		require.ErrorContains(t, d.message(body), "the request contains more than 100 samples")
		assert.Zero(t, in.remote.all)
		assert.Zero(t, in.count)
	}
}

// TestLateRefusalsAreNotWritten has a reading of two samples that the database refused.
func TestLateRefusalsAreNotWritten(t *testing.T) {
	t.Parallel()
	srv, j := newTestServer(t)
	j.refused = []batch.Refused{{Index: 0, Refusal: telemetry.Refusal{Code: telemetry.StoreRefused, Message: "no"}}}
	w := postRemote(t, srv, typeRemoteV2, encodeV2([]remoteSeries{one(1, "__name__", "a_metric", "job", "x"), one(1, "__name__", "b_metric", "job", "x"), one(1, "__name__", "c_metric")}))
	assert.Equal(t, http.StatusBadRequest, w.Code)
	assert.Equal(t, "1 0 0", written(w))
}

// TestRemoteWriteHasKeys has a repeated request.
func TestRemoteWriteHasKeys(t *testing.T) {
	t.Parallel()
	srv, j := newTestServer(t)
	body := encodeV2([]remoteSeries{one(1, "__name__", "up"), one(math.NaN(), "__name__", "mean"), one(1, "job", "x")})
	for range 2 {
		w := postRemote(t, srv, typeRemoteV2, body, "Idempotency-Key", "k")
		assert.Equal(t, "2 0 0", written(w))
		assert.Equal(t, http.StatusBadRequest, w.Code)
	}
	assert.Len(t, j.readings(), 1)
	assert.InDelta(t, 1, testutil.ToFloat64(srv.metrics.skipped.WithLabelValues(skipNaN)), 0)
}

// FuzzRemoteWrite compares the decoder with the structs of prompb.
func FuzzRemoteWrite(f *testing.F) {
	for _, all := range [][]remoteSeries{
		nil,
		{one(1, "__name__", "up", "job", "a"), one(2, "__name__", "x.y", "job", "a", "sensor", "s")},
		{one(math.NaN(), "__name__", "up"), one(1, "job", "a"), {labels: []string{"__name__", "h"}, histograms: 1, exemplars: 1}},
		{{labels: []string{"__name__", "up", "a", "\n"}, samples: []prompb.Sample{{Timestamp: at + 1}, {Timestamp: at}, {Timestamp: at}}}},
	} {
		for version, encode := range []func([]remoteSeries) []byte{encodeV1, encodeV2} {
			body, _ := snappy.Decode(nil, encode(all))
			f.Add(body, version == 1)
		}
	}
	srv, _ := newTestServer(f)
	f.Fuzz(func(t *testing.T, body []byte, second bool) {
		want, valid, exact := remoteOracle(body, second)
		var in intake
		in.open(srv, srv.streams[srv.config.DefaultStream], telemetry.Journaled)
		in.build()
		version := 1
		if second {
			version = 2
		}
		if err := in.decodeRemoteWrite(body, version); err != nil {
			in.close()
			if exact {
				t.Fatalf("refused: %v", err)
			}
			return
		}
		samples := 0
		for _, n := range in.remote.samples {
			samples += int(n)
		}
		b := checkIntake(t, &in)
		in.builder = nil
		got := make(map[string]float64)
		for i := range b.Len() {
			r := b.Reading(uint32(i))
			if string(telemetry.AppendTagsKey(nil, r.Tags)) != r.Sensor {
				t.Fatalf("sensor %q of tags %v", r.Sensor, r.Tags)
			}
			samples -= len(r.Fields)
			for _, field := range r.Fields {
				got[fmt.Sprintf("%s%v@%d", field.Name, r.Tags, r.Time.UnixMilli())] = field.Value.Float()
			}
		}
		if samples != 0 || in.remote.written() > in.remote.all {
			t.Fatalf("%d samples too many, %d of %d written", samples, in.remote.written(), in.remote.all)
		}
		if valid && !maps.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

// remoteOracle returns the samples that are to be taken of a body, the last of each time,
// whether prompb can decode it, and whether it is what prompb would encode: prompb also
// decodes some bodies that are not protobuf.
func remoteOracle(body []byte, second bool) (out map[string]float64, valid, exact bool) {
	out = make(map[string]float64)
	take := func(labels []string, v float64, at int64) {
		name, tags, names := "", []telemetry.Tag{}, make(map[string]bool)
		ok := at >= time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() && at <= arrivalTime.Add(10*time.Minute).UnixMilli() && !math.IsNaN(v) && !math.IsInf(v, 0)
		for pair := range slices.Chunk(labels, 2) {
			if pair[0] == "__name__" {
				ok = ok && name == "" && !names[pair[0]]
				name = telemetry.EscapeName(pair[1])
				names[pair[0]] = true
				continue
			}
			if pair[1] == "" {
				continue
			}
			ok = ok && !names[pair[0]]
			names[pair[0]] = true
			tag := telemetry.Tag{Name: telemetry.EscapeName(pair[0]), Value: pair[1]}
			ok = ok && telemetry.CheckTagName([]byte(tag.Name)) == nil && telemetry.CheckTagText(nil, []byte(tag.Value)) == nil
			tags = append(tags, tag)
		}
		slices.SortFunc(tags, func(a, b telemetry.Tag) int { return strings.Compare(a.Name, b.Name) })
		if ok && telemetry.CheckFieldName([]byte(name)) == nil && len(tags) <= telemetry.MaxTags {
			if len(tags) == 0 {
				tags = nil
			}
			out[fmt.Sprintf("%s%v@%d", name, tags, at)] = v
		}
	}
	if !second {
		var req prompb.WriteRequest
		if req.Unmarshal(body) != nil {
			return nil, false, false
		}
		again, err := req.Marshal()
		exact = err == nil && bytes.Equal(again, body) && req.XXX_unrecognized == nil
		for _, ts := range req.Timeseries {
			var labels []string
			for _, l := range ts.Labels {
				labels = append(labels, l.Name, l.Value)
				exact = exact && l.XXX_unrecognized == nil
			}
			for _, s := range ts.Samples {
				take(labels, s.Value, s.Timestamp)
				exact = exact && s.XXX_unrecognized == nil
			}
			exact = exact && ts.XXX_unrecognized == nil
		}
		return out, true, exact
	}
	var req writev2.Request
	if req.Unmarshal(body) != nil || len(req.Symbols) > 0 && req.Symbols[0] != "" {
		return nil, false, false
	}
	again, err := req.Marshal()
	exact = err == nil && bytes.Equal(again, body) && req.XXX_unrecognized == nil
	for _, ts := range req.Timeseries {
		var labels []string
		ok := len(ts.LabelsRefs)%2 == 0
		for _, ref := range ts.LabelsRefs {
			if ok = ok && int(ref) < len(req.Symbols); ok {
				labels = append(labels, req.Symbols[ref])
			}
		}
		for _, s := range ts.Samples {
			if ok {
				take(labels, s.Value, s.Timestamp)
			}
			exact = exact && s.XXX_unrecognized == nil
		}
		exact = exact && ts.XXX_unrecognized == nil
	}
	return out, true, exact
}

// BenchmarkRemoteWrite decodes 2,000 samples of 40 machines, ten of which have the same
// labels each.
func BenchmarkRemoteWrite(b *testing.B) {
	var all []remoteSeries
	for i := range 2000 {
		all = append(all, one(float64(i), "__name__", fmt.Sprintf("node_metric_%d_total", i%50), "cpu", fmt.Sprint(i/10%5), "instance", fmt.Sprintf("host-%d:9100", i/50), "job", "node"))
	}
	srv, err := New(testConfig(), droppingJournal{})
	require.NoError(b, err)
	for name, contentType := range map[string]string{"1.0": typeRemoteV1, "2.0": typeRemoteV2} {
		body := remoteVersions[contentType](all)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if w := postRemote(b, srv, contentType, body); w.Code != http.StatusNoContent {
					b.Fatal(w.Body)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(all)), "ns/sample")
		})
	}
}

// TestRemoteWriteKeepsToItsMemory has messages that take far more memory than bytes.
func TestRemoteWriteKeepsToItsMemory(t *testing.T) {
	t.Parallel()
	srv, j := newTestServer(t, func(c *Config) { c.MaxBodyBytes, c.MaxBytes, c.MaxReadings = 1<<20, LeastBudget(1<<20), 100_000 })
	series := func(content []byte) []byte {
		return append(binary.AppendUvarint([]byte{5<<3 | 2}, uint64(len(content))), content...)
	}
	name := []byte{1<<3 | 2, 2, 1, 2} // the labels are symbols 1 and 2
	start := []byte("\x22\x00\x22\x08__name__\x22\x02up")
	for what, message := range map[string][]byte{
		"samples": append(slices.Clone(start), series(append(slices.Clone(name), bytes.Repeat([]byte{2<<3 | 2, 0}, 3<<20)...))...),
		"symbols": append(bytes.Repeat([]byte{4<<3 | 2, 0}, 4<<20), start...),
	} {
		w := postRemote(t, srv, typeRemoteV2, snappy.Encode(nil, message))
		assert.Equal(t, http.StatusRequestEntityTooLarge, w.Code, "%s: %s", what, w.Body)
		assert.Contains(t, w.Body.String(), "memory_too_large", what)
		assert.Zero(t, srv.budget.held(), what)
	}
	assert.Empty(t, j.readings())
}
