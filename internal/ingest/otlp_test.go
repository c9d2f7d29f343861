package ingest

import (
	"bytes"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/internal/batch"
	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// otlpTime is of all points of these tests, in nanoseconds.
var otlpTime = uint64(arrivalTime.Add(-time.Second).UnixNano())

func attr(key, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
}

// otlpExport is an export of one resource with these metrics.
func otlpExport(all ...*metricspb.Metric) *collectorpb.ExportMetricsServiceRequest {
	return &collectorpb.ExportMetricsServiceRequest{ResourceMetrics: []*metricspb.ResourceMetrics{{
		Resource:     &resourcepb.Resource{Attributes: []*commonpb.KeyValue{attr("service.name", "shop")}},
		ScopeMetrics: []*metricspb.ScopeMetrics{{Metrics: all}},
	}}}
}

func gauge(name string, points ...*metricspb.NumberDataPoint) *metricspb.Metric {
	return &metricspb.Metric{Name: name, Data: &metricspb.Metric_Gauge{Gauge: &metricspb.Gauge{DataPoints: points}}}
}

func sum(name string, t metricspb.AggregationTemporality, points ...*metricspb.NumberDataPoint) *metricspb.Metric {
	return &metricspb.Metric{Name: name, Data: &metricspb.Metric_Sum{Sum: &metricspb.Sum{DataPoints: points, AggregationTemporality: t, IsMonotonic: true}}}
}

func double(v float64, attributes ...*commonpb.KeyValue) *metricspb.NumberDataPoint {
	return &metricspb.NumberDataPoint{TimeUnixNano: otlpTime, Value: &metricspb.NumberDataPoint_AsDouble{AsDouble: v}, Attributes: attributes}
}

func whole(v int64, attributes ...*commonpb.KeyValue) *metricspb.NumberDataPoint {
	return &metricspb.NumberDataPoint{TimeUnixNano: otlpTime, Value: &metricspb.NumberDataPoint_AsInt{AsInt: v}, Attributes: attributes}
}

func histogram(name string, t metricspb.AggregationTemporality, points ...*metricspb.HistogramDataPoint) *metricspb.Metric {
	return &metricspb.Metric{Name: name, Data: &metricspb.Metric_Histogram{Histogram: &metricspb.Histogram{DataPoints: points, AggregationTemporality: t}}}
}

func exponential(name string, points ...*metricspb.ExponentialHistogramDataPoint) *metricspb.Metric {
	return &metricspb.Metric{Name: name, Data: &metricspb.Metric_ExponentialHistogram{ExponentialHistogram: &metricspb.ExponentialHistogram{DataPoints: points, AggregationTemporality: metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE}}}
}

const (
	deltaSums      = metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_DELTA
	cumulativeSums = metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE
)

// exportHTTP sends an export, in protobuf unless the header says otherwise, and returns the
// status and the answer.
func exportHTTP(t *testing.T, d *Server, export proto.Message, header ...string) (int, *collectorpb.ExportMetricsServiceResponse) {
	t.Helper()
	body, err := proto.Marshal(export)
	require.NoError(t, err)
	w := postMetrics(d, body, append([]string{"Content-Type", mediaProtobuf}, header...)...)
	require.Equal(t, mediaProtobuf, w.Header().Get("Content-Type"))
	response := new(collectorpb.ExportMetricsServiceResponse)
	if w.Code == http.StatusOK {
		require.NoError(t, proto.Unmarshal(w.Body.Bytes(), response))
	}
	return w.Code, response
}

func postMetrics(d *Server, body []byte, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/v1/metrics", bytes.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	d.Handler().ServeHTTP(w, r)
	return w
}

// linesOf writes readings as text: sensor, and fields.
func linesOf(readings []telemetry.Reading) []string {
	var all []string
	for _, r := range readings {
		fields := make([]string, 0, len(r.Fields))
		for _, f := range r.Fields {
			v := strconv.FormatInt(f.Value.Int(), 10)
			if f.Value.Kind() == telemetry.Float {
				v = strconv.FormatFloat(f.Value.Float(), 'f', -1, 64)
			}
			fields = append(fields, f.Name+"="+v)
		}
		all = append(all, r.Sensor+" "+strings.Join(fields, ","))
	}
	return all
}

func TestOTLPMapping(t *testing.T) {
	t.Parallel()
	get, post := attr("http.method", "GET"), attr("http.method", "POST")
	for _, c := range []struct {
		name    string
		metrics []*metricspb.Metric
		want    []string
	}{
		{
			"metrics of one attribute set are a reading",
			[]*metricspb.Metric{
				gauge("queue.length", whole(math.MaxInt64, get), whole(2, post)), gauge("load", double(0.5, get), double(1.5, post)),
				sum("requests", cumulativeSums, double(7, get)),
			},
			[]string{
				"http_method=GET,service_name=shop queue_length=9223372036854775807,load=0.5,requests=7",
				"http_method=POST,service_name=shop queue_length=2,load=1.5",
			},
		},
		{
			"deltas are readings of their own",
			[]*metricspb.Metric{gauge("load", double(0.5)), sum("requests", deltaSums, whole(7))},
			[]string{"service_name=shop load=0.5", "_temporality=delta,service_name=shop requests=7"},
		},
		{
			"buckets are cumulative",
			[]*metricspb.Metric{histogram("latency.s", cumulativeSums, &metricspb.HistogramDataPoint{
				TimeUnixNano: otlpTime, Count: 6, Sum: proto.Float64(9.5), Min: proto.Float64(0.1), Max: proto.Float64(4),
				BucketCounts: []uint64{1, 0, 5}, ExplicitBounds: []float64{0.5, 2},
			})},
			[]string{
				"service_name=shop latency_s_count=6,latency_s_sum=9.5,latency_s_min=0.1,latency_s_max=4",
				"le=0.5,service_name=shop latency_s_bucket=1", "le=2,service_name=shop latency_s_bucket=1", "le=+Inf,service_name=shop latency_s_bucket=6",
			},
		},
		{
			"exponential buckets are merged", // of scale 2 to 1: two by two
			[]*metricspb.Metric{exponential("size", &metricspb.ExponentialHistogramDataPoint{
				TimeUnixNano: otlpTime, Count: 11, Scale: 2, ZeroCount: 2,
				Positive: &metricspb.ExponentialHistogramDataPoint_Buckets{Offset: -1, BucketCounts: []uint64{0, 1, 2, 3, 0, 0}},
				Negative: &metricspb.ExponentialHistogramDataPoint_Buckets{Offset: 4, BucketCounts: []uint64{3}},
			})},
			[]string{
				"service_name=shop size_count=11",
				"le=-2.8284271247461903,service_name=shop size_bucket=0", "le=-2,service_name=shop size_bucket=3", "le=0,service_name=shop size_bucket=5",
				"le=1,service_name=shop size_bucket=5", "le=1.4142135623730951,service_name=shop size_bucket=8", "le=2,service_name=shop size_bucket=11",
				"le=+Inf,service_name=shop size_bucket=11",
			},
		},
		{
			"quantiles",
			[]*metricspb.Metric{{Name: "gc", Data: &metricspb.Metric_Summary{Summary: &metricspb.Summary{DataPoints: []*metricspb.SummaryDataPoint{{
				TimeUnixNano: otlpTime, Count: 3, Sum: 1.5, QuantileValues: []*metricspb.SummaryDataPoint_ValueAtQuantile{{Quantile: 0.5, Value: 0.25}, {Quantile: 1, Value: 1}},
			}}}}}},
			[]string{"service_name=shop gc_count=3,gc_sum=1.5", "quantile=0.5,service_name=shop gc=0.25", "quantile=1,service_name=shop gc=1"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d, j := newTestServer(t)
			for range 2 { // the series are known the second time
				j.batches = nil
				status, response := exportHTTP(t, d, otlpExport(c.metrics...))
				assert.Equal(t, http.StatusOK, status)
				assert.Nil(t, response.GetPartialSuccess(), response)
				assert.Equal(t, c.want, linesOf(j.readings()))
				assert.EqualValues(t, otlpTime/1e6, j.readings()[0].Time.UnixMilli())
			}
			text, err := protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(otlpExport(c.metrics...))
			require.NoError(t, err)
			j.batches = nil
			w := postMetrics(d, text, "Content-Type", "application/json; charset=utf-8")
			assert.Equal(t, "{}", w.Body.String())
			assert.Equal(t, c.want, linesOf(j.readings()), "in JSON")
		})
	}
}

func TestOTLPAttributesAreTags(t *testing.T) {
	t.Parallel()
	text := func(s string) *commonpb.AnyValue {
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: s}}
	}
	export := otlpExport(gauge("m", double(1, attr("a.b", "x\"y"), attr("sensor", "s"), attr("service.name", "override"),
		&commonpb.KeyValue{Key: "bool", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: true}}},
		&commonpb.KeyValue{Key: "int", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: -7}}},
		&commonpb.KeyValue{Key: "double", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: 0.5}}},
		&commonpb.KeyValue{Key: "inf", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: math.Inf(-1)}}},
		&commonpb.KeyValue{Key: "bytes", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_BytesValue{BytesValue: []byte{0, 255}}}},
		&commonpb.KeyValue{Key: "list", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: &commonpb.ArrayValue{Values: []*commonpb.AnyValue{text("x\"y"), {}}}}}},
		&commonpb.KeyValue{Key: "map", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_KvlistValue{KvlistValue: &commonpb.KeyValueList{Values: []*commonpb.KeyValue{attr("k", "v"), {Key: "n", Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: 0.5}}}}}}}},
		&commonpb.KeyValue{Key: "none"},
	)))
	export.ResourceMetrics[0].ScopeMetrics[0].Scope = &commonpb.InstrumentationScope{Name: "lib", Version: "1", Attributes: []*commonpb.KeyValue{attr("x", "y")}}
	d, j := newTestServer(t)
	_, response := exportHTTP(t, d, export)
	require.Nil(t, response.GetPartialSuccess())
	got := make(map[string]string)
	for _, tag := range j.readings()[0].Tags {
		got[tag.Name] = tag.Value
	}
	assert.Equal(t, map[string]string{
		"a_b": `x"y`, "%73ensor": "s", "service_name": "override", "bool": "true", "int": "-7", "double": "0.5", "inf": "-Infinity", "bytes": "AP8=",
		"list": `["x\"y",null]`, "map": `{"k":"v","n":0.5}`, "none": "", "otel_scope_name": "lib", "otel_scope_x": "y",
	}, got)
	assert.Equal(t, string(telemetry.AppendTagsKey(nil, j.readings()[0].Tags)), j.readings()[0].Sensor)
}

// Points of one time that a reading has room for only once become several readings.
func TestOTLPManyOfOneTime(t *testing.T) {
	t.Parallel()
	var all []*metricspb.Metric
	for i := range telemetry.MaxFields + 1 {
		all = append(all, gauge("m"+strconv.Itoa(i), double(1)))
	}
	again := double(2)
	again.TimeUnixNano++
	all = append(all, gauge("m256", again))
	d, j := newTestServer(t)
	_, response := exportHTTP(t, d, otlpExport(all...))
	require.Nil(t, response.GetPartialSuccess())
	var fields []int
	for _, r := range j.readings() {
		fields = append(fields, len(r.Fields))
	}
	assert.Equal(t, []int{telemetry.MaxFields, 1, 1}, fields)
}

func TestOTLPPartialSuccess(t *testing.T) {
	t.Parallel()
	late := double(1, attr("k", "late"))
	late.TimeUnixNano = 1
	missing := &metricspb.NumberDataPoint{TimeUnixNano: otlpTime, Flags: 1}
	export := otlpExport(
		gauge("inf", double(math.Inf(1)), double(2)), gauge("late", late), gauge("missing", missing, double(math.NaN())),
		gauge(strings.Repeat("x", 200), double(3)),
		histogram("broken", cumulativeSums, &metricspb.HistogramDataPoint{TimeUnixNano: otlpTime, BucketCounts: []uint64{1, 2}}),
		exponential("wide", &metricspb.ExponentialHistogramDataPoint{TimeUnixNano: otlpTime, Positive: &metricspb.ExponentialHistogramDataPoint_Buckets{BucketCounts: append(append([]uint64{1}, make([]uint64, 400)...), 1)}}),
		gauge("long", double(1, attr("k", strings.Repeat("v", 1025)))),
	)
	d, j := newTestServer(t)
	status, response := exportHTTP(t, d, export)
	assert.Equal(t, http.StatusOK, status)
	assert.EqualValues(t, 6, response.GetPartialSuccess().GetRejectedDataPoints())
	assert.Equal(t, `6 of 9 data points were refused; the first: metric "inf": value_not_finite: field "inf" is +Inf; numbers must be finite`, response.GetPartialSuccess().GetErrorMessage())
	assert.Equal(t, []string{"service_name=shop inf=2"}, linesOf(j.readings()))
	for reason, n := range map[telemetry.Code]float64{telemetry.ValueNotFinite: 1, telemetry.TimeOutOfRange: 1, telemetry.FieldName: 1, telemetry.Malformed: 1, telemetry.FieldsTooMany: 1, telemetry.TagValue: 1} {
		assert.InDelta(t, n, testutil.ToFloat64(d.metrics.rejected.WithLabelValues(string(reason))), 0, reason)
	}
	assert.InDelta(t, 2, testutil.ToFloat64(d.metrics.skipped.WithLabelValues(skipNoValue)), 0)

	// Nothing that could be taken is a success too, or senders would try again for ever.
	status, response = exportHTTP(t, d, otlpExport(gauge("late", late)))
	assert.Equal(t, http.StatusOK, status)
	assert.EqualValues(t, 1, response.GetPartialSuccess().GetRejectedDataPoints())
	status, response = exportHTTP(t, d, otlpExport(gauge("missing", missing)))
	assert.Equal(t, http.StatusOK, status)
	assert.Nil(t, response.GetPartialSuccess())
	j.refused = []batch.Refused{{Index: 0, Refusal: *telemetry.Refuse(telemetry.StoreRefused, "no")}}
	_, response = exportHTTP(t, d, otlpExport(gauge("m", double(1))))
	assert.Equal(t, "1 of 1 data points were refused; the first: store_refused: no", response.GetPartialSuccess().GetErrorMessage())
}

func TestOTLPRefusesWhole(t *testing.T) { //nolint:tparallel // its cases are counted afterwards
	t.Parallel()
	d, j := newTestServer(t, func(c *Config) { c.MaxReadings, c.MaxBodyBytes = 2, 1<<10 })
	good, err := proto.Marshal(otlpExport(gauge("m", double(1))))
	require.NoError(t, err)
	many, err := proto.Marshal(otlpExport(gauge("m", double(1, attr("k", "1")), double(1, attr("k", "2")), double(1, attr("k", "3")))))
	require.NoError(t, err)
	for _, c := range []struct {
		name    string
		body    []byte
		header  []string
		http    int
		grpc    codes.Code
		message string
	}{
		{"not protobuf", []byte("\x0a\xff"), nil, 400, codes.InvalidArgument, "malformed: the message is not protobuf"},
		{"a broken attribute", []byte("\x0a\x19\x12\x17\x12\x15\x0a\x01m\x2a\x10\x0a\x0e\x21\x00\x00\x00\x00\x00\x00\x00\x00\x3a\x03\x0a\x05x"), nil, 400, codes.InvalidArgument, "malformed: the message is not protobuf"},
		{"many points", many, nil, 413, codes.ResourceExhausted, "readings_too_many: the request contains more than 2 data points"},
		{"a large one", bytes.Repeat([]byte("\x12\x00"), 600), nil, 413, codes.ResourceExhausted, "body_too_large"},
		{"an unknown stream", good, []string{"Brim-Stream", "x"}, 404, codes.NotFound, `stream_unknown: there is no stream "x"`},
		{"an unknown ack", good, []string{"Brim-Ack", "x"}, 400, codes.InvalidArgument, "ack_unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := postMetrics(d, c.body, append([]string{"Content-Type", mediaProtobuf}, c.header...)...)
			assert.Equal(t, c.http, w.Code)
			s := new(rpcstatus.Status)
			require.NoError(t, proto.Unmarshal(w.Body.Bytes(), s))
			assert.EqualValues(t, c.grpc, s.GetCode())
			assert.Contains(t, s.GetMessage(), c.message)

			ctx := metadata.AppendToOutgoingContext(t.Context(), c.header...)
			var response collectorpb.ExportMetricsServiceResponse
			err := connectGRPC(t, d).Invoke(ctx, exportPath, rawMessage(c.body), &response, grpc.ForceCodec(rawCodec{}))
			assert.Equal(t, c.grpc, status.Code(err), err)
			assert.Contains(t, status.Convert(err).Message(), c.message)
		})
	}
	assert.Empty(t, j.readings())
	assert.EqualValues(t, 2, testutil.ToFloat64(d.metrics.requests.WithLabelValues("otlp_http", "413")))
	assert.EqualValues(t, 2, testutil.ToFloat64(d.metrics.requests.WithLabelValues("otlp_grpc", "ResourceExhausted")))

	w := postMetrics(d, good, "Content-Type", "text/plain")
	assert.Equal(t, http.StatusUnsupportedMediaType, w.Code)
	assert.JSONEq(t, `{"code":12, "message":"type_unknown: Content-Type \"text/plain\" cannot be read; allowed: application/x-protobuf and application/json"}`, w.Body.String())
	for body, want := range map[string]string{
		`{"resourceMetrics":[`: "unexpected end", `[]`: "it must be an object",
		`{"sensorId":"s","fields":{"t":1}}`:                                 `the body has "fields" and no resourceMetrics, so it is not an OTLP export of metrics; readings in Brim's own format go to POST /v1/readings`,
		`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":5}]}]}]}`: `ReadString: expects " or n, but found 5, error found in #10 byte of ...|[{"name":5}]`,
		`{} {}`: "there is data after the object",
		`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"sum":{"aggregationTemporality":"DELTA"}}]}]}]}`: `ReadEnumValue: unknown string value`,
	} {
		w := postMetrics(d, []byte(body), "Content-Type", mediaJSON)
		assert.Equal(t, http.StatusBadRequest, w.Code)
		assert.Equal(t, []string{mediaJSON}, w.Header()["Content-Type"])
		var s rpcstatus.Status
		require.NoError(t, protojson.Unmarshal(w.Body.Bytes(), &s))
		assert.Contains(t, s.GetMessage(), want)
	}

	j.err = telemetry.Errorf(telemetry.Unavailable, "full", "the journal is full")
	w = postMetrics(d, good, "Content-Type", mediaProtobuf)
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Equal(t, "1", w.Header().Get("Retry-After"))
	_, err = collectorpb.NewMetricsServiceClient(connectGRPC(t, d)).Export(t.Context(), otlpExport(gauge("m", double(1))))
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.True(t, slices.ContainsFunc(status.Convert(err).Details(), func(d any) bool { _, ok := d.(*errdetails.RetryInfo); return ok }))
}

// rawMessage is sent as it is.
type rawMessage []byte

type rawCodec struct{}

func (rawCodec) Name() string                    { return "proto" }
func (rawCodec) Marshal(v any) ([]byte, error)   { return v.(rawMessage), nil }                   //nolint:forcetypeassert // see above
func (rawCodec) Unmarshal(b []byte, v any) error { return proto.Unmarshal(b, v.(proto.Message)) } //nolint:forcetypeassert // likewise

func TestOTLPAccess(t *testing.T) {
	t.Parallel()
	d, j, g := guardedServer(t)
	export := otlpExport(gauge("m", double(1)))
	for who, want := range map[string]int{"reader": http.StatusForbidden, "none": http.StatusUnauthorized, "all": http.StatusOK} {
		status, _ := exportHTTP(t, d, export, "Authorization", g.bearer(who))
		assert.Equal(t, want, status, who)
	}
	assert.Len(t, j.readings(), 1)
	_, response := exportHTTP(t, d, export, "Authorization", g.bearer("north"))
	assert.Contains(t, response.GetPartialSuccess().GetErrorMessage(), "sensor_forbidden: north may not send for sensor")
	_, err := collectorpb.NewMetricsServiceClient(connectGRPC(t, d)).Export(metadata.AppendToOutgoingContext(t.Context(), "authorization", g.bearer("reader")), export)
	assert.Equal(t, codes.PermissionDenied, status.Code(err), err)
	var refused int
	for range 3 {
		if status, _ := exportHTTP(t, d, export, "Authorization", g.bearer("few")); status == http.StatusTooManyRequests {
			refused++
		}
	}
	assert.Positive(t, refused, "the quota is one reading a second")
}

func TestOTLPIdempotencyKey(t *testing.T) {
	t.Parallel()
	d, j := newTestServer(t)
	for range 2 {
		status, response := exportHTTP(t, d, otlpExport(gauge("m", double(1), double(math.Inf(1)))), "Idempotency-Key", "k")
		assert.Equal(t, http.StatusOK, status)
		assert.EqualValues(t, 1, response.GetPartialSuccess().GetRejectedDataPoints())
	}
	assert.Len(t, j.readings(), 1)
}
